"""Policies: named bundles of how VMs are placed, kept and restarted, with versions.

A policy says a strategy and the weights of its resources, rules, bounds of overcommitment, how its
VMs are spread, whether they may displace others and where they restart. What a VM's owner says
himself comes before. To the engine a policy is rules that are for its VMs alone (`rules_of`), and a
choice of strategy (`choice_of`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd

from roost.model.rules import Choice, Rule, RuleScope
from roost.model.states import Restart

#: Hundredths in the ratio 1 of an overcommitment.
WHOLE_RATIO = 100
#: Names of rules that begin so are the policy's own bounds of overcommitment.
OVERCOMMIT = "overcommit-"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule of a policy: hard without a weight, else soft by so many thousandths."""

    name: str
    expression: str
    weight: int | None = None
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class PolicySpread:
    """How the VMs that one project has of a policy are spread: over hosts, racks or zones."""

    scope: str = "host"
    hard: bool = False
    max_skew: int = 1
    weight: int = 50


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one version of a policy says; what is left out it leaves to others.

    `weights` are shares of cpu, memory and disk in the strategy's score, `overcommit` the most that
    hosts promise of a resource for its VMs, in hundredths of what they have.
    """

    strategy: str | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    rules: tuple[PolicyRule, ...] = ()
    overcommit: Mapping[str, int] = field(default_factory=dict)
    spread: PolicySpread | None = None
    preemption: str | None = None
    restart: Restart | None = None


def rule_id(policy: str, name: str) -> str:
    """Return what reasons call a rule of a policy; no constraint has such an id."""
    return f"policy:{policy}/{name}"


def rules_of(policy: str, bundle: Bundle) -> tuple[Rule, ...]:
    """Return a policy's rules as the engine takes them, its bounds of overcommitment first."""
    scope = RuleScope(policy=policy)
    bounds = [
        Rule(rule_id(policy, OVERCOMMIT + resource), _bound(resource, ratio), scope=scope)
        for resource, ratio in sorted(bundle.overcommit.items())
    ]
    own = [
        Rule(rule_id(policy, rule.name), rule.expression, rule.weight, rule.priority, scope)
        for rule in bundle.rules
    ]
    return (*bounds, *own)


def choice_of(bundle: Bundle) -> Choice:
    """Return how a policy chooses among the hosts that fit."""
    weights = None
    if bundle.weights:
        cpu, memory, disk = (bundle.weights.get(name, 0) for name in ("cpu", "memory", "disk"))
        weights = cpu, memory, disk
    return Choice(bundle.strategy, weights)


def _bound(resource: str, ratio: int) -> str:
    """Return a bound of overcommitment in the rule language: whole numbers, so it is exact."""
    common = gcd(ratio, WHOLE_RATIO)
    promised = f"host.committed.{resource} + vm.demand.{resource}"
    if common != WHOLE_RATIO:
        promised = f"({promised}) * {WHOLE_RATIO // common}"
    return f"{promised} <= host.total.{resource} * {ratio // common}"
