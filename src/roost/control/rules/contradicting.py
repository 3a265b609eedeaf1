"""Rules that cannot hold together, found from their texts alone, whatever the hosts are.

Only what every reader sees: two conjuncts about one field that leave it no value (`demands`). What
is not found here may still have no host (`conflicts`).

A rule has thousands of conjuncts, and is compared with a thousand others. Of each field only what
is strictest is compared (`_Strictest`): bounds below it and values said twice decide nothing. Where
that contradicts, the conjuncts are gone through in their order for the first two that do.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from itertools import chain

from roost.control.rules.demands import Demand, demands_of
from roost.model.rules import Rule
from roost.placement.rules.paths import Path

#: Comparisons for one answer: a second or two. One policy of ordinary rules needs some thousands.
MOST_STEPS = 2_000_000


class Steps:
    """Comparisons that are left of a limit."""

    def __init__(self, most: int) -> None:
        self.left = most

    @property
    def over(self) -> bool:
        """Say whether the limit was reached, so that not all was compared."""
        return self.left < 0

    def take(self, steps: int = 1) -> bool:
        """Count some comparisons; say whether they may still be made."""
        self.left -= steps
        return self.left >= 0


class _Strictest:
    """The demands of one rule on one field that decide whether another one contradicts them."""

    def __init__(self) -> None:
        self._least: Demand | None = None
        self._most: Demand | None = None
        self._values: dict[frozenset[tuple[type, object]], Demand] = {}

    def add(self, demand: Demand) -> None:
        """Keep a demand if it asks for more than those that are kept."""
        if demand.values is not None:
            # True is 1 in a set, but no number: bounds tell them apart.
            self._values.setdefault(frozenset((type(v), v) for v in demand.values), demand)
        elif demand.least is not None:
            before = self._least.least if self._least is not None else None
            if before is None or _beyond(demand.least, before, sign=1):
                self._least = demand
        elif demand.most is not None:
            before = self._most.most if self._most is not None else None
            if before is None or _beyond(demand.most, before, sign=-1):
                self._most = demand

    def __iter__(self) -> Iterator[Demand]:
        yield from (each for each in (self._least, self._most) if each is not None)
        yield from self._values.values()


def _beyond(bound: tuple[float, bool], before: tuple[float, bool], sign: int) -> bool:
    """Say whether a bound leaves less than the one before; NaN bounds nothing."""
    if before[0] != before[0]:
        return True
    return sign * bound[0] > sign * before[0] or (
        bound[0] == before[0] and before[1] and not bound[1]
    )


class _Asked:
    """All that one rule asks, by field; places are those of its conjuncts."""

    def __init__(self, rule: Rule) -> None:
        self.demands = list(demands_of(rule))
        self.places: dict[Path, list[int]] = defaultdict(list)
        self.strictest: dict[Path, _Strictest] = defaultdict(_Strictest)
        for place, demand in enumerate(self.demands):
            self.places[demand.path].append(place)
            self.strictest[demand.path].add(demand)


#: What rules ask is remembered: a rule that is made is compared with a thousand others.
_asked = lru_cache(maxsize=2048)(_Asked)


def contradictions(
    rules: Sequence[Rule], about: Callable[[str], bool], steps: Steps
) -> Iterator[tuple[Demand, Demand]]:
    """Yield the first contradiction of each two hard rules, and of each rule with itself.

    Of two rules at least one is a rule that this is `about`. Ends when all steps are taken.
    """
    asked = {rule.name: _asked(rule) for rule in rules if rule.hard}
    mine = {name for name in asked if about(name)}
    fields = {path for name in mine for path in asked[name].strictest}
    names = [name for name in asked if not fields.isdisjoint(asked[name].strictest)]
    itself = ((name, name) for name in names if name in mine)
    for one, other in chain(itself, _pairs(names, mine)):
        if steps.over:
            return
        found = _first(asked[one], asked[other], steps)
        if found is not None:
            yield found


def _pairs(names: Sequence[str], mine: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield all pairs, in their order, of which one is mine."""
    last = max((at for at, name in enumerate(names) if name in mine), default=-1)
    for at, one in enumerate(names):
        for other in names[at + 1 :] if one in mine else names[at + 1 : last + 1]:
            if one in mine or other in mine:
                yield one, other


def _first(one: _Asked, other: _Asked, steps: Steps) -> tuple[Demand, Demand] | None:
    """Return the first two demands of two rules, or of one, that contradict each other."""
    few, many = sorted((one.strictest, other.strictest), key=len)
    opposed = set()
    for path, strictest in few.items():
        if not steps.take():
            return None
        if path in many and any(_opposes(each, many[path], steps) for each in strictest):
            opposed.add(path)
    if not opposed:
        return None
    for place, demand in enumerate(one.demands):
        if not steps.take():
            return None
        path = demand.path
        if path not in opposed or not _opposes(demand, other.strictest[path], steps):
            continue
        for there in other.places[path]:
            if one is other and there <= place:
                continue
            if not _take(demand, other.demands[there], steps):
                return None
            if demand.contradicts(other.demands[there]):
                return demand, other.demands[there]
    return None


def _opposes(demand: Demand, strictest: _Strictest, steps: Steps) -> bool:
    """Say whether a demand contradicts one of the strictest, itself among them."""
    return any(_take(demand, each, steps) and demand.contradicts(each) for each in strictest)


def _take(one: Demand, other: Demand, steps: Steps) -> bool:
    """Count the comparison of two demands: each of the values that it may look at."""
    sizes = [len(each.values) for each in (one, other) if each.values is not None]
    return steps.take(1 + min(sizes, default=0))
