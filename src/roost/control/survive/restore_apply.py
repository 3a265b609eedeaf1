"""Where a VM was found becomes its home in the ledger: claim, row and tombstones in one event.

What is found may not have room by the books, because others were promised it since the copy: then
the VM stays in doubt, and keeps its room elsewhere if nobody has seen it leave. A host that has an
older copy, or the remains of a move, destroys it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from sqlalchemy import select

from roost.base.errors import InvariantBroken
from roost.control.memory.specs import stored_spec
from roost.control.moves.machine import OUTCOMES, AskBack, Recall, Restored, step
from roost.control.vms.deletion import order_destruction
from roost.control.vms.move_record import MoveRecord, move_of, record_of
from roost.control.vms.problems import problem_text, read_problem
from roost.control.vms.restart_policy import ASKED, asked_restart
from roost.ledger.claims.capacity import (
    CLEANUP,
    MIGRATE_IN,
    RUN,
    charge,
    claims_of,
    fits,
    give_back,
    release,
)
from roost.ledger.claims.makingroom import hold_freed
from roost.ledger.schema.rows import Changes, ClaimRow, VMRow
from roost.ledger.schema.tables import (
    hosts,
    roll_call,
    tombstones,
    vms,
)
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.ledger.writes.membership import advance_groups
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import Claim
from roost.model.resources import NumaMode
from roost.model.states import ClaimKind, KeptRestart
from roost.wire.agentlimits import MOST_GENERATION
from roost.wire.agentlink import MoveInfo

#: Added to the newest generation that was seen: nothing of the lost time may look like an order.
JUMP = 2**20


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a VM that a host reports in a roll call."""

    host: int
    generation: int
    state: str
    restart: str = ""  # the policy that the host was told last; empty: it does not say


@dataclass(frozen=True, slots=True)
class Finding:
    """Where a VM is. `boots`: what is there cannot go on. `gone`: nobody has it any more.

    `asks`: it was sent off, and this host still waits for it; it is asked to let go, unless it has
    the VM by then (`moves/machine.py`). `spares`: hosts whose copies are held, not destroyed.
    `unconfirmed`: hosts that had it were heard, and none of them has seen it leave.
    """

    host: int | None
    boots: bool = False
    gone: bool = False
    asks: int | None = None
    spares: frozenset[int] = frozenset()
    unconfirmed: bool = False


def bring_home(tx: Tx, vm: VMRow, finding: Finding, found: Sequence[Copy]) -> bool:
    """Rewrite a VM's home in the ledger as found; False when the host has no room for the claim."""
    changes: Changes = {"claims": {}}
    home, known = finding.host, claims_of(tx, vm.id)
    left_alone = {finding.asks, *finding.spares}
    graves = [host for host in _elsewhere(tx, vm, home, found) if host not in left_alone]
    if _may_still_leave(vm, finding, found):
        for effect in step(move_of(vm), Restored()):
            if isinstance(effect, AskBack):
                return _call_back(tx, vm, effect, found, graves)
    lying = {copy.host for copy in found if copy.state == "stopped"}
    spared: set[int | None] = {*(lying - set(graves)), home, finding.asks}
    # Room that was kept for it under another name; a hold elsewhere waits for its tombstone.
    kept = [
        claim
        for kind, claim in known.items()
        if kind == MIGRATE_IN or (kind == CLEANUP and claim.host in spared)
    ]
    claim = None
    if home != vm.host:
        kept += [known[RUN]] if RUN in known else []
        claim = None if home is None else _claim_at(tx, vm, home, known.get(RUN))
        if home is not None and (claim is None or not fits(tx, claim, kept)):
            said = _no_room(tx, home)
            if finding.unconfirmed:
                return _stay_in_doubt(tx, vm, said)
            return _let_go(tx, vm, said, graves, kept)
    incoming = None
    if finding.asks is not None:
        incoming = _claim_at(tx, vm, finding.asks, known.get(RUN), MIGRATE_IN)
        if incoming is None or not fits(tx, incoming, kept):
            return False
    for each in kept:
        give_back(tx, each)
        changes["claims"][each.id] = None
    for new in (claim, incoming):
        if new is not None:
            if not charge(tx, new, None):
                raise InvariantBroken(f"host {new.host} had room for {new.id} a moment ago")
            changes["claims"][new.id] = new
    # Now that it has its own again: the rest is for those who wait for room there.
    for host in sorted({each.host for each in kept}):
        hold_freed(tx, host)
    _unbury(tx, vm, spared, changes)
    row = _settled_row(tx, vm, finding, found)
    for host in graves:
        order_destruction(tx, row, host, changes)
    if row.desired == "absent" and home is not None:
        order_destruction(tx, row, home, changes)
    advance_groups(tx, vm.id, changes)
    changes["vms"] = {vm.id: row}
    kind, note = _words(vm, finding)
    tx.event(kind, f"vm/{vm.id}", changes, project=vm.project, note=note)
    return True


