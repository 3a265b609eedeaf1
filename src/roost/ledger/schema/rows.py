"""The rows that pass between ledger and control, as structs: fields are columns, in table order."""

import dataclasses
from typing import Any

from msgspec import Struct, json

from roost.ledger.schema.amounts import Amounts
from roost.model.flow import Claim
from roost.model.states import (
    AdminState,
    ClaimKind,
    Desired,
    FenceMethod,
    HostHealth,
    KeptRestart,
    Observed,
    OnNoFit,
    Phase,
    Preempts,
)
from roost.model.vm import NewSpec

#: {table: {key: row or None}}: what an event says is different now. A key of two columns is
#: written "a|b".
Changes = dict[str, dict[str, Any]]


def labels_text(labels: dict[str, str]) -> str:
    """Write a VM's labels so that one of them is found by LIKE; a key has no `=`, none a \\n."""
    return "\n" + "".join(f"{key}={value}\n" for key, value in sorted(labels.items()))


def labels_of(text: str) -> dict[str, str]:
    """Read the labels of a VM's row."""
    return dict(line.split("=", 1) for line in text.split("\n") if line) if text else {}


class VMRow(Struct, kw_only=True):
    """One row of `vms`: a VM's identity, home, wanted and observed state."""

    id: str
    project: str
    name: str
    labels: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    strategy: str
    priority: int
    on_no_fit: OnNoFit
    restart: KeptRestart
    desired: Desired
    generation: int
    restarts: int = 0
    host: int | None = None
    target: int | None = None
    phase: Phase = ""
    observed: Observed = ""
    observed_generation: int = 0
    problem: str | None = None
    pending: str | None = None
    created_ms: int
    move: str | None = None

    @property
    def amounts(self) -> Amounts:
        """Return the amounts that the VM asks for."""
        return Amounts.of(self)


class SpecRow(Struct):
    """One version of a VM's spec, as events carry it under VM|VERSION."""

    spec: str  # see wire/spectext.py


class ClaimRow(Struct, kw_only=True):
    """Capacity promised to one VM on one host."""

    id: str
    vm: str
    host: int
    kind: ClaimKind
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    counters: str = ""
    devices: int = 0
    cells: int = 0
    until_ms: int | None = None
    draws_on: str | None = None

    @property
    def amounts(self) -> Amounts:
        """Return the amounts that the claim promises."""
        return Amounts.of(self)

    @property
    def is_special(self) -> bool:
        """Say whether it ends or draws on a hold: what its host must hold depends on it."""
        return self.until_ms is not None or self.draws_on is not None

    @classmethod
    def of(cls, claim: Claim) -> "ClaimRow":
        """Return a claim as it is stored."""
        counters = json.encode(dict(claim.counters)).decode() if claim.counters else ""
        fields = {**dataclasses.asdict(claim), "counters": counters}
        return cls(id=claim.id, **fields)


class HoldRow(Struct, kw_only=True):
    """Room that a host keeps free for an owner, in windows of time."""

    id: str
    host: int
    kind: str
    owner: str
    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    vms: int = 0
    windows: str
    counters: str | None = None

    @property
    def limits(self) -> tuple[int, ...]:
        """Return what it keeps, in the order of `LIMITS`."""
        return (self.cpu_milli, self.memory_bytes, self.disk_bytes, self.vms)


class ReservationRow(Struct, kw_only=True):
    """Capacity that is kept for a project, a user or a purpose: how much, where and when."""

    id: str
    description: str
    owner_kind: str
    owner: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    units: int
    hosts: str = ""
    zones: str = ""
    rule: str = ""
    from_ms: int
    until_ms: int | None = None
    recurrence: str = ""
    lasts_ms: int | None = None
    timezone: str = "UTC"
    windows: str
    expanded_ms: int | None = None
    unhonoured: str = ""
    version: int = 1
    created_ms: int
    created_by: str
    changed_ms: int
    changed_by: str
    held_as: str | None = None
    asks: str | None = None  # what one unit keeps beside its amounts

    @property
    def holder(self) -> str:
        """Return the owner of its holds, on which VMs draw; a name may be used again, this never.

        Those of before it was kept have their name for it.
        """
        return self.held_as or self.id

    @property
    def amounts(self) -> Amounts:
        """Return the amounts of one unit."""
        return Amounts.of(self)


class GroupRow(Struct, kw_only=True):
    """A group and its rule."""

    id: str
    project: str
    name: str
    rule: str
    scope: str
    hard: bool
    max_skew: int
    weight: int
    selector: str = ""
    generation: int = 0
    budget: int | None = None
    budget_share: int | None = None


