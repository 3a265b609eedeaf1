"""The watch sees two copies and full hosts, and is not fooled by copies that wait for a move."""

from pathlib import Path

import msgspec

from roost.agent.drivers.base import LocalState, LocalVM
from tests.campaign.watch import Watch
from tests.system.processes import eventually


def put(folder: Path, vm: str, cpu_milli: int, state: LocalState = "running") -> None:
    (folder / "vms").mkdir(parents=True, exist_ok=True)
    local = LocalVM(id=vm, name=vm, state=state, cpu_milli=cpu_milli)
    (folder / "vms" / f"{vm}.json").write_bytes(msgspec.json.encode(local))


def looked(folder: Path) -> Watch:
    """Return a watch that has looked a few times."""
    watch = Watch(folder, cpu_milli=6000)
    watch.start()
    try:
        eventually("it has looked", lambda: watch.looks > 3)
    finally:
        watch.stop()
    return watch


def test_hosts_within_their_limits_are_not_worth_a_word(tmp_path: Path) -> None:
    put(tmp_path / "lone", "vm-a", 4000)
    put(tmp_path / "lone", "vm-b", 4000, "stopped")
    put(tmp_path / "pair" / "pair-01", "vm-a", 4000, "ready")
    watch = looked(tmp_path)
    assert (watch.doubles, watch.full) == ([], [])


def test_a_vm_on_two_hosts_is_seen_also_where_a_process_has_several(tmp_path: Path) -> None:
    put(tmp_path / "lone", "vm-a", 4000)
    put(tmp_path / "pair" / "pair-01", "vm-a", 4000)
    assert "lone/vms/vm-a.json and" in looked(tmp_path).doubles[0]


def test_a_host_that_executes_more_than_it_has_is_seen(tmp_path: Path) -> None:
    put(tmp_path / "pair" / "pair-01", "vm-a", 4000)
    put(tmp_path / "pair" / "pair-01", "vm-b", 2001, "starting")
    assert looked(tmp_path).full == ["pair-01 executes 6001 of 6000 millicores"]
