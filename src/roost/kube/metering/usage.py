"""What is used on each node, kept up by single events: the exporter's middle, between mirrors and
what Prometheus reads.

Every pod that is bound and not finished is charged to its node: the cores its VM keeps busy and the
memory it has touched, as its annotations say. While a VM migrates both of its pods are charged. A
change of one pod costs the same whatever the number of pods; amounts are whole numbers, so sums
that were kept up for weeks equal sums made anew.

What is unknown counts as full, never as free: a pod without annotations uses all that it asked for,
one that asked for nothing what the scheduler assumes, and a node without amounts is used up.

Pure: objects in, numbers out.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from roost.base.errors import InvalidRequest
from roost.kube.base.names import (
    APP,
    APP_LABEL,
    CPU_CORES_ANNOTATION,
    CPU_UTILIZATION_ANNOTATION,
    MEMORY_BYTES_ANNOTATION,
    MEMORY_UTILIZATION_ANNOTATION,
    NAME_LABEL,
)
from roost.kube.base.objects import Key, Object, key_of
from roost.kube.base.quantities import parse_quantity
from roost.kube.metering.pressure import pressure
from roost.kube.vms.spec import CPU_ALLOCATION_RATIO

#: What the scheduler takes for a container that asks for nothing.
ASSUMED_CPU_MILLI = 100
ASSUMED_MEMORY_BYTES = 200 * 2**20
MICRO = 1_000_000
_FINISHED = ("Succeeded", "Failed")
_ROLE_LABEL = "node-role.kubernetes.io/"


class Charge(NamedTuple):
    """What one pod, or one VM of roost's own fleet, takes of its node."""

    node: str
    cpu_micro: int  # cores kept busy, in millionths
    memory_bytes: int  # touched
    vm: str = ""  # empty: a pod that is no VM
    cpu_milli: int = 0  # allocated
    allocated_bytes: int = 0


