"""Choose machines by an integer program over the ways to fill them.

    minimise  price of what is rented  (then the number of machines: two slots merge into one)
    so that   every need is served, or left at a cost above any machine's; limits hold

Its size goes by distinct demands, not by jobs: ten thousand jobs of one array are one need. If all
maximal ways can be listed the optimum is exact. Else demands that hardly differ are rounded up to
one, and columns are made where the linear program says that they pay; `proven` is then False. The
solver runs on one thread and counts its own steps, so that the same question has the same answer.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, gcd

from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from roost.providers.mix.patterns import Counts, TooMany, greedy, maximal, orders, times_in
from roost.providers.mix.problem import Filled, Mix, MixLimits, Need, Offer, Vector, fits

#: Steps of listing all ways, of one offer; a step is about a microsecond.
_STEPS = 30_000
#: Columns of a complete program, and distinct demands of one that is not.
_MOST_COLUMNS = 20_000
_MOST_CLASSES = 24
_ROUNDS = 8
#: Above what sums of weights may reach in 64 bits.
_BEYOND = 2**61
#: Of the solver's own measure of work; about seconds.
_EFFORT = 4.0
#: The same where the columns are not all there are, and an optimum of them proves nothing.
_LESS_EFFORT = 0.4


@dataclass(frozen=True, slots=True)
class _Column:
    offer: int
    holds: Counts


def cheapest_mix(
    needs: Sequence[Need],
    offers: Sequence[Offer],
    limits: MixLimits | None = None,
    *,
    effort: float = _EFFORT,
) -> Mix:
    """Return the cheapest machines that serve the needs, as far as offers and limits allow."""
    limits = limits or MixLimits()
    usable = [at for at, offer in enumerate(offers) if offer.most != 0]
    served = [
        at
        for at, need in enumerate(needs)
        if any(fits(need.vector, offers[each].vector) for each in usable)
    ]
    classes = _classes([needs[at] for at in served], [offers[each].vector for each in usable])
    if not classes:
        return Mix((), 0, tuple(need.count for need in needs), True)
    vectors = [each.vector for each in classes]
    counts = [each.count for each in classes]
    try:
        columns, complete = _all_columns(vectors, counts, offers, usable), True
    except TooMany:
        columns, complete = _paying_columns(vectors, counts, offers, usable), False
    exact = complete and all(
        needs[served[at]].vector == each.vector for each in classes for at in each.members
    )
    effort = effort if complete else min(effort, _LESS_EFFORT)
    chosen, left, proven = _solve(classes, columns, offers, limits, effort)
    bound = _bound(vectors, counts, offers, usable)
    members = [[served[at] for at in each.members] for each in classes]
    return _answer(needs, offers, members, chosen, left, exact and proven, bound)


# Needs as classes


@dataclass(frozen=True, slots=True)
class _Class:
    vector: Vector
    count: int
    weight: int
    members: tuple[int, ...]  # needs


def _classes(needs: Sequence[Need], rooms: Sequence[Vector]) -> list[_Class]:
    """Return the needs as classes of equal demand, rounded up as far as it takes to be few."""
    steps = 0  # of an octave; 0: as they are
    while True:
        groups: dict[tuple[Vector, int], list[int]] = defaultdict(list)
        for at, need in enumerate(needs):
            groups[_rounded(need.vector, steps, rooms), need.weight].append(at)
        if len(groups) <= _MOST_CLASSES or steps == 1:
            break
        steps = steps // 2 if steps else 16
    return [
        _Class(vector, sum(needs[at].count for at in members), weight, tuple(members))
        for (vector, weight), members in sorted(groups.items(), reverse=True)
    ]


def _rounded(vector: Vector, steps: int, rooms: Sequence[Vector]) -> Vector:
    """Round amounts up to so many steps of an octave, unless some machine holds only the exact."""
    if steps == 0:
        return vector
    up = [_round_up(amount, steps) for amount in vector]
    rounded = (up[0], up[1], up[2])
    lost = any(fits(vector, room) and not fits(rounded, room) for room in rooms)
    return vector if lost else rounded


def _round_up(amount: int, steps: int) -> int:
    unit = max(1, (1 << amount.bit_length() >> 1) // steps)
    return -(-amount // unit) * unit


# Columns


def _all_columns(
    vectors: list[Vector], counts: list[int], offers: Sequence[Offer], usable: list[int]
) -> list[_Column]:
    found: list[_Column] = []
    for at in usable:
        ways = maximal(vectors, counts, offers[at].vector, most=_STEPS)
        found += [_Column(at, way) for way in sorted(ways, reverse=True)]
        if len(found) > _MOST_COLUMNS:
            raise TooMany
    return found


def _paying_columns(
    vectors: list[Vector], counts: list[int], offers: Sequence[Offer], usable: list[int]
) -> list[_Column]:
    """Return columns made where they pay by the prices that the linear program puts on needs."""
    columns: dict[_Column, None] = {}
    for at in usable:
        for order in orders(vectors, offers[at].vector, [1.0] * len(vectors)):
            _keep(columns, _Column(at, greedy(vectors, counts, offers[at].vector, order)))
        for alone, vector in enumerate(vectors):
            times = times_in(vector, offers[at].vector, counts[alone])
            holds = tuple(times if each == alone else 0 for each in range(len(vectors)))
            _keep(columns, _Column(at, holds))
    for _ in range(_ROUNDS):
        worth = _worth(counts, list(columns), offers)
        before = len(columns)
        for at in usable:
            for order in orders(vectors, offers[at].vector, worth):
                paying = [each for each in order if worth[each] > 0]
                rest = [each for each in order if worth[each] <= 0]
                way = greedy(vectors, counts, offers[at].vector, paying + rest)
                gain = sum(each * times for each, times in zip(worth, way, strict=True))
                if gain > offers[at].price_micro * (1 + 1e-9):
                    _keep(columns, _Column(at, way))
        if len(columns) == before:
            break
    return list(columns)


def _keep(columns: dict[_Column, None], column: _Column) -> None:
    if any(column.holds):
        columns.setdefault(column)


def _worth(counts: list[int], columns: list[_Column], offers: Sequence[Offer]) -> list[float]:
    """Return what one more of each need would cost, by the linear program."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    rented = [solver.NumVar(0, solver.infinity(), "") for _ in columns]
    rows = []
    for need, count in enumerate(counts):
        row = solver.Constraint(float(count), solver.infinity())
        for variable, column in zip(rented, columns, strict=True):
            if column.holds[need]:
                row.SetCoefficient(variable, column.holds[need])
        rows.append(row)
    for variable, column in zip(rented, columns, strict=True):
        solver.Objective().SetCoefficient(variable, float(offers[column.offer].price_micro))
    solver.Objective().SetMinimization()
    solver.Solve()
    return [max(0.0, row.dual_value()) for row in rows]


