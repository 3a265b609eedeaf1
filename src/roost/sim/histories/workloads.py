"""A scenario and a seed make a history: who asks for what when, and what goes wrong.

    Scenario + seed --expand--> History --world--> Verdict

Every part draws from a generator of its own, so a change of one part of a scenario leaves the
others as they were. What depends on how things go (a drain that takes its time) is not decided
here but by whoever carries out the action.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random
from typing import Any

from msgspec import Struct

from roost.sim.histories.action_kinds import draw_fault
from roost.sim.histories.history import Action, History, host_name
from roost.sim.histories.scenarios import (
    Arrivals,
    Change,
    Demand,
    Lifetime,
    Loss,
    Operation,
    Scenario,
)

_HOUR_S = 3600.0
#: Faults last as long as leases make sense of it: drawn lengths are for the short timers.
_LONGER = {"short": 1.0, "production": 4.0}


class PlannedVM(Struct):
    """A VM as far as it is planned."""

    name: str
    given: dict[str, Any]
    born: float
    dies: float

    @property
    def where(self) -> dict[str, Any]:
        """Return what names it besides its name."""
        project = self.given.get("project")
        return {"project": project} if project else {}


class Population:
    """The VMs that should exist, as time goes on: whoever asks must ask in the order of time."""

    def __init__(self, vms: list[PlannedVM]) -> None:
        self._coming = sorted(vms, key=lambda vm: vm.born, reverse=True)
        self._here: list[PlannedVM] = []
        self._at: dict[str, int] = {}  # where each is in the list
        self._leaving: list[tuple[float, str]] = []

    def pick(self, random: Random, at: float) -> PlannedVM | None:
        """Return a VM that should exist, None when none does."""
        while self._coming and self._coming[-1].born <= at:
            vm = self._coming.pop()
            self._at[vm.name] = len(self._here)
            self._here.append(vm)
            heappush(self._leaving, (vm.dies, vm.name))
        while self._leaving and self._leaving[0][0] <= at:
            place, last = self._at.pop(heappop(self._leaving)[1]), self._here.pop()
            if place < len(self._here):
                self._here[place], self._at[last.name] = last, place
        return random.choice(self._here) if self._here else None


def expand(scenario: Scenario, seed: int) -> History:
    """Return the history of a scenario and a seed."""
    history = scenario.fleet()
    history.seed = seed
    arriving = [
        each
        for number, arrivals in enumerate(scenario.arrivals)
        for each in _arrive(arrivals, scenario, Random(f"{seed} arrivals {number}"))
    ]
    vms = [vm for batch in arriving for vm in batch]
    actions = [*_quotas(scenario), *(_create(batch) for batch in arriving)]
    actions += (
        Action(vm.dies, "delete", vm.name, vm.where)
        for batch in arriving
        for vm in batch
        if vm.dies < scenario.duration
    )
    for kind, rate in scenario.changes.items():
        random, population = Random(f"{seed} change {kind}"), Population(vms)
        for at in _moments(random, rate, 0.0, scenario.duration):
            if (vm := population.pick(random, at)) is not None:
                actions += _change(kind, vm, at, random, scenario)
    for operation, rate in scenario.operators.items():
        random, population = Random(f"{seed} operators {operation}"), Population(vms)
        for at in _moments(random, rate, 0.0, scenario.duration):
            actions += _operate(operation, at, random, scenario, history, population)
    for number, loss in enumerate(scenario.losses):
        actions.append(_lose(loss, history, Random(f"{seed} loss {number}")))
    actions += _maintain(scenario, history)
    for fault, rate in scenario.faults.items():
        random, population = Random(f"{seed} fault {fault}"), Population(vms)
        for at in _moments(random, rate, 0.0, scenario.duration):
            if (action := _fault(fault, at, random, scenario, history, population)) is not None:
                actions.append(action)
    actions += (Action(each.at, each.do, each.on, each.with_) for each in scenario.actions)
    history.actions = sorted(
        (Action(round(a.at, 3), a.do, a.on, a.with_) for a in actions), key=lambda a: a.at
    )
    return history


# Users


def _arrive(arrivals: Arrivals, scenario: Scenario, random: Random) -> Iterator[list[PlannedVM]]:
    """Yield the VMs of each request."""
    until = scenario.duration if arrivals.until is None else arrivals.until
    if arrivals.total:
        full, rest = divmod(arrivals.total, arrivals.batch)
        counts = [arrivals.batch] * full + [rest] * bool(rest)
        moments = sorted(random.uniform(arrivals.from_, until) for _ in counts)
    else:
        rate = arrivals.per_hour / arrivals.batch
        moments = list(_moments(random, rate, arrivals.from_, until))
        counts = [arrivals.batch] * len(moments)
    number = 0
    for turn, (at, count) in enumerate(zip(moments, counts, strict=True)):
        given = _wish(arrivals, turn, random)
        names = [f"{arrivals.name}-{number + n}" for n in range(count)]
        number += count
        yield [
            PlannedVM(name, given, at, at + _lifetime(arrivals.lifetime, random)) for name in names
        ]


def _wish(arrivals: Arrivals, turn: int, random: Random) -> dict[str, Any]:
    """Return what the VMs of one request ask for."""
    given = _amounts(_size(arrivals, random))
    restart = arrivals.restart
    if restart == "mixed":
        restart = random.choice(("here", "elsewhere"))
    given["restart"] = restart
    if arrivals.project != "default":
        given["project"] = arrivals.project
    if (group := arrivals.group) is not None:
        given["group"] = {
            "name": f"{arrivals.name}-group-{turn}",
            "rule": group.rule,
            "scope": group.scope,
            "hard": group.hard,
            "max_skew": group.max_skew,
        }
    for name in ("zones", "racks", "hosts", "not_hosts"):
        if wanted := getattr(arrivals, name):
            given[name] = list(wanted)
    if arrivals.queue:
        given["queue"] = True
    if arrivals.priority:
        given["priority"] = arrivals.priority
    return given


def _size(arrivals: Arrivals, random: Random) -> Demand:
    return random.choices(arrivals.sizes, [size.weight for size in arrivals.sizes])[0]


def _amounts(size: Demand) -> dict[str, Any]:
    return {"cpu": size.cpu, "memory": str(size.memory), "disk": str(size.disk)}


def _lifetime(lifetime: Lifetime | None, random: Random) -> float:
    if lifetime is None:
        return float("inf")
    if lifetime.fixed is not None:
        return lifetime.fixed
    if lifetime.exponential is not None:
        return random.expovariate(1.0 / lifetime.exponential)
    assert lifetime.lognormal is not None
    return lifetime.lognormal.median * random.lognormvariate(0.0, lifetime.lognormal.sigma)


def _create(batch: list[PlannedVM]) -> Action:
    first = batch[0]
    if len(batch) == 1 and "group" not in first.given:
        return Action(first.born, "create", first.name, first.given)
    names = [vm.name for vm in batch]
    return Action(first.born, "create_many", "", {"vms": names, **first.given})


def _change(
    kind: Change, vm: PlannedVM, at: float, random: Random, scenario: Scenario
) -> Iterator[Action]:
    name, where = vm.name, vm.where
    later = at + random.expovariate(1.0 / 600.0)
    match kind:
        case "resize":
            arrivals = next(a for a in scenario.arrivals if name.rpartition("-")[0] == a.name)
            yield Action(at, "resize", name, {"cpu": _size(arrivals, random).cpu, **where})
        case "stop" | "pause":
            yield Action(at, kind, name, where)
            if later < min(vm.dies, scenario.duration):
                yield Action(later, "start", name, where)
        case "restart" | "migrate":
            yield Action(at, kind, name, where)
        case "cancel":
            yield Action(at, "migrate", name, where)
            yield Action(at + random.uniform(0.0, 4.0), "cancel", name, where)


# Operators


def _quotas(scenario: Scenario) -> Iterator[Action]:
    for name, quota in scenario.projects.items():
        yield Action(0.0, "quota", name, _limits(quota))


def _limits(quota: Any) -> dict[str, Any]:
    found = {"cpu": quota.cpu, "memory": quota.memory, "disk": quota.disk, "vms": quota.vms}
    return {key: str(v) if isinstance(v, str) else v for key, v in found.items() if v is not None}


def _operate(
    kind: Operation,
    at: float,
    random: Random,
    scenario: Scenario,
    history: History,
    population: Population,
) -> Iterator[Action]:
    host = host_name(random.randrange(history.hosts))
    match kind:
        case "drain" | "cordon":
            yield Action(at, kind, host)
            yield Action(at + random.uniform(300.0, 1200.0), "uncordon", host)
        case "early_uncordon":
            yield Action(at, "drain", host)
            yield Action(at + random.uniform(0.5, 20.0), "uncordon", host)
        case "maintain":
            yield Action(at, "maintain", host, {"off": 120.0, "patience": 1800.0})
        case "confirm_dead":
            yield Action(at, "kill_agent", host, {"for": 900.0})
            yield Action(at + random.uniform(70.0, 200.0), "confirm_dead", host)
        case "wrong_delete":
            if (vm := population.pick(random, at)) is not None:
                yield Action(at, "delete", vm.name, vm.where)
                yield Action(at + random.uniform(5.0, 90.0), "create", vm.name, vm.given)
        case "low_quota":
            if scenario.projects:
                name = random.choice(sorted(scenario.projects))
                whole = _limits(scenario.projects[name])
                low = {key: max(1, v // 4) for key, v in whole.items() if isinstance(v, int)}
                yield Action(at, "quota", name, {**whole, **low})
                yield Action(at + random.uniform(60.0, 900.0), "quota", name, whole)


def _maintain(scenario: Scenario, history: History) -> Iterator[Action]:
    plan = scenario.maintenance
    if plan is None:
        return
    hosts = plan.hosts or tuple(host_name(number) for number in range(history.hosts))
    for turn, host in enumerate(hosts):
        at = plan.from_ + turn * plan.every
        if at < scenario.duration:
            given = {"off": float(plan.off), "patience": float(plan.patience)}
            yield Action(at, "maintain", host, given)


# Misfortunes


def _lose(loss: Loss, history: History, random: Random) -> Action:
    plans = [history.host_plan(number) for number in range(history.hosts)]
    given = {"how": loss.how, "for": float(loss.for_)}
    if loss.host:
        names = [host_name(number) for number in range(history.hosts)]
        host = random.choice(names) if loss.host == "any" else loss.host
        return Action(loss.at, "lose_host", host, given)
    scope, name = ("rack", loss.rack) if loss.rack else ("zone", loss.zone)
    if name == "any":
        name = random.choice(sorted({getattr(plan, scope) for plan in plans} - {""}))
    return Action(loss.at, f"lose_{scope}", name, given)


def _fault(
    kind: str,
    at: float,
    random: Random,
    scenario: Scenario,
    history: History,
    population: Population,
) -> Action | None:
    vm = population.pick(random, at)
    drawn = draw_fault(kind, random, history, None if vm is None else vm.name)
    if drawn is None:
        return None
    given = drawn.with_
    if "for" in given:
        given = {**given, "for": round(given["for"] * _LONGER[scenario.timers], 1)}
    return Action(at, kind, drawn.on, given)


def _moments(random: Random, per_hour: float, start: float, end: float) -> Iterator[float]:
    """Yield the times of things that happen independently of each other at a rate."""
    at = start
    while per_hour > 0:
        at += random.expovariate(per_hour / _HOUR_S)
        if at >= end:
            return
        yield at
