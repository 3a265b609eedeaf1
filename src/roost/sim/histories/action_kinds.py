"""Kinds of actions that a history is made of, how each is drawn, and themes that weigh them.

A theme makes some kinds likelier, so that worlds differ in what they are about. What becomes of
them in time is drawn in `draws`.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from msgspec import Struct

from roost.sim.histories.follow_ups import ABOUT_LEASES, ABOUT_REFUSALS, Train
from roost.sim.histories.history import Action, History, host_name

Given = dict[str, Any]
#: VMs that a world has at most, as far as those who ask know: more would only be refused.
MOST_VMS = 14


class Theme(Struct, frozen=True):
    """What a world is about: kinds that are drawn more or less often in it, and which VMs."""

    weights: Mapping[str, int] = {}
    elsewhere: float = 0.6  # share of VMs that are restarted elsewhere
    cpu: tuple[int, ...] = (1, 1, 1, 2, 3)
    stories: tuple[tuple[Train, ...], ...] = ()  # one of them every so often, on some host


class Chance:
    """What is drawn from, and which VMs should exist by now: requests for others teach little."""

    def __init__(self, random: Random, history: History, theme: Theme) -> None:
        self.random, self.history, self.theme = random, history, theme
        self.vms: list[str] = []
        self._made = 0

    def new_vm(self) -> str:
        """Return the name of a new VM."""
        name = f"vm{self._made}"
        self._made += 1
        self.vms.append(name)
        return name

    def vm(self) -> str:
        """Return the name of a VM that should exist."""
        return self.random.choice(self.vms) if self.vms else "vm0"

    def host(self) -> str:
        """Return the name of a host."""
        return host_name(self.random.randrange(self.history.hosts))

    def plane(self) -> str:
        """Return the name of a plane."""
        return f"plane{self.random.randrange(self.history.planes)}"

    def length(self) -> float:
        """Return how long something lasts: mostly shorter than a lease, sometimes longer."""
        uniform = self.random.uniform
        return round(self.random.choice((uniform(0.1, 8), uniform(5, 30), uniform(25, 75))), 1)

    def short(self) -> float:
        """Return how long a plane is away: agents find another, and users wait."""
        return round(
            self.random.choice((self.random.uniform(0.1, 5), self.random.uniform(3, 25))), 1
        )


class Kind(Struct, frozen=True):
    """One kind of action: how likely it is, and how it is drawn."""

    do: str
    weight: int
    draw: Callable[[Chance], tuple[str, Given]]


def _create(chance: Chance) -> tuple[str, Given]:
    random = chance.random
    given: Given = {"cpu": random.choice(chance.theme.cpu)}
    if random.random() < chance.theme.elsewhere:
        given["restart"] = "elsewhere"
    if random.random() < 0.3:
        given["apart"] = random.choice("ab")
    if random.random() < 0.5:
        given["queue"] = True
    # Sometimes again, as somebody does who does not know that it worked.
    again = random.random() < 0.1 or len(chance.vms) >= MOST_VMS
    return chance.vm() if again else chance.new_vm(), given


def _burst(chance: Chance) -> tuple[str, Given]:
    """Draw creates that come at one moment, at all planes: together more than there is room for."""
    while len(chance.vms) > MOST_VMS // 2:
        chance.vms.pop(0)  # they still exist, and are not asked for again
    vms = [chance.new_vm() for _ in range(2 * chance.history.planes + 2)]
    return "", {"vms": vms, "cpu": chance.random.choice((1, 2, 3))}


def _delete_some(chance: Chance) -> tuple[str, Given]:
    some, chance.vms = chance.vms[:4], chance.vms[4:]
    return "", {"vms": some, "cpu": 1}


def _delete(chance: Chance) -> tuple[str, Given]:
    name = chance.vm()
    chance.vms = [vm for vm in chance.vms if vm != name]
    return name, {}


def _migrate(chance: Chance) -> tuple[str, Given]:
    given = {"host": chance.host()} if chance.random.random() < 0.5 else {}
    return chance.vm(), given


def _cut(chance: Chance) -> tuple[str, Given]:
    ways = ((True, True), (True, True), (True, False), (False, True))
    up, down = chance.random.choice(ways)
    return chance.host(), {"up": up, "down": down, "for": chance.length()}


def _rough(chance: Chance) -> tuple[str, Given]:
    late_s = chance.random.choice((0.1, 1.0, 6.0))
    share = round(chance.random.uniform(0.1, 0.6), 2)
    return chance.host(), {"chance": share, "for": chance.length(), "late_s": late_s}


def _slow(chance: Chance) -> tuple[str, Given]:
    seconds = round(chance.random.uniform(0.5, 6.0), 1)
    return chance.host(), {"seconds": seconds, "for": chance.length()}


def _slow_database(chance: Chance) -> tuple[str, Given]:
    seconds = round(chance.random.uniform(0.05, 3.0), 2)
    return chance.plane(), {"seconds": seconds, "for": chance.short()}


def _lose_database(chance: Chance) -> tuple[str, Given]:
    seconds = chance.short()
    if chance.history.planes > 1 and chance.random.random() < 0.5:
        seconds = round(chance.random.uniform(25, 50), 1)
    return chance.plane(), {"for": seconds}


def _die_at(chance: Chance) -> tuple[str, Given]:
    given = {
        "when": chance.random.choice(("before", "after")),
        "writes": chance.random.randrange(4),
    }
    return chance.host(), {**given, "for": chance.length()}


def _plane_dies_at(chance: Chance) -> tuple[str, Given]:
    when = chance.random.choice(("before", "after"))
    given = {"when": when, "commits": chance.random.randrange(6)}
    return chance.plane(), {**given, "for": chance.short()}


def _database(chance: Chance) -> tuple[str, Given]:
    kind = chance.random.choice(("refuse", "doubt", "full"))
    return chance.plane(), {"kind": kind, "commits": 1 + chance.random.randrange(5)}


def _vm(chance: Chance) -> tuple[str, Given]:
    return chance.vm(), {}


def _resize(chance: Chance) -> tuple[str, Given]:
    return chance.vm(), {"cpu": chance.random.choice((1, 2, 3))}


def _host(chance: Chance) -> tuple[str, Given]:
    return chance.host(), {}


def _freeze(chance: Chance) -> tuple[str, Given]:
    """Draw a stop that is often just shorter than a lease: who wakes up then may think it holds."""
    uniform = chance.random.uniform
    seconds = chance.random.choice(
        (uniform(0.1, 5), uniform(6, 13), uniform(6, 13), uniform(10, 60))
    )
    return chance.host(), {"for": round(seconds, 1)}


def _host_for(chance: Chance) -> tuple[str, Given]:
    return chance.host(), {"for": chance.length()}


def _plane_for(chance: Chance) -> tuple[str, Given]:
    return chance.plane(), {"for": chance.short()}


def _forget(chance: Chance) -> tuple[str, Given]:
    return f"source of {chance.vm()}", {"after": round(chance.random.uniform(4, 9), 1)}


def _times(chance: Chance) -> tuple[str, Given]:
    return chance.host(), {"times": 1 + chance.random.randrange(3)}


def _clock(chance: Chance) -> tuple[str, Given]:
    return chance.host(), {"step_s": round(chance.random.uniform(-7200, 7200), 1)}


KINDS = (
    Kind("create", 22, _create),
    Kind("burst", 4, _burst),
    Kind("delete", 6, _delete),
    Kind("delete_some", 4, _delete_some),
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
    Kind("kill_agent", 4, _host_for),
    Kind("power_off", 3, _host_for),
    Kind("freeze_agent", 3, _freeze),
    Kind("cut", 6, _cut),
    Kind("rough", 3, _rough),
    Kind("slow", 2, _slow),
    Kind("disk_full", 2, _host_for),
    Kind("forget", 1, _forget),
    Kind("blind", 1, _host_for),
    Kind("refuse_vms", 2, _times),
    Kind("driver_fails", 2, _times),
    Kind("agent_dies_at", 4, _die_at),
    Kind("kill_plane", 3, _plane_for),
    Kind("freeze_plane", 2, _plane_for),
    Kind("plane_dies_at", 4, _plane_dies_at),
    Kind("database", 4, _database),
    Kind("slow_database", 2, _slow_database),
    Kind("lose_database", 2, _lose_database),
    Kind("clock_step", 1, _clock),
)
#: The same by what they do.
NAMED = {kind.do: kind for kind in KINDS}


#: Planes that live on, so that what needs a while can happen.
_STEADY = {
    "kill_plane": 1, "plane_dies_at": 1, "freeze_plane": 1, "database": 1, "burst": 1,
    "delete_some": 1, "create": 14,
}  # fmt: skip
#: No fault but those of a story, which needs a world that is otherwise at peace.
_PEACE = dict.fromkeys(
    (
        "burst", "delete_some", "cordon", "drain", "confirm_dead", "crash_vm", "lose_incoming",
        "kill_agent", "power_off", "freeze_agent", "cut", "rough", "slow", "disk_full", "forget",
        "blind",
        "refuse_vms", "driver_fails", "agent_dies_at", "kill_plane", "freeze_plane",
        "plane_dies_at", "database", "slow_database", "lose_database", "clock_step",
    ),
    0,
)  # fmt: skip
#: Few VMs, so that those of a lost host find room elsewhere, and most of them run.
_ROOMY = {
    "create": 3, "delete": 2, "stop": 1, "start": 4, "pause": 1, "restart": 12, "resize": 0,
    "migrate": 8,
}  # fmt: skip
#: Seeds take turns.
THEMES: Mapping[str, Theme] = {
    "everything": Theme(),
    "moves": Theme({**_STEADY, "migrate": 60, "cancel": 6}, 0.8, (1,)),
    "the ledger": Theme({"database": 14, "plane_dies_at": 14, "kill_plane": 8, "burst": 10}),
    "leases": Theme({**_PEACE, **_ROOMY}, 0.9, (1,), ABOUT_LEASES),
    "late words": Theme(
        {"rough": 14, "stop": 18, "start": 18, "resize": 14, "pause": 8, "restart": 8}
    ),
    "hosts": Theme(
        {**_STEADY, "forget": 18, "driver_fails": 6, "disk_full": 3, "refuse_vms": 3},
        0.1,
        (1, 1, 2),
    ),
    "refusals": Theme({**_PEACE, **_ROOMY}, 0.3, (1,), ABOUT_REFUSALS),
}


def draw_fault(do: str, random: Random, history: History, vm: str | None) -> Action | None:
    """Return one fault of a kind, at no time yet; None when it strikes VMs and there is none."""
    chance = Chance(random, history, Theme())
    chance.vms = [] if vm is None else [vm]
    on, given = NAMED[do].draw(chance)
    if vm is None and on.startswith("vm"):
        return None
    return Action(0.0, do, on, given)
