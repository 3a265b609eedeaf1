"""Control groups of VMs, on a tree of files: version 1, version 2, and none that can be used."""

from pathlib import Path

import pytest

from roost.base.units import GIB
from roost.hostkit.machine.limitgroups import LimitGroups, Limits

LIMITS = Limits(1500, GIB)


def tree(root: Path, groups: str, *mounts: str) -> None:
    """Write what the kernel says of mounts and of the agent's own groups."""
    own = root / "proc/self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text(groups)
    (own / "mountinfo").write_text("".join(f"{mount}\n" for mount in mounts))


def test_version_1_has_a_group_for_each_controller(tmp_path: Path) -> None:
    kinds = ("cpu", "memory")
    mounts = [f"30 20 0:1 / /cg/{each} rw - cgroup cgroup rw,{each}" for each in kinds]
    tree(tmp_path, "1:cpu:/\n2:memory:/jobs\n0::/\n", *mounts)
    (tmp_path / "cg/cpu").mkdir(parents=True)
    (tmp_path / "cg/memory/jobs").mkdir(parents=True)
    groups = LimitGroups("h1", root=tmp_path)
    assert groups.held() == ["limit:cpu", "limit:memory"]
    groups.put("a.vm", 77, LIMITS)
    cpu, memory = tmp_path / "cg/cpu/roost/h1/a.vm", tmp_path / "cg/memory/jobs/roost/h1/a.vm"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "150000"
    assert (cpu / "cpu.cfs_period_us").read_text() == "100000"
    assert (memory / "memory.limit_in_bytes").read_text() == str(GIB)
    assert (cpu / "cgroup.procs").read_text() == (memory / "cgroup.procs").read_text() == "77"
    groups.change("a.vm", Limits(200, 2 * GIB))
    assert (cpu / "cpu.cfs_quota_us").read_text() == "20000"
    groups.change("unknown.vm", LIMITS)
    groups.remove("unknown.vm")
    groups.close()
    assert cpu.exists()  # its guest runs on


def test_version_2_moves_the_agent_aside_and_divides_its_controllers(tmp_path: Path) -> None:
    tree(tmp_path, "0::/agent.service\n", "30 20 0:1 / /cg rw - cgroup2 cgroup rw")
    own = tmp_path / "cg/agent.service"
    for folder in (own, own / "roost", own / "roost/h1"):
        folder.mkdir(parents=True)
        (folder / "cgroup.subtree_control").write_text("")
    (own / "cgroup.controllers").write_text("cpu memory pids\n")
    groups = LimitGroups("h1", root=tmp_path)
    assert groups.held() == ["limit:cpu", "limit:memory"]
    assert (own / "roost-agent/cgroup.procs").exists()
    assert (own / "roost/h1/cgroup.subtree_control").read_text() == "+cpu +memory"
    groups.put("a.vm", 77, LIMITS)
    assert (own / "roost/h1/a.vm/cpu.max").read_text() == "150000 100000"
    assert (own / "roost/h1/a.vm/memory.max").read_text() == str(GIB)
    # An agent that starts again is in its group already, and finds the others beside it.
    (tmp_path / "proc/self/cgroup").write_text("0::/agent.service/roost-agent\n")
    (own / "roost-agent/cgroup.controllers").write_text("cpu memory pids\n")
    again = LimitGroups("h1", root=tmp_path)
    again.change("a.vm", Limits(500, GIB))
    assert (own / "roost/h1/a.vm/cpu.max").read_text() == "50000 100000"


def test_where_there_are_no_groups_that_is_said_and_nothing_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups = LimitGroups("h1", root=tmp_path)
    assert groups.held() == []
    groups.put("a.vm", 77, LIMITS)
    groups.change("a.vm", LIMITS)
    groups.remove("a.vm")
    assert "limits of cpu do not hold" in caplog.text
    assert "limits of memory do not hold" in caplog.text
