"""The port between control and a database; `sqlite` and `postgres` implement it.

    read    a question, on a consistent view
    write   a change (see writes/transaction.py), alone or together with others in one commit
    claim   many creates at once (see claims/proposals.py)

Committed events go to `listener` in the order of their sequence as far as this process committed
them; `doorbell` is rung when another process did. After an ambiguous commit the store reads the
truth again before it answers; when it cannot, it says `InDoubt`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from roost.base.errors import Unavailable
from roost.ledger.claims.proposals import Outcome, Proposal
from roost.ledger.schema.rows import Event
from roost.ledger.writes.transaction import Tx

T = TypeVar("T")

Listener = Callable[[list[Event]], None]


class DatabaseUnavailable(Unavailable):
    """The database did not take the change; nothing of it is kept."""

    code = "unavailable"


class DatabaseContended(DatabaseUnavailable):
    """Others wrote the same rows each time it was tried; nothing of the change is kept."""


class InDoubt(DatabaseUnavailable):
    """The database went away during a commit and cannot be asked yet what became of it."""


class Store(Protocol):
    """A ledger as control uses it, whichever database it is in."""

    listener: Listener
    doorbell: Callable[[], None]
    shared: bool  # other processes may write to it

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Run a read transaction on one consistent view."""

    async def write(self, change: Callable[[Tx], T], actor: str = "roost") -> T:
        """Run a write transaction and return what the function returned."""

    async def claim(
        self,
        proposals: Sequence[Proposal],
        actors: Sequence[str],
        snapshot: int,
        *,
        atomic: bool = False,
    ) -> list[Outcome]:
        """Commit a batch of creates and return the verdict on each; `atomic` keeps all or none."""

    async def close(self) -> None:
        """Finish open transactions and close the database."""
