"""Hosts that fall silent with real guests on them: the guard kills what may run elsewhere.

Timers are short, as in `test_silence`, but not so short that an agent on a busy machine seems dead.
"""

from collections.abc import Iterator

import pytest

from roost.wire.bodies import VMBody
from tests.system.conftest import Real
from tests.system.processes import eventually
from tests.system.qemuhosts import QemuSite
from tests.system.test_qemu_moves import begin_slowly, ended, events
from tests.system.test_silence import assert_proof_came_first

pytestmark = pytest.mark.slow

TIMERS = {"heartbeat_s": 0.5, "suspect_s": 2.0, "offline_s": 4.0, "lease_s": 5.0}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """Give two hosts with fence guards."""
    made = QemuSite(tmp_path_factory.mktemp("guarded"))
    try:
        made.start("one", "two", timers=TIMERS, fence_guard=True)
        with made.watching() as client:
            for name in made.agents:
                eventually(f"{name} has a guard", lambda: client.get_host(name).guard)  # noqa: B023
            yield Real(made, client)
    finally:
        made.end()


def bring_back(real: Real, name: str) -> None:
    """Start an agent again and wait until its host is as any other."""
    real.site.agent_again(name)

    def is_back() -> bool:
        host = real.client.get_host(name)
        return host.health == "online" and host.connected and host.guard

    eventually(f"{name} is back", is_back)


def delete(real: Real, *vms: VMBody) -> None:
    for vm in vms:
        real.client.delete_vm(vm.id)
    for vm in vms:
        eventually("it is gone", lambda: real.site.qemu_hosts(vm) == [])  # noqa: B023


def test_the_guard_kills_what_may_run_elsewhere_although_the_agent_is_dead(guarded: Real) -> None:
    site, client = guarded.site, guarded.client
    stays = site.boot(client, "stays", "one")
    movable = site.boot(client, "movable", "one", restart="elsewhere")
    site.agents["one"].kill()
    eventually("its QEMU is killed", lambda: site.watch.executing(movable.id) == [])
    found = site.running(client, movable, "two")
    eventually("it executes there", lambda: site.watch.executing(found.id) == ["two"])
    first, second = site.watch.copies(movable.id)
    assert first.spans[-1].end < second.spans[0].begin
    assert client.get_host("one").fenced == "lease"
    assert_proof_came_first(client, movable.id)
    # What must not run elsewhere was not touched.
    assert site.watch.executing(stays.id) == ["one"]
    assert client.get_vm(stays.id).state == "unknown"
    bring_back(guarded, "one")
    site.settle(client, stays)
    site.settle(client, movable, unbroken=False)
    delete(guarded, stays, movable)


def test_a_target_that_falls_silent_half_way_takes_nothing_with_it(guarded: Real) -> None:
    site, client = guarded.site, guarded.client
    vm = site.boot(client, "steady", "one", restart="elsewhere")
    before = len(events(guarded, vm))
    begin_slowly(guarded, vm)
    site.agents["two"].kill()
    end = ended(guarded, vm, before)
    assert end.kind == "vm.move_abandoned"
    assert site.running(client, vm, "one")
    assert site.watch.doubles() == []
    bring_back(guarded, "two")
    site.settle(client, vm, unbroken=False)
    delete(guarded, vm)


def test_a_source_that_falls_silent_half_way_never_runs_beside_the_target(guarded: Real) -> None:
    site, client = guarded.site, guarded.client
    vm = site.boot(client, "goes", "one", restart="elsewhere")
    begin_slowly(guarded, vm)
    site.agents["one"].kill()
    found = site.running(client, vm, "two")
    eventually("it executes there", lambda: site.watch.executing(found.id) == ["two"])
    assert site.watch.doubles() == []
    bring_back(guarded, "one")
    site.settle(client, vm, unbroken=False)
    delete(guarded, vm)
