"""The strategies, in one literal table. Lower scores are better; ties go to the lower number.

Scores are int64 in fixed point: SCORE_ONE (10 x 2^30) is one whole score. With u = committed /
capacity, f = what stays free after the placement over the reference host (64 cores, 256 GiB,
4 TiB, 8 devices), and every ratio rounded down to 2^-30, the formulas below are exact in every
implementation. Preferences and soft groups add their penalties (docs/reference/strategies.md).
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from roost.base.errors import InvalidStrategy
from roost.fleet.assign import EMPTIEST, LOWEST, TIGHTEST
from roost.model.outlook import DayCourse, Expected
from roost.placement.kernels.decide import (
    BY_BOUND,
    BY_DRAW,
    BY_KEY,
    BY_LOSS,
    BY_NUMBER,
    BY_TIER,
    BY_TURN,
)
from roost.placement.kernels.keys import (
    KEY_CELLS,
    KEY_FREE,
    KEY_FREE_DOWN,
    KEY_LOAD,
    KEY_PAIR_DOWN,
    KEY_POSITION,
    KEY_PREDICTED,
    KEY_VMS,
    KIND_MASK,
    SCORE_ONE,
    weighted_kind,
)
from roost.placement.kernels.scores import (
    SCORE_BALANCE,
    SCORE_DOT,
    SCORE_FRAGMENTS,
    SCORE_LIFETIME,
)

__all__ = [
    "DEFAULT_STRATEGY",
    "SCORE_ONE",
    "STRATEGIES",
    "Strategy",
    "strategy_named",
    "weighted_strategy",
]

DEFAULT_STRATEGY = "least_loaded"


@dataclass(frozen=True, slots=True)
class Strategy:
    """A preference among the hosts that fit."""

    name: str
    summary: str
    formula: str
    search: int  # how the host is looked for
    key: int  # what the ranking it walks is ordered by
    score: int  # what a full scan would compute
    cell_rule: int  # which NUMA cell of the chosen host

    def weighted(self, weights: tuple[int, int, int]) -> "Strategy":
        """Return this strategy with other weights of cpu, memory and disk, if it weighs them.

        Each set of weights has a ranking of its own in the index, built when it is first used.
        """
        if not self.weighs:
            return self
        kind = weighted_kind(self.key, *weights)
        return replace(self, key=kind, score=kind)

    @property
    def turns(self) -> bool:
        """Say whether the strategy moves a cursor."""
        return self.search == BY_TURN

    @property
    def draws(self) -> bool:
        """Say whether the strategy draws from the request's seed."""
        return self.search == BY_DRAW

    @property
    def weighs(self) -> bool:
        """Say whether the score weighs cpu, memory and disk, and other weights may be given."""
        return self.score & KIND_MASK in (KEY_LOAD, KEY_FREE, KEY_FREE_DOWN)

    @property
    def needs_mix(self) -> bool:
        """Say whether the strategy looks at the mix of typical requests."""
        return self.score == SCORE_FRAGMENTS

    @property
    def reads_ends(self) -> bool:
        """Say whether the strategy reads when hosts' last VMs will be gone."""
        return self.score == SCORE_LIFETIME

    @property
    def foresees(self) -> bool:
        """Say whether the strategy reads what is predicted of hosts."""
        return self.score == KEY_PREDICTED

    def day_for(self, expected: Expected) -> DayCourse | None:
        """Return the day of a VM, if the strategy has peaks of neighbours lie apart."""
        return expected.day if self.foresees else None

    @property
    def rest(self) -> str:
        """Return what the part of a score is called that no resource explains."""
        return "not predicted" if self.foresees else self.name


STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy(
            "least_loaded",
            "spread the load: the host with the lowest committed share",
            "min 0.4 u(cpu) + 0.4 u(memory) + 0.2 u(disk), before the placement",
            BY_KEY,
            KEY_LOAD,
            KEY_LOAD,
            EMPTIEST,
        ),
        Strategy(
            "best_fit",
            "pack: the fullest and smallest host that still suffices",
            "min 0.4 f(cpu) + 0.4 f(memory) + 0.2 f(disk) + f(devices), after the placement",
            BY_KEY,
            KEY_FREE,
            KEY_FREE,
            TIGHTEST,
        ),
        Strategy(
            "round_robin",
            "take turns: the next host that fits after the last one chosen",
            "the first host number after the cursor, going round",
            BY_TURN,
            KEY_POSITION,
            KEY_POSITION,
            LOWEST,
        ),
        Strategy(
            "random",
            "any host that fits, uniformly, drawn from the request's seed",
            "uniform over the hosts that fit",
            BY_DRAW,
            KEY_POSITION,
            KEY_POSITION,
            LOWEST,
        ),
        Strategy(
            "fewest_vms",
            "the host with the fewest VMs",
            "min VMs / 100",
            BY_KEY,
            KEY_VMS,
            KEY_VMS,
            EMPTIEST,
        ),
        Strategy(
            "first_fit",
            "the first host that fits, in the order of registration",
            "the lowest host number",
            BY_NUMBER,
            KEY_POSITION,
            KEY_POSITION,
            LOWEST,
        ),
        Strategy(
            "worst_fit",
            "the host with the most left after the placement",
            "max 0.4 f(cpu) + 0.4 f(memory) + 0.2 f(disk), after the placement",
            BY_KEY,
            KEY_FREE_DOWN,
            KEY_FREE_DOWN,
            EMPTIEST,
        ),
        Strategy(
            "balance_fit",
            "even out NUMA cells: the host whose cells differ most, in its emptier cell",
            "min 1 - (largest - smallest free share of a cell); first fit unless in one cell",
            BY_BOUND,
            KEY_CELLS,
            SCORE_BALANCE,
            EMPTIEST,
        ),
        Strategy(
            "dot_product",
            "match directions: the host whose free amounts point the way of the demand",
            "max sum of d f: 0.4 cpu, 0.4 memory, 0.2 disk, 1 devices; d = demand / reference",
            BY_BOUND,
            KEY_PAIR_DOWN,
            SCORE_DOT,
            TIGHTEST,
        ),
        Strategy(
            "fragmentation",
            "keep what is left usable for the requests that typically come",
            "min worth lost, worth = sum over typical requests of size x slots left",
            BY_LOSS,
            KEY_POSITION,
            SCORE_FRAGMENTS,
            TIGHTEST,
        ),
        Strategy(
            "metrics_based",
            "spread the real load: the host of which the least use is predicted",
            "min 0.5 p(cpu) + 0.5 p(memory), p = predicted / total; 10 + least_loaded if unknown",
            BY_KEY,
            KEY_PREDICTED,
            KEY_PREDICTED,
            EMPTIEST,
        ),
        Strategy(
            "lifetime_aware",
            "let hosts empty: VMs that end at about the same time go together, then best_fit",
            "min 4 x tier of how long the VM outlasts the host's others + the score of best_fit",
            BY_TIER,
            KEY_FREE,
            SCORE_LIFETIME,
            TIGHTEST,
        ),
    )
}


def strategy_named(name: str) -> Strategy:
    """Return the strategy of this name, or refuse with the list of valid ones."""
    strategy = STRATEGIES.get(name)
    if strategy is None:
        raise InvalidStrategy(name, tuple(STRATEGIES))
    return strategy


@lru_cache(maxsize=1024)
def weighted_strategy(name: str, weights: tuple[int, int, int] | None) -> Strategy:
    """Return the strategy of this name with these weights, or with its own."""
    strategy = strategy_named(name)
    return strategy if weights is None else strategy.weighted(weights)