class Capacity(NamedTuple):
    """What a node has for pods; an amount that nobody could read is 0."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    pods: int = 0
    roles: tuple[str, ...] = ("worker",)
    uid: str = ""


class NodeUse:
    """One node: what it has, what is charged to it, and the ratios of the two."""

    __slots__ = ("capacity", "charges", "cpu_micro", "memory_bytes", "name", "vms")

    def __init__(self, name: str) -> None:
        self.name = name
        self.capacity: Capacity | None = None  # None: only its pods are known
        self.charges: dict[Key, Charge] = {}
        self.cpu_micro = 0
        self.memory_bytes = 0
        self.vms = 0

    def add(self, charge: Charge, sign: int) -> None:
        """Put a charge on the node, or take it off."""
        self.cpu_micro += sign * charge.cpu_micro
        self.memory_bytes += sign * charge.memory_bytes
        self.vms += sign * bool(charge.vm)

    @property
    def cpu_demand(self) -> float:
        """Return the share of its cores that is wanted; more than 1 when VMs have to wait."""
        has = self.capacity.cpu_milli * 1000 if self.capacity else 0
        return self.cpu_micro / has if has else 1.0

    @property
    def cpu_ratio(self) -> float:
        """Return the share of its cores that is busy."""
        return min(1.0, self.cpu_demand)

    @property
    def memory_ratio(self) -> float:
        """Return the share of its memory that is in use."""
        has = self.capacity.memory_bytes if self.capacity else 0
        return min(1.0, self.memory_bytes / has) if has else 1.0

    @property
    def cpu_pressure(self) -> float:
        """Return how much waiting there is for cores."""
        return pressure(self.cpu_demand)

    @property
    def memory_pressure(self) -> float:
        """Return how much waiting there is for memory."""
        return pressure(self.memory_ratio)

    @property
    def pressure(self) -> float:
        """Return the worse of both."""
        return max(self.cpu_pressure, self.memory_pressure)

    @property
    def busy_micro(self) -> int:
        """Return the cores that are busy, in millionths: never more than there are."""
        has = self.capacity.cpu_milli * 1000 if self.capacity else 0
        return min(self.cpu_micro, has)

    @property
    def available_bytes(self) -> int:
        """Return the memory that is left."""
        return max(0, self.capacity.memory_bytes - self.memory_bytes) if self.capacity else 0


class Usage:
    """All nodes. Listeners hear the name of each node whose figures have just changed."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeUse] = {}
        self._charges: dict[Key, Charge] = {}
        self._heard: list[Callable[[NodeUse], None]] = []

    # Reading

    def __iter__(self) -> Iterator[NodeUse]:
        """Yield the nodes that exist; those that only pods still name are left out."""
        return (node for node in self._nodes.values() if node.capacity is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def node(self, name: str) -> NodeUse | None:
        """Return a node that exists."""
        found = self._nodes.get(name)
        return found if found is not None and found.capacity is not None else None

    def charged(self) -> list[Key]:
        """Return the keys of all that is charged."""
        return list(self._charges)

    @property
    def vms(self) -> int:
        """Return how many VMs are charged somewhere."""
        return sum(node.vms for node in self._nodes.values())

    def listen(self, changed: Callable[[NodeUse], None]) -> None:
        """Call this after every change of a node, also when it comes or goes (no capacity)."""
        self._heard.append(changed)
        for node in list(self):
            changed(node)

    # Events

    def heard_pod(self, before: Object | None, after: Object | None) -> None:
        """Take in what a mirror of pods tells."""
        item = after if after is not None else before
        if item is not None:
            self.charge(key_of(item), charge_of(after) if after is not None else None)

    def heard_node(self, before: Object | None, after: Object | None) -> None:
        """Take in what a mirror of nodes tells."""
        item = after if after is not None else before
        if item is not None:
            self.set_node(
                item["metadata"]["name"], capacity_of(after) if after is not None else None
            )

    def charge(self, key: Key, charge: Charge | None) -> None:
        """Say what a pod takes from now on; None when it takes nothing any more.

        What it took before is remembered here and not read from the event: an event that is told
        twice, or of a pod that was never seen, changes nothing.
        """
        before = self._charges.get(key)
        if before == charge:
            return
        if before is not None:
            del self._charges[key]
            left = self._nodes[before.node]
            del left.charges[key]
            left.add(before, -1)
            if charge is None or charge.node != before.node:
                self._changed(left)
        if charge is not None:
            self._charges[key] = charge
            joined = self._made(charge.node)
            joined.charges[key] = charge
            joined.add(charge, +1)
            self._changed(joined)

    def set_node(self, name: str, capacity: Capacity | None) -> None:
        """Say what a node has; None when there is no such node any more."""
        node = self._nodes.get(name)
        if (node.capacity if node is not None else None) == capacity:
            return
        node = self._made(name)
        if node.capacity and capacity and node.capacity.uid != capacity.uid:
            # Another node under the same name: the old one went first.
            node.capacity = None
            self._changed(node)
            node = self._made(name)
        node.capacity = capacity
        self._changed(node)

    def _made(self, name: str) -> NodeUse:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeUse(name)
        return node

    def _changed(self, node: NodeUse) -> None:
        if node.capacity is None and not node.charges:
            self._nodes.pop(node.name, None)
        for changed in self._heard:
            changed(node)


# Reading objects


def charge_of(pod: Object) -> Charge | None:
    """Return what a pod takes of its node; None when it is not bound or has finished."""
    spec = pod.get("spec") or {}
    node = spec.get("nodeName")
    if not node or (pod.get("status") or {}).get("phase") in _FINISHED:
        return None
    metadata = pod["metadata"]
    notes = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    is_vm = labels.get(APP_LABEL) == APP
    cpu_milli = _amount(notes.get(CPU_CORES_ANNOTATION), milli=True)
    if cpu_milli is None:
        asked = _asked(spec, "cpu", milli=True)
        # The pod of a VM asks for a part of the cores that the VM sees.
        cpu_milli = asked * CPU_ALLOCATION_RATIO if is_vm else asked
    memory_bytes = _amount(notes.get(MEMORY_BYTES_ANNOTATION))
    if memory_bytes is None:
        memory_bytes = _asked(spec, "memory")
    return Charge(
        node=node,
        cpu_micro=round(cpu_milli * 1000 * _ratio(notes.get(CPU_UTILIZATION_ANNOTATION))),
        memory_bytes=round(memory_bytes * _ratio(notes.get(MEMORY_UTILIZATION_ANNOTATION))),
        vm=(labels.get(NAME_LABEL) or metadata["name"]) if is_vm else "",
        cpu_milli=cpu_milli,
        allocated_bytes=memory_bytes,
    )


def capacity_of(node: Object) -> Capacity:
    """Return what a node has for pods."""
    metadata, has = node["metadata"], (node.get("status") or {}).get("allocatable") or {}
    roles = tuple(
        sorted(
            label.removeprefix(_ROLE_LABEL)
            for label in metadata.get("labels") or {}
            if label.startswith(_ROLE_LABEL)
        )
    )
    return Capacity(
        cpu_milli=_amount(has.get("cpu"), milli=True) or 0,
        memory_bytes=_amount(has.get("memory")) or 0,
        pods=_amount(has.get("pods")) or 0,
        roles=roles or ("worker",),
        uid=metadata.get("uid", ""),
    )


@lru_cache(maxsize=4096)
def _amount(text: str | None, *, milli: bool = False) -> int | None:
    if text is None:
        return None
    try:
        amount = parse_quantity(str(text), milli=milli)
    except InvalidRequest:
        return None
    return amount if amount >= 0 else None


@lru_cache(maxsize=4096)
def _ratio(text: str | None) -> float:
    try:
        ratio = float(text) if text is not None else 1.0
    except ValueError:
        return 1.0
    return ratio if math.isfinite(ratio) and 0.0 <= ratio <= 1.0 else 1.0


def _asked(spec: Object, resource: str, *, milli: bool = False) -> int:
    """Return what the containers ask for together, as the scheduler counts it."""
    assumed = ASSUMED_CPU_MILLI if milli else ASSUMED_MEMORY_BYTES
    total = 0
    for container in spec.get("containers") or ():
        requests = (container.get("resources") or {}).get("requests") or {}
        amount = _amount(requests.get(resource), milli=milli)
        total += assumed if amount is None else amount
    return total or assumed
