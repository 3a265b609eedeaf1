"""Long questions of one kind take turns: each copies the whole fleet and keeps a thread busy.

Who waits does so behind a bounded number of others: a question that is held for a turn keeps its
connection and what was asked, however many ask.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from roost.base.errors import SearchBusy

T = TypeVar("T")

#: How many wait for their turn in one process; the next is refused.
MOST_WAITING = 32


class OneAtATime:
    """Gives turns in the order in which they are asked for, and refuses those who come too late."""

    def __init__(self, questions: str) -> None:
        self._questions = questions  # as they are called in a refusal
        self._turn = asyncio.Lock()
        self._waiting = 0

    @property
    def busy(self) -> bool:
        """Say whether somebody has a turn now."""
        return self._turn.locked()

    @asynccontextmanager
    async def turn(self, *, refusable: bool = True) -> AsyncIterator[None]:
        """Wait until nobody else has a turn; raises SearchBusy when too many wait already.

        What the process asks itself is not refusable: it asks once, and begins nothing else.
        """
        if refusable and self._turn.locked() and self._waiting >= MOST_WAITING:
            raise SearchBusy(
                f"{self._waiting} {self._questions} wait already for their turn; nothing was kept",
                waiting=self._waiting,
                hint="Maybe try again later.",
            )
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turn.release()


async def to_the_end(work: Callable[[], T], give_up: Callable[[], object]) -> T:
    """Run a thread's work; who is cancelled tells it to give up, and waits until it has.

    So a turn ends when the work has: a thread cannot be cancelled, and one more for everybody who
    asks and hangs up would keep every processor busy.
    """
    under_way = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        give_up()
        while not under_way.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((under_way,))
        if not under_way.cancelled():
            under_way.exception()  # nobody asks for it any more
        raise
