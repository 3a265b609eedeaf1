"""Looking again when something happened: --watch and --wait.

Both ask once, and then again after every event that the server tells of; a slow timer only covers
what no event speaks of (a measured load, say). Events that come together cause one look.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from roost.base.errors import Unavailable
from roost.cli.show.screen import Output, console, show, show_document, show_line
from roost.cli.words.session import Session, document

if TYPE_CHECKING:
    from msgspec import Struct

    from roost.client import AsyncClient

T = TypeVar("T", bound="Struct")
Fetch = Callable[["AsyncClient"], Awaitable[T]]

#: Looks that no event caused come this far apart; events that come this close cause one look.
_UNPROMPTED_S, _SETTLE_S = 30.0, 0.15


def look(
    session: Session, fetch: Fetch[T], draw: Callable[[T], RenderableType], watch: bool
) -> None:
    """Show an answer once, or again and again until interrupted."""
    if watch:
        try:
            asyncio.run(_watch(session, fetch, draw))
        except KeyboardInterrupt:
            return  # how watching ends
    else:
        body = fetched(session, fetch)
        session.show(body, draw(body))


def fetched(session: Session, fetch: Fetch[T]) -> T:
    """Return an answer that is fetched once.

    It is not the task's result: asyncio puts Ctrl-C back by `signal.signal`, which writes the
    task that handled it, result and all, into a message that nobody reads.
    """
    answers: list[T] = []

    async def ask() -> None:
        answers.append(await once(session, fetch))

    asyncio.run(ask())
    return answers[0]


async def once(session: Session, fetch: Fetch[T]) -> T:
    """Fetch an answer once."""
    async with session.async_client() as client:
        return await fetch(client)


async def _watch(session: Session, fetch: Fetch[T], draw: Callable[[T], RenderableType]) -> None:
    target = console()
    live = Live(console=target, auto_refresh=False) if _redraws(session) else None

    def seen(body: T) -> bool:
        if live is not None:
            when = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
            note = Text(f"as of {when}; redrawn when something happens, Ctrl-C ends", style="dim")
            live.update(Group(*session.arranged([draw(body)]), note), refresh=True)
        elif session.form is Output.TABLE:
            show(*session.arranged([draw(body)]), "")
        elif session.form is Output.YAML:
            show_document(document(body), session.form)
        else:
            show_line(document(body))
        return False

    async with session.async_client() as client:
        with live if live is not None else nullcontext():
            await follow(client, fetch, seen)


def _redraws(session: Session) -> bool:
    return session.form is Output.TABLE and console().is_terminal


async def follow(
    client: "AsyncClient",
    fetch: Fetch[T],
    seen: Callable[[T], bool],
    *,
    timeout_s: float | None = None,
) -> T:
    """Fetch at once and after every change until `seen` says that it was the last look.

    A server that goes away meanwhile is waited for. Raises TimeoutError after `timeout_s`.
    """
    changed = asyncio.Event()
    since = await newest_sequence(client)

    async def listen() -> None:
        async with aclosing(client.events(since, patience_s=None)) as events:
            async for _ in events:
                changed.set()

    async with asyncio.timeout(timeout_s):
        listener = asyncio.create_task(listen())
        try:
            body = await fetch(client)
            while not seen(body):
                await _next_change(changed, listener)
                body = await _fetch_patiently(client, fetch)
            return body
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)


async def _next_change(changed: asyncio.Event, listener: "asyncio.Task[None]") -> None:
    waiting = asyncio.create_task(changed.wait())
    try:
        await asyncio.wait(
            {waiting, listener}, timeout=_UNPROMPTED_S, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        waiting.cancel()
    if listener.done():
        listener.result()  # the stream ended for good: say why
    await asyncio.sleep(_SETTLE_S)
    changed.clear()


async def _fetch_patiently(client: "AsyncClient", fetch: Fetch[T]) -> T:
    while True:
        try:
            return await fetch(client)
        except Unavailable:
            await asyncio.sleep(1.0)


async def newest_sequence(client: "AsyncClient") -> int:
    """Return the sequence of the newest event."""
    return (await client.list_events(last=1)).next