def _may_still_leave(vm: VMRow, finding: Finding, found: Sequence[Copy]) -> bool:
    """Say whether a VM runs at home: told to leave, it may do so before it hears of others."""
    runs = any(copy.host == vm.host and copy.state == "running" for copy in found)
    at_home = finding.host == vm.host and not finding.gone
    return vm.desired != "absent" and at_home and runs


def _call_back(
    tx: Tx, vm: VMRow, asked: AskBack, found: Sequence[Copy], graves: Sequence[int]
) -> bool:
    """Ask the source to keep the VM, as when a move is cancelled; the move's own steps end it."""
    move = replace(record_of(vm), why=asked.why)
    generation = _far_beyond(vm, found)
    values: dict[str, Any] = {"phase": OUTCOMES[AskBack].phase, "move": row_json(move)}
    values["restart"] = _to_acknowledge(tx, vm)
    found_row = tx.update(vms, vms.c.id == vm.id, generation=generation, **values)
    assert found_row is not None
    row, changes = VMRow(**found_row), Changes()
    for host in graves:
        if host != vm.target:
            order_destruction(tx, row, host, changes)
    advance_groups(tx, vm.id, changes)
    changes["vms"] = {vm.id: row}
    note = "where it is is known again; its move is taken back"
    tx.event("vm.found", f"vm/{vm.id}", changes, project=vm.project, note=note)
    return True


def _words(vm: VMRow, finding: Finding) -> tuple[str, str]:
    if finding.gone:
        return "vm.vanished", "a host has destroyed it since the copy that was restored"
    if finding.host != vm.host:
        return "vm.adopted", "found on this host after an old ledger was restored"
    return "vm.found", "where it is is known again"


def _far_beyond(vm: VMRow, found: Sequence[Copy]) -> int:
    """Return a generation that nothing which any host has seen of a VM can reach.

    What is found is bounded (`restore_judge.countable`), so that this stays far below the largest
    that agents can say; were it ever reached, the next one by one is all that is left.
    """
    beyond = max([vm.generation, *(copy.generation for copy in found)]) + JUMP
    return beyond if beyond <= MOST_GENERATION else vm.generation + 1


def _settled_row(tx: Tx, vm: VMRow, finding: Finding, found: Sequence[Copy]) -> VMRow:
    generation = _far_beyond(vm, found)
    values: dict[str, Any] = {"target": None, "phase": "", "move": None, "problem": None}
    values["restart"] = asked_restart(vm) if finding.host is None else _to_acknowledge(tx, vm)
    if finding.host != vm.host:
        values |= {"host": finding.host, "pending": None}
        values |= {"observed": "", "observed_generation": 0}
    if finding.asks is not None:
        move = MoveRecord(MoveInfo(), why="an old ledger was restored")
        values |= {"target": finding.asks, "phase": OUTCOMES[Recall].phase, "move": row_json(move)}
    if finding.boots:
        values["restarts"] = vm.restarts + 1
    if finding.gone and vm.desired != "absent":
        values["desired"] = "stopped"
        values["pending"] = None
    row = tx.update(vms, vms.c.id == vm.id, generation=generation, **values)
    assert row is not None
    return VMRow(**row)


def _to_acknowledge(tx: Tx, vm: VMRow) -> KeptRestart:
    """Return a VM's restart policy: its host may have been told another since the copy.

    Processes of the release before do not know the word; for them it stays with its host.
    """
    if vm.restart == "here" or release_before_may_be_here(tx.connection):
        return "here"
    return ASKED


