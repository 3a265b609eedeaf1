"""Groups: sets of VMs that want to be together, apart, or evenly spread.

The rule belongs to the group, not to the member: every member obeys it and is counted by it, so a
rule can never hold in one direction only.
"""

from dataclasses import dataclass
from enum import IntEnum

from roost.base.errors import InvalidRequest
from roost.model.hosts import Scope


class GroupRule(IntEnum):
    """What a group asks of its members' fault domains."""

    AFFINITY = 0  # a domain that already has a member (the first may go anywhere)
    ANTI_AFFINITY = 1  # a domain that has no member yet
    SPREAD = 2  # domains that differ by at most max_skew members

    @property
    def label(self) -> str:
        """Return the word people read."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group's name and rule. Soft rules cost `weight` hundredths of score instead of refusing."""

    name: str
    rule: GroupRule
    scope: Scope = Scope.HOST
    hard: bool = True
    max_skew: int = 1
    weight: int = 50

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidRequest("a group needs a name")
        if not 1 <= self.max_skew <= 1_000_000:
            raise InvalidRequest(f"max skew {self.max_skew} of group {self.name!r} is less than 1")
        if not 1 <= self.weight <= 100:
            raise InvalidRequest(f"weight {self.weight} of group {self.name!r} is not in 1..100")
