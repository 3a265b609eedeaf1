"""What analysis foresees: of one VM (`Expected`), of one host (`Predicted`), and from what.

The engine decides by these numbers and never makes them. What is not foreseen is left out, and
then counts as full: a VM as all that it asked for, for ever; a host behind every other.
"""

from dataclasses import dataclass
from typing import NamedTuple

from roost.base.errors import InvalidRequest
from roost.base.units import MAX_AMOUNT

#: When a VM ends of which nobody knows the end; later than any end that is known.
NEVER_S = 2**40
#: The latest end that is known, in the year 10,000.
LATEST_S = 253_402_300_800
#: Parts of a day, three hours each, from midnight UTC, and how finely their levels are told.
DAY_PARTS, DAY_LEVELS = 8, 31
#: The highest use that a day is told of, in millicores: 22 bits beside eight levels of five.
MOST_PEAK_MILLI = 2**22 - 1
#: Characters of a digest.
MOST_DIGEST = 128


def _within(what: str, amount: int | None, most: int = MAX_AMOUNT) -> None:
    if amount is not None and not 0 <= amount <= most:
        raise InvalidRequest(f"{what} {amount} is not within 0 and {most}")


class DayCourse(NamedTuple):
    """How a VM's cpu goes through a day: its highest part in millicores, and the level of each.

    A level is in 31st parts of the highest.
    """

    peak_milli: int
    levels: tuple[int, ...]

    def amounts(self) -> tuple[int, ...]:
        """Return the use of every part of the day, in millicores."""
        return tuple(self.peak_milli * level // DAY_LEVELS for level in self.levels)

    def packed(self) -> int:
        """Return the course as one number; 0 is no course."""
        number = self.peak_milli
        for level in self.levels:
            number = number << 5 | level
        return number


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of one VM; None is unknown.

    `cpu_milli` and `memory_bytes` are what it adds to its host's predicted load. `ends_s` is when
    it will be gone, in seconds since the epoch; `ends_learnt` says that nobody promised that. `day`
    is told of a VM whose days are alike and uneven.
    """

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    ends_s: int | None = None
    ends_learnt: bool = False
    day: DayCourse | None = None

    def __post_init__(self) -> None:
        _within("expected cpu_milli", self.cpu_milli)
        _within("expected memory_bytes", self.memory_bytes)
        _within("expected ends_s", self.ends_s, LATEST_S)
        if self.day is not None:
            _within("the peak of a day", self.day.peak_milli, MOST_PEAK_MILLI)
            if len(self.day.levels) != DAY_PARTS:
                raise InvalidRequest(f"a day has {DAY_PARTS} parts, not {len(self.day.levels)}")
            for level in self.day.levels:
                _within("the level of a part of the day", level, DAY_LEVELS)


NOTHING_EXPECTED = Expected()


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a host will use over the coming hours, at the quantile of its `PredictionBasis`.

    `counted` are the VMs whose use is in the amounts, by the names the fleet has for them; None is
    all that are on the host. The others on the host are added with what is expected of them. The
    ranges and `as_of_s`, the time of the newest sample, are there to be shown.
    """

    cpu_milli: int
    memory_bytes: int
    counted: tuple[str, ...] | None = None
    cpu_range: tuple[int, int] | None = None
    memory_range: tuple[int, int] | None = None
    as_of_s: int | None = None

    def __post_init__(self) -> None:
        _within("predicted cpu_milli", self.cpu_milli)
        _within("predicted memory_bytes", self.memory_bytes)
        _within("as_of_s", self.as_of_s, LATEST_S)
        for low, high in filter(None, (self.cpu_range, self.memory_range)):
            _within("the upper end of a range,", high)
            _within("the lower end of a range,", low, high)


@dataclass(frozen=True, slots=True)
class PredictionBasis:
    """What a fleet's predictions were made from, by digest, and what they mean.

    `quantile_milli`: 900 is the load that is passed one time in ten.
    """

    digest: str
    quantile_milli: int | None = None
    until_s: int | None = None

    def __post_init__(self) -> None:
        if len(self.digest) > MOST_DIGEST:
            raise InvalidRequest(f"a digest of {len(self.digest)} characters is longer than 128")
        _within("quantile_milli", self.quantile_milli, 1000)
        _within("until_s", self.until_s, LATEST_S)


#: That of a fleet for which nothing is predicted.
NO_BASIS = PredictionBasis("")


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a decision by predictions went by: their basis, and what they said of the chosen host.

    `host` is without the VM that was placed; of VMs that were placed together it is with all of
    them. None: nothing was predicted of it.
    """

    basis: PredictionBasis
    host: Predicted | None
