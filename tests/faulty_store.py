"""A store in trouble: a real one whose calls can be made to fail, or to wait.

It stands between a control plane and its database, where real trouble comes from: a disk that is
full, a server that is gone, an answer that takes long. What it lets through, the real store does.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from roost.ledger.claims.proposals import Outcome, Proposal
from roost.ledger.store import Listener, Store
from roost.ledger.writes.transaction import Tx

T = TypeVar("T")


class FaultyStore:
    """Implements `Store`. Lets everything through until the test says otherwise."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.failure: Exception | None = None  # raised instead of asking the database
        self.reads = 0  # questions that were let through
        self._open = asyncio.Event()
        self._open.set()
        self._waits = asyncio.Event()

    # Trouble

    def hold(self) -> None:
        """Let every call wait from now on."""
        self._waits.clear()
        self._open.clear()

    def let_go(self) -> None:
        """Let those go on that wait, and all after them."""
        self._open.set()

    async def waits(self) -> None:
        """Wait until a call is held back."""
        await self._waits.wait()

    async def _pass(self) -> None:
        if not self._open.is_set():
            self._waits.set()
            await self._open.wait()
        if self.failure is not None:
            raise self.failure

    # The store

    @property
    def listener(self) -> Listener:
        """Return who is told of events."""
        return self._store.listener

    @listener.setter
    def listener(self, listener: Listener) -> None:
        """Tell another one of events."""
        self._store.listener = listener

    @property
    def doorbell(self) -> Callable[[], None]:
        """Return what is rung when another process has committed."""
        return self._store.doorbell

    @doorbell.setter
    def doorbell(self, doorbell: Callable[[], None]) -> None:
        """Ring another one."""
        self._store.doorbell = doorbell

    @property
    def shared(self) -> bool:
        """Return whether other processes may write to it."""
        return self._store.shared

    @shared.setter
    def shared(self, shared: bool) -> None:
        """Say whether other processes may write to it."""
        self._store.shared = shared

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Ask; nothing changes."""
        await self._pass()
        self.reads += 1
        return await self._store.read(question)

    async def write(self, change: Callable[[Tx], T], actor: str = "roost") -> T:
        """Make one change."""
        await self._pass()
        return await self._store.write(change, actor)

    async def claim(
        self,
        proposals: Sequence[Proposal],
        actors: Sequence[str],
        snapshot: int,
        *,
        atomic: bool = False,
    ) -> list[Outcome]:
        """Commit a batch of creates."""
        await self._pass()
        return await self._store.claim(proposals, actors, snapshot, atomic=atomic)

    async def close(self) -> None:
        """Close the database, whatever its trouble."""
        await self._store.close()
