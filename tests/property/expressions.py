"""Random rules and the VMs they are about, in texts of the rule language."""

from dataclasses import replace
from random import Random

from roost.model.constraints import LabelOperator, LabelTerm
from roost.model.flow import PlaceRequest
from roost.model.rules import WHOLE_FLEET, Rule, RuleScope, RuleSet

CLOCK = (("hour", 22), ("minute", 5), ("weekday", 6))

#: Conditions by what they read, so that every way to compute one is taken.
KEPT = (
    'host.labels.tier == "gold"',
    'host.labels.tier != "silver"',
    'host.zone in ["z1", "z2"]',
    'host.zone == ""',
    'host.rack.startsWith("r")',
    'host.name.endsWith("3")',
    "has(host.labels.ssd)",
    '"live" in host.capabilities',
    'host.taints.exists(t, t.key == "old")',
    'host.taints.all(t, t.effect == "prefer-not")',
    'host.capacity.memory >= quantity("16Gi")',
    "host.capacity.cpu > vm.demand.cpu * 4",
    "int(host.labels.generation) > 5",
    'host.labels.generation.matches("^[0-9]+$")',
    'host.architecture == "x86_64"',
    "size(host.devices) > 0",
    "size(host.labels) >= 2",
    "host.site == vm.labels.site",
    'host.labels[vm.labels.key] == "gold"',
)
AMOUNTS = (
    'host.free.memory >= quantity("4Gi")',
    "host.free.cpu - vm.demand.cpu >= 1000",
    "host.free.disk > 0",
    "host.free.cpu + 500 > 2 * vm.demand.cpu",
    "2 * host.free.cpu >= 7001",
    "host.free.cpu > 3500",
    'cores("500m") < host.committed.cpu',
    "host.vms < 3",
    "host.committed.cpu * 2 <= host.capacity.cpu",
    "host.free.cpu == host.capacity.cpu",
    'host.committed.memory <= quantity("3Gi")',
    "-host.free.cpu < -2000",
    "host.free.cpu * 9223372036854775807 > 0",
)
ANEW = (
    "host.free.cpu % 1000 == 0",
    "host.free.memory / host.capacity.memory > 0",
    "!(host.zone in group.zones)",
    "size(group.hosts) < 2 || host.name in group.hosts",
    "group.size < 3",
    "fleet.load < 0.2",
    "fleet.vms < 6",
    "host.used.cpu < 1000",
    "project.vms < 3",
    "project.committed.cpu + vm.demand.cpu <= project.quota.cpu",
    "project.vms + 2 <= project.most_vms || host.vms == 0",
    "host.free.memory > project.committed.memory",
    "host.free.licences >= 1",
    "host.committed.memory != 0",
    "host.free.cpu * 2 > fleet.free.cpu / fleet.hosts",
)
OF_THE_VM = (
    'vm.labels.role == "db"',
    "has(vm.labels.role)",
    "vm.demand.cpu > 1000",
    'vm.name.endsWith("1")',
    "vm.priority > 0",
    'project.name == "p1"',
    "fleet.hour >= 22 || fleet.hour < 6",
    "fleet.weekday == 1",
    'vm.strategy == "best_fit"',
)


def condition(rng: Random, depth: int = 2) -> str:
    """Return a condition."""
    if depth == 0 or rng.random() < 0.35:
        kind = rng.choices((KEPT, AMOUNTS, ANEW, OF_THE_VM), (4, 3, 1, 2))[0]
        return rng.choice(kind)
    one, other = condition(rng, depth - 1), condition(rng, depth - 1)
    match rng.choice(("and", "and", "or", "or", "not", "if")):
        case "and":
            return f"({one}) && ({other})"
        case "or":
            return f"({one}) || ({other})"
        case "not":
            return f"!({one})"
    return f"({one}) ? ({other}) : ({condition(rng, 0)})"


def scope(rng: Random) -> RuleScope:
    """Return which VMs a rule is for: mostly all of them."""
    if rng.random() < 0.6:
        return WHOLE_FLEET
    selector = (LabelTerm("role", rng.choice((LabelOperator.EXISTS, LabelOperator.ABSENT))),)
    some = (RuleScope(project="p1"), RuleScope(selector=selector), RuleScope("p2", "", selector))
    return rng.choice(some)


def rules(seed: int, soft: bool) -> tuple[RuleSet, tuple[tuple[str, int], ...]]:
    """Return the rules of a seed, and the time as they read it."""
    rng = Random(f"{seed}/rules")
    made = tuple(
        Rule(
            f"rule-{number}",
            condition(rng, rng.choice((0, 1, 2))),
            rng.choice((0, 1, 300, 1000)) if rng.random() < (0.8 if soft else 0.2) else None,
            rng.choice((0, 0, 1, 7)),
            scope(rng),
        )
        for number in range(rng.randint(1, 5))
    )
    return RuleSet(made, seed), CLOCK


def subject(asked: PlaceRequest, rng: Random) -> PlaceRequest:
    """Return the request with what rules read of its VM."""
    labels = {"role": ("db", "web"), "site": ("s1", "s2"), "key": ("tier", "ssd")}
    chosen = tuple((key, rng.choice(labels[key])) for key in labels if rng.random() < 0.5)
    names = [f"rule-{number}" for number in range(5)]
    return replace(
        asked,
        project=rng.choice(("p1", "p2")),
        priority=rng.choice((0, 5)),
        labels=chosen,
        lifted=tuple(name for name in names if rng.random() < 0.05),
    )
