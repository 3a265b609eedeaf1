"""What this process hears of moves that plans have begun: progress, reasons, downtime.

Only to be shown and learnt from: nothing is decided by it, and a process that starts in the middle
of a move knows less of it.
"""

from msgspec.structs import replace

from roost.control.moves.handover import Departure, departure_in
from roost.control.plans.record import DONE, actual_of
from roost.control.vms.move_record import read_record
from roost.ledger.schema.changes import VMS, Changes
from roost.ledger.schema.rows import Event, PlanMoveRow
from roost.ledger.writes.transaction import row_json
from roost.wire.agentlink import ProgressInfo
from roost.wire.plans import MoveCostBody

#: Moves that were made whose downtime may still be told.
_MOST_LATE = 1000


class MovesWatched:
    """Remembers what was heard of VMs that plans move."""

    def __init__(self) -> None:
        self._vms: set[str] = set()
        self._progress: dict[str, ProgressInfo] = {}
        self._notes: dict[str, str] = {}
        self._moved_ms: dict[str, int] = {}
        self._departed: dict[str, Departure] = {}
        self._awaited: dict[str, str] = {}  # VMs whose departure is not told yet, and their plans

    def add(self, vm: str) -> None:
        """Listen for what is said of a VM from now on."""
        if len(self._vms) > _MOST_LATE:
            self._vms.clear()
            self._departed.clear()
            self._awaited.clear()
        self._vms.add(vm)

    def follow(self, event: Event, changes: Changes) -> None:
        """Take note of an event of a VM that a plan moves."""
        vm = event.subject.removeprefix("vm/")
        if vm not in self._vms:
            return
        row = changes.of(VMS).get(vm)
        if row is not None and row.move is not None:
            progress = read_record(row.move).progress
            if progress is not None:
                self._progress[vm] = progress
        if event.kind == "vm.move_abandoned":
            self._notes[vm] = event.note
        elif event.kind == "vm.moved":
            self._moved_ms[vm] = event.at_ms
        elif event.kind == "vm.move_downtime":
            departed = departure_in(event.note)
            if departed is not None:
                self._departed[vm] = departed

    def note_of(self, vm: str) -> str:
        """Return why the move of a VM was given up, if that was heard."""
        return self._notes.get(vm, "")

    def settled(self, move: PlanMoveRow) -> PlanMoveRow:
        """Return a move that has ended with what it did cost."""
        vm = move.vm
        self._notes.pop(vm, None)
        progress = self._progress.pop(vm, None)
        ended = self._moved_ms.pop(vm, move.ended_ms)
        if move.state != DONE or move.begun_ms is None or ended is None:
            return move
        cost = MoveCostBody(total_s=round(max(0, ended - move.begun_ms) / 1000, 3))
        if progress is not None:
            cost.sent_bytes, cost.rounds = progress.sent_bytes, progress.passes
            if progress.downtime_ms is not None:
                cost.stand_still_s = progress.downtime_ms / 1000
        if cost.stand_still_s is None:
            self._awaited[vm] = move.plan
        return replace(move, actual=row_json(cost), ended_ms=ended)

    def plans_told_late(self) -> list[str]:
        """Return the plans of moves that are done and whose old host has told of them since."""
        told = [vm for vm in self._awaited if vm in self._departed]
        return list(dict.fromkeys(self._awaited.pop(vm) for vm in told))

    def stood_late(self, move: PlanMoveRow) -> PlanMoveRow | None:
        """Return a move that is done with what its old host told after it; None if that is nothing.

        What was told on the way is of some moment of the copy: bytes are whole only at the end.
        """
        actual = actual_of(move) if move.state == DONE and move.vm in self._departed else None
        if actual is None or actual.stand_still_s is not None:
            return None
        told = self._departed.pop(move.vm)
        actual.stand_still_s = told.downtime_ms / 1000
        if told.sent_bytes:
            actual.sent_bytes, actual.rounds = told.sent_bytes, told.passes
        return replace(move, actual=row_json(actual))
