"""Random fleets and requests that between them use everything a host or a request can say.

All is drawn from a seed, piece by piece: host 7 of seed 3 is the same host in a fleet of ten and
of four hundred, and step 7 the same step in a short run and a long one. So a failure shrinks by
shrinking two small numbers. A `Climate` is what the hosts and requests of one seed have in common:
a fleet that mixes every feature at once would hardly ever place anything.
"""

from dataclasses import dataclass, replace
from random import Random

from roost.base.units import GIB, TIB
from roost.model.constraints import (
    Constraints,
    LabelOperator,
    LabelTerm,
    Preference,
    Talk,
    Toleration,
)
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import (
    PRESSURES,
    Admin,
    Cell,
    Device,
    Health,
    HostSpec,
    Resource,
    Scope,
    Taint,
    TaintEffect,
)
from roost.model.outlook import DAY_LEVELS, DAY_PARTS, DayCourse, Expected
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.model.rules import NO_RULES, RuleSet
from roost.topology.network import Link, Network, Node
from tests.naive.predicates import PREDICATES
from tests.property import expressions

FEATURES = (
    "states",
    "unknown",
    "labels",
    "taints",
    "hardware",
    "places",
    "extended",
    "overcommit",
    "limits",
    "devices",
    "cells",
    "names",
    "predicates",
    "preferences",
    "groups",
)

#: Few features at a time leave room for many VMs, which some rules need before they matter.
FOCI: dict[str, frozenset[str] | None] = {
    "any": None,  # about half of the features, by the seed
    "none": frozenset(),
    "all": frozenset(FEATURES),
    "groups": frozenset({"groups", "places", "states"}),
    "devices": frozenset({"devices", "overcommit"}),
    "cells": frozenset({"cells", "limits"}),
    "predicates": frozenset({"predicates", "names", "places"}),
    "attributes": frozenset({"labels", "taints", "preferences", "hardware"}),
    "outlook": frozenset({"outlook", "limits", "preferences", "labels", "names"}),
    "rules": frozenset({"rules", "labels", "places", "hardware", "states", "groups", "extended"}),
    "network": frozenset({"network", "states", "preferences", "labels", "names"}),
    "soft rules": frozenset({"rules", "soft", "labels", "places", "devices", "cells"}),
}

ZONES, RACKS, SITES = ("z1", "z2", "z3"), ("r1", "r2", "r3", "r4", "r5"), ("s1", "s2")
MODELS = ("a100", "h100", "t4")
EXTENDED = ("licences", "ports")
LABELS = {
    "tier": ("gold", "silver", "bronze"),
    "generation": ("3", "7", "11", "-2", "old"),
    "ssd": ("", "nvme"),
}
TAINTS = (
    Taint("dedicated", "team-a"),
    Taint("dedicated", "team-b"),
    Taint("old", effect=TaintEffect.PREFER_NOT),
    Taint("noisy", "yes", TaintEffect.PREFER_NOT),
)


@dataclass(frozen=True)
class Climate:
    """What the hosts and requests of one seed have in common."""

    seed: int
    features: frozenset[str]
    even: bool  # sizes from a short list, so that hosts tie
    groups: tuple[GroupSpec, ...]
    rules: RuleSet = NO_RULES
    clock: tuple[tuple[str, int], ...] = ()

    def has(self, feature: str, rng: Random, chance: float) -> bool:
        """Toss a coin for a feature that this seed uses."""
        return rng.random() < chance and feature in self.features


def stream(*name: object) -> Random:
    """Return the random numbers of one named piece."""
    return Random("/".join(map(str, name)))


def climate(seed: int, focus: str = "any") -> Climate:
    """Return the climate of a seed."""
    rng = stream(seed, "climate")
    chosen = frozenset(each for each in FEATURES if rng.random() < 0.5)
    groups = tuple(
        GroupSpec(
            f"group-{number}",
            rng.choice(tuple(GroupRule)),
            rng.choice(tuple(Scope)),
            hard=rng.random() < 0.6,
            max_skew=rng.randint(1, 3),
            weight=rng.randint(1, 100),
        )
        for number in range(3)
    )
    even = rng.random() < 0.5
    features = FOCI[focus]
    if features is not None and "rules" in features:
        return Climate(seed, features, even, groups, *expressions.rules(seed, "soft" in features))
    return Climate(seed, chosen if features is None else features, even, groups)


# Hosts


