"""A guest that says whether an accelerator executes anything."""

import asyncio
from pathlib import Path

import pytest

from roost.agent.drivers.qemu.kvmprobe import boots_within, kvm_executes
from roost.base.clock import RealClock
from tests.guest import need

QEMU = "qemu-system-x86_64"


def test_an_emulated_guest_boots_and_says_so() -> None:
    need(QEMU)
    took_s = asyncio.run(boots_within(QEMU, "tcg", 30.0, RealClock()))
    assert took_s is not None
    assert took_s < 30.0


@pytest.mark.parametrize(
    ("kvm", "tcg", "executes"),
    [
        ("exit 33", "exit 33", True),
        ("exit 1", "exit 33", False),
        ("exec sleep 60", "exit 33", False),
        ("exec sleep 60", "exit 1", False),
        ("sleep 0.6; exit 33", "sleep 0.5; exit 33", True),  # slow as the whole machine is
        ("sleep 3; exit 33", "sleep 0.1; exit 33", False),  # slower than emulation: worse than none
    ],
)
def test_kvm_is_offered_only_where_a_guest_boots_under_it(
    tmp_path: Path, kvm: str, tcg: str, executes: bool
) -> None:
    binary = tmp_path / "qemu"
    binary.write_text(f"#!/bin/sh\nif [ $2 = kvm ]; then {kvm}; else {tcg}; fi\n")
    binary.chmod(0o755)
    assert asyncio.run(kvm_executes(str(binary), RealClock(), 0.4)) is executes
