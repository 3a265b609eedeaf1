"""What is seen of a scenario while it is played: who is where, what moved, how busy nodes are.

Fed by mirrors; asked by `roost.kube.scenarios.playing` (which node is the hottest now?) and
read at the end by `roost.kube.scenarios.runner`, for the report.
"""

from collections.abc import Callable, Iterable

from roost.base.clock import Clock
from roost.base.errors import NotFound, Unavailable
from roost.kube.base.mirror import Mirror
from roost.kube.base.moments import moment_ms
from roost.kube.base.names import ZONE_LABEL
from roost.kube.base.objects import Object
from roost.kube.metering.usage import NodeUse, Usage
from roost.kube.scenarios.reports import (
    FAILED,
    SUCCEEDED,
    Move,
    NodeState,
    Place,
    Sample,
    sample_of,
)
from roost.kube.script.scenario import COLDEST, HOTTEST
from roost.kube.vms.launchers import is_going, used_annotations
from roost.kube.vms.spec import CPU_ALLOCATION_RATIO, from_object
from roost.kube.vms.status import UNDER_WAY, status_of

#: Until every VM has an answer, and every migration an end.
SETTLED_S = 120.0
Say = Callable[[str], None]


class Watching:
    """The VMs of one namespace on some nodes."""

    def __init__(
        self,
        vms: Mirror,
        pods: Mirror,
        nodes: Mirror,
        namespace: str,
        node_names: Iterable[str],
        clock: Clock,
        say: Say,
    ) -> None:
        self.namespace = namespace
        self.pools: dict[str, str] = {}  # VM to its pool: all VMs that there should be
        self.nodes = set(node_names)
        self.usage = Usage()
        self.moves: dict[tuple[str, int], Move] = {}
        self.samples: list[Sample] = []
        self.first: dict[str, str] = {}  # VM to the node it was put on first
        self._vms, self._pods, self._nodes = vms, pods, nodes
        self._clock, self._say = clock, say
        self.begin()
        nodes.listen(self.usage.heard_node)
        pods.listen(self.usage.heard_pod)
        vms.listen(self._vm_heard)

    # Time

    def begin(self) -> None:
        """Count time from now on."""
        self._began = self._clock.monotonic()
        self._began_wall_s = self._clock.wall_ms() / 1000

    @property
    def now_s(self) -> float:
        """Return how long it has been watched."""
        return self._clock.monotonic() - self._began

    def tell(self, what: str) -> None:
        """Say what happens now."""
        self._say(f"{self.now_s:6.1f} s  {what}")

    # VMs

    def vm(self, name: str) -> Object | None:
        """Return a VM as last heard of."""
        return self._vms.get(name, self.namespace)

    def vms(self) -> list[Object]:
        """Return all VMs that there should be and that are there."""
        return [item for name in self.pools if (item := self.vm(name)) is not None]

    def status(self, name: str) -> Object:
        """Return what the cluster says of a VM."""
        return status_of(self.vm(name) or {})

    async def answered(self, names: Iterable[str], limit_s: float = SETTLED_S) -> None:
        """Wait until each of these VMs runs or it is known why it does not."""
        wanted = list(names)

        def known() -> bool:
            said = (self.status(name) for name in wanted)
            return all(each.get("phase") == "Running" or each.get("reason") for each in said)

        await self._vms.until(known, limit_s, "an answer for every VM")

    async def settled(self, limit_s: float = SETTLED_S) -> str:
        """Wait until every VM runs or has the scheduler's answer, and none moves.

        Returns what is wrong when that does not come to pass.
        """
        deadline = self._clock.monotonic() + limit_s

        def left_s() -> float:
            return max(deadline - self._clock.monotonic(), 0.0)

        try:
            while True:
                # A migration that was asked for a moment ago may not be in the mirror yet.
                await self._vms.catch_up(left_s())
                await self._vms.until(
                    lambda: not self._unsettled(), left_s(), "an answer for every VM"
                )
                await self._pods.catch_up(left_s())
                await self._pods.until(lambda: not self._unshown(), left_s(), "loads on pods")
                if not self._unsettled():
                    return ""
        except Unavailable as error:
            if left := self._unsettled() or self._unshown():
                return f"{len(left)} VMs had no end after {limit_s:g} s: {', '.join(left[:5])}"
            return error.message

    def _unsettled(self) -> list[str]:
        found = []
        for name in sorted(self.pools):
            status = self.status(name)
            phase = (status.get("migration") or {}).get("phase")
            moves = status.get("evacuationNodeName") or phase in UNDER_WAY
            # What runs on a node that is gone has to start elsewhere first.
            runs = status.get("phase") == "Running" and status.get("nodeName") in self.nodes
            if moves or not (runs or self._waits(name, status)):
                found.append(name)
        return found

    def _unshown(self) -> list[str]:
        """Return the VMs whose pods do not show yet what they use by now."""
        found = []
        for item in self.vms():
            pod = self._pods.get(status_of(item).get("podName") or "", self.namespace)
            if pod is None or is_going(pod):
                continue
            shown = pod["metadata"].get("annotations") or {}
            used = used_annotations(from_object(item))
            if any(shown.get(key) != value for key, value in used.items()):
                found.append(item["metadata"]["name"])
        return found

    def _waits(self, name: str, status: Object) -> bool:
        """Say whether a VM has got its answer, which is no; one between two pods has not."""
        spec = (self.vm(name) or {}).get("spec") or {}
        forced = bool((spec.get("placement") or {}).get("nodeName"))
        phases = ("Scheduling", "Pending") if forced else ("Scheduling",)
        return bool(status.get("phase") in phases and status.get("reason"))

    async def moved(self, name: str, limit_s: float = SETTLED_S) -> Move:
        """Wait until the VM's migration has ended, one that is asked for by now."""
        await self._vms.catch_up(limit_s)

        def ended() -> Move | None:
            if self.status(name).get("evacuationNodeName"):
                return None
            mine = [move for (vm, _), move in self.moves.items() if vm == name]
            last = max(mine, key=lambda move: move.number, default=None)
            return last if last is not None and last.phase in (SUCCEEDED, FAILED) else None

        return await self._vms.until(ended, limit_s, f"the migration of {name}")

    def _vm_heard(self, before: Object | None, after: Object | None) -> None:
        if after is None:
            return
        name, status = after["metadata"]["name"], status_of(after)
        if node := status.get("nodeName"):
            self.first.setdefault(name, node)
        seen = status.get("migration")
        if not seen or not seen.get("number"):
            return
        key = name, int(seen["number"])
        known = self.moves.get(key)
        move = self.moves[key] = _move(name, seen, self._began_wall_s)
        if (known is None or known.phase != move.phase) and move.phase in (SUCCEEDED, FAILED):
            self.tell(_sentence(move))

    # Nodes

    def uses(self) -> list[NodeUse]:
        """Return the nodes, with what is used of each."""
        there = (use for use in self.usage if use.name in self.nodes)
        return sorted(there, key=lambda use: _by_number(use.name))

    def node(self, name: str) -> str:
        """Return the node that is meant now."""
        if name not in (HOTTEST, COLDEST):
            if name not in self.nodes:
                raise NotFound(f"there is no node {name!r}")
            return name
        uses = sorted(self.uses(), key=lambda use: (use.cpu_demand, use.name))
        if not uses:
            raise NotFound("there is no node")
        return uses[-1 if name == HOTTEST else 0].name

    def sample(self) -> None:
        """Note how busy the nodes are."""
        self.samples.append(sample_of(self.now_s, [use.cpu_demand for use in self.uses()]))

    # For the report

    def places(self) -> list[Place]:
        """Return where every VM is."""
        found = []
        for name in sorted(self.pools, key=_by_number):
            status = self.status(name)
            done = [m for (vm, _), m in self.moves.items() if vm == name and m.phase == SUCCEEDED]
            found.append(
                Place(
                    vm=name,
                    first=self.first.get(name, ""),
                    node=status.get("nodeName") or "",
                    phase=status.get("phase") or "Pending",
                    moves=len(done),
                    reason=status.get("reason") or "",
                )
            )
        return found

    def node_labels(self) -> dict[str, dict[str, str]]:
        """Return the labels of every node."""
        found = ((name, self._nodes.get(name)) for name in self.nodes)
        return {
            name: item["metadata"].get("labels") or {} for name, item in found if item is not None
        }

    def node_states(self) -> list[NodeState]:
        """Return how the nodes are."""
        return [self._node_state(use) for use in self.uses()]

    def _node_state(self, use: NodeUse) -> NodeState:
        item = self._nodes.get(use.name) or {"metadata": {}}
        has = use.capacity
        # What pods ask for is what their VMs were given, by the ratio of launcher pods.
        cpu_milli = sum(charge.cpu_milli for charge in use.charges.values()) / CPU_ALLOCATION_RATIO
        memory = sum(charge.allocated_bytes for charge in use.charges.values())
        return NodeState(
            name=use.name,
            zone=(item["metadata"].get("labels") or {}).get(ZONE_LABEL, ""),
            vms=use.vms,
            cpu=round(use.cpu_demand, 4),
            memory=round(use.memory_ratio, 4),
            cpu_asked=round(cpu_milli / has.cpu_milli, 4) if has and has.cpu_milli else 0.0,
            memory_asked=round(memory / has.memory_bytes, 4) if has and has.memory_bytes else 0.0,
        )


