"""Carry out the steps of moves, each in one transaction; agents act only on what it wrote.

A step changes the VM's row, its claims and tombstones, and writes one event. What follows from what
is decided in `machine.py`; nothing is decided here. A recovery is one transaction with the claim on
the third host: `give_up_both` writes the machine's part of it, the caller the rest.
"""

import re
from typing import Any, NamedTuple

from msgspec.structs import replace

from roost.base.errors import Conflict
from roost.control.moves.machine import (
    OUTCOMES,
    AskBack,
    BeginSending,
    Complete,
    Delete,
    DestroyCopies,
    Effect,
    Input,
    Outcome,
    Prepare,
    Recall,
    Recover,
    Refuse,
    Seen,
    Side,
    Step,
    Swallow,
    step,
)
from roost.control.vms.deletion import order_destruction
from roost.control.vms.move_record import move_of, record_of
from roost.ledger.claims.capacity import MIGRATE_IN, RUN, claims_of, hold_instead, release
from roost.ledger.schema.rows import Changes, VMRow
from roost.ledger.schema.tables import claims, vms
from roost.ledger.writes.membership import advance_groups
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import Report
from roost.wire.agentlink import ProgressInfo, SeenVM


def happen(tx: Tx, vm: VMRow, happened: Input) -> VMRow:
    """Step a VM's move by an input and write the effects; return the VM's row afterwards."""
    for effect in step(move_of(vm), happened):
        vm = carry_out(tx, vm, effect)
    return vm


def delete(tx: Tx, vm: VMRow) -> VMRow:
    """Order every host that may have a copy of a VM to destroy it."""
    return happen(tx, vm, Delete())


def give_up_both(tx: Tx, vm: VMRow, changes: Changes) -> None:
    """Take a VM off its fenced host and off the target of its move, to start it on a third one."""
    for effect in step(move_of(vm), Recover()):
        if isinstance(effect, Refuse):
            raise Conflict(f"VM {vm.name!r} {effect.why}", vm=vm.id)
        assert not isinstance(effect, Swallow)
        outcome = OUTCOMES[type(effect)]
        changes["claims"] = _settle_claims(tx, vm, outcome)
        later = replace(vm, generation=vm.generation + 1)
        _order_destruction(tx, later, _hosts(vm), outcome, changes)


def take_report(tx: Tx, vm: VMRow, side: Side, seen: SeenVM) -> bool:
    """Step a move by a report of its source or target; return whether it was about the move."""
    move = move_of(vm)
    if not move.phase:
        return False
    if side == "source" and seen.progress is not None and seen.generation >= move.begun:
        vm = note_progress(tx, vm, seen.progress)
    effects = step(move, Seen(side, report_of(seen)))
    for effect in effects:
        vm = carry_out(tx, vm, effect)
    return bool(effects)


def report_of(seen: SeenVM) -> Report:
    """Return an agent's message as the machine's `Report`."""
    return Report(seen.generation, seen.seen, seen.code, seen.message, seen.failure, seen.endpoint)


def carry_out(tx: Tx, vm: VMRow, effect: Effect) -> VMRow:
    """Write one effect of the move machine to the ledger."""
    if isinstance(effect, Refuse | Swallow | Prepare):
        return vm  # nothing to write, or written with the claim that begins the move
    outcome, record, note = OUTCOMES[type(effect)], record_of(vm), ""
    if not outcome.phase:
        return _rest(tx, vm, effect, outcome)
    values: dict[str, Any] = {"phase": outcome.phase}
    if isinstance(effect, AskBack | Recall):
        note = effect.why
        values["move"] = row_json(replace(record, why=note))
    elif isinstance(effect, BeginSending):
        values["move"] = row_json(replace(record, endpoint=dict(effect.endpoint)))
    row = _change(tx, vm, **values)
    changes: Changes = {"vms": {vm.id: row}}
    tx.event(outcome.event, f"vm/{vm.id}", changes, project=vm.project, note=note)
    return row


