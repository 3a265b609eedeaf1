"""Ledger rows as the bodies that users see."""

from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import Connection, bindparam, select

from roost.base.timestamps import timestamp
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.roster import Roster
from roost.control.memory.specs import least_spec
from roost.control.vms.move_record import record_of
from roost.control.vms.problems import read_problem
from roost.control.vms.restart_policy import ASKED, asked_restart
from roost.control.vms.states import vm_state
from roost.ledger.schema.rows import VMRow, labels_of
from roost.ledger.schema.tables import decisions
from roost.model.flow import Answer
from roost.model.groups import GroupSpec
from roost.model.vm import VMSpec
from roost.placement.explain import Explanation
from roost.wire import answers
from roost.wire.bodies import (
    AmountsBody,
    AnswerBody,
    ExplanationBody,
    MigrationBody,
    PlacementBody,
    ProgressBody,
    RejectionBody,
    VMBody,
)
from roost.wire.specs import boot_body, constraints_json, nic_body

_rejection = msgspec.json.Decoder(RejectionBody)
_placement = msgspec.json.Decoder(PlacementBody)
#: How far back it is looked for; so many moves that came to nothing in a row are rare.
_MOST_DECISIONS = 16
_NEWEST = (
    select(decisions.c.answer)
    .where(decisions.c.vm == bindparam("id"))
    .order_by(decisions.c.snapshot.desc())
    .limit(_MOST_DECISIONS)
)
_encode = msgspec.json.Encoder().encode


def answer_body(answer: Answer, by_fleet_row: Mapping[int, HostEntry]) -> AnswerBody:
    """Return either answer as a body, with the host's number in the ledger."""
    return answers.answer_body(answer, lambda row: by_fleet_row[row].number)


def explanation_body(
    explanation: Explanation, hosts: Sequence[str], by_fleet_row: Mapping[int, HostEntry]
) -> ExplanationBody:
    """Return an explanation as a body, with the verdicts on some hosts or on all."""
    return answers.explanation_body(
        explanation, hosts, number_of=lambda row: by_fleet_row[row].number
    )


def placement_text(placement: PlacementBody) -> str:
    """Write a placement for the ledger."""
    return _encode(placement).decode()


def read_placement(text: str) -> PlacementBody | None:
    """Read a placement from the ledger; a decision that was a rejection is none."""
    try:
        return _placement.decode(text)
    except msgspec.ValidationError:
        return None


def decided_placement(connection: Connection, vm: VMRow) -> PlacementBody | None:
    """Read the placement that brought a VM where it is, or where it is moving to.

    The newest decision is not always that one: a move that was given up has left its own behind.
    """
    for answer in connection.execute(_NEWEST, {"id": vm.id}).scalars():
        placement = read_placement(answer)
        if placement is not None and placement.host_number in (vm.host, vm.target):
            return placement
    return None


def _migration_body(vm: VMRow, source: str, target: str) -> MigrationBody:
    move = record_of(vm)
    made = move.progress
    progress = ProgressBody(**msgspec.structs.asdict(made)) if made is not None else None
    return MigrationBody(
        source=source, target=target, phase=vm.phase, mode=move.info.mode, progress=progress
    )


def vm_body(
    vm: VMRow,
    spec: VMSpec | None,
    roster: Roster,
    placement: PlacementBody | None = None,
) -> VMBody:
    """Return a VM as users see it; without a spec, as far as its row says."""
    if spec is None:
        spec = least_spec(vm)
    entry = roster.hosts.get(vm.host) if vm.host is not None else None
    host = entry.name if entry is not None else None
    migration = None
    if vm.phase and vm.target is not None and host is not None:
        migration = _migration_body(vm, host, roster.host_name(vm.target) or "?")
    devices = spec.demand.devices
    return VMBody(
        id=vm.id,
        name=vm.name,
        project=vm.project,
        state=vm_state(vm, entry.row.health if entry is not None else None),
        desired=vm.desired,
        observed=vm.observed,
        host=host,
        hypervisor_id=host,
        virtual=entry is not None and entry.inventory.virtual,
        demand=AmountsBody(
            cpu_milli=vm.cpu_milli,
            memory_bytes=vm.memory_bytes,
            disk_bytes=vm.disk_bytes,
            gpu=devices.count if devices is not None else 0,
            extended=dict(spec.demand.extended),
        ),
        strategy=vm.strategy,
        priority=vm.priority,
        restart=asked_restart(vm),
        restart_acknowledged=vm.restart != ASKED,
        on_no_fit=vm.on_no_fit,
        labels=labels_of(vm.labels),
        groups=_group_names(vm, spec, roster),
        generation=vm.generation,
        observed_generation=vm.observed_generation,
        created_at=timestamp(vm.created_ms),
        pending=_rejection.decode(vm.pending) if vm.pending else None,
        problem=read_problem(vm.problem) if vm.problem else None,
        migration=migration,
        placement=placement,
        constraints=constraints_json(spec),
        boot=boot_body(spec.boot),
        nics=[nic_body(nic) for nic in spec.nics],
        policy=spec.policy or None,
        until=None if spec.until_ms is None else timestamp(spec.until_ms),
        reservation=spec.reservation or None,
        priority_class=spec.priority_class,
        flavor=_flavor(vm, spec),
    )


def _flavor(vm: VMRow, spec: VMSpec) -> str:
    """Return the flavor that a VM was created with, unless it has been resized since."""
    asked = spec.demand
    then = (asked.cpu_milli, asked.memory_bytes, asked.disk_bytes)
    return spec.flavor if (vm.cpu_milli, vm.memory_bytes, vm.disk_bytes) == then else ""


def _group_names(vm: VMRow, spec: VMSpec, roster: Roster) -> list[str]:
    """Return the groups that a VM is in now, first those that it was created with.

    Of a VM that this process has not heard of yet only those are known.
    """
    asked = [group.name if isinstance(group, GroupSpec) else group for group in spec.groups]
    if vm.id not in roster.specs:
        return asked
    now = [group.partition("/")[2] for group in roster.groups_of.get(vm.id, ())]
    first = [name for name in asked if name in now]
    return first + [name for name in now if name not in first and not name.startswith("~")]
