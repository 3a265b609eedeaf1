"""Rules: conditions that somebody other than the VM's owner puts on where VMs may be.

A rule is a text in the rule language (`roost.rules`), hard or with a weight, for the VMs that its
scope names. A `RuleSet` is all that hold at one time; its generation says which time that was. What
a rule means for one class of VMs is worked out in `placement.rules`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from roost.base.errors import InvalidRequest
from roost.model.constraints import LabelOperator, LabelTerm

#: Thousandths in the weight 1.
WHOLE_WEIGHT = 1000

#: Priorities of soft rules lie between 0 and this.
MOST_PRIORITY = 1_000_000


@dataclass(frozen=True, slots=True)
class RuleScope:
    """Which VMs a rule is for: those that satisfy everything given here; nothing given: all."""

    project: str = ""
    vm: str = ""  # its key in the fleet, or its name
    selector: tuple[LabelTerm, ...] = ()  # on the VM's own labels
    policy: str = ""  # the one that the VM was created under

    @classmethod
    def with_labels(
        cls, project: str, vm: str, labels: Mapping[str, str], policy: str = ""
    ) -> Self:
        """Return the scope of a project's or policy's VMs, or of one, that have these labels."""
        pairs = sorted(labels.items())
        terms = tuple(LabelTerm(k, LabelOperator.IN, (v,)) for k, v in pairs)
        return cls(project, vm, terms, policy)


WHOLE_FLEET = RuleScope()


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on hosts, and how much it counts.

    Without a weight the rule is hard: no host that fails it is chosen. With one it is soft: a host
    that fails it pays up to `weight` thousandths of a score. Rules of a higher priority are
    compared first, so no sum of lower ones outbids them.
    """

    name: str
    expression: str
    weight: int | None = None  # thousandths; None: hard
    priority: int = 0
    scope: RuleScope = WHOLE_FLEET

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidRequest("a rule needs a name")
        if self.weight is not None and not 0 <= self.weight <= WHOLE_WEIGHT:
            raise InvalidRequest(
                f"weight {self.weight / WHOLE_WEIGHT} of rule {self.name!r} is not within 0 and 1"
            )
        if not 0 <= self.priority <= MOST_PRIORITY:
            raise InvalidRequest(
                f"priority {self.priority} of rule {self.name!r} is not within "
                f"0 and {MOST_PRIORITY}"
            )

    @property
    def hard(self) -> bool:
        """Say whether the rule refuses hosts rather than charging them."""
        return self.weight is None


@dataclass(frozen=True, slots=True)
class Choice:
    """How a policy chooses among the hosts that fit; what is left out is as without a policy.

    `weights` are the shares of cpu, memory and disk in the scores of strategies that weigh them.
    """

    strategy: str | None = None
    weights: tuple[int, int, int] | None = None


NO_CHOICE = Choice()


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules that hold together, in the order in which refusals name them.

    `choices` has every policy there is by name, also one that leaves the choice as it is.
    """

    rules: tuple[Rule, ...] = ()
    generation: int = 0
    choices: Mapping[str, Choice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidRequest(f"rule {twice!r} is in the set twice", rule=twice)

    def __bool__(self) -> bool:
        return bool(self.rules)


NO_RULES = RuleSet()
