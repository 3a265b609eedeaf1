"""The exporter without Kubernetes: nodes and VMs as a fleet of roost's own, placed by its engine.

It answers what a cluster would be asked, with two differences that it states: roost's engine
chooses instead of kube-scheduler, and a move goes straight to where it was wanted, or is refused
with the engine's reason. CPU is overcommitted as launcher pods do it, memory never.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from roost.base.errors import Conflict, InvalidRequest, RoostError
from roost.fleet.fleet import Fleet
from roost.kube.base.names import RACK_LABEL, ZONE_LABEL
from roost.kube.base.objects import Object
from roost.kube.cluster.nodes import NodePool
from roost.kube.metering.loaded import Loaded
from roost.kube.metering.sources import Asked, Health, Landed, Moved, Source
from roost.kube.metering.usage import Capacity, Charge, capacity_of
from roost.kube.vms.spec import CPU_ALLOCATION_RATIO, VM
from roost.model.constraints import Constraints, LabelOperator, LabelTerm
from roost.model.description import FleetDescription
from roost.model.flow import Placement, PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import HostSpec, Resource, Scope
from roost.model.resources import Demand
from roost.placement.engine import Engine
from roost.wire.answers import no_fit

STRATEGY = "least_loaded"
log = logging.getLogger("roost.kube.metering.exporter")

_RULES = {
    "affinity": GroupRule.AFFINITY,
    "anti-affinity": GroupRule.ANTI_AFFINITY,
    "spread": GroupRule.SPREAD,
}
_SCOPES = {"host": Scope.HOST, "rack": Scope.RACK, "zone": Scope.ZONE}


class OwnFleet(Source):
    """A fleet in memory that VMs are loaded into and moved about in."""

    name = "own-fleet"

    def __init__(self, fleet: FleetDescription | None = None, *, why: str = "") -> None:
        super().__init__()
        self.why = why  # there is no Kubernetes
        self._pending: dict[str, str] = {}
        self._used: dict[str, tuple[float, float]] = {}  # shares that VMs use of what they have
        self._requests: dict[str, PlaceRequest] = {}
        if fleet is not None:
            self._engine = Engine(Fleet.from_description(fleet), STRATEGY)
            for vm in fleet.vms:
                self._requests[vm.name] = PlaceRequest(
                    vm.name, vm.demand, vm.constraints, vm.groups
                )
        else:
            self._engine = _engine_of(NodePool().nodes())
        self._tell_all()

    # What a source is

    async def start(self) -> None:
        """Say that this is not Kubernetes."""
        log.warning("the exporter shows roost's own fleet, not Kubernetes: %s", self.why)

    async def stop(self) -> None:
        """Stop the source: it has no tasks."""

    async def refresh(self) -> None:
        """Read everything anew from the fleet."""
        self._tell_all()

    def health(self) -> Health:
        """Say that it is well, and what it is."""
        return Health(source=self.name, why=self.why, nodes=len(self.usage), vms=self.usage.vms)

    @property
    def phases(self) -> dict[str, int]:
        """Return how many VMs are in which phase."""
        return {"Running": len(self._engine.fleet.vms.numbers), "Pending": len(self._pending)}

    def waiting(self) -> dict[str, str]:
        """Return the VMs that have no node, each with the reason."""
        return dict(self._pending)

    # Scenarios

    async def load(self, loaded: Loaded, wait_s: float) -> Landed:
        """Make the VMs those of a scenario, and the nodes when it has some."""
        wanted = {vm.name: vm for vm in loaded.vms}
        before = dict(self._engine.fleet.vms.numbers)
        if loaded.nodes:
            self._engine = _engine_of(loaded.nodes)
            self._requests.clear()
            self._used.clear()
        else:
            for name, number in before.items():
                if name not in wanted or self._requests.get(name) != _request(wanted[name]):
                    self._engine.fleet.remove(number)
        self._pending.clear()
        for vm in loaded.vms:
            self._used[vm.name] = vm.cpu_utilization, vm.memory_utilization
            self._requests[vm.name] = request = _request(vm)
            if vm.name in self._engine.fleet.vms.numbers:
                continue
            answer = self._engine.place(request, runners_up=0)
            if isinstance(answer, Placement):
                self._engine.commit(request, answer)
            else:
                self._pending[vm.name] = answer.message
        self._tell_all()
        there = self._where()
        return Landed(
            scenario=loaded.name,
            source=self.name,
            created=len(wanted.keys() - before.keys()),
            deleted=len(before.keys() - wanted.keys()),
            placed={name: there[name] for name in wanted if name in there},
            pending=dict(self._pending),
        )

    # Moves

    async def move(self, asked: Sequence[Asked], wait_s: float) -> list[Moved]:
        """Move VMs at once, each to where it is wanted or where the engine would put it."""
        return [self._move(each) for each in asked]

    def _move(self, asked: Asked) -> Moved:
        try:
            chosen = self._moved(asked)
        except RoostError as error:
            return Moved.refused(asked, error)
        return Moved(
            vm_id=asked.vm_id, from_node=asked.from_node, wanted=asked.to_node or None,
            accepted=True, chosen=chosen, phase="Succeeded",
        )  # fmt: skip

    def _moved(self, asked: Asked) -> str:
        fleet = self._engine.fleet
        number = fleet.vm_number(asked.vm_id)
        row = int(fleet.vms.host[number])
        at = fleet.hosts.names[row]
        if asked.from_node and asked.from_node != at:
            raise Conflict(f"VM {asked.vm_id!r} is on {at!r}, not on {asked.from_node!r}")
        if asked.to_node:
            fleet.row(asked.to_node)
        if asked.to_node == at:
            raise InvalidRequest(f"VM {asked.vm_id!r} is on {at!r} already")
        request = self._requests[asked.vm_id]
        mark = fleet.mark()
        fleet.remove(number)
        answer = self._engine.place(_elsewhere(request, at, asked.to_node), runners_up=0)
        if not isinstance(answer, Placement):
            fleet.undo(mark)
            raise no_fit(answer)
        self._engine.commit(request, answer)
        fleet.keep(mark)
        self._tell_vm(asked.vm_id)
        return answer.host

    # Telling

    def _where(self) -> dict[str, str]:
        fleet = self._engine.fleet
        names, rows = fleet.hosts.names, fleet.vms.host
        return {name: names[int(rows[number])] for name, number in fleet.vms.numbers.items()}

    def _tell_all(self) -> None:
        hosts = self._engine.fleet.hosts
        there = {hosts.names[row]: row for row in self._engine.fleet.present_rows().tolist()}
        for node in list(self.usage):
            if node.name not in there:
                self.usage.set_node(node.name, None)
        for name, row in there.items():
            self.usage.set_node(name, _capacity(hosts.spec(row)))
        placed = self._engine.fleet.vms.numbers
        for key in self.usage.charged():
            if key[1] not in placed:
                self.usage.charge(key, None)
        for name in placed:
            self._tell_vm(name)

    def _tell_vm(self, name: str) -> None:
        fleet = self._engine.fleet
        number = fleet.vm_number(name)
        cpu_milli, memory_bytes = (int(amount) for amount in fleet.vms.demand[number][:2])
        # Of a VM that only the fleet file knows nobody can say what it uses: all of it.
        cpu, memory = self._used.get(name, (1.0, 1.0))
        self.usage.charge(
            ("", name),
            Charge(
                node=fleet.hosts.names[int(fleet.vms.host[number])],
                cpu_micro=round(cpu_milli * 1000 * cpu),
                memory_bytes=round(memory_bytes * memory),
                vm=name,
                cpu_milli=cpu_milli,
                allocated_bytes=memory_bytes,
            ),
        )


def _engine_of(nodes: Sequence[Object]) -> Engine:
    hosts = tuple(sorted((_host(node) for node in nodes), key=lambda host: host.name))
    return Engine(Fleet.from_description(FleetDescription(hosts=hosts)), STRATEGY)


def _host(node: Object) -> HostSpec:
    has, labels = capacity_of(node), dict(node["metadata"].get("labels") or {})
    return HostSpec(
        name=node["metadata"]["name"],
        cpu=Resource(has.cpu_milli, ratio_milli=CPU_ALLOCATION_RATIO * 1000),
        memory=Resource(has.memory_bytes),
        disk=Resource(0),
        zone=labels.get(ZONE_LABEL, ""),
        rack=labels.get(RACK_LABEL, ""),
        labels=tuple(sorted(labels.items())),
        max_vms=has.pods or None,
    )


def _capacity(spec: HostSpec) -> Capacity:
    def has(resource: Resource) -> int:
        return max(0, (resource.total or 0) - resource.reserve)

    return Capacity(has(spec.cpu), has(spec.memory), spec.max_vms or 0, uid=spec.name)


def _request(vm: VM) -> PlaceRequest:
    return PlaceRequest(
        name=vm.name,
        demand=Demand(vm.cpu_milli, vm.memory_bytes),
        constraints=Constraints(
            zones=vm.zones,
            labels=tuple(
                LabelTerm(key, LabelOperator.IN, (value,)) for key, value in vm.node_labels.items()
            ),
            pinned=(vm.node,) if vm.node else (),
        ),
        groups=tuple(
            GroupSpec(
                each.name, _RULES[each.rule], _SCOPES[each.scope], each.hard, each.max_skew
            )
            for each in vm.groups
        ),
    )  # fmt: skip


def _elsewhere(request: PlaceRequest, source: str, target: str) -> PlaceRequest:
    asks = replace(
        request.constraints, pinned=(target,) if target else (), excluded=(source,)
    )  # fmt: skip
    return replace(request, constraints=asks)
