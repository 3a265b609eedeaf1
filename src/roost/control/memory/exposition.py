"""The metrics of one process as Prometheus reads them, written beside all else that it does.

What a process counts is a page. What it knows of every host is ten lines each, a million of them at
100,000 hosts: those are written a slice at a time, with a turn for everybody else in between, and
all who ask within a second are given the same bytes. Nobody needs a token to ask, so what is
written for those who ask takes about a tenth of a processor for each form, however often they do.
"""

import asyncio
from collections import Counter as Counting
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeVar

from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from roost.base.clock import Clock
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.fleet.layout import CPU, DISK, MEMORY
from roost.model.hosts import Health
from roost.wire.queries import Hosts

T = TypeVar("T")

_number: Callable[[float], str] = floatToGoString

#: Hosts whose lines are written in one turn of the event loop, about two milliseconds.
SLICE = 200
#: For how long all who ask are given the same, and for how many times as long as it took to write.
SHARED_S = 1.0
SHARED_TIMES = 9
MOST_SHARED_S = 15.0

_HEALTHS = tuple(health.label for health in Health)
#: (name, column, unit, divisor)
_RESOURCES = (("cpu", CPU, "cores", 1000), ("memory", MEMORY, "bytes", 1),
              ("disk", DISK, "bytes", 1))  # fmt: skip
_KINDS = ("capacity", "committed", "used")


class _Family(NamedTuple):
    """A metric that every host has: its name, what it says, and its number in a host's amounts."""

    name: str
    text: str
    kind: int
    column: int
    divisor: int


_AMOUNTS = tuple(
    _Family(f"roost_host_{name}_{kind}_{unit}", f"{name} {kind} of a host.", n, column, divisor)
    for name, column, unit, divisor in _RESOURCES
    for n, kind in enumerate(_KINDS)
)
_UP = "roost_host_up"
_UP_TEXT = "1 while a host is online, 0 while it is suspect or offline."


async def _nothing() -> None:
    """Take the metrics as they are."""


class _Kept(NamedTuple):
    until_s: float
    text: bytes


class Exposition:
    """Writes all metrics of one process; `prepare` is awaited before each time."""

    def __init__(
        self,
        telemetry: Telemetry,
        roster: Roster,
        clock: Clock,
        prepare: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self._telemetry, self._roster, self._clock = telemetry, roster, clock
        self._prepare = prepare
        self._kept: dict[Hosts, _Kept] = {}
        self._turn = asyncio.Lock()

    async def shared(self, hosts: Hosts = "yes") -> bytes:
        """Return what `text` would, as of a moment ago: those who ask together are given one."""
        async with self._turn:  # whoever writes hangs up: the next one writes
            kept = self._kept.get(hosts)
            if kept is None or self._clock.monotonic() >= kept.until_s:
                if hosts != "only":
                    await self._prepare()
                began_s = self._clock.monotonic()
                text = await self._written(hosts)
                now_s = self._clock.monotonic()
                rest_s = min(MOST_SHARED_S, max(SHARED_S, SHARED_TIMES * (now_s - began_s)))
                kept = self._kept[hosts] = _Kept(now_s + rest_s, text)
            return kept.text

    async def text(self, hosts: Hosts = "yes") -> bytes:
        """Return all metrics as they are now, without the lines of hosts, or them alone."""
        if hosts != "only":
            await self._prepare()
        return await self._written(hosts)

    async def _written(self, hosts: Hosts) -> bytes:
        counted: Counting[tuple[str, str]] = Counting()
        lines = _Lines()
        async for entries in in_slices(self._roster.hosts.values()):
            # One that is gone meanwhile has given its row to another.
            present = [e for e in entries if self._roster.hosts.get(e.number) is e]
            counted.update((entry.row.health, entry.row.admin) for entry in present)
            if hosts != "no":
                lines.add(self._roster, present)
        if hosts == "only":
            return b"".join(lines.pieces())
        oldest_ms = None
        async for waiting in in_slices(self._roster.waiting.values()):
            first_ms = min(vm.created_ms for vm in waiting)
            oldest_ms = first_ms if oldest_ms is None else min(first_ms, oldest_ms)
        waited_s = 0.0 if oldest_ms is None else (self._roster.wall_ms() - oldest_ms) / 1000
        fleet = generate_latest(_Told([_waits(waited_s), _by_state(counted)]))
        return b"".join(
            [self._telemetry.text(), fleet, *(lines.pieces() if hosts == "yes" else ())]
        )


async def in_slices(items: Collection[T]) -> AsyncIterator[list[T]]:
    """Yield what there is now, a slice in each turn of the event loop."""
    every = list(items)
    for first in range(0, len(every), SLICE):
        yield every[first : first + SLICE]
        await asyncio.sleep(0)


class _Lines:
    """The lines of every host, by metric: those of one metric must follow each other."""

    def __init__(self) -> None:
        self._amounts: tuple[list[bytes], ...] = tuple([] for _ in _AMOUNTS)
        self._up: list[bytes] = []

    def add(self, roster: Roster, entries: Sequence[HostEntry]) -> None:
        """Write the lines of some hosts."""
        hosts = roster.fleet.hosts
        rows = [entry.fleet_row for entry in entries]
        labels = [f'{{host="{_escaped(entry.name)}"}} ' for entry in entries]
        amounts = [
            values[rows].tolist()
            for values in (hosts.arrays.capacity, hosts.arrays.committed, hosts.used)
        ]
        for (name, _, kind, column, divisor), pieces in zip(_AMOUNTS, self._amounts, strict=True):
            found = [
                f"{name}{label}{_number(amount[column] / divisor)}\n"
                for label, amount in zip(labels, amounts[kind], strict=True)
                if amount[column] >= 0  # not known
            ]
            pieces.append("".join(found).encode())
        up = [
            f"{_UP}{label}{'1.0' if entry.row.health == 'online' else '0.0'}\n"
            for label, entry in zip(labels, entries, strict=True)
        ]
        self._up.append("".join(up).encode())

    def pieces(self) -> Iterator[bytes]:
        """Yield everything written, each metric behind its head."""
        for family, pieces in zip(_AMOUNTS, self._amounts, strict=True):
            yield _head(family.name, family.text)
            yield from pieces
        yield _head(_UP, _UP_TEXT)
        yield from self._up


def _head(name: str, text: str) -> bytes:
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n".encode()


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Told(Collector):
    """A registry of metrics that are known already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        return self._families


def _waits(waited_s: float) -> Metric:
    return GaugeMetricFamily(
        "roost_queue_oldest_seconds", "Since when the VM was asked for that waits longest.",
        value=max(0.0, waited_s),
    )  # fmt: skip


def _by_state(counted: Counting[tuple[str, str]]) -> Metric:
    """Return hosts by state, also the states that no host has, so that alerts can rest on them."""
    states = GaugeMetricFamily(
        "roost_hosts", "Hosts by what is seen of them and what was ordered.",
        labels=["health", "admin"],
    )  # fmt: skip
    for health in _HEALTHS:
        for admin in sorted({"open", *(word for _, word in counted)}):
            states.add_metric([health, admin], counted[health, admin])
    return states
