"""The row `cheapest mix`: what a mix costs over the integer optimum, on random cases.

The optimum is another program's: jobs assigned to single machines one by one, without patterns, and
solved to the end. Both answer the same questions; a ratio of 1.00 means that none was dearer.
"""

from dataclasses import dataclass
from random import Random

from ortools.sat.python import cp_model

from benchmarks.results import Result, at_most
from roost.base.units import GIB
from roost.model.job import MachineType
from roost.model.resources import Demand
from roost.providers.mix.problem import MixLimits, Need, Offer, check
from roost.providers.mix.program import cheapest_mix

#: Cases of the row, and jobs of a case.
CASES, JOBS = 50, 9


@dataclass(frozen=True, slots=True)
class MixFigures:
    """What the row shows: mean and worst ratio of costs, and the cases that were compared."""

    mean_ratio: float
    worst_ratio: float
    cases: int
    proven: int


def random_case(seed: int, jobs: int = JOBS) -> tuple[list[Need], list[Offer]]:
    """Return the needs and offers of one case."""
    random = Random(seed)
    needs = [
        Need(Demand(500 * random.randint(1, 14), GIB * random.randint(1, 20)), 1)
        for _ in range(jobs)
    ]
    offers = []
    for cpu in (2, 4, 8):
        for ratio in (2, 4, 8):
            price = round(1000 * (cpu + 0.13 * cpu * ratio) * random.uniform(0.8, 1.2))
            name = f"t{cpu}-{ratio}"
            machine = MachineType(name, cpu * 1000, cpu * ratio * GIB, 100 * GIB, price)
            offers.append(Offer(machine))
    return needs, random.sample(offers, 5)


def optimum(needs: list[Need], offers: list[Offer]) -> tuple[int, int]:
    """Return how many jobs no offer holds, and the least cost of the others."""
    jobs = [need.vector for need in needs for _ in range(need.count)]
    fitting = [j for j in jobs if any(_fits(j, o.vector) for o in offers)]
    model = cp_model.CpModel()
    terms = []
    seats: list[list[cp_model.IntVar]] = [[] for _ in fitting]
    for offer in offers:
        could = [at for at, job in enumerate(fitting) if _fits(job, offer.vector)]
        before = None
        for _ in could:
            used = model.new_bool_var("")
            if before is not None:
                model.add_implication(used, before)
            before = used
            here = {at: model.new_bool_var("") for at in could}
            for at, seat in here.items():
                seats[at].append(seat)
            for part in range(3):
                load = sum(
                    fitting[at][part] // GIB * seat if part else fitting[at][part] * seat
                    for at, seat in here.items()
                )
                whole = offer.vector[part] // GIB if part else offer.vector[part]
                model.add(load <= whole * used)
            terms.append(used * offer.price_micro)
    for each in seats:
        model.add_exactly_one(each)
    model.minimize(sum(terms))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 2
    if solver.solve(model) != cp_model.OPTIMAL:
        raise AssertionError("the reference was not solved to its end")
    return len(jobs) - len(fitting), round(solver.objective_value)


def measure(cases: int = CASES) -> MixFigures:
    """Return the figures of the row, after every answer was checked."""
    ratios, proven = [], 0
    for seed in range(cases):
        needs, offers = random_case(seed)
        mix = cheapest_mix(needs, offers)
        check(mix, needs, offers, MixLimits())
        left, cost = optimum(needs, offers)
        if sum(mix.left) != left:
            raise AssertionError(
                f"case {seed} leaves {sum(mix.left)} jobs, and {left} must be left"
            )
        ratios.append(mix.cost_micro / cost if cost else 1.0)
        proven += mix.proven
    return MixFigures(sum(ratios) / len(ratios), max(ratios), len(ratios), proven)


def cheapest_mix_row(cases: int = CASES) -> Result:
    """Return the row `cheapest mix`; its goal is that no case costs more than the optimum."""
    found = measure(cases)
    note = f"{found.cases} cases, {found.proven} proven; mean {found.mean_ratio:.4f}"
    return at_most("cheapest mix", found.worst_ratio, "x optimum", 1.0, note=note)


def _fits(job: tuple[int, int, int], room: tuple[int, int, int]) -> bool:
    return all(amount <= whole for amount, whole in zip(job, room, strict=True))
