"""What a filter is: a hard rule with its Reason, as a column over the fleet and in the index."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from roost.fleet.layout import BoolArray, Int64Array
from roost.model.reasons import Reason
from roost.placement.question import Question


class IndexForm(StrEnum):
    """How the index enforces a filter without asking every host."""

    MEMBERSHIP = "ranking membership"  # hosts that fail are not in any ranking
    POOL = "pool predicate"  # depends on what hosts registered with: one mark per selector
    CAPACITY = "capacity column"  # a column of headroom that blocks know the maximum of
    DOMAINS = "allowed or banned domains"  # member counts per fault domain
    ROW = "residual row check"  # asked of the hosts that pass all else
    RULES = "columns, floors and inequalities"  # each part of a rule in the way it allows


@dataclass(frozen=True, slots=True)
class Filter:
    """A hard rule.

    `column(question, rows)` says for each of these hosts whether it passes; `applies` is False
    for requests that the rule has nothing to say about. `split` gives the filters that this one
    consists of for a question, where a refusal should name them: parts of rules, by name and text.
    """

    reason: Reason
    summary: str
    form: IndexForm
    applies: Callable[[Question], bool]
    column: Callable[[Question, Int64Array], BoolArray]
    split: "Callable[[Question], tuple[Filter, ...]] | None" = None
    rule: str = ""
    part: str = ""


def always(_: Question) -> bool:
    """Say that a filter applies to every request."""
    return True
