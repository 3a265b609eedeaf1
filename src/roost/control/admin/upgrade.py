"""Finish an upgrade: end what is done for processes of the release before, in bounded pieces.

Each piece is a transaction of its own, so work goes on meanwhile; what was broken off is finished
by asking again. The rules themselves are in `ledger/older.py`.
"""

from collections.abc import Sequence

from roost.ledger.older import (
    clean_events,
    empty_asked,
    end_compatibility,
    may_run_beside,
    store_missing,
)
from roost.ledger.store import Store
from roost.parts.part import Part
from roost.parts.roles import ADMIN
from roost.parts.routes import Route
from roost.wire.bodies import UpgradeBody


class Upgrade(Part):
    """Serves the last step of an upgrade."""

    def __init__(self, store: Store) -> None:
        self._store = store

    # fmt: off
    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return (
            Route(method="POST", path="/api/v1/ledger:finish-upgrade", noun="ledger",
                  verb="finish_upgrade",
                  call=lambda call: finish_upgrade(self._store, call.who.name), roles=ADMIN,
                  summary="End what is done for processes of the release before",
                  reply=UpgradeBody),
        )
    # fmt: on


async def finish_upgrade(store: Store, actor: str) -> UpgradeBody:
    """Store missing specs, stop writing for older processes, and remove what was written."""
    done = UpgradeBody()
    if not store.shared:
        return done  # its migration has done all of it
    if await store.read(may_run_beside):
        while stored := await store.write(store_missing, actor):
            done.specs_stored += stored
        await store.write(end_compatibility, actor)
    while emptied := await store.write(empty_asked, actor):
        done.bodies_emptied += emptied
    since: int | None = 0
    while since is not None:
        begin = since
        cleaned, since = await store.write(lambda tx: clean_events(tx, begin), actor)  # noqa: B023
        done.events_cleaned += cleaned
    return done
