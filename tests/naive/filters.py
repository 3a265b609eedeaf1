"""Twins of the filters: may this host take this VM? One function per `Reason`."""

import re
from collections.abc import Callable

from roost.model.constraints import LabelOperator, LabelTerm, Toleration
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Admin, Health, Taint, TaintEffect
from roost.model.reasons import Reason
from roost.model.resources import NumaMode
from tests.naive.assign import pick_cells, pick_devices
from tests.naive.fleet import Ask, Row
from tests.naive.network import bandwidth, latency
from tests.naive.predicates import holds_on
from tests.naive.rules import attributes_allow, rules_hold, rules_without_error


def online(row: Row, ask: Ask) -> bool:
    """Only an online host takes VMs."""
    return row.spec.health is Health.ONLINE


def is_open(row: Row, ask: Ask) -> bool:
    """Only an open host takes VMs."""
    return row.spec.admin is Admin.OPEN


def known(row: Row, ask: Ask) -> bool:
    """Unknown is full."""
    return all(resource.total is not None for _, resource in row.spec.resources())


def unpressed(row: Row, ask: Ask) -> bool:
    """No pressure is above its bound, and none that has a bound is unknown."""
    return not row.pressed


def pinned(row: Row, ask: Ask) -> bool:
    """A pinned VM goes to a named host."""
    names = ask.request.constraints.pinned
    return not names or row.spec.name in names


def not_excluded(row: Row, ask: Ask) -> bool:
    """An excluded host is out."""
    return row.spec.name not in ask.request.constraints.excluded


def term_holds(term: LabelTerm, labels: dict[str, str]) -> bool:
    """A host without the label satisfies only not-in and absent."""
    if term.key not in labels:
        return term.operator in (LabelOperator.NOT_IN, LabelOperator.ABSENT)
    value = labels[term.key]
    if term.operator is LabelOperator.EXISTS:
        return True
    if term.operator is LabelOperator.ABSENT:
        return False
    if term.operator is LabelOperator.IN:
        return value in term.values
    if term.operator is LabelOperator.NOT_IN:
        return value not in term.values
    if not re.fullmatch("-?[0-9]+", value):
        return False
    if term.operator is LabelOperator.GREATER:
        return int(value) > int(term.values[0])
    return int(value) < int(term.values[0])


def labels(row: Row, ask: Ask) -> bool:
    """Every label term holds."""
    return all(term_holds(term, dict(row.spec.labels)) for term in ask.request.constraints.labels)


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """An empty key tolerates everything, no value any value."""
    return any(
        each.key == "" or (each.key == taint.key and each.value in (None, taint.value))
        for each in tolerations
    )


def tolerated(row: Row, ask: Ask) -> bool:
    """Every no-place taint is tolerated."""
    tolerations = ask.request.constraints.tolerations
    return all(
        tolerates(tolerations, taint)
        for taint in row.spec.taints
        if taint.effect is TaintEffect.NO_PLACE
    )


def architecture(row: Row, ask: Ask) -> bool:
    """The host has the asked architecture."""
    return ask.request.constraints.architecture in (None, row.spec.architecture)


def driver(row: Row, ask: Ask) -> bool:
    """The host has the asked driver."""
    return ask.request.constraints.driver in (None, row.spec.driver)


def capabilities(row: Row, ask: Ask) -> bool:
    """The host has every asked capability."""
    return all(each in row.spec.capabilities for each in ask.request.constraints.capabilities)


def zone(row: Row, ask: Ask) -> bool:
    """The host is in an asked zone."""
    return not ask.request.constraints.zones or row.spec.zone in ask.request.constraints.zones


def rack(row: Row, ask: Ask) -> bool:
    """The host is in an asked rack."""
    return not ask.request.constraints.racks or row.spec.rack in ask.request.constraints.racks


def site(row: Row, ask: Ask) -> bool:
    """The host is at an asked site."""
    return not ask.request.constraints.sites or row.spec.site in ask.request.constraints.sites


def predicate(row: Row, ask: Ask) -> bool:
    """The compiled constraint says yes."""
    asked = ask.request.constraints.predicate
    return asked is None or holds_on(asked, row)


def _hard(ask: Ask, rule: GroupRule) -> list[GroupSpec]:
    return [group for group in ask.groups if group.hard and group.rule is rule]


def members_beside(row: Row, ask: Ask, group: GroupSpec) -> int:
    """Return the group's members in the host's fault domain."""
    return ask.members.get((group.name, row.domain(group.scope)), 0)


def affinity(row: Row, ask: Ask) -> bool:
    """A known domain with a member; the first member may go anywhere known."""
    return all(
        row.domain(group.scope) is not None
        and (ask.sizes[group.name] == 0 or members_beside(row, ask, group) > 0)
        for group in _hard(ask, GroupRule.AFFINITY)
    )


def anti_affinity(row: Row, ask: Ask) -> bool:
    """A known domain without a member."""
    return all(
        row.domain(group.scope) is not None and members_beside(row, ask, group) == 0
        for group in _hard(ask, GroupRule.ANTI_AFFINITY)
    )