# The program


def _solve(
    classes: list[_Class],
    columns: list[_Column],
    offers: Sequence[Offer],
    limits: MixLimits,
    effort: float,
) -> tuple[list[tuple[_Column, int]], list[int], bool]:
    """Return how many machines of each column, how many of each class are left, and if proven."""
    model = cp_model.CpModel()
    total = sum(each.count for each in classes)
    most = total if limits.machines is None else min(total, limits.machines)
    rented = [model.new_int_var(0, min(most, _most_of(each, classes)), "") for each in columns]
    left = [model.new_int_var(0, each.count, "") for each in classes]
    for need, each in enumerate(classes):
        holding = [
            (variable, column.holds[need]) for variable, column in zip(rented, columns, strict=True)
        ]
        model.add(
            sum(variable * times for variable, times in holding if times) + left[need] >= each.count
        )
    _add_limits(model, rented, columns, offers, limits, most)
    prices = [offers[column.offer].price_micro for column in columns]
    scale, missing, whole = _weights(classes, columns, prices, most)
    model.minimize(
        sum(
            variable * (price // whole * scale + 1)
            for variable, price in zip(rented, prices, strict=True)
        )
        + sum(
            variable * (missing * each.weight) for variable, each in zip(left, classes, strict=True)
        )
    )
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return [], [each.count for each in classes], False
    chosen = [
        (column, times)
        for variable, column in zip(rented, columns, strict=True)
        if (times := solver.value(variable))
    ]
    return chosen, [solver.value(each) for each in left], status == cp_model.OPTIMAL and scale > 1


def _most_of(column: _Column, classes: list[_Class]) -> int:
    """Return how many machines of a column can be of use."""
    pairs = zip(column.holds, classes, strict=True)
    return max(-(-each.count // times) for times, each in pairs if times)


def _weights(
    classes: list[_Class], columns: list[_Column], prices: list[int], most: int
) -> tuple[int, int, int]:
    """Return the weight of a price, of one that is left, and what prices are divided by.

    A tie goes to fewer machines, so a price counts more than all machines; who is left counts more
    than all prices. Where that is beyond 64 bits prices are rounded, and nothing is proven.
    """
    whole = gcd(*prices) or 1
    for rounding in (1, 1000, 1_000_000):
        divisor, scale = whole * rounding, most + 1
        dearest = sum(
            each.count
            * max(prices[at] // divisor for at, column in enumerate(columns) if column.holds[need])
            for need, each in enumerate(classes)
        )
        missing = dearest * scale + most + 1
        if missing * sum(each.count * each.weight for each in classes) < _BEYOND:
            return (scale, missing, divisor) if rounding == 1 else (1, missing, divisor)
    return 1, _BEYOND // max(1, sum(each.count * each.weight for each in classes)), divisor


def _add_limits(
    model: cp_model.CpModel,
    rented: list[cp_model.IntVar],
    columns: list[_Column],
    offers: Sequence[Offer],
    limits: MixLimits,
    most: int,
) -> None:
    model.add(sum(rented) <= most)
    pairs = list(zip(rented, columns, strict=True))
    if limits.cpu_milli is not None:
        cpu = sum(variable * offers[each.offer].type.cpu_milli for variable, each in pairs)
        model.add(cpu <= limits.cpu_milli)
    if limits.budget_micro is not None:
        cost = sum(variable * offers[each.offer].price_micro for variable, each in pairs)
        model.add(cost <= limits.budget_micro)
    for at, offer in enumerate(offers):
        if offer.most is not None:
            model.add(sum(variable for variable, each in pairs if each.offer == at) <= offer.most)


def _bound(
    vectors: list[Vector], counts: list[int], offers: Sequence[Offer], usable: list[int]
) -> int:
    """Return a cost below which nothing holds all needs: amounts poured like water."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    rented = {at: solver.NumVar(0, solver.infinity(), "") for at in usable}
    for part in range(3):
        whole = sum(vector[part] * count for vector, count in zip(vectors, counts, strict=True))
        if whole:
            row = solver.Constraint(1.0, solver.infinity())
            for at, variable in rented.items():
                row.SetCoefficient(variable, offers[at].vector[part] / whole)
    for at, variable in rented.items():
        solver.Objective().SetCoefficient(variable, float(offers[at].price_micro))
    solver.Objective().SetMinimization()
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return 0
    return max(0, ceil(float(solver.Objective().Value()) * (1 - 1e-9) - 1))


# The answer


def _answer(
    needs: Sequence[Need],
    offers: Sequence[Offer],
    members: list[list[int]],
    chosen: list[tuple[_Column, int]],
    left: list[int],
    proven: bool,
    bound: int,
) -> Mix:
    """Hand the needs of each class out to the machines that hold it; what is over stays empty."""
    waiting = [need.count for need in needs]
    more = [
        sum(needs[at].count for at in each) - short
        for each, short in zip(members, left, strict=True)
    ]
    found: Counter[tuple[int, tuple[tuple[int, int], ...]]] = Counter()
    for column, machines in chosen:
        remaining = machines
        while remaining:
            holds, same = _one_fill(column.holds, members, waiting, more, remaining)
            if holds:
                found[column.offer, holds] += same
                for need, times in holds:
                    waiting[need] -= times * same
                for group, each in enumerate(members):
                    more[group] -= same * sum(times for need, times in holds if need in each)
            remaining -= same
    filled = tuple(Filled(offer, count, holds) for (offer, holds), count in found.items())
    cost = sum(offers[each.offer].price_micro * each.machines for each in filled)
    return Mix(filled, cost, tuple(waiting), proven, bound)


def _one_fill(
    way: Counts, members: list[list[int]], waiting: list[int], more: list[int], machines: int
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return what the next machines of a way hold, and how many of them can hold just the same."""
    holds: list[tuple[int, int]] = []
    same = machines
    for group, times in enumerate(way):
        room = min(times, more[group])
        if room:
            same = min(same, more[group] // room)
        for need in members[group]:
            if room and (here := min(room, waiting[need])):
                holds.append((need, here))
                same = min(same, waiting[need] // here)
                room -= here
    return tuple(holds), max(1, same)
