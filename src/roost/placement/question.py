"""One request in the numbers of one fleet: what whole-fleet filters are asked about."""

from collections.abc import Callable
from dataclasses import dataclass

from roost.fleet.fleet import Fleet
from roost.fleet.layout import BoolArray, Int64Array
from roost.model.constraints import HostRequirements


@dataclass(frozen=True, slots=True)
class Question:
    """A request beside the fleet it is asked of.

    `eligible(question, rows)` says which hosts satisfy everything but amounts and groups; the
    spread filter needs it, and gets it handed in because filters do not see each other.
    """

    fleet: Fleet
    demand: Int64Array
    terms: HostRequirements
    groups: tuple[int, ...]
    eligible: "Callable[[Question, Int64Array], BoolArray]"
