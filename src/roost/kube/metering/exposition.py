"""Nodes, VMs and waiting as Prometheus reads them: the exporter's last step.

Written by hand: a scrape of 10,000 nodes and 100,000 VMs has 270,000 lines, and making an object of
each, as prometheus_client does, takes 7 s instead of 0.2 s. What an event changes is written once;
a scrape only puts it together and reads the counters.
"""

from collections.abc import Iterable, Mapping

from roost.base.clock import Clock
from roost.kube.metering.counters import UNITS_PER_SECOND, Counter, Rates
from roost.kube.metering.usage import MICRO, NodeUse, Usage

#: (name, help) of what is constant between events; in the order of `_gauges`.
_GAUGES = (
    ("node_cpu_usage_ratio", "Share of the node's cores that is busy."),
    ("node_cpu_demand_ratio", "Share of the node's cores that is wanted; may be more than 1."),
    ("node_cpu_pressure_psi", "Share of time in which something waits for a core."),
    ("node_memory_usage_ratio", "Share of the node's memory that is in use."),
    ("node_memory_pressure_psi", "Share of time in which something waits for memory."),
    ("node_vm_count", "VMs charged to the node, targets of migrations among them."),
    ("node_memory_MemTotal_bytes", "Memory for pods."),
    ("node_memory_MemAvailable_bytes", "Memory that no pod uses."),
    ("kube_node_role", "Roles of a node."),
    ("kube_node_status_allocatable", "What a node has for pods."),
)
_CPU = "node_cpu_seconds_total", "Seconds of all cores by mode; all modes make cores x time."
_CPU_WAITING = "node_pressure_cpu_waiting_seconds_total", "Time in which something waited to run."
_MEMORY_WAITING = (
    "node_pressure_memory_waiting_seconds_total",
    "Time in which something waited for memory.",
)


def label(value: str) -> str:
    """Return a label's value in quotes, as the text format wants it."""
    if "\\" in value or '"' in value or "\n" in value:
        value = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{value}"'


def series(name: str, labels: Mapping[str, str], value: float) -> str:
    """Return one series as a line."""
    inside = ",".join(f"{key}={label(text)}" for key, text in labels.items())
    return f"{name}{{{inside}}} {value}\n" if inside else f"{name} {value}\n"


def head(name: str, about: str, kind: str = "gauge") -> str:
    """Return what stands over the lines of one name."""
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n"


def family(
    name: str, about: str, values: Iterable[tuple[Mapping[str, str], float]], kind: str = "gauge"
) -> str:
    """Return all lines of one name."""
    return head(name, about, kind) + "".join(series(name, *each) for each in values)


class _Node:
    """What is kept of one node between scrapes."""

    __slots__ = ("counter", "gauges", "heads", "use")

    def __init__(self, use: NodeUse, counter: Counter) -> None:
        self.use, self.counter = use, counter
        at = f"{{instance={label(use.name)}"
        self.heads = (
            f'{_CPU[0]}{at},mode="idle"}} ', f'{_CPU[0]}{at},mode="user"}} ',
            f'{_CPU[0]}{at},mode="system"}} ', f"{_CPU_WAITING[0]}{at}}} ",
            f"{_MEMORY_WAITING[0]}{at}}} ",
        )  # fmt: skip
        self.gauges: tuple[str, ...] | None = None


class NodePage:
    """The part of the page that speaks of nodes."""

    def __init__(self, usage: Usage, clock: Clock) -> None:
        self._clock = clock
        self._nodes: dict[str, _Node] = {}
        usage.listen(self._heard)

    def _now_ns(self) -> int:
        return round(self._clock.monotonic() * 1e9)

    def _heard(self, use: NodeUse) -> None:
        if use.capacity is None:
            self._nodes.pop(use.name, None)
            return
        now, rates = self._now_ns(), _rates(use)
        node = self._nodes.get(use.name)
        if node is None:
            self._nodes[use.name] = _Node(use, Counter(now, rates))
            return
        node.counter.change(now, rates)
        node.use, node.gauges = use, None

    def lines(self) -> list[str]:
        """Return the lines, several to a piece."""
        nodes = list(self._nodes.values())
        for node in nodes:
            if node.gauges is None:
                node.gauges = _gauges(node.use)
        page: list[str] = []
        for at, (name, about) in enumerate(_GAUGES):
            page.append(head(name, about))
            page.extend([node.gauges[at] for node in nodes if node.gauges is not None])
        now, second = self._now_ns(), UNITS_PER_SECOND
        cpu, waiting, waiting_memory = (
            [head(*each, kind="counter")] for each in (_CPU, _CPU_WAITING, _MEMORY_WAITING)
        )
        for node in nodes:
            total, at_ = node.counter.read(now), node.heads
            cpu.append(
                f"{at_[0]}{total.idle / second}\n{at_[1]}{total.user / second}\n"
                f"{at_[2]}{total.system / second}\n"
            )
            waiting.append(f"{at_[3]}{total.cpu_waiting / second}\n")
            waiting_memory.append(f"{at_[4]}{total.memory_waiting / second}\n")
        return page + cpu + waiting + waiting_memory


def _rates(use: NodeUse) -> Rates:
    return Rates(
        cores=use.capacity.cpu_milli * 1000 if use.capacity else 0,
        busy=use.busy_micro,
        cpu_waiting=round(use.cpu_pressure * MICRO),
        memory_waiting=round(use.memory_pressure * MICRO),
    )


def _gauges(use: NodeUse) -> tuple[str, ...]:
    has = use.capacity
    assert has is not None
    node, at = f"{{node={label(use.name)}", f"{{instance={label(use.name)}"
    values = (
        use.cpu_ratio, use.cpu_demand, use.cpu_pressure, use.memory_ratio, use.memory_pressure,
        use.vms,
    )  # fmt: skip
    allocatable = "kube_node_status_allocatable" + node
    return (
        *(
            f"{name}{node}}} {value}\n"
            for (name, _), value in zip(_GAUGES, values, strict=False)
        ),
        f"node_memory_MemTotal_bytes{at}}} {has.memory_bytes}\n",
        f"node_memory_MemAvailable_bytes{at}}} {use.available_bytes}\n",
        "".join(f"kube_node_role{node},role={label(role)}}} 1\n" for role in has.roles),
        f'{allocatable},resource="cpu",unit="core"}} {has.cpu_milli / 1000}\n'
        f'{allocatable},resource="memory",unit="byte"}} {has.memory_bytes}\n'
        f'{allocatable},resource="pods",unit="integer"}} {has.pods}\n',
    )  # fmt: skip