class ConstraintRow(Struct, kw_only=True):
    """A rule about where VMs may be, with whom it is for."""

    id: str
    project: str
    name: str
    description: str
    expression: str
    form: str
    kind: str
    weight: int
    priority: int
    selector: str = ""
    vm: str = ""
    policy: str | None = None
    enabled: bool = True
    expires_ms: int | None = None
    version: int = 1
    created_ms: int
    created_by: str
    changed_ms: int
    changed_by: str
    applies_when: str | None = None
    applies_until: str | None = None
    time_zone: str | None = None
    dwell_s: int | None = None
    active: bool | None = None
    switched_ms: int | None = None
    relax_after_s: int | None = None

    @property
    def holds(self) -> bool:
        """Say whether the rule binds VMs now: it is enabled, and its condition lets it."""
        return self.enabled and self.active is not False


class RelaxationRow(Struct, kw_only=True):
    """A VM that waits under a rule that relaxes, and since when the rule is soft for it."""

    vm: str
    constraint_id: str
    version: int
    since_ms: int
    relaxed_ms: int | None = None


class PolicyRow(Struct, kw_only=True):
    """A policy as it is now; `bundle` is JSON of `model.policies.Bundle`."""

    name: str
    description: str
    bundle: str
    version: int = 1
    created_ms: int
    created_by: str
    changed_ms: int
    changed_by: str


class ProjectRow(Struct):
    """What an event says of a project: its default policy and its quota."""

    policy: str | None = None
    cpu_milli_quota: int | None = None
    memory_bytes_quota: int | None = None
    disk_bytes_quota: int | None = None
    vms_quota: int | None = None

    @property
    def quota(self) -> tuple[int | None, int | None, int | None, int | None]:
        """Return how much its VMs may have together, in the order of `LIMITS`."""
        amounts = (self.cpu_milli_quota, self.memory_bytes_quota, self.disk_bytes_quota)
        return (*amounts, self.vms_quota)


class ViolationRow(Struct, kw_only=True):
    """A VM that is where a hard rule does not want it, and since when."""

    vm: str
    constraint_id: str
    host: int
    part: str
    since_ms: int


class PriorityClassRow(Struct, kw_only=True):
    """How important VMs are, by a name, and whom they may displace."""

    name: str
    value: int
    preempts: Preempts
    is_default: bool
    description: str
    created_ms: int
    created_by: str
    changed_ms: int
    changed_by: str


class FlavorRow(Struct, kw_only=True):
    """The amounts of VMs, by a name."""

    name: str
    demand: str
    description: str
    created_ms: int
    created_by: str
    changed_ms: int
    changed_by: str


class PreemptionRow(Struct, kw_only=True):
    """Room that is being made on a host for a VM which waits."""

    vm: str
    project: str
    host: int
    victims: str
    phase: str
    begun_ms: int
    priority: int


class PlanRow(Struct, kw_only=True):
    """A plan: a goal, what was asked and found, and how far it has come."""

    id: str
    goal: str
    state: str
    generation: int
    asked: str
    found: str
    wave: int
    replans: int
    why: str
    starts_ms: int | None
    ends_ms: int | None
    created_ms: int
    created_by: str
    begun_ms: int | None
    ended_ms: int | None


class PlanMoveRow(Struct, kw_only=True):
    """One move of a plan: what it was to cost, and what became of it."""

    plan: str
    number: int
    wave: int
    vm: str
    name: str
    source: int
    target: int
    state: str
    why: str
    draft: int
    predicted: str
    actual: str
    begun_ms: int | None
    ended_ms: int | None

    @property
    def key(self) -> str:
        """Return its key as events name it."""
        return f"{self.plan}|{self.number}"


class TopologyRow(Struct, kw_only=True):
    """The network between hosts, as it was described."""

    id: str
    generation: int
    document: str
    changed_ms: int
    changed_by: str


class TrafficRow(Struct, kw_only=True):
    """Which VMs talk, as one source says it."""

    id: str
    generation: int
    document: str
    changed_ms: int
    changed_by: str


class DisplacedRow(Struct, kw_only=True):
    """A VM that was stopped to make room, until it has run again."""

    vm: str
    preemptor: str
    generation: int
    at_ms: int


class HostRow(Struct, kw_only=True):
    """One host as it registered, and what was decided about it."""

    number: int
    name: str
    inventory: str
    labels: str | None
    health: HostHealth
    admin: AdminState
    instance: str
    version: str
    guard_stop_s: float | None
    fenced: FenceMethod | None
    held: str
    registered_ms: int
    settings: str | None = None


class Event(Struct, kw_only=True):
    """One change, as it is stored. `changes` is JSON text."""

    seq: int
    at_ms: int
    actor: str
    kind: str
    subject: str
    project: str | None
    changes: str
    note: str
    tx: str
    rows: Any = None  # the same changes as structs, where this process made them; not stored
    created: dict[str, NewSpec] = {}  # by VM, where this process created them; not stored

    def columns(self) -> tuple[Any, ...]:
        """Return the values of its columns, in table order."""
        return (
            self.seq,
            self.at_ms,
            self.actor,
            self.kind,
            self.subject,
            self.project,
            self.changes,
            self.note,
            self.tx,
        )
