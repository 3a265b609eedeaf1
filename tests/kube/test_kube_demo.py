"""`roost kube demo` as a newcomer runs it: it shows all its parts, and leaves nothing running."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from roost.kube.cluster.local import LocalCluster
from tests.kube.clusters import LIMIT_S, need_tools

ROOST = str(Path(sys.executable).with_name("roost"))


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("KUBECONFIG", "ONCE")}
    return kept | {"ROOST_KUBE_HOME": str(folder), "NO_COLOR": "1", "COLUMNS": "100"} | more


def test_the_demo_places_moves_evicts_and_ends(tmp_path: Path) -> None:
    need_tools()
    done = subprocess.run(
        [ROOST, "kube", "demo", "--once", "-o", "json"], env=environment(tmp_path),
        capture_output=True, text=True, timeout=4 * LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = msgspec.json.decode(done.stdout)
    assert len(told["placed"]) == 13
    assert "Insufficient memory" in told["pending"]["too-big"]
    moved = told["migration"]
    assert moved["wanted"] == "demo-node-4" != moved["to"]
    assert moved["rounds"] >= 1
    evicted = told["eviction"]
    assert evicted["said"] == 'Eviction triggered evacuation of VMI "demo/web-1"'
    assert evicted["to"] not in ("", evicted["from"])
    assert "stays until" in evicted["again"]
    assert told["metrics"]['node_vm_count{node="demo-node-4"}'] >= "1"
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["lock"]


def test_ctrl_c_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    need_tools()
    with subprocess.Popen(
        [ROOST, "kube", "demo", "--serve"], env=environment(tmp_path),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    ) as started:  # fmt: skip
        assert started.stderr is not None
        # Programs are up, and the API server is not ready yet.
        assert b"waiting for the API server" in started.stderr.readline()
        running = list(LocalCluster(tmp_path / "demo").state.processes.values())
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=LIMIT_S)
        assert started.returncode == 130
    assert running
    assert not any(process.is_alive for process in running)


def test_without_the_programs_it_says_how_to_build_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOST, "kube", "demo", "--once"],
        env=environment(tmp_path, ROOST_KUBE_BIN=str(tmp_path)),
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 5
    assert "make kube-tools" in done.stderr
