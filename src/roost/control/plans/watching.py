"""What this process hears of moves that plans have begun: progress, reasons, downtime.

Only to be shown and learnt from: nothing is decided by it, and a process that starts in the middle
of a move knows less of it.
"""

from msgspec.structs import replace

from roost.control.moves.handover import downtime_in
from roost.control.plans.record import DONE, actual_of
from roost.control.vms.move_record import read_record
from roost.ledger.changes import VMS, Changes
from roost.ledger.rows import Event, PlanMoveRow
from roost.ledger.transaction import row_json
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
        self._stood_ms: dict[str, int] = {}

    def add(self, vm: str) -> None:
        """Listen for what is said of a VM from now on."""
        if len(self._vms) > _MOST_LATE:
            self._vms.clear()
            self._stood_ms.clear()
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
            stood = downtime_in(event.note)
            if stood is not None:
                self._stood_ms[vm] = stood

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
        return replace(move, actual=row_json(cost), ended_ms=ended)

    def stood_late(self, move: PlanMoveRow) -> PlanMoveRow | None:
        """Return a move that is done with a downtime that was told after it; None if none was."""
        actual = actual_of(move) if move.state == DONE and move.vm in self._stood_ms else None
        if actual is None or actual.stand_still_s is not None:
            return None
        actual.stand_still_s = self._stood_ms.pop(move.vm) / 1000
        return replace(move, actual=row_json(actual))
