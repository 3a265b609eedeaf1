"""`roost vm console`: what a guest wrote to its serial console, and what it writes from now on.

The log is kept by the host. A VM that moves begins another one there, so following goes on from
the start of that.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import Conflict, NotFound, Unavailable
from roost.cli.show.screen import Output, note, show_document, show_line, show_raw
from roost.cli.words.nouns import ProjectOption, VMArgument
from roost.cli.words.session import Session, asks_server, document

if TYPE_CHECKING:
    from roost.client import AsyncClient
    from roost.wire.bodies import ConsoleBody

_POLL_S = 0.5
#: Most bytes of one answer.
_PIECE_BYTES = 2**20


@asks_server
def console(
    session: Session,
    vm: VMArgument,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what comes, until interrupted.")
    ] = False,
    size: Annotated[
        int,
        typer.Option(
            "--bytes", min=1, max=_PIECE_BYTES, metavar="N", help="Begin so far before the end."
        ),
    ] = 65536,
    project: ProjectOption = None,
) -> None:
    """Show what a VM wrote to its serial console."""
    import asyncio

    try:
        asyncio.run(_console(session, vm, project, size, follow))
    except KeyboardInterrupt:
        if follow:
            return  # how following ends
        raise


async def _console(session: Session, vm: str, project: str | None, size: int, follow: bool) -> None:
    async with session.async_client() as client:
        part = await client.read_console(vm, limit=size, project=project)
        _show(session, part, follow)
        if follow:
            await _follow(session, client, vm, project, part)


async def _follow(
    session: Session, client: "AsyncClient", vm: str, project: str | None, part: "ConsoleBody"
) -> None:
    import asyncio

    end, host = part.end, part.host
    silent = False
    while True:
        try:
            part = await client.read_console(vm, start=end, limit=_PIECE_BYTES, project=project)
        except NotFound:
            note(f"{vm} is gone")
            return
        except (Conflict, Unavailable) as error:
            # Between two hosts, or its agent is away: it may come back.
            if not silent:
                note(f"{error.message}; waiting")
            silent = True
            await asyncio.sleep(_POLL_S)
            continue
        silent = False
        if end and (part.host != host or part.end < end):
            if part.host != host:
                note(f"{vm} is on {part.host} now")
            host = part.host
            if not end <= part.base <= part.end:
                end = 0  # another log than the one that `end` counts in
                continue
        end, host = part.end, part.host
        if part.text:
            _show(session, part, follow=True)
        if part.end - part.start < _PIECE_BYTES:
            await asyncio.sleep(_POLL_S)


def _show(session: Session, part: "ConsoleBody", follow: bool) -> None:
    if session.form is Output.TABLE:
        show_raw(part.text, whole=not follow)
    elif not follow or session.form is Output.YAML:
        show_document(document(part), session.form)
    else:
        show_line(document(part))
