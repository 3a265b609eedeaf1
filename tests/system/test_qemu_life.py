"""Real guests from their first to their last order, by the command line; and what goes wrong.

Every test has a VM of its own on one site; the watch sees all of them.
"""

import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from roost.wire.bodies import VMBody
from tests.guest import need, ticks
from tests.system.conftest import Real
from tests.system.guests import SOCKET, Guests, connect
from tests.system.processes import eventually
from tests.system.qemuhosts import kill

pytestmark = pytest.mark.slow

SMALL = ("--cpu", "1", "--memory", "96MiB", "--disk", "0GiB")


def show(real: Real, name: str) -> VMBody:
    return real.client.get_vm(name)


def roost(real: Real, *words: str) -> str:
    """Run a command that must succeed; return what it said."""
    done = real.site.roost(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def order(real: Real, word: str, name: str) -> None:
    """Give an order by the command line, and wait until it is carried out."""
    roost(real, "vm", word, name)
    state = {"pause": "paused", "stop": "stopped"}.get(word, "running")

    def is_done() -> bool:
        vm = show(real, name)
        return vm.state == state and vm.observed_generation == vm.generation

    eventually(f"{name} is {state}", is_done)


def delete(real: Real, vm: VMBody) -> None:
    real.client.delete_vm(vm.id)
    eventually("no QEMU of it is left", lambda: real.site.qemu_hosts(vm) == [])


def test_a_vm_from_create_to_delete_by_the_command_line(real: Real) -> None:
    site, watch = real.site, real.site.watch
    assert "life is running on" in roost(real, "vm", "create", "life", *SMALL, "--wait")
    vm = show(real, "life")
    assert not vm.virtual
    site.wait_counting(vm)
    assert ticks(roost(real, "vm", "console", "life")) != []
    assert watch.executing(vm.id) == [vm.host]

    order(real, "pause", "life")
    assert watch.executing(vm.id) == []
    before = site.qemu_pid(vm)
    counted = watch.ticks(vm.id, str(vm.host))
    order(real, "resume", "life")
    site.wait_counting(vm)
    assert watch.ticks(vm.id, str(vm.host))[: len(counted)] == counted
    assert site.qemu_pid(vm) == before

    order(real, "restart", "life")
    eventually("it counts from 1 again", lambda: watch.counted(vm.id).count(1) == 2, 60)
    assert site.qemu_pid(vm) != before

    site.wait_counting(vm)
    order(real, "stop", "life")
    assert site.qemu_hosts(vm) == []
    assert "POWER-BUTTON" in watch.copies(vm.id)[-1].text()  # the guest was asked
    order(real, "start", "life")
    assert watch.executing(vm.id) == [vm.host]

    roost(real, "vm", "delete", "life")
    eventually("no QEMU of it is left", lambda: site.qemu_hosts(vm) == [])
    eventually("no folder is left", lambda: not list(site.hosts_folder.glob("*/vms/*.vm")))
    assert watch.doubles() == []
    site.doctor(site.server)


def test_guests_run_on_without_their_agent_and_are_adopted(real: Real) -> None:
    site = real.site
    vm = site.boot(real.client, "adopted", "one")
    pid = site.qemu_pid(vm)
    site.agents["one"].kill()
    site.wait_counting(vm)
    site.agent_again("one")
    eventually("it is connected", lambda: real.client.get_host("one").connected)
    # An order that the new agent carries out on the old process shows that it knows it.
    order(real, "pause", "adopted")
    assert site.watch.executing(vm.id) == []
    order(real, "resume", "adopted")
    assert site.qemu_pid(vm) == pid
    site.settle(real.client, vm)
    delete(real, vm)


def test_a_killed_qemu_is_a_crash_and_its_vm_boots_anew(real: Real) -> None:
    site = real.site
    vm = site.boot(real.client, "crashes", "one")
    kill(site.qemu_pid(vm))
    eventually("it counts from 1 again", lambda: site.watch.counted(vm.id).count(1) == 2, 60)
    site.settle(real.client, vm, unbroken=False)
    kinds = [e.kind for e in real.client.list_events(limit=1000).events if vm.id in e.subject]
    assert "vm.crashed" in kinds
    delete(real, vm)


def test_a_hung_qemu_harms_no_other_vm_and_no_heartbeat(real: Real) -> None:
    site, client = real.site, real.client
    hung = site.boot(client, "hung", "one")
    pid = site.qemu_pid(hung)
    os.kill(pid, signal.SIGSTOP)
    try:
        other = site.boot(client, "other", "one")
        order(real, "pause", "other")
        order(real, "resume", "other")
        assert client.get_host("one").health == "online"
        delete(real, other)
        # Ordered now, carried out when it listens again.
        client.pause_vm(hung.id)
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually("it obeys", lambda: show(real, "hung").state == "paused")
    client.resume_vm(hung.id)
    site.settle(client, hung)
    delete(real, hung)


def test_why_a_guest_does_not_start_is_shown(real: Real) -> None:
    site = real.site
    missing = site.folder / "missing.img"
    corrupt = site.folder / "corrupt.img"
    corrupt.write_bytes(b"QFI\xfb" + bytes([0, 0, 0, 9]) + bytes(8192))
    tiny = site.folder / "tiny.img"  # QEMU itself refuses it, and ends
    tiny.write_bytes(bytes(1000))
    digest = hashlib.sha256(corrupt.read_bytes()).hexdigest()
    other = "0" * 64
    words = {
        "missing": ("--image", f"file://{missing}@sha256:{other}", "missing.img"),
        "altered": ("--image", f"file://{corrupt}@sha256:{other}", other[:12]),
        "corrupt": ("--image", f"file://{corrupt}@sha256:{digest}", "qcow2"),
        "no-kernel": ("--kernel", str(tiny), "invalid kernel header"),
    }
    for name, (option, image, _) in words.items():
        size = ("--cpu", "1", "--memory", "96MiB", "--disk", "1GiB")
        roost(real, "vm", "create", name, *size, option, image)
    for name, (_, _, said) in words.items():
        eventually(f"{name} has failed", lambda: show(real, name).problem is not None)  # noqa: B023
        shown = roost(real, "vm", "show", name)
        assert said in shown, shown
        problem = json.loads(roost(real, "vm", "show", name, "-o", "json"))["problem"]
        assert said in problem["message"]
        assert show(real, name).state != "running"
        roost(real, "vm", "delete", name)
    site.doctor(site.server)


def test_the_watch_sees_two_copies_that_execute(tmp_path: Path) -> None:
    need("qemu-system-x86_64")
    words = ["qemu-system-x86_64", "-S", "-nodefaults", "-display", "none", "-m", "32"]
    words += ["-qmp", f"unix:{SOCKET},server=on,wait=off", "-qmp", "unix:ours,server=on,wait=off"]
    processes = []
    try:
        for host in ("one", "two"):
            folder = tmp_path / host / "vms" / "vm-1.vm"
            folder.mkdir(parents=True)
            (folder / "console.log").touch()
            processes.append(subprocess.Popen(words, cwd=folder))
        with Guests(tmp_path) as watch:
            _execute(tmp_path / "one/vms/vm-1.vm/ours", "cont")
            eventually("the first is seen", lambda: watch.executing("vm-1") == ["one"])
            assert watch.doubles() == []
            _execute(tmp_path / "two/vms/vm-1.vm/ours", "cont")
            found = eventually("both are seen", watch.doubles)
            assert "vm-1.vm on one and two" in found[0]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _execute(path: Path, command: str) -> None:
    eventually(f"{path} is there", path.exists)
    link = connect(path)
    link.setblocking(True)
    with link, link.makefile("rw") as talk:
        for each in ("qmp_capabilities", command):
            talk.write(json.dumps({"execute": each}) + "\n")
            talk.flush()
            while "return" not in json.loads(talk.readline()):
                pass
