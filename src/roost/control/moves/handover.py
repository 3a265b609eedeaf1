"""The steps of a move, each one transaction; agents act only on what it wrote.

    ''  --migrate-->  preparing  --target: ready-->  moving  --source: moved-->  landing
    moving, landing, cancelling, recalling  --target: arrived-->  '' at the target
    preparing  --target: failed-->  '' at the source
    moving  --cancelled, late-->  cancelling  --source: has it-->  '' at the source
    moving, cancelling, landing  --unclear-->  recalling  --target: absent-->  '' at the source

| phase | the source is told | the target is told |
|---|---|---|
| preparing | run | incoming: get ready |
| moving | outgoing: send | incoming: take over when it has arrived |
| landing | outgoing | incoming, and all was sent |
| cancelling | returning: keep it if you still can | incoming |
| recalling | returning | withdrawn: destroy it, unless it has arrived |

A VM changes its home only when the target says that it has arrived: until then the source keeps
what it sent, and after that it never goes on by itself. Before the switch-over the source decides
whether the VM stays, afterwards the target does; nobody guesses. Both hosts are charged until both
have reported: the target by `migrate_in` from the beginning, the one that loses the VM by a `hold`
until it says that its copy is gone. So at most one copy executes at every instant, whoever dies
when, and exactly one in the end.
"""

from msgspec.structs import replace

from roost.control.create.placing import Stale
from roost.control.vms.deletion import order_destruction
from roost.control.vms.move_record import move_of
from roost.ledger.capacity import MIGRATE_IN, RUN, claims_of, hold_instead, release
from roost.ledger.membership import advance_groups
from roost.ledger.rows import Changes, VMRow
from roost.ledger.statements import Plus
from roost.ledger.tables import claims, vms
from roost.ledger.transaction import Tx, row_json
from roost.wire.agentlink import ProgressInfo, SeenVM

#: Phases in which the target may have the VM already.
SENT = ("moving", "landing", "cancelling", "recalling")


def is_of_this_move(vm: VMRow, seen: SeenVM) -> bool:
    """Say whether a report was made after the move began: an older one is about another copy."""
    return seen.generation >= move_of(vm).info.begun


def begin_sending(tx: Tx, vm: VMRow, endpoint: dict[str, str]) -> None:
    """The target waits: the source may send."""
    move = row_json(replace(move_of(vm), endpoint=endpoint))
    row = _change(tx, vm, phase="moving", move=move)
    _tell(tx, "vm.move_sending", row)


def note_progress(tx: Tx, vm: VMRow, progress: ProgressInfo) -> None:
    """Write down how far the source has come; no order changes."""
    move = row_json(replace(move_of(vm), progress=progress))
    found = tx.change(vms, {"id": vm.id}, move=move)
    assert found is not None
    mib = 2**20
    note = (
        f"{progress.sent_bytes // mib} MiB sent, {progress.left_bytes // mib} MiB left, "
        f"pass {progress.passes}, {progress.dirty_bytes_per_s // mib} MiB/s written meanwhile"
    )
    _tell(tx, "vm.move_progress", VMRow(**found), note)


def note_downtime(tx: Tx, vm: VMRow, progress: ProgressInfo) -> None:
    """Tell how long the guest stood still, which its old host knows when the move is over."""
    if progress.downtime_ms is not None:
        note = f"it stood still for {progress.downtime_ms} ms"
        tx.event("vm.move_downtime", f"vm/{vm.id}", {}, project=vm.project, note=note)


def note_sent(tx: Tx, vm: VMRow) -> None:
    """The source has sent everything and stands still: the target must have it, or say so."""
    _tell(tx, "vm.move_sent", _change(tx, vm, phase="landing"))


def ask_back(tx: Tx, vm: VMRow, why: str) -> VMRow:
    """Ask the source to keep the VM, if it still can."""
    if vm.phase != "moving":
        raise Stale
    row = _change(tx, vm, phase="cancelling", move=row_json(replace(move_of(vm), why=why)))
    _tell(tx, "vm.move_cancel_asked", row, why)
    return row