def _elsewhere(tx: Tx, vm: VMRow, home: int | None, found: Sequence[Copy]) -> list[int]:
    """Return the hosts that must destroy older copies of a VM.

    What is newer than the copy that counts is left alone, and held: somebody may want to look. So
    is what a silent host has of a VM that stays where it is: it may be the newest, or the only one.
    Not so the source of a move that has arrived, which is over as any other is.
    """
    here = max((copy.generation for copy in found if copy.host == home), default=vm.generation)
    older = {
        copy.host
        for copy in found
        if copy.state in ("moved", "lost", "ready")  # remains of a move: the VM is not there
        or (copy.state == "stopped" and copy.generation <= here)
    }
    answered = {copy.host for copy in found}
    # A tombstone from before the copy may be too old for what its host has got since.
    buried = [row["host"] for row in tx.find_all(tombstones, vm=vm.id)]
    before = {
        host for host in (vm.host, vm.target, *buried) if host is not None and host not in answered
    }
    if vm.restart == "here":
        arrived = home == vm.target and any(c.host == home and c.state == "running" for c in found)
        before = {
            host for host in before if _has_answered(tx, host) or (arrived and host == vm.host)
        }
    return sorted((older | before) - {home})


def _has_answered(tx: Tx, host: int) -> bool:
    return tx.find(roll_call, host=host, answered=True) is not None


def _claim_at(
    tx: Tx, vm: VMRow, host: int, run: ClaimRow | None, kind: ClaimKind = RUN
) -> ClaimRow | None:
    """Return the claim of a VM on another host; None when nobody knows which devices it has."""
    spec = stored_spec(tx.connection, vm)
    demand = spec.demand
    bound = demand.devices is not None or demand.numa is not NumaMode.ANY
    if bound or (run is not None and (run.devices or run.cells)):
        return None
    counters = tuple((f"x:{name}", amount) for name, amount in demand.extended if amount)
    claim = Claim(vm=vm.id, host=host, kind=kind, **vm.amounts._asdict(), counters=counters)
    row = ClaimRow.of(claim)
    row.until_ms = spec.until_ms  # it is found by its claim when its time is over
    return row


def _unbury(tx: Tx, vm: VMRow, spared: set[int | None], changes: Changes) -> None:
    """Remove tombstones of copies that count now, or are newer than that."""
    for row in tx.rows(select(tombstones).where(tombstones.c.vm == vm.id)):
        if row["host"] in spared:
            tx.delete(tombstones, tombstones.c.vm == vm.id, tombstones.c.host == row["host"])
            changes.setdefault("tombstones", {})[f"{vm.id}|{row['host']}"] = None


def _no_room(tx: Tx, home: int) -> str:
    name = tx.connection.execute(select(hosts.c.name).where(hosts.c.number == home)).scalar()
    return f"host {name} has it, and no room for it by the books"


def _stay_in_doubt(tx: Tx, vm: VMRow, said: str) -> bool:
    """Keep a VM in doubt with all its room: a stranger says to have it, and has none for it."""
    if vm.problem is None or read_problem(vm.problem).message != said:
        problem = problem_text("not_adopted", said, vm.generation)
        row = tx.change(vms, {"id": vm.id}, problem=problem)
        assert row is not None
        changes: Changes = {"vms": {vm.id: VMRow(**row)}}
        tx.event("vm.not_adopted", f"vm/{vm.id}", changes, project=vm.project, note=said)
    return False


def _let_go(tx: Tx, vm: VMRow, said: str, graves: Sequence[int], kept: Sequence[ClaimRow]) -> bool:
    """Keep a VM in doubt whose host has no room by the ledger; its claims elsewhere go.

    So two VMs that have changed places do not wait for each other.
    """
    if vm.host is None and vm.problem is not None and read_problem(vm.problem).message == said:
        return False
    problem = problem_text("not_adopted", said, vm.generation + 1)
    changes: Changes = {"claims": {}}
    for claim in kept:
        if claim.kind != CLEANUP:
            release(tx, claim)
            changes["claims"][claim.id] = None
    values: dict[str, Any] = {
        "host": None,
        "target": None,
        "phase": "",
        "move": None,
        "problem": problem,
    }
    values |= {"observed": "", "observed_generation": 0}
    found_row = tx.update(vms, vms.c.id == vm.id, generation=vms.c.generation + 1, **values)
    assert found_row is not None
    row = VMRow(**found_row)
    for host in graves:
        order_destruction(tx, row, host, changes)
    advance_groups(tx, vm.id, changes)
    changes["vms"] = {vm.id: row}
    tx.event("vm.not_adopted", f"vm/{vm.id}", changes, project=vm.project, note=said)
    return False
