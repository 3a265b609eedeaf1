"""The ledger as its events tell it, kept beside the real one, with the laws about what it may say.

Every commit costs as much as it changes: sums of promises and of quotas move with the rows, and
only hosts, projects and VMs that a commit touched are looked at. Afterwards the sums are compared
with those that the ledger itself keeps.

| law | looked at |
|---|---|
| no host takes on more promises than it has | hosts whose claims or capacity changed |
| what a host has promised is the sum of its claims | the same hosts |
| no project grows beyond its quota | projects whose VMs changed |
| what a project uses is the sum over its VMs | the same projects |
| a new place is on a host that takes VMs | VMs with a new host or target |
| a new place breaks no constraint and no hard rule of a group | the same VMs |
| no moment to come is promised more than a host has, reservations counted | hosts that took on |
| no place is taken, and no VM grows, against a hard rule that holds then | VMs that changed |
| who makes room, and for whom (`roommade`) | preemptions, displaced VMs and holds that changed |
| neither a VM's generation nor what was seen of it goes back | VMs that changed |
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, bindparam, select

from roost.ledger.schema.amounts import LIMITS
from roost.ledger.schema.tables import (
    claims,
    constraints,
    displaced,
    groups,
    holds,
    host_amounts,
    hosts,
    members,
    preemptions,
    projects,
    relaxations,
    vm_specs,
    vms,
)
from roost.sim.laws.planned import Plan, PlanMove
from roost.sim.laws.reserved import Hold, ReservedRoom
from roost.sim.laws.roommade import Preemption, RoomMade
from roost.sim.laws.ruled import PolicyRow, RelaxationRow, RuledPlaces, RuleRow

#: How long the fleet must have been as it is before a spread is held against it: a process decides
#: on what it has heard, and only the chosen host and the group are compared again at the commit.
_SETTLED_S = 120.0
#: What the ledger itself has added up, asked at every commit that changes it.
_PROMISED = select(
    host_amounts.c.host, *(host_amounts.c[f"{name}_committed"] for name in LIMITS)
).where(host_amounts.c.host.in_(bindparam("numbers", expanding=True)))
_USED = select(projects.c.name, *(projects.c[f"{name}_used"] for name in LIMITS)).where(
    projects.c.name.in_(bindparam("names", expanding=True))
)


class Broken(AssertionError):
    """A law of the world was broken."""


# What is kept of each row


class VM(Struct, gc=False):
    """What the laws need of a VM's row."""

    project: str
    name: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    desired: str
    generation: int
    phase: str
    observed_generation: int
    host: int | None = None
    target: int | None = None
    priority: int = 0

    @property
    def amounts(self) -> tuple[int, ...]:
        """Return the amounts that the VM asks for."""
        return (self.cpu_milli, self.memory_bytes, self.disk_bytes)

    @property
    def places(self) -> tuple[int, ...]:
        """Return the hosts that this VM has room on."""
        return tuple(n for n in (self.host, self.target) if n is not None)


class Claim(Struct, gc=False):
    """What the laws need of a claim's row."""

    vm: str
    host: int
    kind: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    until_ms: int | None = None
    draws_on: str | None = None
    counters: str = ""


class _Place(Struct, gc=False):
    zone: str = ""
    rack: str = ""


class Host(Struct, gc=False):
    """What the laws need of a host's row."""

    name: str
    inventory: str
    health: str
    admin: str
    fenced: str | None = None


class Group(Struct, gc=False):
    """What the laws need of a group's row."""

    rule: str
    scope: str
    hard: bool
    max_skew: int
    budget: int | None = None
    budget_share: int | None = None


class _Capacity(Struct, gc=False):
    cpu_milli_capacity: int
    memory_bytes_capacity: int
    disk_bytes_capacity: int
    vms_capacity: int


class _Quota(Struct, gc=False):
    cpu_milli_quota: int | None = None
    memory_bytes_quota: int | None = None
    disk_bytes_quota: int | None = None
    vms_quota: int | None = None


