"""The QEMU driver keeps every promise of a driver, with real QEMU processes and real guests.

Most promises hold from the moment the guest executes, so nothing waits for it to be up.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.drivers import CHECKS, Check, Host, Rig, kept
from tests.integration.qemu.qemu_host import QemuHost, order

pytestmark = pytest.mark.slow


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[QemuHost, QemuHost]]:
    pair = QemuHost(tmp_path / "here"), QemuHost(tmp_path / "there")
    yield pair
    for host in pair:
        host.end_all()


def host(qemu: QemuHost) -> Host:
    return Host(qemu.driver, lambda: set(qemu.fences.ids()), qemu.kill)


@pytest.mark.turns(2)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_qemu_driver_promises_that(check: Check, hosts: tuple[QemuHost, QemuHost]) -> None:
    rig = Rig(*map(host, hosts), order, grace_s=0.2)
    asyncio.run(kept(check, rig))