def host(climate: Climate, number: int, version: int = 0) -> HostSpec:
    """Return a host; another version has the same name and other properties."""
    rng = stream(climate.seed, "host", number, version)
    if climate.even:
        cores = rng.choice((4, 8, 16))
        amounts = (cores * 1000, cores * rng.choice((2, 4)) * GIB, rng.choice((0, 100, 400)) * GIB)
    else:
        cores = rng.randint(2, 24)
        amounts = (
            cores * 1000 + rng.randint(0, 999),
            int(cores * GIB * rng.uniform(1, 8)),
            rng.randint(0, TIB),
        )
    cpu, memory, disk = (_resource(climate, rng, amount) for amount in amounts)
    spec = HostSpec(f"host-{number:04}", cpu, memory, disk)
    spec = _with_state(climate, rng, spec)
    spec = _with_attributes(climate, rng, spec)
    return _with_parts(climate, rng, spec)


def _resource(climate: Climate, rng: Random, total: int) -> Resource:
    if climate.has("unknown", rng, 0.03):
        return Resource(None)
    if climate.has("overcommit", rng, 0.5):
        return Resource(total, total * rng.randint(0, 3) // 10, rng.choice((500, 1000, 1500, 4000)))
    return Resource(total)


def _with_state(climate: Climate, rng: Random, spec: HostSpec) -> HostSpec:
    if climate.has("states", rng, 0.25):
        spec = replace(spec, health=rng.choice(tuple(Health)), admin=rng.choice(tuple(Admin)))
    if climate.has("limits", rng, 0.4):
        spec = replace(spec, max_vms=rng.randint(0, 6))
    return spec


def _with_attributes(climate: Climate, rng: Random, spec: HostSpec) -> HostSpec:
    if climate.has("labels", rng, 0.9):
        spec = replace(spec, labels=labels(rng))
    if climate.has("taints", rng, 0.4):
        spec = replace(spec, taints=tuple(rng.sample(TAINTS, rng.randint(1, 2))))
    if climate.has("hardware", rng, 0.6):
        known = ("live", "nested", "sev")
        spec = replace(
            spec,
            architecture=rng.choice(("x86_64", "aarch64")),
            driver=rng.choice(("qemu", "xen")),
            capabilities=tuple(rng.sample(known, rng.randint(0, 3))),
        )
    if climate.has("places", rng, 0.9):
        spec = replace(
            spec,
            zone=rng.choice((*ZONES, "")),
            rack=rng.choice((*RACKS, "")),
            site=rng.choice((*SITES, "")),
        )
    return spec


def _with_parts(climate: Climate, rng: Random, spec: HostSpec) -> HostSpec:
    if climate.has("extended", rng, 0.7):
        names = rng.sample(EXTENDED, rng.randint(1, 2))
        amounts = tuple((name, Resource(rng.randint(1, 9))) for name in sorted(names))
        spec = replace(spec, extended=amounts)
    if climate.has("devices", rng, 0.7):
        spec = replace(spec, devices=tuple(_device(rng) for _ in range(rng.randint(1, 4))))
    if climate.has("cells", rng, 0.7):
        cpu, memory = spec.cpu.total or 4000, spec.memory.total or GIB
        count = rng.randint(1, 4)
        cells = tuple(
            Cell(cpu // count + rng.randint(0, 500), memory // rng.randint(count, count + 1))
            for _ in range(count)
        )
        spec = replace(spec, cells=cells)
    return spec


def _device(rng: Random) -> Device:
    return Device(rng.choice(MODELS), rng.choice((0, 40, 80)) * GIB, rng.random() < 0.7)


def labels(rng: Random) -> tuple[tuple[str, str], ...]:
    """Return some labels."""
    keys = [key for key in LABELS if rng.random() < 0.6]
    return tuple((key, rng.choice(LABELS[key])) for key in keys)


# Requests


def request(climate: Climate, number: object, name: str | None = None) -> PlaceRequest:
    """Return a request."""
    rng = stream(climate.seed, "request", number)
    groups: tuple[GroupSpec | str, ...] = ()
    if climate.has("groups", rng, 0.6):
        groups = tuple(rng.sample(climate.groups, rng.choice((1, 1, 1, 1, 2, 3))))
        groups = tuple(each if rng.random() < 0.5 else each.name for each in groups)
    asked = PlaceRequest(
        name or f"vm-{climate.seed}-{number}",
        demand(climate, rng),
        constraints(climate, _again(climate, rng, "rules")),
        groups,
        seed=rng.choice((None, rng.getrandbits(64))),
    )
    if "outlook" in climate.features:
        asked = replace(asked, expected=expected(stream(climate.seed, "expected", number)))
        if stream(climate.seed, "day", number).random() < 0.5:
            asked = replace(asked, day=asked.expected.day)
    if "network" in climate.features:
        asked = replace(asked, talks=talks(climate, stream(climate.seed, "talks", number)))
    return expressions.subject(asked, rng) if climate.rules else asked


def talks(climate: Climate, rng: Random) -> tuple[Talk, ...]:
    """Return with whom a VM talks; some of them are nowhere."""
    if rng.random() < 0.2:
        return ()
    found = []
    for number in rng.sample(range(40), rng.randint(1, 5)):
        steps = rng.choice((number, f"growing-{number % 12}", f"growing-{number % 12}-0"))
        found.append(
            Talk(
                f"vm-{climate.seed}-{steps}",
                f"partner {number}",
                rng.choice((0, rng.randint(1, 10**5), rng.randint(1, 10**9))),
                rng.choice((None, None, 0, rng.randint(0, 3000))),
                rng.choice((None, None, rng.randint(0, 10**7))),
            )
        )
    return tuple({each.key: each for each in found}.values())


def network(climate: Climate, version: int) -> Network:
    """Return a network that knows most hosts; ways tie, islands are there."""
    rng = stream(climate.seed, "network", version)
    switches = [f"s{number}" for number in range(rng.randint(1, 6))]
    hosts = [f"host-{number:04}" for number in range(64) if rng.random() < 0.85]
    numbers = ((100.0, 0.0, 0.0), (1000.0, 0.1, 0.5), (10_000.0, 0.5, 0.0), (1000.0, 2.0, 0.95))
    links = [Link(one, other, *rng.choice(numbers)) for at, one in enumerate(switches)
             for other in switches[at + 1 :] if rng.random() < 0.6]  # fmt: skip
    for name in hosts:
        above = rng.sample(switches, rng.choice((0, 1, 1, 1, 1, min(2, len(switches)))))
        links += [Link(name, switch, *rng.choice(numbers)) for switch in above]
    if len(hosts) > 1:
        links.append(Link(hosts[0], hosts[1], 10.0, 0.01))
    nodes = [Node(name, "host") for name in hosts] + [Node(name, "switch") for name in switches]
    return Network(tuple(nodes), tuple(links))


def expected(rng: Random) -> Expected:
    """Return what is expected of a VM; some of it, or all, may be unknown."""
    cpu = rng.choice((None, 0, rng.randint(0, 6000)))
    memory = rng.choice((None, 0, rng.randint(0, 9 * GIB)))
    hours = rng.choice((0, rng.randint(0, 5), rng.randint(0, 80), rng.randint(0, 600)))
    end = rng.choice((None, 3600 * hours, 3600 * hours, 3600 * hours + 1))
    return Expected(cpu, memory, end, day=day(rng) if rng.random() < 0.6 else None)


def day(rng: Random) -> DayCourse:
    """Return the course of a VM's day; few levels, so that peaks meet."""
    levels = rng.choices((0, 3, 17, DAY_LEVELS), k=DAY_PARTS)
    return DayCourse(rng.choice((0, 7, 2000, rng.randint(1, 10**6))), tuple(levels))


def predicted(rng: Random) -> tuple[int, int]:
    """Return the cpu and memory a host will use; seldom more than it can."""
    if rng.random() < 0.1:
        return rng.randint(0, 10**7), rng.randint(0, 100 * TIB)
    return rng.choice((0, rng.randint(0, 9000))), rng.randint(0, 64 * GIB)


def pressure(rng: Random) -> dict[str, float]:
    """Return what was measured of a host's pressure; what is missing is unknown."""
    return {name: rng.choice((0.0, 20.0, 20.5, 99.0)) for name in PRESSURES if rng.random() < 0.9}


def _again(climate: Climate, rng: Random, what: str) -> Random:
    """Return, mostly, random numbers that other requests had too: rules are few, VMs are many."""
    if rng.random() < 0.3:
        return rng
    return stream(climate.seed, what, rng.randrange(8))


def demand(climate: Climate, rng: Random) -> Demand:
    """Return the amounts of a request."""
    if climate.even:
        cpu = rng.choice((500, 1000, 2000, 4000))
        memory, disk = cpu * rng.choice((1, 2, 4)) * GIB // 1000, rng.choice((0, 0, 10, 50)) * GIB
    else:
        cpu, memory = rng.randint(1, 5000), rng.randint(1, 8 * GIB)
        disk = rng.choice((0, rng.randint(1, 100 * GIB)))
    if rng.random() < 0.03:  # larger than most hosts
        cpu, memory = 10 * cpu, 10 * memory
    extended: tuple[tuple[str, int], ...] = ()
    if climate.has("extended", rng, 0.3):
        extended = tuple((name, rng.randint(0, 3)) for name in EXTENDED if rng.random() < 0.6)
    devices = None
    if climate.has("devices", rng, 0.35):
        devices = device_demand(_again(climate, rng, "devices"))
    numa = rng.choice(tuple(NumaMode)) if climate.has("cells", rng, 0.5) else NumaMode.ANY
    return Demand(cpu, memory, disk, extended, devices, numa)


def device_demand(rng: Random) -> DeviceDemand:
    """Return a request for devices."""
    models = tuple(rng.sample((*MODELS, "unheard-of"), rng.randint(1, 2)))
    return DeviceDemand(
        rng.choice((1, 1, 1, 2, 3)),
        rng.choice((1000, 500, 250, 333)),
        models if rng.random() < 0.5 else (),
        rng.choice((0, 0, 40, 80)) * GIB,
    )


def constraints(climate: Climate, rng: Random) -> Constraints:
    """Return the rules and wishes of a request; most requests have few."""
    asked = Constraints()
    if climate.has("labels", rng, 0.35):
        asked = replace(asked, labels=tuple(term(rng) for _ in range(rng.randint(1, 2))))
    if climate.has("taints", rng, 0.5):
        asked = replace(asked, tolerations=_tolerations(rng))
    if climate.has("hardware", rng, 0.3):
        asked = replace(asked, architecture=rng.choice(("x86_64", "aarch64", "riscv")))
    if climate.has("hardware", rng, 0.3):
        asked = replace(asked, driver=rng.choice(("qemu", "xen")))
    if climate.has("hardware", rng, 0.2):
        asked = replace(asked, capabilities=tuple(rng.sample(("live", "nested"), 1)))
    if climate.has("places", rng, 0.2):
        asked = replace(asked, zones=tuple(rng.sample((*ZONES, "nowhere"), 2)))
    if climate.has("places", rng, 0.2):
        asked = replace(asked, racks=tuple(rng.sample((*RACKS, "nowhere"), 3)))
    if climate.has("places", rng, 0.2):
        asked = replace(asked, sites=(rng.choice((*SITES, "nowhere")),))
    if climate.has("names", rng, 0.15):
        asked = replace(asked, pinned=_host_names(rng, 8))
    if climate.has("names", rng, 0.5):
        asked = replace(asked, excluded=_host_names(rng, 5))
    if climate.has("predicates", rng, 0.35):
        asked = replace(asked, predicate=rng.choice(PREDICATES))
    if climate.has("preferences", rng, 0.6):
        wishes = tuple(Preference(term(rng), rng.randint(1, 100)) for _ in range(rng.randint(1, 3)))
        asked = replace(asked, preferences=wishes)
    return asked


def term(rng: Random) -> LabelTerm:
    """Return a condition on labels, with any operator."""
    operator = rng.choice(tuple(LabelOperator))
    key = rng.choice((*LABELS, "unheard-of"))
    if operator in (LabelOperator.EXISTS, LabelOperator.ABSENT):
        return LabelTerm(key, operator)
    if operator in (LabelOperator.GREATER, LabelOperator.LESS):
        return LabelTerm("generation", operator, (str(rng.randint(-3, 12)),))
    return LabelTerm(key, operator, tuple(rng.sample(LABELS.get(key, ("x", "y")), 2)))


def _tolerations(rng: Random) -> tuple[Toleration, ...]:
    some = (
        Toleration("dedicated"),
        Toleration("dedicated", "team-a"),
        Toleration("old"),
        Toleration("noisy", "no"),
        Toleration(),
    )
    return tuple(rng.sample(some, rng.randint(1, 2)))


def _host_names(rng: Random, most: int) -> tuple[str, ...]:
    """Return a few names; low numbers more often, because fleets may be small."""
    return tuple(f"host-{int(rng.random() ** 2 * 60):04}" for _ in range(rng.randint(1, most)))
