"""`roost` as an operator types it, against the plane of a rig that is served."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from click.testing import Result
from typer.testing import CliRunner

from roost.cli.main import app
from roost.wire.bodies import CreateToken
from tests.integration.control.rig import ADMIN, Rig
from tests.integration.control.test_group_api import served

Type = Callable[..., Awaitable[Result]]


@asynccontextmanager
async def typing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Type]:
    """Serve a rig; gives a function that runs a command as an administrator."""
    async with served(rig) as clients:
        monkeypatch.setenv("ROOST_SERVER", (await clients("viewer")).server)
        asked = CreateToken(name="typist", role="admin")
        made = await rig.plane.access.create_token(asked, ADMIN)
        monkeypatch.setenv("ROOST_TOKEN", made.secret or "")

        async def type_(*words: str, rc: int | None = 0, said: str | None = None) -> Result:
            found = await asyncio.to_thread(CliRunner().invoke, app, list(words), input=said)
            assert rc in (None, found.exit_code), (words, found.output, found.exception)
            return found

        yield type_
