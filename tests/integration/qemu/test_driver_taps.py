"""A VM's card on a bridge, in a network of its own that nobody else sees."""

import subprocess
import sys
from pathlib import Path

import pytest

from roost.agent.drivers.qemu.taps import tap_names
from roost.wire.agentlink import NicInfo
from tests.guest import guest, need
from tests.integration.qemu.qemu_host import order


def test_taps_have_names_of_their_own_that_fit() -> None:
    nics = [NicInfo(mode="tap"), NicInfo(), NicInfo(mode="tap")]
    names = {*tap_names(order(nics=nics)), *tap_names(order("vm-2", nics=nics))}
    assert len(names) == 4
    assert all(len(name) <= 15 for name in names)


@pytest.mark.slow
def test_a_vm_talks_to_its_host_through_a_tap(tmp_path: Path) -> None:
    guest()
    need("ip", "unshare")
    if subprocess.run(["unshare", "-n", "true"], check=False).returncode:
        pytest.skip("a network of its own takes the right to make one")
    scenario = [sys.executable, "-W", "error", "-m", "tests.integration.qemu.tap_scenario"]
    done = subprocess.run(
        ["unshare", "-n", *scenario, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