class Spec(Struct, gc=False):
    """What an event says of a VM's spec."""

    spec: str


class Changes(Struct):
    """What an event says is different now, as far as laws look at it."""

    vms: dict[str, VM | None] = {}
    vm_specs: dict[str, Spec | None] = {}
    claims: dict[str, Claim | None] = {}
    holds: dict[str, Hold | None] = {}
    hosts: dict[str, Host | None] = {}
    host_amounts: dict[str, _Capacity | None] = {}
    projects: dict[str, _Quota | None] = {}
    groups: dict[str, Group | None] = {}
    members: dict[str, dict[str, Any] | None] = {}
    tombstones: dict[str, dict[str, Any] | None] = {}
    constraints: dict[str, RuleRow | None] = {}
    relaxations: dict[str, RelaxationRow | None] = {}
    preemptions: dict[str, Preemption | None] = {}
    displaced: dict[str, dict[str, Any] | None] = {}
    policies: dict[str, PolicyRow | None] = {}
    plans: dict[str, Plan | None] = {}
    plan_moves: dict[str, PlanMove | None] = {}


class _Constraints(Struct):
    zones: list[str] = []
    racks: list[str] = []
    hosts: list[str] = []
    not_hosts: list[str] = []


class _Asked(Struct):
    """What the laws need of a spec's text; read by itself, so that it does not trust the reader."""

    constraints: _Constraints | None = None
    policy: str = ""


read_changes = msgspec.json.Decoder(Changes).decode
_place = msgspec.json.Decoder(_Place).decode
_asked = msgspec.json.Decoder(_Asked).decode
_NOWHERE = _Constraints()


