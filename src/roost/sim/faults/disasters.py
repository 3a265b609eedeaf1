"""What befalls the database as a whole: a copy is made, an old one is put back, the power fails.

A copy is restored as documented: every plane is stopped first, and started afterwards. What was
done since the copy is forgotten by the ledger, and by nobody else.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sqlalchemy import Connection, func, select, text

from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import events as events_table
from roost.sim.laws.checking import Broken

if TYPE_CHECKING:
    from roost.sim.world import World


class Disasters:
    """The actions on the whole database, as a part of `Actor`."""

    _world: "World"
    _later: Callable[[float, Callable[[], object]], None]

    def _backup_database(self, _: str) -> None:
        database = self._world.database
        database.copy_to(database.path.with_suffix(".copy"))

    def _restore_database(self, _: str, for_: float) -> None:
        world = self._world
        copy = world.database.path.with_suffix(".copy")
        if not copy.exists():
            return
        world.note("fault.restore_database", "", "during:rest")
        for plane in world.planes.values():
            plane.kill()
        world.database.put_back(copy)
        world.ask(world.laws.restored)
        self._start_planes(for_)

    def clear_away(self) -> None:
        """Destroy by hand what hosts hold and the restored ledger has never heard of."""
        for host in self._world.hosts.values():
            for vm_id in sorted(host.vms.vms):
                if self._world.laws.clear_away(host.name, vm_id):
                    host.vms.drop(vm_id)

    def _power_loss(self, _: str, commits: int, for_: float) -> None:
        database = self._world.database
        database.power_fails_at = commits

        def back(events: list[Event]) -> None:
            self._power_is_back(events)
            self._start_planes(for_)

        database.power_lost = back

    def _power_is_back(self, events: list[Event]) -> None:
        """Check after a power cut that promised commits are there, the last one whole or not."""
        world = self._world
        head, whole = world.ask(_state)
        known = world.laws.head

        def law() -> None:
            if whole != "ok":
                raise Broken(f"the database is damaged after a power loss: {whole}")
            if head not in (known, known + len(events)):
                raise Broken(
                    f"the ledger has {head} events after a power loss; {known} were promised and "
                    f"{len(events)} under way"
                )

        world.check(law)
        if events and head == known + len(events):
            world.database.told(None, events)

    def _start_planes(self, after: float) -> None:
        for plane in self._world.planes.values():
            self._later(after, plane.start)


def _state(connection: Connection) -> tuple[int, str]:
    head = connection.execute(select(func.coalesce(func.max(events_table.c.seq), 0))).scalar_one()
    return int(head), str(connection.execute(text("PRAGMA integrity_check")).scalar_one())
