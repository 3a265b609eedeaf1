"""Past requests for VMs, as the events of the ledger recorded them, the last ones in their order.

A create is an event with the VM's row and spec, whatever became of the VM later; that the VM is
gone is another. Events that are folded are gone, and with them the requests.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import replace

import msgspec
from sqlalchemy import Connection, bindparam, select

from roost.control.groups.defining import POLICY_GROUP, of_policy
from roost.ledger.claims.capacity import RUN, claim_id
from roost.ledger.schema.rows import SpecRow, labels_of
from roost.ledger.schema.tables import events
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.policies import PolicySpread
from roost.model.vm import VMSpec
from roost.wire.spectext import SpecUnreadable, read_spec
from roost.wire.translate import scope_named

CREATED = ("vm.created", "vm.queued")
_GONE = "vm.deleted"
_LAST = (
    select(events.c.seq, events.c.kind, events.c.changes)
    .where(events.c.kind.in_((*CREATED, _GONE)), events.c.seq < bindparam("before"))
    .order_by(events.c.seq.desc())
    .limit(bindparam("length"))
)
_PAGE = 2000


class _Asked(msgspec.Struct):
    """Of a VM's row what a request is made of."""

    project: str
    name: str
    labels: str = ""
    strategy: str = ""
    priority: int = 0
    restart: str = "here"
    generation: int = 1


class _Changes(msgspec.Struct):
    vms: dict[str, _Asked | None] = msgspec.field(default_factory=dict)
    vm_specs: dict[str, SpecRow | None] = msgspec.field(default_factory=dict)
    members: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


_read: Callable[[str], _Changes] = msgspec.json.Decoder(_Changes).decode


class Recorded(msgspec.Struct, frozen=True):
    """One line of the record: a VM that was asked for, or without a request, one that went."""

    vm: str
    request: PlaceRequest | None = None


def last_requests(connection: Connection, groups: Container[str], most: int) -> list[Recorded]:
    """Return the last requests, at most so many, and what went since the first, in their order.

    `groups` are those that there are: of others nobody knows the rule any more.
    """
    found: list[Recorded] = []
    requests, before = 0, 2**62
    while requests < most:
        page = connection.execute(_LAST, {"before": before, "length": _PAGE}).all()
        for seq, kind, changes in page:
            before = seq
            for each in recorded_in(kind, changes, groups):
                found.append(each)
                requests += each.request is not None
            if requests >= most:
                break
        if len(page) < _PAGE:
            break
    found.reverse()
    asked = {each.vm for each in found if each.request is not None}
    return [each for each in found if each.vm in asked]


def recorded_in(kind: str, changes: str, groups: Container[str]) -> Iterator[Recorded]:
    """Yield what one event records."""
    read = _read(changes)
    if kind == _GONE:
        yield from (Recorded(vm) for vm, row in read.vms.items() if row is None)
        return
    for key, spec in read.vm_specs.items():
        vm, _, version = key.rpartition("|")
        row = read.vms.get(vm)
        if row is None or spec is None:
            continue  # a VM that lost its host and waits again: no new request
        try:
            asked = read_spec(spec.spec, int(version))
        except SpecUnreadable:
            continue
        members = [each.rpartition("|")[0] for each in read.members]
        known = tuple(sorted(each for each in members if each in groups))
        yield Recorded(vm, _request(vm, row, asked, known))


def _request(vm: str, row: _Asked, spec: VMSpec, groups: tuple[str, ...]) -> PlaceRequest:
    return PlaceRequest(
        row.name,
        spec.demand,
        spec.constraints,
        groups,
        spec.strategy,
        None,
        row.priority,
        row.project,
        claim_id(vm, RUN),
        tuple(sorted(labels_of(row.labels).items())) if row.labels else (),
        "here" if row.restart == "here" else "elsewhere",
        policy=spec.policy,
    )


def under(request: PlaceRequest, policy: str) -> PlaceRequest:
    """Return a request as it would be under a policy."""
    return request if request.policy == policy else replace(request, policy=policy)


def spread_anew(request: PlaceRequest, spread: PolicySpread | None) -> PlaceRequest:
    """Return a request in the group of its policy as that would spread its VMs, or in none."""
    theirs = f"{request.project}/{POLICY_GROUP}"
    groups = tuple(each for each in request.groups if not str(each).startswith(theirs))
    if spread is not None:
        row = of_policy(request.project, request.policy, spread)
        groups = (
            *groups,
            GroupSpec(
                row.id,
                GroupRule.SPREAD,
                scope_named(spread.scope),
                spread.hard,
                spread.max_skew,
                spread.weight,
            ),
        )
    return request if groups == request.groups else replace(request, groups=groups)
