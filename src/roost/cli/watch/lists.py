"""Commands that list things: in which order, with or without headers, once or again and again.

`lists` is `asks_server` with --sort, --no-headers and --watch, those of them that the command does
not have itself. Tables are put in order as they are shown, so a list needs to know nothing of it.
"""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from roost.cli.show.columns import Listing
from roost.cli.show.screen import Output, console
from roost.cli.words.nouns import HeadersOption, SortOption, WatchOption
from roost.cli.words.options import with_parameters
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.client import AsyncClient

_ADDED: tuple[tuple[str, Any, object], ...] = (
    ("sort", SortOption, ""),
    ("no_headers", HeadersOption, False),
    ("watch", WatchOption, False),
)


def lists(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that lists things the options of lists, and those that name a server."""
    own = inspect.signature(command, eval_str=True).parameters
    added = [
        inspect.Parameter(
            name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=option
        )
        for name, option, default in _ADDED
        if name not in own
    ]
    names = {each.name for each in added}

    @functools.wraps(command)
    def listed(session: Session, **values: Any) -> None:
        given = {name: values.pop(name) for name in names}
        session.listing = Listing(
            session.wide, given.get("sort", ""), not given.get("no_headers", False)
        )
        if given.get("watch"):
            _again(session, lambda: command(session=session, **values))
        else:
            command(session=session, **values)

    return asks_server(with_parameters(listed, command, last=added, without=""))


def _again(session: Session, run: Callable[[], None]) -> None:
    """Run a command at once and whenever something happens, until interrupted."""
    import asyncio

    from roost.cli.watch.following import follow

    redraws = session.form is Output.TABLE and not session.names and console().is_terminal

    async def look(client: "AsyncClient") -> Any:
        if redraws:
            console().clear()
        await asyncio.to_thread(run)

    async def watch() -> None:
        async with session.async_client() as client:
            await follow(client, look, lambda _: False)

    try:
        asyncio.run(watch())
    except KeyboardInterrupt:
        return  # how watching ends
