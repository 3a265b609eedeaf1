"""How chance makes a history: kinds of actions, their weights, themes, and what comes together.

`draw_history` is the only door: the same seed draws the same history. A theme makes some kinds
likelier, so that worlds differ in what they are about; rare mistakes need worlds that dwell on
what brings them out.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import Struct

from roost.sim.history import Action, History, host_name


class Kind(Struct, frozen=True):
    """One kind of action: how likely it is, and how its details are drawn."""

    do: str
    weight: int
    draw: Callable[[Random, History], tuple[str, dict[str, Any]]]


def _vm(random: Random, _: History) -> tuple[str, dict[str, Any]]:
    return f"vm{random.randrange(12)}", {}


def _host(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    return host_name(random.randrange(history.hosts)), {}


def _plane(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    return f"plane{random.randrange(history.planes)}", {}


def _create(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    given: dict[str, Any] = {"cpu": random.choice((1, 1, 1, 2, 3))}
    if random.random() < 0.6:
        given["restart"] = "elsewhere"
    if random.random() < 0.3:
        given["apart"] = random.choice("ab")
    if random.random() < 0.5:
        given["queue"] = True
    return f"vm{random.randrange(12)}", given


def _burst(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    """Draw creates that come at one moment, at all planes: together more than there is room for."""
    numbers = random.sample(range(12, 24), 2 * history.planes + 2)
    return "", {"vms": [f"vm{n}" for n in numbers], "cpu": random.choice((2, 3))}


def _migrate(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    name, _ = _vm(random, history)
    given = {"host": host_name(random.randrange(history.hosts))} if random.random() < 0.5 else {}
    return name, given


def _resize(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    return _vm(random, history)[0], {"cpu": random.choice((1, 2, 3))}


def _cut(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    up, down = random.choice(((True, True), (True, True), (True, False), (False, True)))
    return _host(random, history)[0], {"up": up, "down": down, "for": _length(random)}


def _for_a_while(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    return _host(random, history)[0], {"for": _length(random)}


def _plane_for_a_while(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    return _plane(random, history)[0], {"for": _length(random)}


def _rough(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    chance = round(random.uniform(0.1, 0.6), 2)
    return _host(random, history)[0], {"chance": chance, "for": _length(random)}


def _die_at(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    given = {"when": random.choice(("before", "after")), "writes": random.randrange(4)}
    return _host(random, history)[0], {**given, "for": _length(random)}


def _plane_dies_at(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    given = {"when": random.choice(("before", "after")), "commits": random.randrange(6)}
    return _plane(random, history)[0], {**given, "for": _length(random)}


def _database(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    kind = random.choice(("refuse", "doubt", "full"))
    return _plane(random, history)[0], {"kind": kind, "commits": 1 + random.randrange(5)}


def _clock(random: Random, history: History) -> tuple[str, dict[str, Any]]:
    return _host(random, history)[0], {"step_s": round(random.uniform(-7200, 7200), 1)}


def _length(random: Random) -> float:
    """Draw how long something lasts: mostly shorter than a lease, sometimes longer."""
    return round(random.choice((random.uniform(0.1, 8), random.uniform(5, 40), 60, 95)), 1)


KINDS = (
    Kind("create", 22, _create),
    Kind("burst", 4, _burst),
    Kind("delete", 6, _vm),
    Kind("delete_some", 4, _burst),
    Kind("stop", 3, _vm),
    Kind("start", 3, _vm),
    Kind("restart", 2, _vm),
    Kind("pause", 2, _vm),
    Kind("resize", 3, _resize),
    Kind("migrate", 10, _migrate),
    Kind("cancel", 3, _vm),
    Kind("cordon", 1, _host),
    Kind("uncordon", 2, _host),
    Kind("drain", 2, _host),
    Kind("confirm_dead", 1, _host),
    Kind("crash_vm", 2, _vm),
    Kind("lose_incoming", 2, _vm),
    Kind("kill_agent", 4, _for_a_while),
    Kind("power_off", 3, _for_a_while),
    Kind("freeze_agent", 3, _for_a_while),
    Kind("cut", 6, _cut),
    Kind("rough", 3, _rough),
    Kind("agent_dies_at", 4, _die_at),
    Kind("kill_plane", 3, _plane_for_a_while),
    Kind("freeze_plane", 2, _plane_for_a_while),
    Kind("plane_dies_at", 4, _plane_dies_at),
    Kind("database", 4, _database),
    Kind("clock_step", 1, _clock),
)


#: What a world is about: kinds that are drawn more often in it. One seed in three is about moves.
THEMES: tuple[dict[str, int], ...] = (
    {},
    {"migrate": 60, "cancel": 6, "burst": 1, "delete_some": 1},
    {"database": 14, "plane_dies_at": 14, "kill_plane": 8, "burst": 10},
)
#: What likes to happen shortly after a move has begun.
_DURING_MOVES = (
    "cut", "cut", "power_off", "kill_agent", "agent_dies_at", "lose_incoming", "cancel",
    "kill_plane", "plane_dies_at", "freeze_agent", "crash_vm",
)  # fmt: skip


def draw_history(seed: int, *, actions: int = 90, seconds: float = 150.0) -> History:
    """Return the history of a seed."""
    random = Random(f"history {seed}")
    history = History(
        seed, hosts=random.randint(3, 6), planes=random.choice((1, 2, 2, 3)), calm_s=240.0
    )
    theme = THEMES[seed % len(THEMES)]
    weights = [theme.get(kind.do, kind.weight) for kind in KINDS]
    named = {kind.do: kind for kind in KINDS}
    times = sorted(round(random.uniform(0.0, seconds), 2) for _ in range(actions))
    drawn = [Action(0.0, "create", f"vm{n}", _create(random, history)[1]) for n in range(6)]
    for at in times:
        kind = random.choices(KINDS, weights)[0]
        on, given = kind.draw(random, history)
        drawn.append(Action(at, kind.do, on, given))
        if kind.do == "migrate" and random.random() < 0.6:
            fault = named[random.choice(_DURING_MOVES)]
            victim, details = fault.draw(random, history)
            if fault.do in ("lose_incoming", "cancel", "crash_vm"):
                victim = on
            soon = round(at + random.uniform(0.0, 4.0), 3)
            drawn.append(Action(soon, fault.do, victim, details))
    history.actions = sorted(drawn, key=lambda action: action.at)
    return history
