"""What the control plane counts, in Prometheus naming; nothing is decided by it.

What it knows of single hosts is written in `exposition.py`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from roost.control.memory.roster import Roster
from roost.ledger.store import DatabaseContended, DatabaseUnavailable, InDoubt
from roost.parts.watched_store import Meter

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

#: What became of a call that the database did not take; of most there is no more to say.
_DATABASE_ERRORS: dict[type[DatabaseUnavailable], str] = {
    DatabaseContended: "contended",
    InDoubt: "in_doubt",
}
_UNAVAILABLE = "unavailable"


class Gauge(NamedTuple):
    """A number that is read when somebody asks."""

    name: str
    text: str
    value: Callable[[], float]


class Words(NamedTuple):
    """Numbers by a word each, which are read when somebody asks: gauges, or counters."""

    name: str
    text: str
    label: str
    values: Callable[[], Mapping[str, float]]


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

    def of(self, *labels: str) -> Callable[[float], None]:
        """Return what counts durations of these labels, without looking them up each time."""
        cells = self._cells.setdefault(labels, [0.0] * (len(_BUCKETS) + 2))

        def observe(seconds: float) -> None:
            cells[bisect_left(_BUCKETS, seconds)] += 1
            cells[-1] += seconds

        return observe

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
        self._database = Times(
            "roost_database_duration_seconds",
            "From a question or a change of the ledger to the answer, with waiting for others.",
            ("op",),
        )
        self._failed = Counter(
            "roost_database_errors", "Questions and changes that the database did not take.",
            ["op", "error"], registry=self.registry,
        )  # fmt: skip
        for times in (self.latency, self._seconds, self._database):
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

    def database(self) -> Meter:
        """Return the meter of a store: how long it takes, and what its database does not take."""
        ops = ("read", "write", "claim")
        words = (*_DATABASE_ERRORS.values(), _UNAVAILABLE)
        counters = {(op, word): self._failed.labels(op, word) for op in ops for word in words}

        def failed(op: str, error: DatabaseUnavailable) -> None:
            counters[op, _DATABASE_ERRORS.get(type(error), _UNAVAILABLE)].inc()

        read, write, claim = (self._database.of(op) for op in ops)
        return Meter(read, write, claim, failed)

    def counter(self, name: str, text: str) -> Counter:
        """Return a new counter without labels."""
        return Counter(name, text, registry=self.registry)

    def words(self, counted: Words, *, grow: bool) -> None:
        """Register numbers by a word each; those that only grow are counters."""
        family = CounterMetricFamily if grow else GaugeMetricFamily
        self.registry.register(_Worded(counted, family))

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
        """Return what the process counts and knows of the fleet as a whole, for Prometheus."""
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


class _Worded(Collector):
    """Numbers by a word each, read when scraped."""

    def __init__(
        self, counted: Words, family: type[CounterMetricFamily] | type[GaugeMetricFamily]
    ) -> None:
        self._counted, self._family = counted, family

    def collect(self) -> Iterator[Metric]:
        """Return one sample for each word."""
        name, text, label, values = self._counted
        family = self._family(name, text, labels=[label])
        for word, value in values().items():
            family.add_metric([word], value)
        yield family


class _Fleet(Collector):
    """Gauges of the fleet as a whole, read from the roster when scraped."""

    def __init__(self, roster: Roster, gauges: Sequence[Gauge]) -> None:
        self._roster, self._gauges = roster, gauges

    def collect(self) -> Iterator[Metric]:
        roster = self._roster
        yield GaugeMetricFamily(
            "roost_queue_length", "VMs that wait for room.", value=len(roster.waiting)
        )
        for gauge in self._gauges:
            yield GaugeMetricFamily(gauge.name, gauge.text, value=gauge.value())
        yield GaugeMetricFamily(
            "roost_vms_placed", "Promises of room on hosts: VMs, and copies that are on their way.",
            value=roster.fleet.vms.alive,
        )  # fmt: skip
