"""The block that describes a host to an operator."""

import pytest

from roost.base.errors import NotFound
from roost.base.units import GIB
from roost.model.hosts import Admin, Health
from roost.placement.scheduling_info import scheduling_info
from tests.builders import fleet_of, host, put


def test_the_block_shows_committed_of_capacity() -> None:
    fleet = fleet_of(host("hypervisor-01", 16_000, 32 * GIB, 500 * GIB))
    for number in range(8):
        put(fleet, "hypervisor-01", f"vm-{number}", 1500, 3 * GIB, 25 * GIB // 2)
    assert scheduling_info(fleet, "hypervisor-01").splitlines() == [
        "Agent: hypervisor-01",
        "Status: online",
        "CPU: 12/16 (75.0% used)",
        "Memory: 24.0 GB/32.0 GB (75.0% used)",
        "Disk: 100.0 GB/500.0 GB (20.0% used)",
        "Running VMs: 8",
    ]


def test_the_status_names_what_an_operator_decided() -> None:
    fleet = fleet_of(host("a", health=Health.SUSPECT, admin=Admin.DRAINING))
    assert "Status: suspect, draining" in scheduling_info(fleet, "a")


def test_zero_capacity_is_no_division_by_zero() -> None:
    assert "Disk: 0.0 GB/0.0 GB (0.0% used)" in scheduling_info(
        fleet_of(host("a", disk_bytes=0)), "a"
    )


def test_an_unknown_host_is_not_found() -> None:
    with pytest.raises(NotFound, match="no host 'x'"):
        scheduling_info(fleet_of(), "x")
