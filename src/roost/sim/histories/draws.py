"""How chance makes a history: kinds of actions, their weights, themes, and what comes together.

`draw_history` is the only door: the same seed draws the same history. A theme makes some kinds
likelier, so that worlds differ in what they are about; and an action may bring a train of others
shortly after it (`trains`), some of them aimed at whoever has a part in it.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from roost.sim.histories.follow_ups import ABOUT_LEASES, ABOUT_REFUSALS, TRAINS, Train
from roost.sim.histories.history import Action, History, host_name

Given = dict[str, Any]
#: VMs that a world has at most, as far as those who ask know: more would only be refused.
_MOST_VMS = 14
#: How often an action that may bring a train does.
_TRAINS_OFTEN = 0.6
#: Between the stories of a world.
_STORY_S = 45.0


class Chance:
    """What is drawn from, and which VMs should exist by now: requests for others teach little."""

    def __init__(self, random: Random, history: History, theme: "Theme") -> None:
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
    again = random.random() < 0.1 or len(chance.vms) >= _MOST_VMS
    return chance.vm() if again else chance.new_vm(), given


def _burst(chance: Chance) -> tuple[str, Given]:
    """Draw creates that come at one moment, at all planes: together more than there is room for."""
    while len(chance.vms) > _MOST_VMS // 2:
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
_NAMED = {kind.do: kind for kind in KINDS}
#: Shares of worlds in which the power fails under the database, or an old copy of it is put back.
_POWER_FAILS_OFTEN = 0.25
_RESTORED_OFTEN = 0.12
#: Share of worlds in which groups are changed by hand, and how often in each.
_REGROUPED_OFTEN = 0.2
_GROUP_CHANGES = 24
#: Share of worlds in which VMs are told where to start after a loss, and how often in each.
_RESTART_SET_OFTEN = 0.25
_RESTART_CHANGES = 16
#: Share of worlds in which rules are made, changed and deleted, and how often in each.
_RULED_OFTEN = 0.35
_RULE_CHANGES = 24
#: Share of worlds in which some VMs displace others, and how many of both kinds there are in each.
_PRIORITIES_OFTEN = 0.35
_FILLING, _DISPLACING = 16, 6


#: Share of worlds in which capacity is reserved, and how often in each.
_RESERVED_OFTEN = 0.35
_RESERVATIONS = 12
#: Share of worlds in which moves are planned, and how often in each.
_PLANNED_OFTEN = 0.3
_PLANS = 8
#: Share of worlds in which policies are changed and made a project's default, and how often.
_POLICIES_OFTEN = 0.2
_POLICY_CHANGES = 12


class Theme(Struct, frozen=True):
    """What a world is about: kinds that are drawn more or less often in it, and which VMs."""

    weights: Mapping[str, int] = {}
    elsewhere: float = 0.6  # share of VMs that are restarted elsewhere
    cpu: tuple[int, ...] = (1, 1, 1, 2, 3)
    stories: tuple[tuple[Train, ...], ...] = ()  # one of them every so often, on some host


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


def draw_history(seed: int, *, actions: int = 90, seconds: float = 150.0) -> History:
    """Return the history of a seed."""
    random = Random(f"history {seed}")
    history = History(
        seed, hosts=random.randint(4, 6), planes=random.choice((1, 2, 2, 3)), calm_s=240.0
    )
    if random.random() < 0.3:
        history.rates = _rates(random, history)
    theme = list(THEMES.values())[seed % len(THEMES)]
    weights = [theme.weights.get(kind.do, kind.weight) for kind in KINDS]
    chance = Chance(random, history, theme)
    times = sorted(round(random.uniform(0.0, seconds), 2) for _ in range(actions))
    drawn = [Action(0.0, "create", *_create(chance)) for _ in range(8)]
    for at in times:
        kind = random.choices(KINDS, weights)[0]
        first = Action(at, kind.do, *kind.draw(chance))
        drawn += [first] if theme.stories else [first, *_train(chance, first)]
    for number in range(int(seconds // _STORY_S) if theme.stories else 0):
        story = random.choice(theme.stories)
        drawn += _followers(chance, story, chance.host(), 4.0 + number * _STORY_S)
    drawn += _disasters(Random(f"disasters {seed}"), seconds)
    drawn += _changes_of_groups(Random(f"changes of groups {seed}"), seconds)
    drawn += _changes_of_restart(Random(f"changes of restart {seed}"), seconds)
    drawn += _changes_of_rules(Random(f"rules {seed}"), history, seconds)
    drawn += _changes_of_reservations(Random(f"reservations {seed}"), seconds)
    drawn += _priorities(Random(f"priorities {seed}"), seconds)
    drawn += _changes_of_policies(Random(f"policies {seed}"), history, seconds)
    drawn += _plans(Random(f"plans {seed}"), history, seconds)
    history.actions = sorted(drawn, key=lambda action: action.at)
    return history


def _disasters(random: Random, seconds: float) -> list[Action]:
    """Draw what befalls the whole database, in few worlds and beside everything else.

    After a restore some laws hold for fewer VMs, so most worlds must be without one.
    """
    drawn = []
    if random.random() < _POWER_FAILS_OFTEN:
        for _ in range(random.randint(1, 4)):
            given = {"commits": random.randrange(8), "for": round(random.uniform(0.5, 12.0), 1)}
            drawn.append(Action(round(random.uniform(1.0, seconds), 2), "power_loss", "", given))
    if random.random() < _RESTORED_OFTEN:
        for _ in range(random.randint(1, 2)):
            at = random.uniform(1.0, 0.7 * seconds)
            later = at + random.choice((random.uniform(0.5, 10.0), random.uniform(5.0, 45.0)))
            given = {"for": round(random.choice((0.5, random.uniform(0.5, 25.0))), 1)}
            drawn.append(Action(round(at, 2), "backup_database"))
            drawn.append(Action(round(later, 2), "restore_database", "", given))
    return drawn


def _changes_of_groups(random: Random, seconds: float) -> list[Action]:
    """Draw what is done to the groups themselves, in some worlds and beside everything else."""
    if random.random() >= _REGROUPED_OFTEN:
        return []
    drawn = []
    for _ in range(_GROUP_CHANGES):
        at, group = round(random.uniform(1.0, seconds), 2), f"group-{random.choice('ab')}"
        do = random.choice(("join_group",) * 6 + ("leave_group", "set_group_rule", "delete_group"))
        given: Given = {"vm": f"vm{random.randrange(_MOST_VMS)}"}
        if do == "set_group_rule":
            given = {
                "rule": random.choice(("anti-affinity", "anti-affinity", "affinity", "spread")),
                "scope": random.choice(("host", "host", "zone")),
                "hard": random.random() < 0.7,
            }
        drawn.append(Action(at, do, group, given if do != "delete_group" else {}))
    return drawn


def _changes_of_restart(random: Random, seconds: float) -> list[Action]:
    """Draw where VMs are told to start after a loss, in some worlds and beside everything else.

    Often close before the VM's host hears nothing more: it runs on, and nobody there knows that it
    may be started elsewhere.
    """
    if random.random() >= _RESTART_SET_OFTEN:
        return []
    drawn = []
    for _ in range(_RESTART_CHANGES):
        at, vm = round(random.uniform(1.0, seconds), 2), f"vm{random.randrange(_MOST_VMS)}"
        restart = random.choice(("here", "elsewhere", "elsewhere"))
        drawn.append(Action(at, "set_restart", vm, {"restart": restart}))
        if random.random() < 0.4:
            given: Given = {"up": random.random() < 0.5, "down": True, "for": 45.0}
            then = round(at + random.uniform(-1.0, 1.0), 2)
            drawn.append(Action(then, "cut", f"source of {vm}", given))
    return drawn


def _changes_of_rules(random: Random, history: History, seconds: float) -> list[Action]:
    """Draw what is done to rules, in some worlds and beside everything else.

    There are few names, so that many are changed, expire and are made again; and moves, creates and
    growth come close to each change, where one who has decided before it may commit after it.
    """
    if random.random() >= _RULED_OFTEN:
        return []
    drawn = []
    for _ in range(_RULE_CHANGES):
        at, rule = round(random.uniform(1.0, seconds), 2), f"rule-{random.choice('abcd')}"
        do = random.choice(("create_rule",) * 5 + ("change_rule",) * 3 + ("delete_rule",) * 2)
        given: Given = {}
        if do != "delete_rule":
            given["expression"] = _condition(random, history)
            given["kind"] = "hard" if random.random() < 0.8 else "soft"
        if do == "create_rule" and random.random() < 0.4:
            given["expires_in_s"] = random.randint(1, 40)
        if do == "create_rule" and random.random() < 0.3:
            more, less = random.choice(((0.5, 0.4), (0.3, 0.3), (0.7, 0.2)))
            given |= {"when": f"fleet.load > {more}", "until": f"fleet.load < {less}"}
            given["dwell_s"] = 10
        if given.get("kind") == "hard" and do == "create_rule" and random.random() < 0.3:
            given["relax_after_s"] = random.randint(1, 30)
        if do == "change_rule":
            given["enabled"] = random.random() < 0.8
        drawn.append(Action(at, do, rule, given))
        for _ in range(random.randint(0, 3)):
            then, vm = round(at + random.uniform(-0.2, 0.2), 3), f"vm{random.randrange(_MOST_VMS)}"
            also = random.choice(("migrate", "migrate", "resize", "create"))
            wants = {"migrate": {}, "resize": {"cpu": 3}, "create": {"cpu": 1, "queue": True}}
            drawn.append(Action(then, also, vm, wants[also]))
    return drawn


def _changes_of_reservations(random: Random, seconds: float) -> list[Action]:
    """Draw reservations, of now and of later, with VMs that draw on them or end before them.

    Around each, others create, move and grow, so that one who has decided before it commits after.
    """
    if random.random() >= _RESERVED_OFTEN:
        return []
    drawn = []
    for _ in range(_RESERVATIONS):
        at, name = round(random.uniform(1.0, seconds), 2), f"kept-{random.choice('abc')}"
        given: Given = {"cpu": random.choice((1, 2, 3)), "units": random.choice((1, 1, 2))}
        if random.random() < 0.5:
            given["start"] = round(at + random.uniform(1.0, 40.0), 2)
        if random.random() < 0.5:
            given["end"] = round(given.get("start", at) + random.uniform(5.0, 60.0), 2)
        do = "reserve" if random.random() < 0.8 else "unreserve"
        drawn.append(Action(at, do, name, given if do == "reserve" else {}))
        for _ in range(random.randint(1, 4)):
            then, vm = round(at + random.uniform(-0.2, 2.0), 3), f"vm{random.randrange(_MOST_VMS)}"
            wants = random.choice(
                (
                    {"cpu": random.choice((1, 2)), "reservation": name},
                    {
                        "cpu": random.choice((1, 2, 3)),
                        "until": round(at + random.uniform(3, 50), 2),
                    },
                    {"cpu": 1, "queue": True},
                )
            )
            drawn.append(Action(max(0.1, then), "create", vm, wants))
        if random.random() < 0.5:
            drawn.append(Action(round(at + 0.1, 2), "resize", "vm1", {"cpu": 3}))
    return drawn


def _priorities(random: Random, seconds: float) -> list[Action]:
    """Draw VMs that fill the fleet and others that displace them, in some worlds.

    Those who fill it may mostly be stopped; some are of a group with a disruption budget. Those who
    come later are of classes that displace lower ones, of two levels, and some are deleted soon.
    """
    if random.random() >= _PRIORITIES_OFTEN:
        return []
    drawn = [
        Action(0.5, "create_class", "high", {"value": 100}),
        Action(0.5, "create_class", "higher", {"value": 200}),
        Action(0.5, "create_class", "calm", {"value": 150, "preempts": "never"}),
    ]
    spread = {"name": "team", "rule": "spread", "hard": False}
    for number in range(_FILLING):
        given: Given = {"cpu": random.choice((1, 2)), "queue": random.random() < 0.3}
        given["restart"] = "elsewhere" if random.random() < 0.8 else "here"
        if random.random() < 0.5:
            given["group"] = spread
        at = round(random.uniform(0.6, 0.3 * seconds), 2)
        drawn.append(Action(at, "create", f"low{number}", given))
    for _ in range(3):
        budget: Given = {"at_most": random.randint(0, 2)} if random.random() < 0.7 else {}
        drawn.append(Action(round(random.uniform(5.0, seconds), 2), "set_budget", "team", budget))
    for number in range(_DISPLACING):
        at = round(random.uniform(0.2 * seconds, 0.9 * seconds), 2)
        given = {
            "cpu": random.choice((1, 2, 3)),
            "class": random.choice(("high", "higher", "calm")),
        }
        given["restart"] = random.choice(("here", "elsewhere"))
        given["on_no_fit"] = random.choice(("queue", "queue", "preempt"))
        if given["class"] == "calm":
            given["on_no_fit"] = "queue"
        drawn.append(Action(at, "create", f"high{number}", given))
        if random.random() < 0.4:
            then = round(at + random.uniform(0.0, 20.0), 2)
            drawn.append(Action(then, "delete", f"high{number}"))
    return drawn


def _changes_of_policies(random: Random, history: History, seconds: float) -> list[Action]:
    """Draw what is done to policies, in some worlds: two of them, by turns a project's default.

    Creates and moves come close to each change, as with rules.
    """
    if random.random() >= _POLICIES_OFTEN:
        return []
    drawn = []
    for number in range(_POLICY_CHANGES):
        at = 0.5 if number == 0 else round(random.uniform(1.0, seconds), 2)
        policy = f"policy-{random.choice('ab')}"
        drawn.append(Action(at, "set_policy", policy, {"expression": _condition(random, history)}))
        drawn.append(Action(round(at + 0.1, 2), "apply_policy", policy, {}))
        for _ in range(random.randint(1, 3)):
            then, vm = round(at + random.uniform(0.0, 0.4), 3), f"vm{random.randrange(_MOST_VMS)}"
            also = random.choice(("migrate", "create", "create"))
            wants = {"migrate": {}, "create": {"cpu": 1, "queue": True}}
            drawn.append(Action(then, also, vm, wants[also]))
    return drawn


def _plans(random: Random, history: History, seconds: float) -> list[Action]:
    """Draw plans that are applied, paused, resumed and cancelled, and faults in the middle of them.

    Some hosts are drained by a plan and taken into maintenance if they are empty in time.
    """
    if random.random() >= _PLANNED_OFTEN:
        return []
    drawn = []
    hosts = [host_name(n) for n in range(history.hosts)]
    for number in range(_PLANS):
        at, name = round(random.uniform(15.0, 0.9 * seconds), 2), f"plan-{number}"
        goal = random.choice(("balance", "drain", "drain", "consolidate", "repair", "headroom"))
        host = random.choice(hosts)
        given: Given = {"goal": goal, "apply": random.random() < 0.6}
        given |= {"at_once": random.randint(1, 4), "per_host": random.randint(1, 3)}
        if goal == "drain":
            given["hosts"] = [host]
        drawn.append(Action(at, "plan", name, given))
        acts = [("plan_apply", 0.5, 3.0)] if not given["apply"] else []
        if random.random() < 0.5:
            acts.append(("plan_pause", 0.5, 12.0))
            if random.random() < 0.8:
                acts.append(("plan_resume", 12.0, 40.0))
        if random.random() < 0.25:
            acts.append(("plan_cancel", 1.0, 30.0))
        for do, least, most in acts:
            drawn.append(Action(round(at + random.uniform(least, most), 2), do, name))
        if goal == "drain" and random.random() < 0.6:
            on = at + random.uniform(5.0, 30.0)
            off = on + random.uniform(5.0, 40.0)
            drawn.append(Action(round(on, 2), "set_maintenance", host, {"on": True}))
            drawn.append(Action(round(off, 2), "set_maintenance", host, {"on": False}))
        if random.random() < 0.5:
            do = random.choice(("kill_agent", "power_off", "cut", "kill_plane", "plane_dies_at"))
            on_, how = _NAMED[do].draw(Chance(random, history, Theme()))
            drawn.append(Action(round(at + random.uniform(0.5, 15.0), 2), do, on_, how))
    return drawn


def _condition(random: Random, history: History) -> str:
    """Draw what a rule asks of hosts: where they are, who they are, how many VMs they have."""
    host, zone = host_name(random.randrange(history.hosts)), f"z{random.randrange(history.zones)}"
    some = "".join(sorted(random.sample("0123456789", 5)))
    of = f"vm.name.matches('[{some}]$')"
    return random.choice(
        (
            f"host.name != '{host}'",
            f"host.zone == '{zone}'",
            f"!{of} || host.zone == '{zone}'",
            f"!({of} && host.name == '{host}')",
            f"vm.demand.cpu < 2000 || host.zone != '{zone}'",
            f"host.vms < {random.randint(2, 4)}",
        )
    )


def draw_fault(do: str, random: Random, history: History, vm: str | None) -> Action | None:
    """Return one fault of a kind, at no time yet; None when it strikes VMs and there is none."""
    chance = Chance(random, history, Theme())
    chance.vms = [] if vm is None else [vm]
    on, given = _NAMED[do].draw(chance)
    if vm is None and on.startswith("vm"):
        return None
    return Action(0.0, do, on, given)


def _train(chance: Chance, first: Action) -> list[Action]:
    """Draw what follows an action, if anything does."""
    trains = TRAINS.get(first.do, ())
    often = 1.0 if first.do == "forget" else _TRAINS_OFTEN
    if not trains or chance.random.random() >= often:
        return []
    return _followers(chance, chance.random.choice(trains), first.on, first.at)


def _followers(chance: Chance, train: tuple[Train, ...], first: str, at: float) -> list[Action]:
    """Draw the actions of a train behind whoever the first action was on."""
    followers = []
    for each in train:
        on, given = _NAMED[each.do].draw(chance)
        if each.whom is None:
            on = first
        elif each.whom:
            on = each.whom.format(vm=first.rpartition(" of ")[2])
        then = round(at + chance.random.uniform(*each.after_s), 3)
        followers.append(Action(then, each.do, on, {**given, **each.given}))
    return followers


def _rates(random: Random, history: History) -> dict[str, float]:
    """Draw clocks that run differently, together by less than the margin that leases leave."""
    names = [host_name(n) for n in range(history.hosts)]
    slow = {name: round(random.uniform(0.98, 1.0), 4) for name in names if random.random() < 0.5}
    planes = [f"plane{n}" for n in range(history.planes)]
    return slow | {name: round(random.uniform(1.0, 1.02), 4) for name in planes}


#: What users and operators ask for; everything else that a world does is a fault.
_ASKED = frozenset(
    {"create", "migrate", "restart", "start", "delete", "stop", "cancel", "resize", "burst"}
    | {"join_group", "pause", "delete_some", "set_group_rule", "leave_group", "delete_group"}
    | {"create_class", "set_budget"}
    | {"set_restart", "create_rule", "change_rule", "delete_rule", "reserve", "unreserve"}
    | {"set_policy", "apply_policy"}
    | {"plan", "plan_apply", "plan_pause", "plan_resume", "plan_cancel", "set_maintenance"}
)


def draw_rogue_history(seed: int) -> History:
    """Return a world in which one more host has an agent that lies, and nothing else goes wrong."""
    drawn = draw_history(seed)
    actions = [action for action in drawn.actions if action.do in _ASKED]
    return replace(drawn, rogue=True, actions=actions, rates={})
