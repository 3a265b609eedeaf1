"""One request in the numbers of one fleet: what whole-fleet filters are asked about."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roost.fleet.fleet import Fleet
from roost.fleet.layout import BoolArray, Int64Array
from roost.model.constraints import HostRequirements

if TYPE_CHECKING:
    from roost.placement.nearness import Nearness
    from roost.placement.rules.columns import RuleColumns


@dataclass(frozen=True, slots=True)
class Question:
    """A request beside the fleet it is asked of.

    `eligible(question, rows)` says which hosts satisfy everything but amounts and groups; the
    spread filter needs it, and gets it handed in because filters do not see each other. `rules`
    computes what the rules among the terms say of hosts, `near` how far those are that it talks
    with.
    """

    fleet: Fleet
    demand: Int64Array
    terms: HostRequirements
    groups: tuple[int, ...]
    eligible: "Callable[[Question, Int64Array], BoolArray]"
    rules: "RuleColumns"
    near: "Nearness"
