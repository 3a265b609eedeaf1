"""Moves that lower a problem's cost: the planner's search, any-time and the same for a seed.

The search anneals: random moves, exchanges and chains, of which also worse ones are made while it
is hot (ADR-0038). It then walks down until nothing within a move or an exchange is better, and
takes back every move whose cost outweighs what it gains. Where only so many VMs may move it chooses
them instead: one goes home for each that is chosen beyond that (ADR-0083). It reads no clock:
`search` makes a number of steps, `search_while` asks its caller for the share of the time that is
gone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from roost.fleet.layout import Int32Array
from roost.planner.kernels.annealing import anneal
from roost.planner.kernels.choosing import Chosen, choose
from roost.planner.kernels.descending import descend, take_back
from roost.planner.kernels.moving import move_many
from roost.planner.kernels.ruining import Hand, ruin
from roost.planner.kernels.tables import COST, State
from roost.planner.layout import cost_of, facts_of, sizes_of, state_of
from roost.planner.problem import APART, COUNTED, RULE, WEIGHT, WIDE, Problem, Step

#: Trials between two looks at the temperature.
BATCH = 20_000
#: Share of the cost that a proposal must take away.
LEAST_SHARE = 0.1
_ODDS = -np.log((np.arange(4096) + 0.5) / 4096)
#: Exchanges in 1024 trials.
_EXCHANGES = 512
#: A round of ruin and recreate for so many trials, with VMs of so many hosts, at most so many VMs.
_STEPS_A_ROUND = 50
_RUINED_HOSTS = 2
_IN_HAND = 10
#: Hosts up to which a search ruins and recreates; VMs x hosts up to which it asks for all moves.
_MOST_RUINED = 600
_MOST_DESCENDED = 2_000_000
#: What is left of the first temperature when the last tenth begins, in which it falls to nothing.
_COOLED = 0.03
_LAST = 0.9


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found: moves of VM rows to host rows, the costs before and after."""

    moves: tuple[Step, ...]
    place: Int32Array
    cost_before: int
    cost: int
    steps: int