def _rest(tx: Tx, vm: VMRow, effect: Step, outcome: Outcome) -> VMRow:
    """End a move: the VM rests at one of the two hosts, and the other one cleans up."""
    why = getattr(effect, "why", "")
    before = record_of(vm).why if why else ""
    note = f"{before}; {why}" if before else why
    changes: Changes = {}
    if claimed := _settle_claims(tx, vm, outcome):
        changes["claims"] = claimed
    hosts = _hosts(vm)
    values: dict[str, Any] = {"target": None, "phase": outcome.phase, "move": None}
    if isinstance(effect, Complete):
        values |= {"observed_generation": effect.generation, "problem": None}
    if outcome.boots:
        values["restarts"] = vm.restarts + 1
    if isinstance(effect, DestroyCopies):
        values |= {"desired": "absent", "pending": None}
    if outcome.home is not None:
        values["host"] = hosts[outcome.home]
    row = _change(tx, vm, **values)
    _order_destruction(tx, row, hosts, outcome, changes)
    if outcome.home is not None:  # else it counts where it was until it is gone
        advance_groups(tx, vm.id, changes)
    changes["vms"] = {vm.id: row}
    tx.event(outcome.event, f"vm/{vm.id}", changes, project=vm.project, note=note)
    return row


def _hosts(vm: VMRow) -> dict[Side, int | None]:
    return {"source": vm.host, "target": vm.target}


def _order_destruction(
    tx: Tx, vm: VMRow, hosts: dict[Side, int | None], outcome: Outcome, changes: Changes
) -> None:
    for side in outcome.destroys:
        host = hosts[side]
        if host is not None:  # a VM at rest has no target
            order_destruction(tx, vm, host, changes)


def _settle_claims(tx: Tx, vm: VMRow, outcome: Outcome) -> dict[str, Any]:
    """Leave the home with the run claim, and the other host with what it still has to give back.

    Amounts stay as they are on both hosts, unless a claim is released; only names change.
    """
    found = claims_of(tx, vm.id)
    run, incoming = found.get(RUN), found.get(MIGRATE_IN)
    sides = {"source": run, "target": incoming}
    changed: dict[str, Any] = {} if incoming is None else {incoming.id: None}
    held = sides[outcome.holds] if outcome.holds is not None else None
    if held is not None:
        changed |= hold_instead(tx, held)
    given = sides[outcome.releases] if outcome.releases is not None else None
    if given is not None:
        release(tx, given)
        changed[given.id] = None
    if outcome.home == "target":
        assert run is not None
        assert incoming is not None
        changed[run.id] = tx.change(claims, {"id": incoming.id}, id=run.id, kind=RUN)
    return changed


def note_progress(tx: Tx, vm: VMRow, progress: ProgressInfo) -> VMRow:
    """Record the source's progress of a move, if it is new; no order changes."""
    record = record_of(vm)
    if progress == record.progress:
        return vm
    found = tx.change(vms, {"id": vm.id}, move=row_json(replace(record, progress=progress)))
    assert found is not None
    row, mib = VMRow(**found), 2**20
    note = (
        f"{progress.sent_bytes // mib} MiB sent, {progress.left_bytes // mib} MiB left, "
        f"pass {progress.passes}, {progress.dirty_bytes_per_s // mib} MiB/s written meanwhile"
    )
    changes: Changes = {"vms": {vm.id: row}}
    tx.event("vm.move_progress", f"vm/{vm.id}", changes, project=vm.project, note=note)
    return row


class Departure(NamedTuple):
    """What the old host tells of a move when it is over; 0 bytes: an earlier release."""

    downtime_ms: int
    sent_bytes: int = 0
    passes: int = 0


_DEPARTED = re.compile(r"it stood still for (\d+) ms(?:; (\d+) bytes were sent in (\d+) passes)?")


def departure_in(note: str) -> Departure | None:
    """Return what the note of a `vm.move_downtime` tells of a move."""
    found = _DEPARTED.fullmatch(note)
    return None if found is None else Departure(*(int(each or 0) for each in found.groups()))


def note_downtime(tx: Tx, vm: VMRow, progress: ProgressInfo) -> None:
    """Record the downtime of a move, which the old host reports when it is over."""
    if progress.downtime_ms is not None:
        note = f"it stood still for {progress.downtime_ms} ms; {progress.sent_bytes} bytes were "
        note += f"sent in {progress.passes} passes"
        # The row is as it was: with it those hear of the event that follow VMs.
        changes: Changes = {"vms": {vm.id: vm}}
        tx.event("vm.move_downtime", f"vm/{vm.id}", changes, project=vm.project, note=note)


def _change(tx: Tx, vm: VMRow, **values: object) -> VMRow:
    row = tx.change(vms, {"id": vm.id}, generation=Plus(1), **values)
    assert row is not None
    return VMRow(**row)