def _move(vm: str, seen: Object, began_s: float) -> Move:
    started, ended = (
        moment_ms(seen[key]) / 1000 if seen.get(key) else None for key in ("startedAt", "endedAt")
    )
    return Move(
        vm=vm,
        number=int(seen["number"]),
        cause=seen.get("cause") or "",
        source=seen.get("sourceNode") or "",
        wanted=seen.get("wantedNode") or "",
        actual=seen.get("targetNode") or "",
        phase=seen.get("phase") or "",
        reason=seen.get("reason") or "",
        started_s=round(started - began_s, 3) if started is not None else 0.0,
        seconds=round(ended - started, 3) if started is not None and ended is not None else 0.0,
        rounds=int(seen.get("rounds") or 0),
        copied_bytes=int(seen.get("copiedBytes") or 0),
        downtime_ms=float(seen.get("downtimeMs") or 0.0),
    )


def _sentence(move: Move) -> str:
    if move.phase == FAILED:
        return f"{move.vm} stays on {move.source}: {move.reason}"
    wanted = f", wanted {move.wanted}" if move.elsewhere else ""
    return f"{move.vm} moved from {move.source} to {move.actual} in {move.seconds:.1f} s{wanted}"


def _by_number(name: str) -> tuple[str, int]:
    """Sort web-10 after web-9."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (name, -1)
