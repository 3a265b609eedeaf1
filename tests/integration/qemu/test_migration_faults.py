"""Migrations that go wrong: one running VM afterwards, and at no instant two.

That no two copies ever executed at once is read from both serial logs: each number once.
"""

import asyncio
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from roost.agent.drivers.qemu.driver import QemuDriver
from roost.agent.drivers.qemu.monitor import Monitor
from roost.wire.agentlink import DesiredVM, MoveInfo
from tests.integration.qemu.moving_pair import (
    VM,
    Pair,
    Wire,
    abandon,
    answering,
    both,
    pair,
    refusal,
    taken,
    tell_shape,
    under_way,
)
from tests.integration.qemu.qemu_host import becomes

MIB = 1 << 20
# It ends by itself, but not before it was seen: progress is reported every two seconds.
SLOW = MoveInfo(bandwidth_bytes=8 * MIB)


async def state(driver: QemuDriver) -> str:
    found = await driver.look(VM)
    assert found is not None
    return found.state


async def goes_on_here(vm: Pair, here: QemuDriver) -> None:
    """See that it runs where it was, and that no other copy ever counted."""
    assert await state(here) == "running"
    await vm.counts_on(vm.here)
    assert vm.text(vm.there) == ""


# Given up by the source


def test_a_move_that_never_ends_is_given_up_at_its_limit(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with both(vm) as (here, there):
            move = replace(SLOW, limit_s=3.0, auto_converge=False)
            error = await refusal(vm.send(here, await vm.prepare(there, move)))
            assert (error.failure, error.code) == ("permanent", "migration_too_slow")
            assert "3 s" in error.message
            await goes_on_here(vm, here)
            assert await becomes(there, VM, "lost")

    with pair(tmp_path, "roost.dirty=24") as vm:
        asyncio.run(run())


def test_a_silent_partition_is_given_up_after_a_while(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with both(vm) as (here, there):
            outgoing = await vm.prepare(there, SLOW)
            wire = Wire(outgoing.endpoint["uri"])
            async with wire.laid() as uri:
                outgoing.endpoint = {**outgoing.endpoint, "uri": uri}
                sending = await under_way(here, outgoing, vm)
                wire.cut()
                error = await refusal(sending)
                assert (error.failure, error.code) == ("permanent", "migration_stalled")
                await goes_on_here(vm, here)

    with pair(tmp_path, migrate_progress_s=1.5) as vm:
        asyncio.run(run())


def test_a_recalled_move_leaves_the_vm_running_and_can_be_begun_again(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with both(vm) as (here, there):
            await abandon(await under_way(here, await vm.prepare(there, SLOW), vm))
            assert await state(here) == "sending"
            await here.recall(vm.order(part="returning"))
            await goes_on_here(vm, here)
            assert await becomes(there, VM, "lost")
            await vm.move(here, there)
            await vm.counts_on(vm.here, vm.there)
            await here.recall(vm.order(part="returning"))  # too late: it does nothing
            assert await state(here) == "moved"

    with pair(tmp_path) as vm:
        asyncio.run(run())


# Processes killed


def test_a_target_that_dies_on_the_way_leaves_the_vm_where_it_was(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with both(vm) as (here, there):
            sending = await under_way(here, await vm.prepare(there, SLOW), vm)
            await vm.there.kill(VM)
            error = await refusal(sending)
            assert (error.failure, error.code) == ("permanent", "migration_failed")
            await goes_on_here(vm, here)
            assert await state(there) == "lost"
            await vm.move(here, there)
            await vm.counts_on(vm.here, vm.there)

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_a_source_that_dies_on_the_way_has_crashed_and_the_copy_is_lost(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with both(vm) as (here, there):
            sending = await under_way(here, await vm.prepare(there, SLOW), vm)
            await vm.here.kill(VM)
            await refusal(sending)
            left = await here.look(VM)
            assert left is not None
            assert (left.state, left.reason) == ("stopped", "crashed")
            assert await becomes(there, VM, "lost")
            assert vm.text(vm.there) == ""

    with pair(tmp_path) as vm:
        asyncio.run(run())


@pytest.mark.parametrize("post_copy", [False, True], ids=["pre-copy", "post-copy"])
def test_a_target_that_dies_at_the_switch_over_leaves_the_vm_where_it_was(
    tmp_path: Path, post_copy: bool
) -> None:
    async def run() -> None:
        await vm.start()
        async with vm.there.opened() as there:
            outgoing = await at_the_switch_over(vm, there, post_copy)
            await vm.there.kill(VM)
            async with vm.here.opened() as here:
                error = await refusal(vm.send(here, outgoing))
                if post_copy:  # QEMU cannot tell any more that nothing was handed over
                    assert error.code == "switchover_stuck"
                    assert await state(here) == "switching"
                    assert await state(there) == "lost"
                    await here.start(vm.order())
                else:
                    assert error.code == "migration_failed"
                await goes_on_here(vm, here)

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_a_source_that_dies_at_the_switch_over_takes_its_copy_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with vm.there.opened() as there:
            await at_the_switch_over(vm, there)
            await vm.here.kill(VM)
            assert await becomes(there, VM, "lost")
            assert vm.text(vm.there) == ""

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_what_a_dead_target_never_read_is_not_lost(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with vm.here.opened() as here:
            async with vm.there.opened() as there:
                outgoing = await at_the_switch_over(vm, there, driver=here, downtime_ms=10)
            await vm.there.kill(VM, signal.SIGSTOP)
            async with answering(vm.there.folder, outgoing.endpoint["agent"]):
                await vm.send(here, outgoing)  # the last bytes fit into the network's buffers
            assert await state(here) == "moved"
            await vm.there.kill(VM)
            async with vm.there.opened() as there:
                assert await state(there) == "lost"
            await here.start(vm.order())
            await goes_on_here(vm, here)

    with pair(tmp_path) as vm:
        asyncio.run(run())


async def at_the_switch_over(
    vm: Pair,
    there: QemuDriver,
    post_copy: bool = False,
    driver: QemuDriver | None = None,
    downtime_ms: int = 0,
) -> DesiredVM:
    """Bring a move to where the guest stands still and all can still be cancelled; then nobody
    goes on with it, as after the end of the source's agent."""
    # Some seconds for all of its memory: a busy machine may look away for one of them.
    move = replace(SLOW, post_copy=post_copy, downtime_ms=downtime_ms)
    outgoing = await vm.prepare(there, move)
    if driver is not None:
        await abandon(await under_way(driver, outgoing, vm))
    else:
        async with vm.here.opened() as here:
            await abandon(await under_way(here, outgoing, vm))
    if post_copy:
        monitor = await Monitor.connect(vm.here.vm_folder(VM))
        await monitor.execute("migrate-start-postcopy")
        await monitor.close()
    await vm.stands_still(vm.here)
    return outgoing


async def send_to_the_dying(vm: Pair, here: QemuDriver, outgoing: DesiredVM) -> None:
    """Send a VM to a target whose agent dies right after its last answer to the source."""
    async with answering(vm.here.folder) as agent:
        await vm.send(here, replace(outgoing, endpoint={**outgoing.endpoint, "agent": agent}))


def test_a_copy_that_dies_before_it_took_over_is_lost_and_the_source_goes_on(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        await vm.start()
        async with vm.here.opened() as here:
            async with vm.there.opened() as there:
                outgoing = await vm.prepare(there)
                await tell_shape(outgoing.endpoint, vm.here.manifest(VM).shape)
            # Without its agent the copy comes whole and has no leave to execute.
            await send_to_the_dying(vm, here, outgoing)
            assert await state(here) == "moved"
            await vm.there.kill(VM)
            async with vm.there.opened() as there:
                assert await state(there) == "lost"
            await here.start(vm.order())
            await goes_on_here(vm, here)

    with pair(tmp_path) as vm:
        asyncio.run(run())


# Agents that end and begin again


def test_a_guest_is_not_handed_to_a_target_whose_agent_is_gone(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with vm.here.opened() as here:
            async with vm.there.opened() as there:
                outgoing = await vm.prepare(there)
                sending = await under_way(here, replace(outgoing, move=SLOW), vm)
            error = await refusal(sending)
            assert (error.failure, error.code) == ("permanent", "target_silent")
            await goes_on_here(vm, here)
            async with vm.there.opened() as there:
                await becomes(there, VM, "lost")
                await vm.move(here, there)  # and with its agent it goes
                await vm.counts_on(vm.here, vm.there)
                still_ms = vm.progress[-1].downtime_ms
                assert still_ms is not None
                assert still_ms > 0

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_a_target_whose_agent_was_away_on_the_way_takes_over(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with vm.here.opened() as here:
            async with vm.there.opened() as there:
                sending = await under_way(here, await vm.prepare(there, SLOW), vm)
            async with vm.there.opened() as there:
                await there.look(VM)
                await sending
                await vm.arrives(there)
                await vm.counts_on(vm.here, vm.there)

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_a_target_whose_agent_comes_back_takes_over_then(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with vm.here.opened() as here:
            async with vm.there.opened() as there:
                outgoing = await vm.prepare(there)
                await tell_shape(outgoing.endpoint, vm.here.manifest(VM).shape)
            await send_to_the_dying(vm, here, outgoing)
            assert vm.text(vm.there) == ""
            async with vm.there.opened() as there:
                await vm.arrives(there)
                await vm.counts_on(vm.here, vm.there)
                error = await refusal(there.withdraw(VM))
                assert error.code == "arrived"

    with pair(tmp_path) as vm:
        asyncio.run(run())


@pytest.mark.parametrize("waits", [False, True], ids=["half-way", "at-the-switch-over"])
def test_a_source_whose_agent_comes_back_goes_on_with_the_move(tmp_path: Path, waits: bool) -> None:
    async def run() -> None:
        await vm.start()
        async with vm.there.opened() as there:
            async with vm.here.opened() as here:
                outgoing = await vm.prepare(there, SLOW)
                await abandon(await under_way(here, outgoing, vm))
            if waits:
                await vm.stands_still(vm.here)
            async with vm.here.opened() as here:
                assert await state(here) == "sending"
                await vm.send(here, outgoing)
                assert await state(here) == "moved"
                await vm.arrives(there)
                await vm.counts_on(vm.here, vm.there)

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_a_source_whose_agent_comes_back_can_still_recall_at_the_switch_over(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        await vm.start()
        async with vm.there.opened() as there:
            async with vm.here.opened() as here:
                await abandon(await under_way(here, await vm.prepare(there, SLOW), vm))
            await vm.stands_still(vm.here)
            async with vm.here.opened() as here:
                await here.recall(vm.order(part="returning"))
                await goes_on_here(vm, here)

    with pair(tmp_path) as vm:
        asyncio.run(run())


# Where it is received


def test_a_port_that_is_taken_is_passed_over_and_a_full_range_is_named(tmp_path: Path) -> None:
    async def run(first: int) -> None:
        async with vm.there.opened(migrate_ports=(first, first + 1)) as there:
            error = await refusal(vm.prepare(there))
            assert (error.failure, error.code) == ("transient", "no_port")
            assert f"{first} to {first + 1}" in error.message
            assert await state(there) == "lost"
        async with vm.there.opened(migrate_ports=(first, first + 9)) as there:
            outgoing = await vm.prepare(there)
            assert int(outgoing.endpoint["uri"].rpartition(":")[2]) > first + 1

    with pair(tmp_path) as vm, taken(2) as first:
        asyncio.run(run(first))