def search(
    problem: Problem,
    steps: int,
    seed: int = 0,
    heat: float | None = None,
    most: int | None = None,
) -> Found:
    """Search with so many trials: the same moves for the same problem, steps and seed."""
    batches = max(1, steps // BATCH)
    done = iter(range(batches + 1))
    return search_while(problem, lambda: next(done) / batches, seed, heat, most)


def search_while(
    problem: Problem,
    gone: Callable[[], float],
    seed: int = 0,
    heat: float | None = None,
    most: int | None = None,
) -> Found:
    """Search until `gone`, asked between batches of trials, says that all the time is gone (1.0).

    The best that was seen is returned; a caller that stops early has that as well.
    """
    search = Search(problem, seed, heat, most)
    while (share := gone()) < 1.0:
        search.run(share)
    return search.finish()


def propose(
    problem: Problem,
    steps: int,
    seed: int = 0,
    *,
    least_share: float = LEAST_SHARE,
    least: int = 0,
    most: int | None = None,
) -> Found:
    """Search straight down, and propose nothing unless the cost falls by a worthwhile amount.

    Worthwhile is a share of the cost, and an amount where one is given. Together with a cost for
    every move this keeps the planner calm: on its own result there is nothing left to find that
    would be worth disturbing VMs for. Of more moves than `most` the best so many are searched for.
    """
    found = _straight_down(problem, steps, seed, None)
    if most is not None and len(found.moves) > most:
        found = _straight_down(problem, steps, seed, most)
    gain = found.cost_before - found.cost
    if found.moves and gain >= least and gain >= least_share * found.cost_before:
        return found
    return Found((), problem.start.copy(), found.cost_before, found.cost_before, found.steps)


def _straight_down(problem: Problem, steps: int, seed: int, most: int | None) -> Found:
    search = Search(problem, seed, heat=0.0, most=most)
    while search.steps < steps and not search.settled:
        search.run(0.0)
    return search.finish()


class Search:
    """One search: a problem, the VMs where they are now, and the best that was seen.

    With `most` it asks another question: which so many VMs to move, and where to.
    """

    def __init__(
        self,
        problem: Problem,
        seed: int = 0,
        heat: float | None = None,
        most: int | None = None,
    ) -> None:
        self.problem = problem
        self.chosen = None if most is None else chosen_of(problem, most)
        self.facts = facts_of(problem)
        self.state: State = state_of(problem, self.facts, problem.start, seed)
        self.cost_before = self.best_cost = int(self.state.sums[COST])
        self.best = problem.start.copy()
        self.hand = hand_of(problem)
        self.steps = 0
        self._gains: list[int] = []
        self.heat = first_heat(problem, self.cost_before) if heat is None else heat

    @property
    def cost(self) -> int:
        """Return the cost of where the VMs are now."""
        return int(self.state.sums[COST])

    def run(self, share: float, steps: int = BATCH) -> None:
        """Make a batch of trials at the temperature of this share of the whole search."""
        heat = self.heat * _COOLED ** (share / _LAST)
        if share > _LAST:
            heat *= 10 ** (-5 * (share - _LAST) / (1 - _LAST))
        if not len(self.facts.movable) or self.problem.hosts < 2:
            pass
        elif self.chosen is not None:
            if len(self.chosen.vm):
                choose(self.facts, self.state, self.chosen, steps, heat, _ODDS)
        else:
            anneal(self.facts, self.state, steps, heat, _ODDS, _EXCHANGES)
            rounds = steps // _STEPS_A_ROUND if self.problem.hosts <= _MOST_RUINED else 0
            ruin(self.facts, self.state, self.hand, rounds, heat, _ODDS, _RUINED_HOSTS)
        self.steps += steps
        self._gains.append(self.best_cost - self.cost)
        self._note()

    @property
    def settled(self) -> bool:
        """Say whether ten trials for each VM gained next to nothing."""
        batches = 3 + 10 * self.problem.vms // BATCH
        gained = sum(max(0, gain) for gain in self._gains[-batches:])
        return len(self._gains) >= batches and gained * 500 <= self.best_cost

    def finish(self) -> Found:
        """Go on from the best to where no move or exchange is better, and say what was found."""
        move_many(self.facts, self.state, self.best)
        self.state.sums[COST] = self.best_cost
        for _ in range(100):
            before = self.cost
            if self.chosen is None and self.problem.vms * self.problem.hosts <= _MOST_DESCENDED:
                descend(self.facts, self.state)
            take_back(self.facts, self.state)
            if self.cost == before:
                break
        self._note()
        moved = np.flatnonzero(self.best != self.problem.start)
        moves = tuple(zip(moved.tolist(), self.best[moved].tolist(), strict=True))
        return Found(moves, self.best, self.cost_before, self.best_cost, self.steps)

    def _note(self) -> None:
        if self.cost < self.best_cost:
            self.best_cost = self.cost
            self.best[:] = self.state.place


def hand_of(problem: Problem) -> Hand:
    """Return an empty hand for rounds of ruin and recreate."""
    hard = problem.groups[:, WEIGHT] == 0
    kept = hard & np.isin(problem.groups[:, RULE], (APART, WIDE, COUNTED))
    liftable = ~problem.fixed
    liftable[problem.members[np.repeat(~kept, np.diff(problem.member_start))]] = False
    return Hand(
        vm=np.zeros(_IN_HAND, np.int32),
        source=np.zeros(_IN_HAND, np.int32),
        taken=np.zeros(len(problem.groups) + 1, np.int64),
        liftable=liftable,
        size=sizes_of(problem),
    )


def chosen_of(problem: Problem, most: int) -> Chosen:
    """Return an empty list of so many VMs that may be away from their start."""
    return Chosen(
        vm=np.zeros(min(most, problem.vms), np.int32),
        at=np.full(problem.vms, -1, np.int32),
        how_many=np.zeros(1, np.int64),
    )


def first_heat(problem: Problem, cost: int) -> float:
    """Return the temperature to begin with: a few times a VM's share of the cost."""
    return max(1.0, 2.5 * cost / max(1, problem.vms))


__all__ = ["Found", "Search", "cost_of", "propose", "search", "search_while"]
