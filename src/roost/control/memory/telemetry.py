"""What the control plane counts, in Prometheus naming; nothing is decided by it."""

from bisect import bisect_left
from collections import Counter as Counting
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from roost.control.memory.roster import Roster
from roost.fleet.layout import CPU, DISK, MEMORY
from roost.model.hosts import Health

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
#: (name, column, unit, divisor)
_RESOURCES = (("cpu", CPU, "cores", 1000), ("memory", MEMORY, "bytes", 1),
              ("disk", DISK, "bytes", 1))  # fmt: skip


_HEALTHS = tuple(health.label for health in Health)


class Gauge(NamedTuple):
    """A number that is read when somebody asks."""

    name: str
    text: str
    value: Callable[[], float]


class Times(Collector):
    """Durations in buckets, by labels. One list of numbers each: it is touched by every request."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._cells: dict[tuple[str, ...], list[float]] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        """Count one duration in its bucket."""
        cells = self._cells.get(labels)
        if cells is None:
            cells = self._cells[labels] = [0.0] * (len(_BUCKETS) + 2)
        cells[bisect_left(_BUCKETS, seconds)] += 1
        cells[-1] += seconds

    def collect(self) -> Iterator[Metric]:
        """Return the histogram's samples for Prometheus."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, cells in self._cells.items():
            total = 0.0
            buckets = []
            for edge, count in zip((*_BUCKETS, "+Inf"), cells, strict=False):
                total += count
                buckets.append((str(edge), total))
            family.add_metric(labels, buckets, sum_value=cells[-1])
        yield family


class Telemetry:
    """Counters of one process."""

    def __init__(self, release: str = "") -> None:
        self.registry = CollectorRegistry()
        self._placements = Counter(
            "roost_placements", "VMs asked for, by what became of them.",
            ["strategy", "outcome"], registry=self.registry,
        )  # fmt: skip
        self.latency = Times(
            "roost_placement_duration_seconds", "From a create's arrival to its commit.", ()
        )
        self._conflicts = Counter(
            "roost_claim_conflicts", "Claims that lost to another writer, by what had moved on.",
            ["what"], registry=self.registry,
        )  # fmt: skip
        self._requests = Counter(
            "roost_http_requests", "HTTP requests answered.",
            ["method", "route", "status"], registry=self.registry,
        )  # fmt: skip
        self._seconds = Times(
            "roost_http_request_duration_seconds", "Time to answer.", ("method", "route")
        )
        for times in (self.latency, self._seconds):
            self.registry.register(times)
        self._children: dict[tuple[str, ...], Counter] = {}
        ProcessCollector(registry=self.registry)
        self.registry.register(_Build(release))

    def placed(self, strategy: str, outcome: str, count: int = 1) -> None:
        """Count VMs by outcome: placed, queued, refused, contended, quota, conflict."""
        self._child(self._placements, strategy, outcome).inc(count)

    def conflict(self, what: str) -> None:
        """Count a claim that was refused at the commit."""
        self._child(self._conflicts, what).inc()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request."""
        self._child(self._requests, method, route, str(status)).inc()
        self._seconds.observe(seconds, method, route)

    def counter(self, name: str, text: str) -> Counter:
        """Return a new counter without labels."""
        return Counter(name, text, registry=self.registry)

    def _child(self, counter: Counter, *labels: str) -> Counter:
        # Looking a child up by its labels costs more than counting.
        key = (counter._name, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = counter.labels(*labels)
        return child

    def watch(self, roster: Roster, *gauges: Gauge) -> None:
        """Register gauges that read the fleet, and what else can be asked, when scraped."""
        self.registry.register(_Fleet(roster, gauges))

    def text(self) -> bytes:
        """Return the Prometheus exposition of all metrics."""
        return generate_latest(self.registry)


class _Build(Collector):
    """Which release this is."""

    def __init__(self, release: str) -> None:
        self._release = release

    def collect(self) -> Iterator[Metric]:
        """Return one sample that is always 1."""
        family = GaugeMetricFamily("roost_build_info", "Which release this is.", labels=["version"])
        family.add_metric([self._release], 1.0)
        yield family


class _Fleet(Collector):
    """Gauges of the fleet, read from the roster when scraped."""

    def __init__(self, roster: Roster, gauges: Sequence[Gauge]) -> None:
        self._roster, self._gauges = roster, gauges

    def collect(self) -> Iterator[Metric]:
        roster = self._roster
        yield GaugeMetricFamily(
            "roost_queue_length", "VMs that wait for room.", value=len(roster.waiting)
        )
        for gauge in self._gauges:
            yield GaugeMetricFamily(gauge.name, gauge.text, value=gauge.value())
        yield from self._counted()
        hosts = roster.fleet.hosts
        for name, column, unit, divisor in _RESOURCES:
            columns = (("capacity", hosts.arrays.capacity), ("committed", hosts.arrays.committed),
                       ("used", hosts.used))  # fmt: skip
            for kind, values in columns:
                family = GaugeMetricFamily(
                    f"roost_host_{name}_{kind}_{unit}", f"{name} {kind} of a host.",
                    labels=["host"],
                )  # fmt: skip
                for entry in roster.hosts.values():
                    value = int(values[entry.fleet_row, column])
                    if value >= 0:
                        family.add_metric([entry.name], value / divisor)
                yield family

    def _counted(self) -> Iterator[Metric]:
        """Return hosts by state, and the VMs that are placed or wait."""
        roster = self._roster
        oldest = min((vm.created_ms for vm in roster.waiting.values()), default=None)
        waited = 0.0 if oldest is None else max(0.0, (roster.wall_ms() - oldest) / 1000)
        yield GaugeMetricFamily(
            "roost_queue_oldest_seconds", "Since when the VM was asked for that waits longest.",
            value=waited,
        )  # fmt: skip
        yield GaugeMetricFamily(
            "roost_vms_placed", "Promises of room on hosts: VMs, and copies that are on their way.",
            value=roster.fleet.vms.alive,
        )  # fmt: skip
        states = GaugeMetricFamily(
            "roost_hosts", "Hosts by what is seen of them and what was ordered.",
            labels=["health", "admin"],
        )  # fmt: skip
        pairs = ((entry.row.health, entry.row.admin) for entry in roster.hosts.values())
        counted: Counting[tuple[str, str]] = Counting(pairs)
        for health in _HEALTHS:  # also those that no host has, so that alerts can rest on them
            for admin in sorted({"open", *(word for _, word in counted)}):
                states.add_metric([health, admin], counted[health, admin])
        yield states
        up = GaugeMetricFamily(
            "roost_host_up", "1 while a host is online, 0 while it is suspect or offline.",
            labels=["host"],
        )  # fmt: skip
        for entry in roster.hosts.values():
            up.add_metric([entry.name], float(entry.row.health == "online"))
        yield up
