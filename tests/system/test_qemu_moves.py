"""Moves of a real guest that counts: whatever dies when, one copy runs, and it counts on by one.

One VM goes to and fro on one site; a test that broke it leaves the next one to boot it anew. Moves
are slow, so that "half way" is wide.
"""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from roost.wire.bodies import VMBody
from tests.guest import disk_numbers, is_unbroken
from tests.system.conftest import Real
from tests.system.movefaults import ended, events, freezing, killing, source_has_spoken
from tests.system.processes import eventually
from tests.system.qemuhosts import boot_by_digests, kill

pytestmark = pytest.mark.slow

#: Of some 60 MiB in each second.
SLOW = 12 << 20
OTHER = {"one": "two", "two": "one"}


@pytest.fixture
def counter(real: Real) -> Iterator[VMBody]:
    """Give the VM that counts, in peace."""
    found = [vm for vm in real.client.all_vms() if vm.name == "counter"]
    if found:
        yield real.site.running(real.client, found[0])
    else:
        yield real.site.boot(real.client, "counter", "one")


def begin_slowly(real: Real, vm: VMBody, **more: object) -> str:
    """Begin a move to the other host, and return that host when the move is half way."""
    options = {"bandwidth": SLOW} | more
    target = OTHER[str(vm.host)]
    real.client.migrate_vm(vm.id, host=target, **options)

    def is_half_way() -> bool:
        move = real.client.get_vm(vm.id).migration
        assert move is not None, events(real, vm)[-3:]
        return move.progress is not None and move.progress.sent_bytes > 8 << 20

    eventually("it is half way", is_half_way)
    return target


def test_a_guest_moves_and_counts_on(real: Real, counter: VMBody) -> None:
    target = OTHER[str(counter.host)]
    done = real.site.roost("vm", "migrate", "counter", "--to", target, "--wait")
    assert done.returncode == 0, done.stderr
    assert f"counter has moved to {target}" in done.stdout
    moved = real.site.settle(real.client, counter)
    assert moved.host == target
    first, second = real.site.watch.copies(counter.id)[-2:]
    assert (first.host, second.host) == (counter.host, target)
    assert first.spans[-1].end <= second.spans[0].begin
    assert real.site.watch.ticks(counter.id, target)


def test_a_drained_host_is_empty_and_all_count_on(real: Real, counter: VMBody) -> None:
    source = str(counter.host)
    other = real.site.boot(real.client, "other", source)
    done = real.site.roost("host", "drain", source, "--wait")
    assert done.returncode == 0, done.stderr
    for vm in (counter, other):
        assert real.site.settle(real.client, vm).host == OTHER[source]
    real.client.uncordon_host(source)
    real.client.delete_vm(other.id)
    eventually("it is gone", lambda: real.site.qemu_hosts(other) == [])


def test_a_move_that_is_called_off_leaves_the_guest_where_it_is(
    real: Real, counter: VMBody
) -> None:
    begin_slowly(real, counter)
    done = real.site.roost("vm", "migrate", "counter", "--cancel", "--wait")
    assert done.returncode == 0, done.stderr
    assert real.site.settle(real.client, counter).host == counter.host


def test_a_destination_that_is_killed_half_way(real: Real, counter: VMBody) -> None:
    before = len(events(real, counter))
    target = begin_slowly(real, counter)
    kill(real.site.qemu_pid(counter, target))
    end = ended(real, counter, before)
    assert end.kind == "vm.move_abandoned"
    assert end.note
    assert real.site.settle(real.client, counter).host == counter.host


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("source", "STOP"),
        ("source", "MIGRATION pre-switchover"),
        ("source", "MIGRATION device"),
        ("target", "MIGRATION completed"),
        ("target", "RESUME"),
    ],
)
def test_a_destination_that_is_killed_in_the_last_moment(
    real: Real, counter: VMBody, by: str, said: str
) -> None:
    before = len(events(real, counter))
    source, target = str(counter.host), OTHER[str(counter.host)]
    real.client.migrate_vm(counter.id, host=target, bandwidth=SLOW * 4)
    speaker = source if by == "source" else target
    with killing(real, counter, said, speaker, target) as killed:
        eventually("it is killed", lambda: killed)
        end = ended(real, counter, before)
    # Either it never executed there, and goes on where it was, or it was there and has crashed.
    crashed = end.kind == "vm.moved"
    assert crashed or by == "source" or said != "RESUME"
    found = real.site.settle(real.client, counter, unbroken=not crashed)
    assert found.host == (target if crashed else source)
    if crashed:
        _forget(real, counter)


def test_a_source_that_is_killed_half_way_has_crashed(real: Real, counter: VMBody) -> None:
    before = len(events(real, counter))
    begin_slowly(real, counter)
    kill(real.site.qemu_pid(counter, str(counter.host)))
    ended(real, counter, before)
    real.site.settle(real.client, counter, unbroken=False)
    _forget(real, counter)