def spread(row: Row, ask: Ask) -> bool:
    """A known domain that stays within max skew of the emptiest eligible one."""
    return all(
        row.domain(group.scope) is not None
        and members_beside(row, ask, group) + 1 - ask.fewest[group.name] <= group.max_skew
        for group in _hard(ask, GroupRule.SPREAD)
    )


def max_vms(row: Row, ask: Ask) -> bool:
    """One more VM is allowed."""
    return row.spec.max_vms is None or row.vms + 1 <= row.spec.max_vms


def _enough(row: Row, ask: Ask, resources: set[str]) -> bool:
    """Nothing asked is nothing checked; an exact fit fits."""
    return all(
        amount == 0 or row.committed.get(name, 0) + amount <= row.capacity.get(name, 0)
        for name, amount in ask.request.demand.amounts()
        if name in resources
    )


def cpu(row: Row, ask: Ask) -> bool:
    """Enough cpu is not promised."""
    return _enough(row, ask, {"cpu"})


def memory(row: Row, ask: Ask) -> bool:
    """Enough memory is not promised."""
    return _enough(row, ask, {"memory"})


def disk(row: Row, ask: Ask) -> bool:
    """Enough disk is not promised."""
    return _enough(row, ask, {"disk"})


def extended(row: Row, ask: Ask) -> bool:
    """Enough of every extended resource is not promised."""
    return _enough(row, ask, {name for name, _ in ask.request.demand.extended})


def not_held(row: Row, ask: Ask) -> bool:
    """No resource is short only because something is held."""
    for name, amount in ask.request.demand.amounts():
        left = row.capacity.get(name, 0) - row.committed.get(name, 0) - amount
        if amount > 0 and 0 <= left < row.held.get(name, 0):
            return False
    return True


def devices(row: Row, ask: Ask) -> bool:
    """Enough suitable devices have the share free."""
    asked = ask.request.demand.devices
    return asked is None or bool(pick_devices(row.spec.devices, row.device_free, asked))


def numa(row: Row, ask: Ask) -> bool:
    """The cells can take the VM as it asks."""
    demand = ask.request.demand
    if demand.numa is NumaMode.ANY:
        return True
    amounts = (demand.cpu_milli, demand.memory_bytes)
    return bool(pick_cells(row.spec.cells, row.cell_free, amounts, demand.numa, "lowest"))


TWINS: dict[Reason, Callable[[Row, Ask], bool]] = {
    Reason.NOT_ONLINE: online,
    Reason.NOT_OPEN: is_open,
    Reason.INVENTORY_UNKNOWN: known,
    Reason.PRESSURE: unpressed,
    Reason.NOT_PINNED: pinned,
    Reason.EXCLUDED: not_excluded,
    Reason.LABELS: labels,
    Reason.TAINT: tolerated,
    Reason.ARCHITECTURE: architecture,
    Reason.DRIVER: driver,
    Reason.CAPABILITY: capabilities,
    Reason.ZONE: zone,
    Reason.RACK: rack,
    Reason.SITE: site,
    Reason.PREDICATE: predicate,
    Reason.RULE: rules_hold,
    Reason.RULE_ERROR: rules_without_error,
    Reason.LATENCY: latency,
    Reason.BANDWIDTH: bandwidth,
    Reason.AFFINITY: affinity,
    Reason.ANTI_AFFINITY: anti_affinity,
    Reason.SPREAD: spread,
    Reason.MAX_VMS: max_vms,
    Reason.CPU: cpu,
    Reason.MEMORY: memory,
    Reason.DISK: disk,
    Reason.EXTENDED: extended,
    Reason.HELD: not_held,
    Reason.DEVICE: devices,
    Reason.NUMA: numa,
}

#: What a host must pass for its fault domain to be one that spread rules compare: everything but
#: amounts and groups.
ELIGIBLE = (
    online,
    is_open,
    known,
    unpressed,
    pinned,
    not_excluded,
    labels,
    tolerated,
    architecture,
    driver,
    capabilities,
    zone,
    rack,
    site,
    predicate,
    attributes_allow,
)


def count_fewest(rows: list[Row], ask: Ask) -> None:
    """Fill in each spread group's smallest member count over the domains of eligible hosts."""
    spreading = [group for group in ask.groups if group.rule is GroupRule.SPREAD]
    if not spreading:
        return
    eligible = [row for row in rows if all(passes(row, ask) for passes in ELIGIBLE)]
    for group in spreading:
        known_domains = {row.domain(group.scope) for row in eligible} - {None}
        counts = [ask.members.get((group.name, domain), 0) for domain in known_domains]
        ask.fewest[group.name] = min(counts, default=0)


def fits(row: Row, ask: Ask) -> bool:
    """Say whether the host passes every filter."""
    return all(passes(row, ask) for passes in TWINS.values())


def refusals(row: Row, ask: Ask) -> list[Reason]:
    """Return every reason for which the host is refused."""
    return [reason for reason, passes in TWINS.items() if not passes(row, ask)]
