"""What a user asks of a host besides amounts: constraints, and preferences with weights."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from roost.base.errors import InvalidRequest
from roost.model.outlook import DayCourse
from roost.model.resources import DeviceDemand, NumaMode


class LabelOperator(StrEnum):
    """How a label term compares."""

    IN = "in"
    NOT_IN = "not-in"
    EXISTS = "exists"
    ABSENT = "absent"
    GREATER = "gt"
    LESS = "lt"


def label_operator(name: str) -> LabelOperator:
    """Return the operator of this name, or refuse with the list of those that exist."""
    try:
        return LabelOperator(name)
    except ValueError:
        known = ", ".join(operator.value for operator in LabelOperator)
        raise InvalidRequest(
            f"unknown label operator {name!r}; known operators: {known}", operator=name
        ) from None


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """One condition on a host's labels. A host without the label satisfies only not-in and absent.

    `gt` and `lt` compare whole numbers; a label that is no number satisfies neither.
    """

    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "operator", label_operator(self.operator))
        bare = self.operator in (LabelOperator.EXISTS, LabelOperator.ABSENT)
        if bare and self.values:
            raise InvalidRequest(f"label operator {self.operator.value!r} takes no value")
        if not bare and not self.values:
            raise InvalidRequest(f"label operator {self.operator.value!r} needs a value")
        if self.operator in (LabelOperator.GREATER, LabelOperator.LESS):
            try:
                [_] = [int(value) for value in self.values]
            except ValueError:
                raise InvalidRequest(
                    f"label operator {self.operator.value!r} needs one whole number, "
                    f"not {', '.join(self.values)}"
                ) from None

    def matches(self, labels: dict[str, str]) -> bool:
        """Say whether a host with these labels satisfies the term."""
        value = labels.get(self.key)
        match self.operator:
            case LabelOperator.EXISTS:
                return value is not None
            case LabelOperator.ABSENT:
                return value is None
            case LabelOperator.IN:
                return value in self.values
            case LabelOperator.NOT_IN:
                return value not in self.values
        try:
            number = int(value) if value is not None else None
        except ValueError:
            number = None
        if number is None:
            return False
        bound = int(self.values[0])
        return number > bound if self.operator is LabelOperator.GREATER else number < bound

    def __str__(self) -> str:
        return " ".join(filter(None, (self.key, self.operator.value, ",".join(self.values))))


@dataclass(frozen=True, slots=True)
class Toleration:
    """Permission to be placed despite a taint; an empty key tolerates every taint."""

    key: str = ""
    value: str | None = None  # None: whatever the value

    def covers(self, key: str, value: str) -> bool:
        """Say whether a taint of this key and value is tolerated."""
        return not self.key or (self.key == key and self.value in (None, value))


@dataclass(frozen=True, slots=True)
class Predicate:
    """A compiled constraint: a function from a fleet to a boolean column.

    `name` identifies it (equal names must mean equal functions). A `stable` predicate depends
    only on what a host registered with, so its column is kept; any other is evaluated anew for
    every decision.
    """

    name: str
    column: Callable[[Any], Any] = field(compare=False)
    stable: bool = True


@dataclass(frozen=True, slots=True)
class Preference:
    """A soft wish: a host that does not satisfy the term pays `weight` hundredths of score."""

    term: LabelTerm
    weight: int = 50

    def __post_init__(self) -> None:
        if not 1 <= self.weight <= 100:
            raise InvalidRequest(f"preference weight {self.weight} is not within 1 and 100")


@dataclass(frozen=True, slots=True)
class NearRule:
    """How near a VM must be to another, or to all members of a group: latency, bandwidth.

    `of` is the id of the VM or group, `name` what the owner called it. Both ends are bound by it:
    neither is placed where it would not hold.
    """

    of: str
    name: str
    group: bool = False
    most_us: int | None = None
    least_kbit: int | None = None

    def __post_init__(self) -> None:
        if self.most_us is None and self.least_kbit is None:
            raise InvalidRequest(
                f"how near to {self.name!r} is not said",
                hint="Maybe give a latency in ms or a bandwidth in Mbit/s.",
            )


@dataclass(frozen=True, slots=True)
class Talk:
    """Another VM that this one talks with, by what the fleet calls it, and how near it must be.

    Latency at most `most_us`, bandwidth at least `least_kbit`, where these are asked for.
    """

    key: str
    name: str
    kbit: int = 0
    most_us: int | None = None
    least_kbit: int | None = None


@dataclass(frozen=True, slots=True)
class Constraints:
    """Every hard condition and preference of a request. The default asks for nothing."""

    labels: tuple[LabelTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    architecture: str | None = None
    driver: str | None = None
    capabilities: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()  # one of these hosts
    excluded: tuple[str, ...] = ()  # none of these hosts
    predicate: Predicate | None = None
    preferences: tuple[Preference, ...] = ()
    near: tuple[NearRule, ...] = ()  # what is asked of places is in the request's `talks`


NO_CONSTRAINTS = Constraints()


@dataclass(frozen=True, slots=True)
class BoundRule:
    """What a rule (`model.rules`) asks of hosts for one class of VMs, once the VM is known.

    `text` is what is left of its expression: equal texts mean equal conditions. `parts` is the form
    that `placement.rules` computes with.
    """

    name: str
    text: str
    weight: int | None  # thousandths; None: hard
    priority: int
    parts: Any = field(compare=False, repr=False)

    @property
    def hard(self) -> bool:
        """Say whether the rule refuses hosts rather than charging them."""
        return self.weight is None


@dataclass(frozen=True, slots=True)
class HostRequirements:
    """All that a VM asks for, or is bound by, besides amounts and groups.

    Shared by many VMs, so interned.
    """

    devices: DeviceDemand | None = None
    numa: NumaMode = NumaMode.ANY
    constraints: Constraints = NO_CONSTRAINTS
    rules: tuple[BoundRule, ...] = ()
    talks: tuple[Talk, ...] = ()
    day: DayCourse | None = None  # hosts charge what it adds to their highest part of the day


NO_TERMS = HostRequirements()
