"""The twin of the engine: look at every host, keep those that fit, take the best."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from roost.model.flow import PlaceRequest
from roost.model.resources import NumaMode
from tests.naive.assign import pick_cells, pick_devices
from tests.naive.filters import count_fewest, fits
from tests.naive.fleet import VM, Ask, Row, World
from tests.naive.network import network_penalties
from tests.naive.numbers import WEIGHT_ONE, draw
from tests.naive.peaks import peak_penalties
from tests.naive.rules import soft_left, soft_penalties
from tests.naive.scores import SCORES, penalty

#: Which NUMA cells of the chosen host each strategy takes.
CELL_RULES = {
    "least_loaded": "emptiest",
    "best_fit": "tightest",
    "round_robin": "lowest",
    "random": "lowest",
    "fewest_vms": "emptiest",
    "first_fit": "lowest",
    "worst_fit": "emptiest",
    "balance_fit": "emptiest",
    "dot_product": "tightest",
    "fragmentation": "tightest",
    "metrics_based": "emptiest",
    "lifetime_aware": "tightest",
}

#: Host numbers that `random` guesses before it gives every host a draw.
GUESSES = 512

Scorer = Callable[[Row, Ask], int]


@dataclass(frozen=True)
class Choice:
    """A host for a request."""

    host: int
    score: int
    devices: tuple[int, ...]
    cells: tuple[int, ...]


def candidates(world: World, request: PlaceRequest) -> tuple[Ask, list[Row]]:
    """Return the request's facts and the hosts that fit, in host-number order."""
    ask = world.ask(request)
    rows = world.rows()
    count_fewest(rows, ask)
    return ask, [row for row in rows if fits(row, ask)]


def ranked(
    world: World,
    request: PlaceRequest,
    strategy: str,
    cursor: int = -1,
    places: int = 1,
    scorer: Scorer | None = None,
) -> list[Choice]:
    """Return the best hosts for a request, the best first: the winner and its runners-up."""
    ask, rows = candidates(world, request)
    score = scorer or SCORES[strategy]
    soft = charges(world.rows(), ask)
    totals = {
        row.number: score(row, ask) + penalty(row, ask) + WEIGHT_ONE * soft[row.number]
        for row in rows
    }
    choices = []
    for _ in range(places):
        if not rows:
            break
        if strategy == "random":
            row = _drawn(world, ask, rows, totals)
        elif strategy == "round_robin":
            turn = cursor
            row = min(rows, key=lambda row: (totals[row.number], row.number <= turn, row.number))
        else:
            row = min(rows, key=lambda row: (totals[row.number], row.number))
        rows = [each for each in rows if each is not row]
        choices.append(_choice(row, ask, totals[row.number], CELL_RULES[strategy]))
    return choices


def charges(rows: list[Row], ask: Ask) -> dict[int, int]:
    """Return what soft rules, network and peaks charge every host, in hundredths of a score."""
    far, peaks = network_penalties(rows, ask), peak_penalties(rows, ask)
    return {
        number: each + far[number] + peaks[number]
        for number, each in soft_penalties(rows, ask).items()
    }


def place(
    world: World,
    request: PlaceRequest,
    strategy: str,
    cursor: int = -1,
    scorer: Scorer | None = None,
) -> Choice | None:
    """Return the best host for a request, or None."""
    best = ranked(world, request, strategy, cursor, 1, scorer)
    return best[0] if best else None


def commit(world: World, number: int, request: PlaceRequest, choice: Choice) -> None:
    """Put the VM where it was placed."""
    names = tuple(group if isinstance(group, str) else group.name for group in request.groups)
    world.put(
        number,
        VM(
            request.name,
            choice.host,
            request.demand,
            request.constraints,
            names,
            choice.devices,
            choice.cells,
            request.expected,
        ),
    )


def seed_of(request: PlaceRequest) -> int:
    """Return the request's seed in 62 bits, made from its name if it has none."""
    if request.seed is not None:
        return request.seed % 2**62
    return int.from_bytes(blake2b(request.name.encode(), digest_size=8).digest(), "big") // 4


def row_capacity(world: World) -> int:
    """Return for how many host numbers the fleet has room: 16, doubled as needed."""
    capacity = 16
    while capacity < world.registered:
        capacity *= 2
    return capacity


def _drawn(world: World, ask: Ask, rows: list[Row], totals: dict[int, int]) -> Row:
    """Guess host numbers; then the lowest draw among the hosts of least penalty."""
    seed = seed_of(ask.request)
    charged = (
        world.shunned
        or (world.devices and ask.request.demand.devices is None)
        or ask.request.constraints.preferences
        or any(not group.hard for group in ask.groups)
        or soft_left(ask)
        or ask.saturated
        or (ask.network is not None and ask.request.talks)
        or ask.request.day is not None
    )
    fitting = {row.number: row for row in rows}
    if not charged:
        for number in range(GUESSES):
            guess = draw(seed, number, row_capacity(world))
            if guess in fitting:
                return fitting[guess]

    def own_draw(row: Row) -> tuple[int, int, int]:
        return totals[row.number], draw(seed, GUESSES + row.number, WEIGHT_ONE), row.number

    return min(rows, key=own_draw)


def _choice(row: Row, ask: Ask, score: int, cell_rule: str) -> Choice:
    demand = ask.request.demand
    devices: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()
    if demand.devices is not None:
        devices = pick_devices(row.spec.devices, row.device_free, demand.devices)
    if demand.numa is not NumaMode.ANY:
        amounts = (demand.cpu_milli, demand.memory_bytes)
        cells = pick_cells(row.spec.cells, row.cell_free, amounts, demand.numa, cell_rule)
    return Choice(row.number, score, devices, cells)
