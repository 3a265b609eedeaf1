"""What a VM is, from what is written down and what its QEMU says."""

import pytest

from roost.agent.drivers.base import CRASHED, GUEST_SHUTDOWN
from roost.agent.drivers.qemu.manifest import Manifest
from roost.agent.drivers.qemu.process import Identity
from roost.agent.drivers.qemu.sight import Told, local_vm, state_of, unknown_vm
from roost.testing.orders import vm

DEAD = Identity(2, 3)


def manifest(**changes: object) -> Manifest:
    return Manifest(**{"order": vm(), "process": DEAD, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("runstate", "migration", "state"),
    [
        ("running", "", "running"),
        ("running", "active", "sending"),
        ("running", "setup", "sending"),
        ("running", "failed", "running"),
        ("running", "cancelled", "running"),
        ("prelaunch", "", "starting"),
        ("paused", "", "paused"),
        ("paused", "active", "sending"),
        ("suspended", "", "paused"),
        ("finish-migrate", "pre-switchover", "sending"),
        ("finish-migrate", "device", "switching"),
        ("running", "postcopy-active", "switching"),
        ("postmigrate", "completed", "moved"),
        ("postmigrate", "failed", "paused"),
        ("shutdown", "", "stopped"),
        ("something-new", "", "paused"),
    ],
)
def test_a_vm_of_this_host_is(runstate: str, migration: str, state: str) -> None:
    assert state_of(manifest(), Told(runstate, migration))[0] == state


def test_a_copy_is_ready_until_it_has_leave_to_execute() -> None:
    waits = manifest(role="incoming", endpoint={"uri": "x"})
    assert state_of(waits, Told("inmigrate", "active"))[0] == "ready"
    assert local_vm(waits, Told("inmigrate")).endpoint == {"uri": "x"}
    assert state_of(waits, Told("paused"))[0] == "ready"
    arrived = manifest(role="incoming", arrived=True)
    assert state_of(arrived, Told("paused", "completed"))[0] == "paused"
    assert local_vm(arrived, Told("running", "completed")).arrived


def test_what_has_no_process_any_more_is_stopped_lost_or_moved() -> None:
    assert state_of(manifest(), None) == ("stopped", CRASHED)
    assert state_of(manifest(process=None, reason="asked"), None) == ("stopped", "asked")
    assert state_of(manifest(role="incoming"), None) == ("lost", "")
    assert state_of(manifest(role="incoming", process=None), None) == ("lost", "")
    assert state_of(manifest(role="incoming", arrived=True), None) == ("stopped", CRASHED)
    assert state_of(manifest(role="moved"), None) == ("moved", "")


def test_a_guest_that_powered_off_says_so() -> None:
    assert local_vm(manifest(), Told("shutdown")).reason == GUEST_SHUTDOWN


def test_a_vm_that_stands_still_for_want_of_room_has_a_note() -> None:
    stuck = local_vm(manifest(note="later"), Told("io-error"))
    assert stuck.state == "paused"
    assert "full" in stuck.note
    assert local_vm(manifest(note="later"), Told("running")).note == "later"


def test_what_is_unknown_keeps_its_amounts() -> None:
    found = unknown_vm("vm-1", manifest(), "it hangs")
    assert (found.state, found.reason, found.memory_bytes) == ("unknown", "it hangs", 2**30)
    assert unknown_vm("vm-9", None, "lost").id == "vm-9"
