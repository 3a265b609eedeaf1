"""A move as it happens: how far it is, and how it ended.

The end is told by an event, which also says why a VM stayed; between events the VM is looked at
for the numbers.

    begun -> progress ... -> vm.moved            it is on the target
                          -> vm.move_abandoned   it stays; the note says why
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from roost.base.errors import Conflict, NotFound, Unavailable
from roost.cli.show import listings
from roost.cli.show.screen import console, note

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from roost.client import AsyncClient
    from roost.wire.bodies import EventBody, MigrationBody, VMBody

#: Without an event the VM is looked at this often, and this long is the last word waited for.
_LOOK_S, _LAST_WORD_S = 1.0, 5.0


class Ended(NamedTuple):
    """How a move ended; `note` is what its last event said."""

    moved: bool
    note: str
    downtime_ms: int | None = None


class MoveScreen(AbstractContextManager["MoveScreen"]):
    """Shows how far a move is: a bar on a terminal, otherwise a line for every change."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said = ""
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        target = console(stderr=True)
        if target.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn

            said = TextColumn("{task.description}", markup=False)
            self._bar = Progress(BarColumn(bar_width=20), said, console=target, transient=True)
            self._task = self._bar.add_task(f"{self._name} moves", total=None)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, move: "MigrationBody") -> None:
        """Show what is known of the move now."""
        line = f"{self._name}: {listings.move(move)}"
        if line == self._said:
            return
        self._said = line
        if self._bar is None or self._task is None:
            note(line)
            return
        sent = move.progress.sent_bytes if move.progress else 0
        left = move.progress.left_bytes if move.progress else 0
        self._bar.update(self._task, description=line, completed=sent, total=sent + left or None)


async def watch_move(
    client: "AsyncClient",
    vm: "VMBody",
    since: int,
    screen: MoveScreen,
    *,
    begins: bool,
    timeout_s: float,
) -> Ended:
    """Return how the move of a VM ended, as told after the event `since`.

    `begins`: the move itself began after that, so an end before its beginning is another's.
    """
    assert vm.migration is not None
    move = vm.migration
    screen.show(move)
    try:
        async with asyncio.timeout(timeout_s), _hearing(client, vm, since) as heard:
            begun = not begins
            while True:
                for event in await heard.next(_LOOK_S):
                    begun = begun or event.kind == "vm.move_begun"
                    ended = _end(event, vm) if begun else None
                    if ended is not None:
                        return _with_downtime(ended, move)
                body = await _look(client, vm)
                if body is not None and body.migration is None:
                    ended = await _last_word(heard, body, move)
                    return _with_downtime(ended, move)
                if body is not None and body.migration is not None:
                    move = body.migration
                    screen.show(move)
    except TimeoutError:
        raise Unavailable(
            f"VM {vm.name!r} still moves after {timeout_s:g} s",
            hint=f"Maybe call it off with `roost vm migrate {vm.name} --cancel`.",
            vm=vm.name,
        ) from None


def _with_downtime(ended: Ended, move: "MigrationBody") -> Ended:
    told = None if move.progress is None else move.progress.downtime_ms
    return ended._replace(downtime_ms=told)


def _end(event: "EventBody", vm: "VMBody") -> Ended | None:
    if event.kind == "vm.moved":
        return Ended(True, event.note)
    if event.kind == "vm.move_abandoned":
        return Ended(False, event.note)
    if event.kind in ("vm.delete_asked", "vm.deleted"):
        raise Conflict(f"VM {vm.name!r} was deleted meanwhile", vm=vm.name)
    return None


async def _look(client: "AsyncClient", vm: "VMBody") -> "VMBody | None":
    """Return the VM; None while the server cannot tell."""
    try:
        return await client.get_vm(vm.id)
    except NotFound:
        raise Conflict(f"VM {vm.name!r} was deleted meanwhile", vm=vm.name) from None
    except Unavailable:
        return None


async def _last_word(heard: "_Heard", body: "VMBody", move: "MigrationBody") -> Ended:
    """Return how a move ended that is over: by its event if that comes, else by the VM's host."""
    for _ in range(int(_LAST_WORD_S / _LOOK_S)):
        for event in await heard.next(_LOOK_S):
            if (ended := _end(event, body)) is not None:
                return ended
    return Ended(body.host == move.target, "no reason was told")


class _Heard:
    """The events of one VM that were not looked at yet."""

    def __init__(self) -> None:
        self.events: list[EventBody] = []
        self.changed = asyncio.Event()
        self.listener: asyncio.Task[None] | None = None

    async def next(self, within_s: float) -> "list[EventBody]":
        """Return what was heard since the last time, after at most so long."""
        assert self.listener is not None
        waiting = asyncio.create_task(self.changed.wait())
        try:
            await asyncio.wait(
                {waiting, self.listener}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()
        if self.listener.done():
            self.listener.result()  # the stream ended for good: say why
        self.changed.clear()
        events, self.events = self.events, []
        return events


@asynccontextmanager
async def _hearing(client: "AsyncClient", vm: "VMBody", since: int) -> AsyncIterator[_Heard]:
    heard = _Heard()

    async def listen() -> None:
        async with aclosing(client.events(since, patience_s=None)) as events:
            async for event in events:
                if event.subject == f"vm/{vm.id}":
                    heard.events.append(event)
                    heard.changed.set()

    heard.listener = asyncio.create_task(listen())
    try:
        yield heard
    finally:
        heard.listener.cancel()
        await asyncio.gather(heard.listener, return_exceptions=True)
