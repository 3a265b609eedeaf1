"""Whom virtual VMs pretend to talk with: "vm-1m7h=300,52:54:00:0a:0b:0c=2.5", to whom and Mbit/s.

A VM says it by its label `flows`; another VM stands there by its id, for its first card, or by the
address of a card. Bytes grow with time from the first reading on, as long as the VM runs.
"""

import logging
import math
from collections.abc import Iterable
from typing import Final

from roost.agent.drivers.base import LocalVM
from roost.model.vm import mac_of
from roost.wire.agentlink import FlowInfo

log = logging.getLogger("roost.agent")

#: The label by which a VM says whom it talks with.
FLOWS_LABEL: Final = "flows"
#: The most that a VM may pretend to send, and the longest time between two readings that counts.
_MOST_MBIT, _LONGEST_S = 1e6, 600.0


class VirtualFlows:
    """Counts for the virtual VMs of one host."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}  # by VM: when it was read
        self._refused: dict[str, str] = {}  # labels that mean nothing, by VM: said once

    def read(self, vms: Iterable[LocalVM], now_s: float) -> list[FlowInfo]:
        """Return what each VM that runs has sent since the last time."""
        found, before, self._at = [], self._at, {}
        for vm in vms:
            if not vm.flows or vm.state != "running":
                continue
            self._at[vm.id] = now_s
            passed_s = min(_LONGEST_S, max(0.0, now_s - before.get(vm.id, now_s)))
            for card, mbit in self._flows_of(vm).items():
                if sent := int(mbit * 1e6 / 8 * passed_s):
                    found.append(FlowInfo(vm.id, card, sent))
        return found

    def _flows_of(self, vm: LocalVM) -> dict[str, float]:
        try:
            return read_flows(vm.flows)
        except ValueError as error:
            if self._refused.get(vm.id) != vm.flows:
                self._refused[vm.id] = vm.flows
                log.warning("VM %s talks with nobody: %s", vm.id, error)
            return {}


def read_flows(text: str) -> dict[str, float]:
    """Return Mbit/s by address of a card; raises ValueError."""
    found = {}
    for part in filter(None, text.split(",")):
        to, equals, rate = part.rpartition("=")
        try:
            mbit = float(rate)
        except ValueError:
            mbit = math.nan
        if not to or not equals or not 0.0 <= mbit <= _MOST_MBIT:  # NaN is not
            raise ValueError(f"{part!r} of the flows {text!r} is no VM=MBIT")
        found[to.lower() if ":" in to else mac_of(to, 0)] = mbit
    return found
