"""What is expected of VMs, as this process has learnt it; asked whenever a VM is charged or placed.

A VM of which something was learnt counts as that, a new one as VMs of its size, others as all that
they asked for. When a VM will be gone is known where its owner said so. Filled by
`control.learning`.
"""

from collections.abc import Mapping

from roost.fleet.layout import Int64Array
from roost.fleet.outlook import expected_vector
from roost.model.outlook import LATEST_S, NOTHING_EXPECTED, Expected


class Expectations:
    """What is expected of VMs by their ids, and of new ones by their size."""

    def __init__(self) -> None:
        self._vms: Mapping[str, Expected] = {}
        self._alike: Mapping[tuple[int, int], Expected] = {}

    def replace(
        self, vms: Mapping[str, Expected], alike: Mapping[tuple[int, int], Expected]
    ) -> None:
        """Take over what was learnt; what is left out is known no longer."""
        self._vms, self._alike = vms, alike

    def of(self, vm: str, cpu_milli: int, memory_bytes: int, until_ms: int | None) -> Expected:
        """Return what is expected of a VM of this size that ends then."""
        use = self._vms.get(vm) or self._alike.get((cpu_milli, memory_bytes)) or NOTHING_EXPECTED
        if until_ms is None or until_ms // 1000 > LATEST_S:
            return use
        return Expected(use.cpu_milli, use.memory_bytes, until_ms // 1000)

    def vector(
        self, vm: str, cpu_milli: int, memory_bytes: int, until_ms: int | None
    ) -> Int64Array | None:
        """Return the same in column order; None when nothing is."""
        expected = self.of(vm, cpu_milli, memory_bytes, until_ms)
        return None if expected is NOTHING_EXPECTED else expected_vector(expected)
