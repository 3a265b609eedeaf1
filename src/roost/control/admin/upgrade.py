"""Finish an upgrade: end what is done for processes of the release before, in bounded pieces.

Each piece is a transaction of its own, so work goes on meanwhile; what was broken off is finished
by asking again. The rules themselves are in `ledger/upgrade/older.py`.
"""

from collections.abc import Sequence

from roost.ledger.store import Store
from roost.ledger.upgrade.older import (
    clean_events,
    empty_asked,
    end_compatibility,
    is_unfinished,
    may_run_beside,
    store_missing,
)
from roost.parts.part import Part
from roost.parts.roles import ADMIN
from roost.parts.routes import Route
from roost.parts.sealedrows import finish_sealing
from roost.parts.sealing import Seal
from roost.wire.bodies import UpgradeBody


class Upgrade(Part):
    """Serves the last step of an upgrade."""

    def __init__(self, store: Store, seal: Seal) -> None:
        self._store, self._seal = store, seal

    # fmt: off
    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return (
            Route(method="POST", path="/api/v1/ledger:finish-upgrade", noun="ledger",
                  verb="finish_upgrade",
                  call=lambda call: finish_upgrade(self._store, self._seal, call.who.name),
                  roles=ADMIN,
                  summary="End what is done for processes of the release before",
                  reply=UpgradeBody),
        )
    # fmt: on


async def finish_upgrade(store: Store, seal: Seal, actor: str) -> UpgradeBody:
    """Stop writing for older processes, remove what was written for them, and seal the rest."""
    done = UpgradeBody()
    if store.shared:
        await _end_bodies(store, actor, done)
    done.sealed = await finish_sealing(store, seal, actor)
    return done


async def _end_bodies(store: Store, actor: str, done: UpgradeBody) -> None:
    """Store missing specs, stop writing bodies, and remove those that were written."""
    if await store.read(may_run_beside):
        while stored := await store.write(store_missing, actor):
            done.specs_stored += stored
    if await store.read(is_unfinished):
        await store.write(end_compatibility, actor)
    while emptied := await store.write(empty_asked, actor):
        done.bodies_emptied += emptied
    since: int | None = 0
    while since is not None:
        begin = since
        cleaned, since = await store.write(lambda tx: clean_events(tx, begin), actor)  # noqa: B023
        done.events_cleaned += cleaned
