"""What an operator sets for continuous mode: how far it may go, and how often it looks."""

from dataclasses import dataclass
from typing import Literal

#: Who its plans are by.
AUTHOR = "continuous"
OFF, RECOMMEND, APPLY = "off", "recommend", "apply"
Mode = Literal["off", "recommend", "apply"]


@dataclass(frozen=True, slots=True)
class ContinuousLimits:
    """The limits of what is planned without being asked for."""

    mode: Mode = "off"
    goals: tuple[str, ...] = ("repair", "headroom", "balance")  # the first that wants moves wins
    every_s: float = 600.0  # between two looks
    most: int = 20  # moves of one plan
    at_once: int = 2  # of them under way at a time
    vm_day: int = 2  # how often one VM may move in a day
    day: int = 200  # and all together
