"""Keeping the scheduler away from nodes under pressure, when asked: a soft taint of our own.

    pressure   ... low ........... high ...
    no taint        stays without  | gets it
    taint      loses it | keeps it

The scheduler sees requests, not use; with the taint it prefers other nodes and still takes this one
when no other fits. Nobody is thrown off. Between the two thresholds nothing changes, so a pressure
that wavers there makes no writes. Whether a node has the taint is read from the node itself: a new
exporter goes on where an old one ended. Other taints are never touched, and each write states the
version it was made from, so that nobody's is lost.
"""

import asyncio
import logging
from collections.abc import Mapping

from roost.base.clock import Clock, first_of
from roost.base.errors import Conflict, InvalidRequest, NotFound, RoostError
from roost.kube.base.client import NODES, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import PRESSURE_TAINT_KEY
from roost.kube.base.objects import Object
from roost.kube.metering.usage import NodeUse, Usage

SOFT = "PreferNoSchedule"
#: The lower threshold, as a share of the one that is given.
RELIEF = 0.7
_TRIES = 5
_AGAIN_S, _LONGEST_S = 1.0, 60.0
log = logging.getLogger("roost.kube.metering.exporter")


def wants_taint(has: bool, pressure: float, high: float, low: float) -> bool:
    """Say whether a node that has the taint, or has not, should have it."""
    return pressure >= low if has else pressure > high


def is_tainted(node: Object) -> bool:
    """Say whether a node has our taint."""
    return any(_is_ours(each) for each in (node.get("spec") or {}).get("taints") or ())


def _is_ours(taint: Mapping[str, object]) -> bool:
    return taint.get("key") == PRESSURE_TAINT_KEY and taint.get("effect") == SOFT


def retainted(node: Object, tainted: bool) -> Object:
    """Return the change that gives a node our taint or takes it, made for this version only."""
    taints = [each for each in (node.get("spec") or {}).get("taints") or () if not _is_ours(each)]
    if tainted:
        taints.append({"key": PRESSURE_TAINT_KEY, "value": "high", "effect": SOFT})
    version = node["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}


class Tainting:
    """Puts the taint on and off as pressure comes and goes; takes all of them off at the end."""

    def __init__(
        self,
        kube: Kube,
        nodes: Mirror,
        usage: Usage,
        high: float,
        clock: Clock,
        low: float | None = None,
    ) -> None:
        if not 0.0 < high < 1.0:
            raise InvalidRequest(f"a pressure of {high:g} is not between 0 and 1")
        self.high, self.low = high, high * RELIEF if low is None else low
        self.writes = 0
        self._kube, self._nodes, self._usage, self._clock = kube, nodes, usage, clock
        self._stale: set[str] = set()
        self._wake, self._ending = asyncio.Event(), asyncio.Event()
        self._tainted: set[str] = set()  # by us; a mirror may not have heard of it yet
        self._task: asyncio.Task[None] | None = None

    @property
    def avoided(self) -> list[str]:
        """Return the nodes that carry our taint."""
        return sorted(each["metadata"]["name"] for each in self._nodes if is_tainted(each))

    def start(self) -> None:
        """Begin with all nodes as they are now."""
        self._task = asyncio.create_task(self._keep(), name="tainting")
        self._usage.listen(self._heard)
        self._nodes.listen(self._heard_node)

    async def stop(self) -> None:
        """End, and take the taint off every node; when the server is away it stays."""
        if self._task is None:
            return
        # A write under way is let finish: one that is cut off may still be done by the server.
        self._ending.set()
        self._wake.set()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        try:
            await each_of(self._tainted.union(self.avoided), self._clear)
        except RoostError as error:
            log.warning("nodes keep the taint %s: %s", PRESSURE_TAINT_KEY, error.message)

    async def _clear(self, name: str) -> None:
        try:
            node = await self._kube.get(NODES, name)
        except NotFound:
            return
        await self._write(name, node, tainted=False)

    def _heard(self, use: NodeUse) -> None:
        self._look_at(use.name)

    def _heard_node(self, before: Object | None, after: Object | None) -> None:
        if after is not None:
            self._look_at(after["metadata"]["name"])

    def _look_at(self, name: str) -> None:
        if self._wanted(name) is not None:
            self._stale.add(name)
            self._wake.set()

    def _wanted(self, name: str) -> bool | None:
        """Return what a node should have; None when it has that already, or is not there."""
        node, use = self._nodes.get(name), self._usage.node(name)
        if node is None or use is None:
            return None
        has = is_tainted(node)
        wants = wants_taint(has, use.pressure, self.high, self.low)
        return wants if wants != has else None

    async def _keep(self) -> None:
        wait_s = _AGAIN_S
        while True:
            await self._wake.wait()
            if self._ending.is_set():
                return
            self._wake.clear()
            names, self._stale = self._stale, set()
            try:
                await each_of(names, self._correct)
                wait_s = _AGAIN_S
            except RoostError as error:
                log.warning("cannot change taints: %s", error.message)
                self._stale |= names
                self._wake.set()
                await first_of(self._clock, wait_s, self._ending)
                wait_s = min(2 * wait_s, _LONGEST_S)

    async def _correct(self, name: str) -> None:
        if (wanted := self._wanted(name)) is not None:
            await self._write(name, self._nodes.get(name), tainted=wanted)

    async def _write(self, name: str, node: Object | None, *, tainted: bool) -> None:
        for _ in range(_TRIES):
            if node is None or is_tainted(node) == tainted:
                return
            try:
                if tainted:
                    self._tainted.add(name)
                await self._kube.patch(NODES, name, retainted(node, tainted))
                self.writes += 1
                if not tainted:
                    self._tainted.discard(name)
                log.info("node %s is %s", name, "avoided" if tainted else "no longer avoided")
                return
            except NotFound:
                return
            except Conflict:  # somebody else wrote first: look again
                try:
                    node = await self._kube.get(NODES, name)
                except NotFound:
                    return
        raise Conflict(f"node {name} changes too often to be tainted")
