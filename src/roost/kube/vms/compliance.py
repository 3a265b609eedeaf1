"""Whether VMs stand where their rules say: what holds in fact, whoever placed them; pure.

A VM counts as a member of a group by its name alone, whatever rule it has there itself, as labels
of pods do. A VM without a node breaks nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from roost.kube.base.names import ZONE_LABEL
from roost.kube.base.objects import Object
from roost.kube.vms.spec import VM, Group, from_object, group_text
from roost.kube.vms.status import status_of

Labels = Mapping[str, str]


class Violation(Struct, frozen=True, kw_only=True):
    """One rule of one VM that does not hold."""

    namespace: str
    vm: str
    node: str
    rule: str
    wrong: str
    hard: bool = True


class Placed(Struct, frozen=True):
    """A VM and the node that it stands on."""

    vm: VM
    node: str


def placed(items: Iterable[Object]) -> list[Placed]:
    """Return those of some VirtualMachine objects that have a node."""
    return [
        Placed(from_object(item), str(node))
        for item in items
        if (node := status_of(item).get("nodeName"))
    ]


def violations(vms: Iterable[Placed], nodes: Mapping[str, Labels]) -> list[Violation]:
    """Return every rule that does not hold; `nodes` are those that VMs may stand on."""
    vms = sorted(vms, key=lambda each: (each.vm.namespace, each.vm.name))
    members: defaultdict[tuple[str, str], list[Placed]] = defaultdict(list)
    for each in vms:
        for name in {group.name for group in each.vm.groups}:
            members[each.vm.namespace, name].append(each)
    found: list[Violation] = []

    def wrong(each: Placed, rule: str, what: str, *, hard: bool = True) -> None:
        found.append(
            Violation(
                namespace=each.vm.namespace, vm=each.vm.name, node=each.node, rule=rule,
                wrong=what, hard=hard,
            )
        )  # fmt: skip

    for each in vms:
        labels = nodes.get(each.node)
        if labels is None:
            wrong(each, "node", f"{each.node} is not there, or not for VMs")
            continue
        zone = labels.get(ZONE_LABEL)
        if each.vm.zones and zone not in each.vm.zones:
            where = f"zone {zone}" if zone else "no zone"
            wrong(each, f"zones {', '.join(each.vm.zones)}", f"{each.node} is in {where}")
        for key, value in each.vm.node_labels.items():
            if labels.get(key) != value:
                has = f"{key}={labels[key]}" if key in labels else f"no {key}"
                wrong(each, f"label {key}={value}", f"{each.node} has {has}")
        if each.vm.node and each.vm.node != each.node:
            # It was forced when it started; to be moved since is no fault of the scheduler's.
            wrong(each, f"node {each.vm.node}", f"it stands on {each.node}", hard=False)
        for group in each.vm.groups:
            others = members[each.vm.namespace, group.name]
            if problem := _group_problem(each, group, others, nodes):
                wrong(each, group_text(group), problem, hard=group.hard)
    return found


def _group_problem(
    each: Placed, group: Group, members: list[Placed], nodes: Mapping[str, Labels]
) -> str:
    key = group.topology_key
    domain = nodes[each.node].get(key)
    if group.rule == "spread":
        return _spread_problem(each, group, members, nodes, domain)
    others = [other for other in members if other.vm.name != each.vm.name]
    if group.rule == "anti-affinity":
        # Where there is no domain there is nobody to share it with.
        beside = [
            other.vm.name
            for other in others
            if domain is not None and nodes.get(other.node, {}).get(key) == domain
        ]
        return f"{_some(beside)} in the same {group.scope} {domain}" if beside else ""
    if domain is None:
        return f"{each.node} has no {group.scope}"
    # With whom it asked to be: those that ask for the same.
    apart = [
        other.vm.name
        for other in others
        if group in other.vm.groups and nodes.get(other.node, {}).get(key) != domain
    ]
    return f"{_some(apart)} outside of {group.scope} {domain}" if apart else ""


def _spread_problem(
    each: Placed,
    group: Group,
    members: list[Placed],
    nodes: Mapping[str, Labels],
    domain: str | None,
) -> str:
    """Compare with the emptiest domain among nodes that the VM could stand on."""
    if domain is None:
        return f"{each.node} has no {group.scope}"
    keys = {
        other.topology_key
        for other in each.vm.groups
        if other.rule == "spread" and other.hard == group.hard
    }
    counts: Counter[str] = Counter()
    able = {
        name for name, labels in nodes.items()
        if _is_able(each.vm, labels) and all(key in labels for key in keys)
    }  # fmt: skip
    for name in able:
        counts[nodes[name][group.topology_key]] += 0
    for other in members:
        if other.node in able:
            counts[nodes[other.node][group.topology_key]] += 1
    if not able:
        return "no node could hold it"
    least = min(counts, key=lambda name: (counts[name], name))
    if counts[domain] - counts[least] <= group.max_skew:
        return ""
    return (
        f"{counts[domain]} members in {group.scope} {domain}, but {counts[least]} in {least}"
    )  # fmt: skip


def _is_able(vm: VM, labels: Labels) -> bool:
    zone = not vm.zones or labels.get(ZONE_LABEL) in vm.zones
    return zone and all(labels.get(key) == value for key, value in vm.node_labels.items())


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{shown}{more} {'stands' if len(names) == 1 else 'stand'}"