@pytest.mark.turns(3)
@pytest.mark.parametrize(
    ("by", "said", "late"),
    [
        ("source", "MIGRATION pre-switchover", False),
        ("source", "MIGRATION device", False),
        ("source", "MIGRATION completed", False),
        ("source", "MIGRATION completed", True),
        ("target", "RESUME", False),
    ],
)
def test_a_source_that_is_killed_in_the_last_moment(
    real: Real, counter: VMBody, by: str, said: str, late: bool
) -> None:
    before = len(events(real, counter))
    source, target = str(counter.host), OTHER[str(counter.host)]
    speaker = source if by == "source" else target
    # The target's agent has said that it is there, and then speaks long after the source has said
    # that it has nothing left.
    silence = freezing(real, counter, "MIGRATION device", source, target) if late else nullcontext()
    with killing(real, counter, said, speaker, source) as killed:
        with silence:
            real.client.migrate_vm(counter.id, host=target, bandwidth=SLOW * 4)
            eventually("it is killed", lambda: killed)
            if late:
                eventually("it has spoken", lambda: source_has_spoken(real, counter, before))
        end = ended(real, counter, before)
    # The target has it and counts on; or it has crashed, and boots where it was or was to be.
    moved, counts_on = end.kind == "vm.moved", said == "RESUME"
    assert moved or not counts_on
    found = real.site.settle(real.client, counter, unbroken=counts_on)
    assert found.host == (target if moved else source)
    if not counts_on:
        _forget(real, counter)


@pytest.mark.parametrize("which", ["source", "target"])
def test_an_agent_that_is_killed_half_way_and_comes_back(
    real: Real, counter: VMBody, which: str
) -> None:
    before = len(events(real, counter))
    target = begin_slowly(real, counter)
    name = target if which == "target" else str(counter.host)
    real.site.agents[name].kill()
    real.site.agent_again(name)
    end = ended(real, counter, before)
    found = real.site.settle(real.client, counter)
    assert found.host == (target if end.kind == "vm.moved" else counter.host)


def test_a_target_agent_that_is_dead_as_the_guest_arrives(real: Real, counter: VMBody) -> None:
    before = len(events(real, counter))
    target = begin_slowly(real, counter)
    real.site.agents[target].kill()
    # All is sent now, and nobody lets it go on: the guest stands still until one comes back.
    eventually("it stands still", lambda: real.site.watch.executing(counter.id) == [])
    real.site.agent_again(target)
    ended(real, counter, before)
    real.site.settle(real.client, counter)


def test_a_control_plane_that_is_killed_half_way(real: Real, counter: VMBody) -> None:
    before = len(events(real, counter))
    target = begin_slowly(real, counter)
    real.site.server.kill()
    real.site.serve_again(real.site.server)
    end = ended(real, counter, before)
    found = real.site.settle(real.client, counter)
    assert found.host == (target if end.kind == "vm.moved" else counter.host)


def test_a_guest_that_writes_faster_than_it_is_sent_stays(real: Real) -> None:
    busy = real.site.boot(real.client, "busy", "one", boot=boot_by_digests("roost.dirty=24"))
    done = real.site.roost(
        "vm", "migrate", "busy", "--no-auto-converge", "--bandwidth", "10MiB", "--limit", "4",
        "--wait",
    )  # fmt: skip
    assert done.returncode == 4, done.stdout
    assert "stays on one" in done.stderr
    assert "4 s" in done.stderr
    real.site.settle(real.client, busy)
    _forget(real, busy)


def test_a_disk_moves_with_its_vm_live_and_cold(real: Real) -> None:
    boot = boot_by_digests("roost.disk=50000")
    vm = real.site.boot(real.client, "disk", "one", boot=boot, disk="64MiB")
    _written(real, vm, "one")
    done = real.site.roost("vm", "migrate", "disk", "--to", "two", "--wait")
    assert done.returncode == 0, done.stderr
    vm = real.site.settle(real.client, vm)
    _written(real, vm, "two")
    done = real.site.roost("vm", "migrate", "disk", "--to", "one", "--cold", "--wait")
    assert done.returncode == 0, done.stderr
    _written(real, vm, "one")
    vm = real.site.settle(real.client, vm, unbroken=False)
    texts = [copy.text() for copy in real.site.watch.copies(vm.id)]
    assert is_unbroken(disk_numbers("".join(texts[:2])))
    booted = disk_numbers(texts[2])
    assert 0 <= booted[0] - disk_numbers(texts[1])[-1] <= 2  # the last may not have been told
    _forget(real, vm)


def _written(real: Real, vm: VMBody, host: str, more: int = 3) -> None:
    def numbers() -> int:
        here = [copy for copy in real.site.watch.copies(vm.id) if copy.host == host]
        return len(disk_numbers(here[-1].text())) if here else 0

    eventually(f"it writes on {host}", lambda: numbers() >= more)


def _forget(real: Real, vm: VMBody) -> None:
    """Delete a VM whose count is broken."""
    real.client.delete_vm(vm.id)
    eventually("it is gone", lambda: real.site.qemu_hosts(vm) == [])
    eventually("it is forgotten", lambda: vm.id not in {v.id for v in real.client.all_vms()})
