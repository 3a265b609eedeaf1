"""Read groups and their members from one view of the ledger, as users see them."""

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, func, select

from roost.base.errors import NotFound
from roost.control.groups.budgets import WHOLE, spending
from roost.control.groups.rules import Place, Rule, broken, uneven
from roost.control.vms.states import vm_state
from roost.ledger.schema.rows import GroupRow, VMRow
from roost.ledger.schema.tables import groups, hosts, members, vms
from roost.ledger.upkeep.fold import Pages
from roost.ledger.writes.statements import find_row
from roost.parts.access import Principal
from roost.wire.groups import BudgetBody, GroupDetail, GroupSummary, MemberBody

#: What an id of a rule about labels begins with, where paths name it.
LABELS = "labels-"
#: Sentences about broken rules that one answer has.
MOST_TOLD = 20
#: Hosts that one query names.
_PIECE = 500

_NAMES = (
    select(groups.c.name)
    .where(groups.c.project == bindparam("of_project"), groups.c.selector == "")
    .order_by(groups.c.name)
    .limit(1000)
)
_COUNT = select(func.count()).where(members.c.group_id == bindparam("of_group"))
_MEMBERS = (
    select(vms)
    .join(members, members.c.vm == vms.c.id)
    .where(members.c.group_id == bindparam("of_group"), members.c.vm > bindparam("after"))
    .order_by(members.c.vm)
    .limit(bindparam("most"))
)
_PLACES = (
    select(vms.c.name, vms.c.host, vms.c.target)
    .join(members, members.c.vm == vms.c.id)
    .where(members.c.group_id == bindparam("of_group"))
    .order_by(members.c.vm)
)
_HOSTS = select(hosts.c.number, hosts.c.name, hosts.c.health, hosts.c.inventory).where(
    hosts.c.number.in_(bindparam("numbers", expanding=True))
)
_INVENTORIES = Pages([hosts.c.number, hosts.c.name, hosts.c.inventory], [hosts.c.number])


class Domains(msgspec.Struct):
    """What a group's rule needs of an inventory."""

    zone: str = ""
    rack: str = ""

    def of(self, scope: str, host: str) -> str:
        """Return the domain of a scope; empty when it is unknown."""
        return host if scope == "host" else self.zone if scope == "zone" else self.rack


_read_domains: Callable[[str], Domains] = msgspec.json.Decoder(Domains).decode


def _domains(inventory: str) -> Domains:
    """Return where a host is; one whose inventory cannot be read (`roster`) is nowhere known."""
    try:
        return _read_domains(inventory)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Domains()


class Known(msgspec.Struct):
    """A host as the members of a group need it."""

    name: str
    health: Any
    domains: Domains


def group_row(
    connection: Connection, ref: str, project: str | None, who: Principal, *, lock: bool = False
) -> GroupRow:
    """Return the group that a name or id means; one of another project is not found."""
    owner = project or who.project or "default"
    found = None
    if who.project in (None, owner):
        found = find_row(connection, groups, {"id": f"{owner}/{ref}"}, lock=lock)
        if found is None and ref.startswith(LABELS):
            known = {"id": f"{owner}/~{ref.removeprefix(LABELS)}"}
            found = find_row(connection, groups, known, lock=lock)
    if found is None:
        hint = _closest(connection, ref, owner) if who.project in (None, owner) else None
        message = f"there is no group {ref!r} in project {owner!r}"
        raise NotFound(message, group=ref, project=owner, hint=hint)
    return GroupRow(**found)


def _closest(connection: Connection, ref: str, project: str) -> str | None:
    """Return a hint with the name that was probably meant."""
    names = connection.execute(_NAMES, {"of_project": project}).scalars().all()
    close = difflib.get_close_matches(ref, names, n=1)
    return f"Maybe {close[0]!r}?" if close else None


def summary(row: GroupRow, count: int) -> GroupSummary:
    """Return a group as lists show it."""
    return GroupSummary(**_summary(row, count))


def _summary(row: GroupRow, count: int) -> dict[str, Any]:
    shown = row.id.partition("/")[2]
    fields = msgspec.structs.asdict(row)
    del fields["budget"], fields["budget_share"]
    return {
        **fields,
        "id": LABELS + shown[1:] if row.selector else shown,
        "selector": msgspec.json.decode(row.selector) if row.selector else {},
        "members": count,
    }


def detail(
    connection: Connection, row: GroupRow, most: int = 100, after: str | None = None
) -> GroupDetail:
    """Return a group with its members, and whether its rule holds for all of them."""
    of = {"of_group": row.id}
    count = int(connection.execute(_COUNT, of).scalar_one())
    page = {**of, "after": after or "", "most": most + 1}
    found = [VMRow(**vm) for vm in connection.execute(_MEMBERS, page).mappings()]
    shown = found[:most]
    known = read_hosts(connection, [vm.host for vm in shown])
    wrong = verdict(connection, row)
    return GroupDetail(
        **_summary(row, count),
        holds=not wrong,
        broken=wrong[:MOST_TOLD],
        vms=[_member(vm, known) for vm in shown],
        next=shown[-1].id if len(found) > most else None,
        budget=_budget(connection, row),
    )


def _budget(connection: Connection, row: GroupRow) -> BudgetBody | None:
    stands = spending(connection, [row.id]).get(row.id)
    if stands is None:
        return None
    share = None if row.budget_share is None else row.budget_share / WHOLE
    return BudgetBody(at_most=row.budget, share=share, allowed=stands.allowed, away=stands.away)


def _member(vm: VMRow, known: dict[int, Known]) -> MemberBody:
    host = known.get(vm.host) if vm.host is not None else None
    return MemberBody(
        id=vm.id,
        name=vm.name,
        state=vm_state(vm, host.health if host is not None else None),
        host=host.name if host is not None else None,
        rack=host.domains.rack if host is not None else "",
        zone=host.domains.zone if host is not None else "",
    )


def verdict(connection: Connection, row: GroupRow) -> list[str]:
    """Say by which members a group's rule does not hold now, soft or hard."""
    asked = Rule(row.rule, row.scope, row.max_skew)
    places = read_places(connection, row)
    wrong = broken(asked, places)
    if row.rule == "spread" and places:
        known = domains_of_hosts(connection).values()
        apart = uneven(asked, places, {domains.of(row.scope, name) for name, domains in known})
        wrong += [apart] if apart else []
    return wrong


def read_places(connection: Connection, row: GroupRow) -> list[Place]:
    """Return where the members of a group are, and where those are going that move."""
    found = connection.execute(_PLACES, {"of_group": row.id}).all()
    numbers = [number for _, *places in found for number in places]
    known = read_hosts(connection, numbers)
    return [
        Place(vm, host.name, host.domains.of(row.scope, host.name))
        for vm, *places in found
        for number in places
        if number is not None and (host := known.get(number)) is not None
    ]


def read_hosts(connection: Connection, numbers: Sequence[int | None]) -> dict[int, Known]:
    """Return some hosts by their numbers."""
    wanted = sorted({number for number in numbers if number is not None})
    found = {}
    for start in range(0, len(wanted), _PIECE):
        piece = wanted[start : start + _PIECE]
        for number, name, health, inventory in connection.execute(_HOSTS, {"numbers": piece}):
            found[number] = Known(name, health, _domains(inventory))
    return found


def domains_of_hosts(connection: Connection) -> dict[int, tuple[str, Domains]]:
    """Return every host's name and domains, by its number."""
    return {
        number: (name, _domains(inventory))
        for page in _INVENTORIES.read(connection)
        for number, name, inventory in page
    }