def recall(tx: Tx, vm: VMRow, why: str) -> VMRow:
    """Ask the target to destroy what it has, unless the VM has arrived; only it can tell."""
    if vm.phase not in ("moving", "landing", "cancelling"):
        raise Stale
    row = _change(tx, vm, phase="recalling", move=row_json(replace(move_of(vm), why=why)))
    _tell(tx, "vm.move_recalled", row, why)
    return row


def complete_move(tx: Tx, vm: VMRow, seen_generation: int) -> VMRow:
    """The target has it: it is the VM's home now, and the source destroys what it kept."""
    assert vm.target is not None
    assert vm.host is not None
    source = vm.host
    found = claims_of(tx, vm.id)
    run, incoming = found[RUN], found[MIGRATE_IN]
    # Amounts stay as they are on both hosts; only what the claims are called changes.
    changes: Changes = {"claims": {incoming.id: None, **hold_instead(tx, run)}}
    changes["claims"][run.id] = tx.change(claims, {"id": incoming.id}, id=run.id, kind=RUN)
    row = _change(
        tx,
        vm,
        host=vm.target,
        target=None,
        phase="",
        move=None,
        observed_generation=seen_generation,
        problem=None,
    )
    order_destruction(tx, row, source, changes)
    advance_groups(tx, vm.id, changes)
    changes["vms"] = {vm.id: row}
    tx.event("vm.moved", f"vm/{vm.id}", changes, project=vm.project)
    return row


def abandon_move(tx: Tx, vm: VMRow, why: str) -> VMRow:
    """Give up: the source has the VM, so the target cannot; it is told to clean up.

    It is charged until it has.
    """
    if not vm.phase or vm.target is None:
        raise Stale
    incoming = claims_of(tx, vm.id)[MIGRATE_IN]
    changes: Changes = {"claims": {incoming.id: None, **hold_instead(tx, incoming)}}
    row = _change(tx, vm, target=None, phase="", move=None)
    order_destruction(tx, row, incoming.host, changes)
    return _stay(tx, row, changes, _joined(move_of(vm).why, why))


def go_back(tx: Tx, vm: VMRow, why: str) -> VMRow:
    """The target says that its copy is gone and never executed: the source goes on with its own."""
    if vm.phase != "recalling":
        raise Stale
    incoming = claims_of(tx, vm.id)[MIGRATE_IN]
    release(tx, incoming)
    changes: Changes = {"claims": {incoming.id: None}}
    row = _change(tx, vm, target=None, phase="", move=None)
    return _stay(tx, row, changes, _joined(move_of(vm).why, why))


def is_proof(vm: VMRow, fenced: str | None) -> bool:
    """Say whether a target that was fenced in this way surely does not execute the VM.

    A lease ends only VMs that may run elsewhere; of others the target must be heard, or an operator
    or the fence command must say that it is off.
    """
    return fenced is not None and (fenced != "lease" or vm.restart == "elsewhere")


def give_up_fenced_target(tx: Tx, vm: VMRow, why: str) -> VMRow:
    """The target is fenced, and nobody knows whether the VM ran there: the source boots it anew.

    What the source kept in memory may be older than what is on the disk by now.
    """
    if vm.phase not in ("landing", "recalling"):
        raise Stale
    incoming = claims_of(tx, vm.id)[MIGRATE_IN]
    changes: Changes = {"claims": {incoming.id: None, **hold_instead(tx, incoming)}}
    row = _change(tx, vm, target=None, phase="", move=None, restarts=vm.restarts + 1)
    order_destruction(tx, row, incoming.host, changes)
    return _stay(tx, row, changes, _joined(move_of(vm).why, why))


def _stay(tx: Tx, row: VMRow, changes: Changes, why: str) -> VMRow:
    advance_groups(tx, row.id, changes)
    changes["vms"] = {row.id: row}
    tx.event("vm.move_abandoned", f"vm/{row.id}", changes, project=row.project, note=why)
    return row


def _joined(before: str, why: str) -> str:
    return f"{before}; {why}" if before else why


def _change(tx: Tx, vm: VMRow, **values: object) -> VMRow:
    row = tx.change(vms, {"id": vm.id}, generation=Plus(1), **values)
    assert row is not None
    return VMRow(**row)


def _tell(tx: Tx, kind: str, row: VMRow, note: str = "") -> None:
    tx.event(kind, f"vm/{row.id}", {"vms": {row.id: row}}, project=row.project, note=note)
