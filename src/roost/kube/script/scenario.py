"""Scenarios on Kubernetes: nodes, VMs, what happens to them in time, and what is expected.

A scenario is a small YAML file that is read strictly. With a seed it becomes a fixed list of VMs
and a fixed list of moments; where VMs go, and so which node is the hottest, only the cluster's
scheduler decides. `roost.kube.scenarios.runner` plays it.
"""

import random
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, field

from roost.base.errors import InvalidRequest
from roost.base.units import parse_cpu
from roost.kube.cluster.nodes import NodePool
from roost.kube.script.descheduling import Descheduling
from roost.kube.script.loads import READERS, Bytes, Number, Share, Span
from roost.kube.vms.spec import VM, Group
from roost.wire.text.strictyaml import Seconds, Size, find_file, located, parse_strictly, read_text

Name = Annotated[str, Meta(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$")]
Whole = Annotated[int, Meta(ge=0)]
Some = Annotated[int, Meta(ge=1, le=10_000)]
Ratio = Annotated[float, Meta(ge=0.0, le=1.0)]

#: Nodes that are meant by how busy their CPUs are at that moment.
HOTTEST, COLDEST = "hottest", "coldest"


class Part(Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of a scenario."""


class Cores(str):
    """Cores of a node: 32, or 500m."""

    __slots__ = ()


def _read_cores(value: object) -> Cores:
    try:
        parse_cpu(str(value))
    except InvalidRequest as error:
        raise ValueError(error.message) from error
    return Cores(value)


class Nodes(NodePool, kw_only=True):
    """Some equal fake nodes, for this scenario only."""

    name: Name = "sim-node"
    cpu: Cores = Cores("32")
    memory: Size = Size("128GiB")


class VMPool(Part, kw_only=True):
    """Some VMs called NAME-1, NAME-2, ...; without a count one VM, called NAME."""

    name: Name
    count: Some | None = None
    cpu: Number = Number("fixed", 2.0)
    memory: Bytes = Bytes("fixed", 4.0 * 2**30)
    cpu_utilization: Share = Share("fixed", 0.5)
    memory_utilization: Share = Share("fixed", 0.8)
    dirty_rate_mbps: Number = Number("fixed", 800.0)
    variance: Ratio = 0.0  # of each utilisation, both ways
    zones: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    node_labels: dict[str, str] = {}
    node: str = ""  # forced: the scheduler is not asked

    def names(self) -> list[str]:
        """Return the names of its VMs."""
        if self.count is None:
            return [self.name]
        return [f"{self.name}-{number + 1}" for number in range(self.count)]

    def vms(self, seed: int, namespace: str) -> list[VM]:
        """Return its VMs; each is drawn by itself, so that more of them change no other."""
        return [self._vm(name, random.Random(f"{seed}/{name}"), namespace) for name in self.names()]

    def _vm(self, name: str, chance: random.Random, namespace: str) -> VM:
        milli = max(round(self.cpu.draw(chance) * 1000), 10)
        # Whole MiB: that is what a launcher pod asks for.
        memory_bytes = max(round(self.memory.draw(chance) / 2**20), 1) * 2**20
        return VM(
            name=name,
            namespace=namespace,
            cpu_milli=milli,
            memory_bytes=memory_bytes,
            cpu_utilization=self._varied(self.cpu_utilization, chance),
            memory_utilization=self._varied(self.memory_utilization, chance),
            dirty_rate_mbps=round(self.dirty_rate_mbps.draw(chance), 1),
            zones=self.zones,
            groups=self.groups,
            node_labels=self.node_labels,
            node=self.node,
        )

    def _varied(self, share: Share, chance: random.Random) -> float:
        drawn = share.draw(chance) + self.variance * chance.uniform(-1.0, 1.0)
        return round(min(max(drawn, 0.0), 1.0), 4)


class Target(Part, kw_only=True):
    """Which VMs are meant: by name, of a pool, on a node; `count` of them by chance, or all."""

    vms: tuple[str, ...] = ()
    pool: str = ""
    node: str = ""  # hottest, coldest, or a name
    count: Some | None = None


class Levels(Part, kw_only=True):
    """How much of its cores and memory a VM shall use."""

    cpu: Share | None = None
    memory: Share | None = None


def _check_levels(to: Levels | None, add: Levels | None) -> None:
    if (to is None) == (add is None):
        raise ValueError("a load has either `to` or `add`, with cpu, memory or both")


class Step(Part, kw_only=True, tag_field="do"):
    """Something that happens at one moment."""

    at: Seconds


class Migrate(Step, kw_only=True, tag="migrate"):
    """VMs are asked to leave their nodes; where they go is the scheduler's choice."""

    on: str | Target
    wanted: str = ""  # the node that one would like: hottest, coldest, or a name


class LoadStep(Step, kw_only=True, tag="load"):
    """VMs become busier or quieter, for a while."""

    on: str | Target
    to: Levels | None = None  # instead of what the VMs use by themselves
    add: Levels | None = None  # on top of it
    for_: Span | None = field(default=None, name="for")  # None: it stays

    def __post_init__(self) -> None:
        _check_levels(self.to, self.add)


class Evict(Step, kw_only=True, tag="evict"):
    """Somebody asks for the eviction of VMs' pods, as the descheduler or a drain would."""

    on: str | Target


class Delete(Step, kw_only=True, tag="delete"):
    """VMs are deleted."""

    on: str | Target


class Create(Step, kw_only=True, tag="create"):
    """VMs are created."""

    vms: Annotated[tuple[VMPool, ...], Meta(min_length=1)]


class Cordon(Step, kw_only=True, tag="cordon"):
    """A node takes no new pods."""

    node: str


class Uncordon(Step, kw_only=True, tag="uncordon"):
    """A node takes pods again."""

    node: str


class Kill(Step, kw_only=True, tag="kill"):
    """A node and all that runs on it is gone."""

    node: str


STEPS = ("migrate", "load", "evict", "delete", "create", "cordon", "uncordon", "kill")
AnyStep = Migrate | LoadStep | Evict | Delete | Create | Cordon | Uncordon | Kill


class Generator(Part, kw_only=True):
    """Loads that come again and again; each is drawn by itself."""

    name: Name
    on: str | Target
    to: Levels | None = None  # instead of what the VMs use by themselves
    add: Levels | None = None  # on top of it
    for_: Span | None = field(default=None, name="for")  # None: it stays
    every: Span
    rate: Number = Number("fixed", 1.0)  # loads at each time
    from_: Seconds = field(default=Seconds(0.0), name="from")
    until: Seconds | None = None  # the end of the scenario

    def __post_init__(self) -> None:
        _check_levels(self.to, self.add)
        if self.every.most <= 0:
            raise ValueError("a generator needs some time between its loads: every")


class Migrating(Part, kw_only=True):
    """How migrations go."""

    bandwidth_mbps: Annotated[float, Meta(gt=0.0)] = 10_000.0
    at_once: Annotated[int, Meta(ge=1)] = 5
    per_node: Annotated[int, Meta(ge=1)] = 2  # that leave one node
    cool_down: Seconds = Seconds(60.0)  # after a migration; doubled by each that follows soon
    speed: Annotated[float, Meta(gt=0.0)] = 1.0  # times as fast as the copying would take


class Expected(Part, kw_only=True):
    """What must be true at the end."""

    pending: Whole | None = None
    pending_at_least: Whole | None = None
    moves_at_least: Whole | None = None
    moves_at_most: Whole | None = None
    elsewhere_at_least: Whole | None = None  # moves that did not go where they were wanted
    aborted_at_most: Whole | None = None
    converted_at_least: Whole | None = None  # evictions that became migrations
    no_return_within: Seconds | None = None  # no VM comes back to a node it left so shortly before
    balanced_within: Ratio | None = None  # no node's CPU use lies further above the mean
    balanced_after: Seconds | None = None  # ... and that since this long after the start
    compliant: bool = True  # every rule of every VM holds

    def __post_init__(self) -> None:
        if self.balanced_after is not None and self.balanced_within is None:
            raise ValueError("balanced_after needs balanced_within, which says what balanced is")


class Scenario(Part, kw_only=True):
    """A whole scenario."""

    about: str
    duration: Seconds = Seconds(0.0)  # at least; steps and migrations are waited for anyway
    seed: int = 1
    nodes: tuple[Nodes, ...] = ()  # none: those that are there
    vms: Annotated[tuple[VMPool, ...], Meta(min_length=1)]
    steps: tuple[AnyStep, ...] = ()
    generators: tuple[Generator, ...] = ()
    descheduler: Descheduling | None = None
    avoid_pressure: Ratio | None = None  # nodes above it carry a soft taint
    migration: Migrating = field(default_factory=Migrating)
    expect: Expected = field(default_factory=Expected)

    def __post_init__(self) -> None:
        self._check_names()
        endless = [each.name for each in self.generators if each.until is None]
        if endless and not self.duration:
            raise ValueError(
                f"generator {endless[0]!r} never ends: give it an until, or a duration to all"
            )
        if self.descheduler is not None and not self.duration:
            raise ValueError("with a descheduler a scenario needs a duration")

    @property
    def node_names(self) -> list[str]:
        """Return the names of its own nodes."""
        return [f"{pool.name}-{n + 1}" for pool in self.nodes for n in range(pool.count)]

    def pools(self) -> list[VMPool]:
        """Return all pools, those of later steps too."""
        later = [pool for step in self.steps if isinstance(step, Create) for pool in step.vms]
        return [*self.vms, *later]

    def _check_names(self) -> None:
        for what, names in (
            ("VMs", [name for pool in self.pools() for name in pool.names()]),
            ("nodes", self.node_names),
            ("generators", [each.name for each in self.generators]),
        ):
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise ValueError(f"two {what} are called {twice[0]!r}")
        known = {
            "VM": {name for pool in self.pools() for name in pool.names()},
            "pool": {pool.name for pool in self.pools()},
            "node": {HOTTEST, COLDEST, *self.node_names},
            "zone": {zone for pool in self.nodes for zone in pool.zones},
        }
        for kind, name, where in self._named():
            # Of a cluster that is there already nobody knows the nodes beforehand.
            told = kind not in ("node", "zone") or bool(self.nodes)
            if told and name not in known[kind]:
                some = ", ".join(sorted(known[kind])[:8]) or "none"
                raise ValueError(located(f"there is no {kind} {name!r}; there is {some}", where))

    def _named(self) -> Iterator[tuple[str, str, str]]:
        """Yield what is spoken of: its kind, its name, and where."""
        for number, pool in enumerate(self.vms):
            yield from _named_by_pool(pool, f"$.vms[{number}]")
        for field_, parts in (("steps", self.steps), ("generators", self.generators)):
            for number, part in enumerate(parts):
                where = f"$.{field_}[{number}]"
                for inner, pool in enumerate(getattr(part, "vms", ())):
                    yield from _named_by_pool(pool, f"{where}.vms[{inner}]")
                for name in (getattr(part, "node", ""), getattr(part, "wanted", "")):
                    if name:
                        yield "node", name, where
                on = getattr(part, "on", None)
                if isinstance(on, str):
                    yield "VM", on, where
                elif on is not None:
                    yield from (("VM", name, where) for name in on.vms)
                    yield from (("pool", name, where) for name in (on.pool,) if name)
                    yield from (("node", name, where) for name in (on.node,) if name)


def _named_by_pool(pool: VMPool, where: str) -> Iterator[tuple[str, str, str]]:
    yield from (("zone", zone, where) for zone in pool.zones)
    if pool.node:
        yield "node", pool.node, where


# What a seed makes of it


class Moment(NamedTuple):
    """One step at its time; `number` tells it from others, and seeds what it draws by chance."""

    at: float
    number: int
    step: AnyStep
    source: str = ""  # the generator it came from


def all_vms(pools: Sequence[VMPool], seed: int, namespace: str) -> list[VM]:
    """Return the VMs of some pools."""
    return [vm for pool in pools for vm in pool.vms(seed, namespace)]


def timeline(scenario: Scenario, seed: int) -> list[Moment]:
    """Return every moment in order; one seed, one list."""
    found: list[tuple[float, AnyStep, str]] = [
        (float(step.at), step, "") for step in scenario.steps
    ]
    for generator in scenario.generators:
        found += [(at, step, generator.name) for at, step in _ticks(generator, scenario, seed)]
    found.sort(key=lambda each: each[0])
    return [Moment(at, number, step, source) for number, (at, step, source) in enumerate(found)]


def _ticks(generator: Generator, scenario: Scenario, seed: int) -> Iterator[tuple[float, LoadStep]]:
    until = float(scenario.duration if generator.until is None else generator.until)
    at = float(generator.from_)
    for tick in count():
        if at >= until:
            return
        chance = random.Random(f"{seed}/{generator.name}/{tick}")
        for _ in range(round(generator.rate.draw(chance))):
            yield (
                at,
                LoadStep(
                    at=Seconds(at),
                    on=generator.on,
                    to=_drawn(generator.to, chance),
                    add=_drawn(generator.add, chance),
                    for_=_fixed(generator.for_, chance),
                ),
            )
        # A millisecond at least: a drawn interval may be as good as nothing.
        at += max(generator.every.draw(chance), 0.001)


def _drawn(levels: Levels | None, chance: random.Random) -> Levels | None:
    if levels is None:
        return None
    return Levels(
        cpu=levels.cpu and Share("fixed", levels.cpu.draw(chance)),
        memory=levels.memory and Share("fixed", levels.memory.draw(chance)),
    )


def _fixed(span: Span | None, chance: random.Random) -> Span | None:
    return span and Span("fixed", span.draw(chance))


# Reading


def shipped() -> dict[str, Path]:
    """Return the scenarios that come with roost, by name."""
    folder = Path(str(files("roost.kube.scenarios") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_scenario(name: str) -> Path:
    """Return the file of a scenario that is named, or given as a path."""
    return find_file(name, shipped(), "scenario")


def read_scenario(path: Path) -> Scenario:
    """Read a scenario; a mistake is told with its line."""
    return parse_scenario(read_text(path), str(path))


def parse_scenario(text: str, file: str) -> Scenario:
    """Turn a text into a scenario."""
    try:
        return parse_strictly(text, file, Scenario, {**READERS, Cores: _read_cores})
    except InvalidRequest as error:
        if error.message.endswith(".do"):
            error.hint = f"Maybe one of {', '.join(STEPS)}."
        raise
