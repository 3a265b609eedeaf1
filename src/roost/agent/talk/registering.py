"""What a host registers with: the driver's inventory, the operator's settings, the guard's state.

What the driver cannot tell is registered as unknown, which counts as full; as soon as it can
tell, the host is registered anew. So it is when its condition changes, such as a disk that is full:
conditions are taints, so the host gets no new VM until they end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from roost.agent.drivers.base import Driver
from roost.agent.fencing.recipes import GuardHandle
from roost.agent.reconciler import Reconciler
from roost.wire.agentlink import AmountInfo, Inventory, TaintInfo


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What an operator says about a host."""

    zone: str = ""
    rack: str = ""
    site: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[TaintInfo, ...] = ()
    capabilities: tuple[str, ...] = ()
    architecture: str = "x86_64"
    max_vms: int | None = None
    #: By resource: what the host keeps for itself, and the overcommit ratio in thousandths.
    reserve: Mapping[str, int] = field(default_factory=dict)
    ratio_milli: Mapping[str, int] = field(default_factory=dict)


class Registering:
    """Puts together what the agent says of its host."""

    def __init__(
        self, facts: HostFacts, *, driver: Driver, reconciler: Reconciler, guard: GuardHandle
    ) -> None:
        self._facts = facts
        self._driver = driver
        self._reconciler = reconciler
        self._guard = guard
        self._registered_unknown = True
        self._conditions: list[TaintInfo] = []  # as registered

    async def inventory(self) -> Inventory:
        """Return what to register with, and give the books the same numbers."""
        told = await self._reconciler.inventory()
        self._registered_unknown = told is None or not self._reconciler.known
        found = await self._reconciler.conditions()
        self._conditions = self._conditions if found is None else found
        if told is not None:
            told = self._completed(told)
        self._reconciler.use_inventory(told)
        if told is None or self._registered_unknown:
            return self._unknown(told)
        return told

    async def is_outdated(self) -> bool:
        """Return whether the host was registered as unknown and can be told now, or has changed."""
        found = await self._reconciler.conditions()
        if found is not None and found != self._conditions:
            return True
        if not self._registered_unknown or not self._reconciler.known:
            return False
        return await self._reconciler.inventory() is not None

    def guard_stop_s(self) -> float | None:
        """Return how long the fence guard needs, None while none is seen alive."""
        return self._guard.stop_s()

    def _completed(self, told: Inventory) -> Inventory:
        facts = self._facts
        return replace(
            told,
            cpu_milli=self._amount("cpu_milli", told.cpu_milli),
            memory_bytes=self._amount("memory_bytes", told.memory_bytes),
            disk_bytes=self._amount("disk_bytes", told.disk_bytes),
            extended={name: self._amount(name, amount) for name, amount in told.extended.items()},
            zone=facts.zone,
            rack=facts.rack,
            site=facts.site,
            labels={**told.labels, **facts.labels},
            taints=[*told.taints, *facts.taints, *self._conditions],
            architecture=facts.architecture,
            capabilities=sorted({*told.capabilities, *facts.capabilities}),
            max_vms=told.max_vms if facts.max_vms is None else facts.max_vms,
        )

    def _amount(self, name: str, amount: AmountInfo) -> AmountInfo:
        reserve = self._facts.reserve.get(name, amount.reserve)
        return AmountInfo(
            amount.total, reserve, self._facts.ratio_milli.get(name, amount.ratio_milli)
        )

    def _unknown(self, told: Inventory | None) -> Inventory:
        nothing = AmountInfo(None)
        told = told or self._completed(
            Inventory(
                nothing, nothing, nothing, driver=self._driver.name, virtual=self._driver.virtual
            )
        )
        return replace(
            told,
            cpu_milli=nothing,
            memory_bytes=nothing,
            disk_bytes=nothing,
            extended=dict.fromkeys(told.extended, nothing),
        )
