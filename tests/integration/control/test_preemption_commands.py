"""`roost priority preemptions` as an operator types it, against a control plane that is served."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from roost.cli.main import app
from roost.cli.steering import preempting
from roost.wire.bodies import CreateToken
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run
from tests.integration.control.test_group_api import served
from tests.integration.control.test_preemption import classes


def test_preemptions_of_all_pages_are_listed(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        for n in range(3):
            only = {"hosts": [f"h{n}"]}
            await rig.host(f"h{n}")
            await rig.running(f"old{n}", cpu=4, priority_class="low", restart="elsewhere",
                              constraints=only)  # fmt: skip
            await rig.create(f"new{n}", cpu=4, priority_class="high", on_no_fit="queue",
                             constraints=only)  # fmt: skip
            await rig.plane.asking.begin(f"new{n}", None, OPERATOR)
        monkeypatch.setattr(preempting, "_PAGE", 2)
        async with served(rig) as clients:
            monkeypatch.setenv("ROOST_SERVER", (await clients("viewer")).server)
            asked_for = CreateToken(name="root", role="admin")
            made = await rig.plane.access.create_token(asked_for, ADMIN)
            monkeypatch.setenv("ROOST_TOKEN", made.secret or "")
            for more in ([], ["-o", "json"]):
                words = ["priority", "preemptions", *more]
                said = await asyncio.to_thread(CliRunner().invoke, app, words)
                assert said.exit_code == 0, said.output
                assert all(f"new{n}" in said.output for n in range(3)), said.output
            assert json.loads(said.output).get("next") is None

    run(sqlite_url, test)
