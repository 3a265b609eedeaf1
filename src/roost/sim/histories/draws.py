"""How chance makes a history: which actions there are, when, and what comes together.

`draw_history` is the only door: the same seed draws the same history. Most actions are drawn by
their kind's weight in the world's theme (`action_kinds`), and one may bring a train of others
shortly after it (`follow_ups`), some of them aimed at whoever has a part in it; beside them, some
worlds have changes of groups, rules, reservations, policies or plans.
"""

from random import Random

from msgspec.structs import replace

from roost.sim.histories.action_kinds import KINDS, MOST_VMS, NAMED, THEMES, Chance, Given, Theme
from roost.sim.histories.follow_ups import TRAINS, Train
from roost.sim.histories.history import Action, History, host_name

#: How often an action that may bring a train does.
_TRAINS_OFTEN = 0.6
#: Between the stories of a world.
_STORY_S = 45.0
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
#: Share of worlds whose hosts have cards, which are reserved as often.
_CARDS_OFTEN = 0.2
#: Share of worlds in which moves are planned, and how often in each.
_PLANNED_OFTEN = 0.3
_PLANS = 8
#: Share of worlds in which policies are changed and made a project's default, and how often.
_POLICIES_OFTEN = 0.2
_POLICY_CHANGES = 12


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
    drawn = [Action(0.0, "create", *NAMED["create"].draw(chance)) for _ in range(8)]
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
    drawn += _changes_of_cards(Random(f"cards {seed}"), history, seconds)
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
        given: Given = {"vm": f"vm{random.randrange(MOST_VMS)}"}
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
        at, vm = round(random.uniform(1.0, seconds), 2), f"vm{random.randrange(MOST_VMS)}"
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
            then, vm = round(at + random.uniform(-0.2, 0.2), 3), f"vm{random.randrange(MOST_VMS)}"
            also = random.choice(("migrate", "migrate", "resize", "create"))
            wants = {"migrate": {}, "resize": {"cpu": 3}, "create": {"cpu": 1, "queue": True}}
            drawn.append(Action(then, also, vm, wants[also]))
    return drawn


def _changes_of_cards(random: Random, history: History, seconds: float) -> list[Action]:
    """Give the hosts of some worlds a card each, for which owners and others compete."""
    if random.random() >= _CARDS_OFTEN:
        return []
    history.cards = 1
    drawn = []
    for _ in range(_RESERVATIONS):
        at, name = round(random.uniform(1.0, seconds), 2), f"card-{random.choice('ab')}"
        given: Given = {"cpu": 1, "gpu": 1, "units": random.choice((1, 2))}
        if random.random() < 0.4:
            given["start"] = round(at + random.uniform(1.0, 40.0), 2)
        do = "reserve" if random.random() < 0.8 else "unreserve"
        drawn.append(Action(at, do, name, given if do == "reserve" else {}))
        for _ in range(random.randint(1, 4)):
            then = max(0.1, round(at + random.uniform(-0.2, 2.0), 3))
            wants = random.choice(
                (
                    {"gpu": 1, "reservation": name},
                    {"gpu": 1, "until": round(at + random.uniform(3, 50), 2)},
                    {"gpu": 1},
                )
            )
            drawn.append(Action(then, "create", f"vm{random.randrange(MOST_VMS)}", wants))
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
            then, vm = round(at + random.uniform(-0.2, 2.0), 3), f"vm{random.randrange(MOST_VMS)}"
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
            then, vm = round(at + random.uniform(0.0, 0.4), 3), f"vm{random.randrange(MOST_VMS)}"
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
            on_, how = NAMED[do].draw(Chance(random, history, Theme()))
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
        on, given = NAMED[each.do].draw(chance)
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