class Books:
    """Follows the ledger commit by commit."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self.hosts: dict[int, Host] = {}
        self.vms: dict[str, VM] = {}
        self.quotas: dict[str, tuple[int | None, ...]] = {"default": (None,) * 4}
        self.used: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        self.capacity: dict[int, tuple[int, ...]] = {}
        self.promised: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        self._claims: dict[str, Claim] = {}
        self._constraints: dict[str, _Constraints] = {}  # of VMs that have some
        self._policies: dict[str, str] = {}  # that VMs are under
        self._places: dict[int, _Place] = {}
        self._groups: dict[str, Group] = {}
        self._members: dict[str, dict[str, None]] = defaultdict(dict)
        self._groups_of: dict[str, dict[str, None]] = defaultdict(dict)
        self._ruled = RuledPlaces()
        self._reserved = ReservedRoom()
        self.at_ms = 0  # the ledger's time at its last event
        self.room_made = RoomMade()
        self._changed_at = 0.0  # when a host last was not what it had been
        self._touched_hosts: dict[int, None] = {}
        self._had: dict[int, tuple[int, ...]] = {}  # what hosts had promised before a commit
        self._touched_projects: dict[str, None] = {}
        self._gained: list[tuple[str, str, int]] = []  # (kind of event, VM, host) of a commit
        self._grouped: list[tuple[str, ...]] = []  # (kind of event, group, VM) of a commit
        self._grown: list[tuple[str, str, int]] = []  # (kind of event, VM, host) of a commit

    @classmethod
    def read(cls, connection: Connection, now: Callable[[], float]) -> "Books":
        """Read all rows of the ledger to begin with."""
        books, rows = cls(now), _read_all(connection)
        found, rows.vms = rows.vms, {}
        books.apply("", rows)
        for vm_id, vm in found.items():
            if vm is not None:
                books.vms[vm_id] = vm
                books._count(vm, 1)
        books._had = {number: tuple(sums) for number, sums in books.promised.items()}
        books._touched_hosts.clear()
        books._touched_projects.clear()
        books._reserved.broken(0, {})  # what an old copy has promised, nobody takes on now
        return books

    def home_of(self, vm_id: str) -> str:
        """Return the name of a VM's host; empty when it has none."""
        vm = self.vms.get(vm_id)
        return self.host_name(vm.host) if vm is not None and vm.host is not None else ""

    def host_name(self, number: int) -> str:
        """Return a host's name; empty when there is no such host."""
        host = self.hosts.get(number)
        return "" if host is None else host.name

    def members_of(self, group: str) -> Iterable[str]:
        """Return the members of a group."""
        return self._members.get(group, ())

    def budgets_of(self, vm_id: str) -> Iterable[tuple[str, int]]:
        """Return the groups of a VM that have a disruption budget, and how many may be away."""
        for group_id in self._groups_of.get(vm_id, ()):
            group = self._groups[group_id]
            if group.budget is not None:
                yield group_id, group.budget
            elif group.budget_share is not None:
                yield group_id, -(-group.budget_share * len(self._members[group_id]) // 1000)

    def is_offline(self, vm: VM) -> bool:
        """Say whether a VM's host is not heard of."""
        host = self.hosts.get(vm.host) if vm.host is not None else None
        return host is not None and host.health == "offline"

    # Following

    def apply(self, kind: str, changes: Changes) -> None:
        """Take over what one event says."""
        for number, host in changes.hosts.items():
            self._put_host(int(number), host)
        for number, capacity in changes.host_amounts.items():
            self._put_capacity(int(number), capacity)
        for name, quota in changes.projects.items():
            self._put_quota(name, quota)
        for group_id, group in changes.groups.items():
            if group is not None:
                self._groups[group_id] = group
        for key, member in changes.members.items():
            self._put_member(key, present=member is not None)
            if kind == "group.joined":
                self._grouped.append((kind, *key.split("|")))
        for group_id, group in changes.groups.items():
            if group is None:
                self._forget_group(kind, group_id)
            elif kind == "group.rule_set":
                self._grouped += [(kind, group_id, vm) for vm in self._members[group_id]]
        for key, rule in changes.constraints.items():
            self._ruled.put(key, rule)
        for name, policy in changes.policies.items():
            self._ruled.put_policy(name, policy)
        for key, relaxed in changes.relaxations.items():
            self._ruled.relax(key, relaxed)
        for key, spec in changes.vm_specs.items():
            if spec is not None and '"constraints"' in spec.spec:
                found = _asked(spec.spec).constraints
                self._constraints[key.rpartition("|")[0]] = found or _NOWHERE
            if spec is not None and '"policy"' in spec.spec:
                self._policies[key.rpartition("|")[0]] = _asked(spec.spec).policy
        self.room_made.apply(
            kind, changes.preemptions, changes.displaced, changes.holds, changes.vms
        )
        for claim_id, claim in changes.claims.items():
            self._put_claim(claim_id, claim)
        for hold_id, hold in changes.holds.items():
            if wrong := self._reserved.put_hold(kind, hold_id, hold):
                raise Broken(wrong)
        for vm_id, vm in changes.vms.items():
            for place in self._put_vm(kind, vm_id, vm):
                self._gained.append((kind, vm_id, place))

    def check(self) -> None:
        """Check the laws on a whole commit: until its end nobody has seen any of it."""
        gained, self._gained = self._gained, []
        for kind, vm_id, place in gained:
            # Where a VM is found after an old ledger was restored, nobody chose.
            if vm_id in self.vms and kind != "vm.adopted":
                self._may_have(kind, vm_id, place)
        grown, self._grown = self._grown, []
        for kind, vm_id, place in grown:
            if vm_id in self.vms:
                self._keeps_rules(kind, vm_id, place)
        self._ruled.committed()
        grouped, self._grouped = self._grouped, []
        for kind, group_id, vm_id in grouped:
            if vm_id in self.vms and (group := self._groups.get(group_id)) and group.hard:
                for place in self.vms[vm_id].places:
                    self._obeys(kind, vm_id, place, group_id)
        self._have_what_they_promised()
        if wrong := self._reserved.broken(self.at_ms, self.capacity):
            raise Broken(f"a reservation is broken: {wrong}")
        if wrong := self.room_made.broken(self):
            raise Broken(wrong)

    def _put_host(self, number: int, host: Host | None) -> None:
        self._changed_at = self._now()
        if host is None:
            self.hosts.pop(number, None)
            return
        known = self.hosts.get(number)
        self.hosts[number] = host
        if known is None or known.inventory != host.inventory:
            self._places[number] = _place(host.inventory)

    def _put_capacity(self, number: int, capacity: _Capacity | None) -> None:
        self._touched_hosts[number] = None
        if capacity is None:
            self.capacity.pop(number, None)
        else:
            self.capacity[number] = tuple(getattr(capacity, f"{n}_capacity") for n in LIMITS)

    def _put_quota(self, name: str, quota: _Quota | None) -> None:
        if quota is None:
            self.quotas.pop(name, None)
        else:
            self.quotas[name] = tuple(getattr(quota, f"{n}_quota") for n in LIMITS)

    def _put_member(self, key: str, *, present: bool) -> None:
        group, _, vm = key.rpartition("|")
        if present:
            self._members[group][vm] = self._groups_of[vm][group] = None
        else:
            self._members[group].pop(vm, None)
            self._groups_of[vm].pop(group, None)

    def _forget_group(self, kind: str, group_id: str) -> None:
        self._groups.pop(group_id, None)
        if left := self._members.pop(group_id, None):
            raise Broken(f"{group_id} is gone by {kind} and still has {len(left)} members")

    def _put_claim(self, claim_id: str, claim: Claim | None) -> None:
        if (before := self._claims.pop(claim_id, None)) is not None:
            self._promise(before, -1)
            if claim is None:
                self.room_made.freed(before.host)
        if claim is None:
            self._reserved.put_claim(claim_id, None)
            return
        self._claims[claim_id] = claim
        self._promise(claim, 1)
        amounts = (claim.cpu_milli, claim.memory_bytes, claim.disk_bytes, 1)
        self._reserved.put_claim(
            claim_id, claim.host, amounts, claim.until_ms, claim.draws_on, claim.counters
        )

    def _promise(self, claim: Claim, sign: int) -> None:
        self._touched_hosts[claim.host] = None
        _add(self.promised[claim.host], claim, sign)

    def _put_vm(self, kind: str, vm_id: str, vm: VM | None) -> Iterable[int]:
        """Take over a VM's row; return the hosts on which it is new."""
        before = self.vms.pop(vm_id, None)
        if vm is None:
            self._groups_of.pop(vm_id, None)
            self._constraints.pop(vm_id, None)
            if before is not None:
                self._count(before, -1)
            return ()
        if before is not None and before.host == vm.host:
            seen, now = before.observed_generation, vm.observed_generation
            if now < seen:
                raise Broken(f"{vm_id} was seen at {seen} and then at {now}, by {kind}")
        self.vms[vm_id] = vm
        if before is not None and vm.generation < before.generation:
            raise Broken(
                f"the generation of {vm_id} went back from {before.generation} to "
                f"{vm.generation} by {kind}"
            )
        if before is None or before.amounts != vm.amounts:
            if before is not None:
                self._count(before, -1)
            self._count(vm, 1)
            self._is_within_quota(before, vm)
            if before is not None and _has_grown_in_place(before, vm):
                assert vm.host is not None
                self._grown.append((kind, vm_id, vm.host))
        known = before.places if before is not None else ()
        return [place for place in vm.places if place not in known]

    def _count(self, vm: VM, sign: int) -> None:
        self._touched_projects[vm.project] = None
        _add(self.used[vm.project], vm, sign)

    # Laws

    def _is_within_quota(self, before: VM | None, vm: VM) -> None:
        """Refuse growth beyond a quota; one that was lowered below what is used is no offence."""
        now = (*vm.amounts, 1)
        was = (*before.amounts, 1) if before is not None else (0, 0, 0, 0)
        quotas, used = self.quotas.get(vm.project), self.used[vm.project]
        if quotas is None:
            raise Broken(f"{vm.name} is in the project {vm.project!r}, which does not exist")
        for at, name in enumerate(LIMITS):
            quota = quotas[at]
            if quota is not None and now[at] > was[at] and used[at] > quota:
                raise Broken(
                    f"project {vm.project!r} grew to {used[at]} {name} of {quota} by {vm.name}"
                )

    def _may_have(self, kind: str, vm_id: str, place: int) -> None:
        """Check that a VM may be on a host where it was not before."""
        vm, host = self.vms[vm_id], self.hosts.get(place)
        if host is None:
            raise Broken(f"{vm.name} is placed on host {place}, which does not exist")
        if host.health == "offline" or host.admin != "open" or host.fenced is not None:
            state = "fenced" if host.fenced is not None else f"{host.health} and {host.admin}"
            raise Broken(f"{vm.name} is placed on {host.name}, which is {state}, by {kind}")
        if not self._is_allowed(self._constraints.get(vm_id, _NOWHERE), place):
            raise Broken(f"{vm.name} is placed on {host.name}, which it does not allow")
        self._keeps_rules(kind, vm_id, place)
        for group_id in self._groups_of.get(vm_id, ()):
            if self._groups[group_id].hard:
                self._obeys(kind, vm_id, place, group_id)

    def _is_allowed(self, asked: _Constraints, number: int) -> bool:
        place, name = self._places[number], self.hosts[number].name
        return (
            (not asked.zones or place.zone in asked.zones)
            and (not asked.racks or place.rack in asked.racks)
            and (not asked.hosts or name in asked.hosts)
            and name not in asked.not_hosts
        )

    def _keeps_rules(self, kind: str, vm_id: str, place: int) -> None:
        """Check that no hard rule that holds at this commit is against a VM's place."""
        if not self._ruled.rules:
            return
        vm, where, name = self.vms[vm_id], self._places[place], self.host_name(place)
        asks = dict(zip(("cpu", "memory", "disk"), vm.amounts, strict=True))
        broken = self._ruled.broken(
            vm_id,
            {"name": vm.name, "project": vm.project, "demand": asks},
            {
                "name": name,
                "zone": where.zone,
                "rack": where.rack,
                "vms": self.promised[place][3] - 1,
            },
            self._policies.get(vm_id, ""),
        )
        if broken:
            raise Broken(f"{vm.name} has room on {name} by {kind}, against the rule {broken}")

    def _domain(self, number: int, scope: str) -> str:
        if scope == "host":
            return self.host_name(number)
        place = self._places[number]
        return place.zone if scope == "zone" else place.rack

    def _obeys(self, kind: str, vm_id: str, place: int, group_id: str) -> None:
        """Check that a hard group rule allows a host, given where the other members are."""
        group, vm = self._groups[group_id], self.vms[vm_id]
        domain = self._domain(place, group.scope)
        others = [
            self._domain(there, group.scope)
            for member in self._members[group_id]
            if member != vm_id and member in self.vms
            for there in self.vms[member].places
        ]
        if group.rule == "anti-affinity" and domain and domain in others:
            raise Broken(f"two members of {group_id} are in the {group.scope} {domain}: {vm.name}")
        if group.rule == "affinity" and others and domain not in others:
            raise Broken(f"{vm.name} of {group_id} is in the {group.scope} {domain}, alone")
        if group.rule == "spread" and kind == "vm.created":
            self._is_even(vm_id, group_id, group, domain, others)

    def _is_even(
        self, vm_id: str, group_id: str, group: Group, domain: str, others: list[str]
    ) -> None:
        """Check a spread rule over the domains that have a host which the VM may use."""
        if self._now() - self._changed_at < _SETTLED_S:
            return
        asked = self._constraints.get(vm_id, _NOWHERE)
        usable = {
            self._domain(number, group.scope)
            for number, host in self.hosts.items()
            if host.health == "online"
            and host.admin == "open"
            and host.fenced is None
            and self._is_allowed(asked, number)
        }
        fewest = min(others.count(each) + (each == domain) for each in sorted(usable | {domain}))
        if others.count(domain) + 1 - fewest > group.max_skew:
            name = self.vms[vm_id].name
            raise Broken(f"{group_id} is uneven: {name} went to the {group.scope} {domain}")

    def _have_what_they_promised(self) -> None:
        """Check that the hosts of the last commit have the capacity they promised."""
        for number in self._touched_hosts:
            capacity, promised = self.capacity.get(number), self.promised[number]
            if capacity is None:
                if any(promised):
                    raise Broken(f"host {number} does not exist and has promised {promised}")
                continue
            # What a host has may shrink, to nothing if it cannot tell: then it takes on no more.
            had, self._had[number] = self._had.get(number), tuple(promised)
            for at, name in enumerate(LIMITS):
                if promised[at] > capacity[at] and (had is None or promised[at] > had[at]):
                    raise Broken(
                        f"{self.host_name(number)} promises {promised[at]} {name} of {capacity[at]}"
                    )

    def overdrawn(self) -> str:
        """Return which host has promised more than it says to have; empty when none has."""
        for number, capacity in self.capacity.items():
            if any(one > other for one, other in zip(self.promised[number], capacity, strict=True)):
                return self.host_name(number)
        return ""

    @property
    def has_sums_to_compare(self) -> bool:
        """Return whether a commit has changed sums since they were last compared."""
        return bool(self._touched_hosts or self._touched_projects)

    def compare_sums(self, connection: Connection) -> None:
        """Compare the ledger's sums of the touched hosts and projects with their claims."""
        numbers, names = list(self._touched_hosts), list(self._touched_projects)
        self._touched_hosts.clear()
        self._touched_projects.clear()
        if numbers:
            for number, *said in connection.execute(_PROMISED, {"numbers": numbers}):
                self._agree(f"host {self.host_name(number)} promised", said, self.promised[number])
        if names:
            for name, *said in connection.execute(_USED, {"names": names}):
                self._agree(f"project {name} used", said, self.used[name])

    def _agree(self, what: str, said: Sequence[int], follows: Sequence[int]) -> None:
        for at, name in enumerate(LIMITS):
            if said[at] != follows[at]:
                raise Broken(f"{what} {said[at]} {name}, and its rows {follows[at]}")


def _has_grown_in_place(before: VM, now: VM) -> bool:
    """Say whether a VM asks for more than before where it was before."""
    more = any(new > old for new, old in zip(now.amounts, before.amounts, strict=True))
    return more and now.host is not None and now.host == before.host


def _add(sums: list[int], amounts: Claim | VM, sign: int) -> None:
    """Add what one claim or VM takes, in the order of `LIMITS`; or take it away again."""
    sums[0] += sign * amounts.cpu_milli
    sums[1] += sign * amounts.memory_bytes
    sums[2] += sign * amounts.disk_bytes
    sums[3] += sign


def _read_all(connection: Connection) -> Changes:
    """Return every row as one great change."""

    def rows(table: Any, key: str) -> dict[str, Any]:
        found = connection.execute(select(table)).mappings()
        return {str(row[key]): {str(name): row[name] for name in row} for row in found}

    return msgspec.convert(
        {
            "vms": rows(vms, "id"),
            "vm_specs": {
                f"{row.vm}|{row.version}": {"spec": row.spec}
                for row in connection.execute(select(vm_specs))
            },
            "claims": rows(claims, "id"),
            "holds": rows(holds, "id"),
            "hosts": rows(hosts, "number"),
            "host_amounts": rows(host_amounts, "host"),
            "projects": rows(projects, "name"),
            "groups": rows(groups, "id"),
            "constraints": rows(constraints, "id"),
            "relaxations": {
                f"{row.vm}|{row.constraint_id}": {str(k): v for k, v in row._mapping.items()}
                for row in connection.execute(select(relaxations))
            },
            "preemptions": rows(preemptions, "vm"),
            "displaced": rows(displaced, "vm"),
            "members": {
                f"{row.group_id}|{row.vm}": {} for row in connection.execute(select(members))
            },
        },
        Changes,
    )
