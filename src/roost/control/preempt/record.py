"""What is kept of a preemption: its victims, as JSON in its row, and the body that users see."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from roost.base.timestamps import timestamp
from roost.control.memory.roster import Roster
from roost.ledger.schema.rows import PreemptionRow, VMRow
from roost.ledger.writes.transaction import row_json
from roost.wire.bodies import PreemptionBody, VictimBody

How = Literal["move", "stop"]
#: Where a preemption stands: VMs move away; VMs are stopped; they are gone, as far as they must.
MOVING, STOPPING, HOLDING = "moving", "stopping", "holding"


class VictimRecord(msgspec.Struct):
    """A VM that makes room, and how."""

    vm: str
    how: How
    tries: int = 0  # moves that were begun


_decode = msgspec.json.Decoder(list[VictimRecord]).decode


def victims_of(row: PreemptionRow) -> list[VictimRecord]:
    """Return the victims of a preemption."""
    return _decode(row.victims)


def victims_text(victims: Iterable[VictimRecord]) -> str:
    """Write victims as they are kept."""
    return row_json(list(victims))


def named(vm: VMRow, project: str) -> str:
    """Name a VM in a text that is kept for a project: those of other projects are not named."""
    return f"VM {vm.name!r}" if vm.project == project else "a VM of another project"


def preemption_body(
    row: PreemptionRow, waits: VMRow, victims: Sequence[VMRow], roster: Roster
) -> PreemptionBody:
    """Return a preemption that is under way, as users see it."""
    known = {vm.id: vm for vm in victims}
    return PreemptionBody(
        vm=waits.id,
        name=waits.name,
        project=waits.project,
        priority=waits.priority,
        host=roster.host_name(row.host) or "?",
        phase=row.phase,
        victims=[
            victim_body(known[each.vm], each.how, _state(known[each.vm], row))
            for each in victims_of(row)
            if each.vm in known
        ],
        begun_at=timestamp(row.begun_ms),
    )


def victim_body(vm: VMRow, how: How, state: str = "planned", target: str = "") -> VictimBody:
    """Return a victim as users see it."""
    return VictimBody(
        vm=vm.id,
        name=vm.name,
        project=vm.project,
        priority=vm.priority,
        how=how,
        state=state,
        memory_bytes=vm.memory_bytes,
        disk_bytes=vm.disk_bytes,
        target=target,
    )


def _state(vm: VMRow, row: PreemptionRow) -> str:
    if vm.host == row.host:
        return "moving" if vm.phase else "planned"
    return "stopped" if vm.host is None else "gone"
