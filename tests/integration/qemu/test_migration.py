"""Live migration between two drivers, with real guests: the counter goes on at the next number."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from roost.agent.drivers.qemu.command import shape_of
from roost.agent.drivers.qemu.driver import QemuDriver
from roost.wire.agentlink import DesiredVM, MoveInfo
from tests.guest import is_unbroken, need, ticks
from tests.integration.qemu.moving_pair import (
    VM,
    Pair,
    both,
    certificates,
    pair,
    refusal,
    tell_shape,
)
from tests.integration.qemu.qemu_host import becomes

MIB = 1 << 20


@pytest.mark.parametrize("way", ["tcp", "unix", "tls"])
def test_the_counter_goes_on_at_the_next_number(tmp_path: Path, way: str) -> None:
    settings: dict[str, object] = {}
    if way == "unix":
        sockets = tmp_path / "s"
        sockets.mkdir()
        settings = {"migrate_address": f"unix:{sockets}"}
    elif way == "tls":
        need("openssl")
        settings = {"migrate_tls": certificates(tmp_path / "tls")}
    with pair(tmp_path, **settings) as vm:
        asyncio.run(_goes_on(vm, way))


async def _goes_on(vm: Pair, way: str) -> None:
    await vm.start(restart="elsewhere")
    async with both(vm) as (here, there):
        told: list[str] = []
        there.watch(told.append)
        outgoing = await vm.prepare(there, restart="elsewhere")
        prepared = vm.there.process(VM)
        assert outgoing.endpoint["uri"].startswith("unix:" if way == "unix" else "tcp:")
        assert ("tls" in outgoing.endpoint) == (way == "tls")
        assert set(vm.there.fences.ids()) == {VM}  # before it may execute
        await vm.send(here, outgoing)
        left = await here.look(VM)
        assert left is not None
        assert left.state == "moved"
        assert set(vm.here.fences.ids()) == set()
        await vm.arrives(there)
        await vm.counts_on(vm.here, vm.there)
        assert vm.there.process(VM) == prepared  # hosts that are alike start it but once
        history = await there.console(VM, None, 1 << 20)
        whole = ticks(history.text)
        assert is_unbroken(whole)
        assert whole[0] == ticks(vm.text(vm.here))[0]  # from before the move
        assert history.start == 0
        assert told
        assert vm.progress[-1].downtime_ms is not None
        await here.destroy(VM)
        await there.land(vm.order())
        landed = await there.look(VM)
        assert landed is not None
        assert (landed.state, landed.arrived) == ("running", False)


def test_a_vm_that_has_lost_its_user_data_keeps_its_seed_on_the_way(tmp_path: Path) -> None:
    async def run() -> None:
        async with both(vm) as (here, there):
            await vm.boot_up(here, boot=replace(vm.boot, user_data="#cloud-config\n"))
            await vm.move(here, there)  # adopted: no order of a held VM has user data
            await vm.counts_on(vm.here, vm.there)
            await here.destroy(VM)
            await there.land(vm.order())
            await vm.move(there, here)
            await vm.counts(vm.here)

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_an_unencrypted_host_is_not_sent_to_by_one_that_encrypts(tmp_path: Path) -> None:
    need("openssl")

    async def run() -> None:
        await vm.start()
        async with vm.here.opened(migrate_tls=tls) as here, vm.there.opened() as there:
            error = await refusal(vm.send(here, await vm.prepare(there)))
            assert (error.failure, error.code) == ("permanent", "tls_differs")
            found = await here.look(VM)
            assert found is not None
            assert found.state == "running"

    tls = certificates(tmp_path / "tls")
    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_a_vm_that_waits_for_a_boot_to_be_resized_moves_as_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with both(vm) as (here, there):
            larger = {"memory_bytes": 160 * MIB, "cpu_milli": 2000}
            await here.resize(vm.order(**larger))
            await vm.move(here, there, **larger)
            await vm.counts_on(vm.here, vm.there)
            await there.land(vm.order(**larger))
            found = await there.look(VM)
            assert found is not None
            assert "160 MiB of memory hold from the next boot, now it has 112 MiB" in found.note
            made, came = vm.here.manifest(VM).shape, vm.there.manifest(VM).shape
            assert made == came
            assert made is not None
            assert made.machine.startswith("pc-i440fx-")

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_a_source_that_cannot_say_its_machine_finds_the_plain_one_the_next_time(
    tmp_path: Path,
) -> None:
    async def prepare(there: QemuDriver) -> DesiredVM:
        return await vm.prepare(there, peer="older")

    async def run() -> None:
        async with vm.there.opened() as there:
            outgoing = await prepare(there)
            kept = vm.there.manifest(VM).shape
            assert kept is not None
            assert kept.machine
            _, host, port = outgoing.endpoint["uri"].split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"what this machine does not take")
            writer.close()
            await becomes(there, VM, "lost")
            outgoing = await prepare(there)
            assert vm.there.manifest(VM).shape == shape_of(outgoing)
            await tell_shape(outgoing.endpoint, kept)  # upgraded
            assert vm.there.manifest(VM).shape == kept
            await vm.there.kill(VM)
            await prepare(there)
            assert vm.there.manifest(VM).shape == kept

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_a_paused_guest_stays_paused_and_goes_on_when_resumed(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with both(vm) as (here, there):
            await here.pause(vm.order(power="paused"))
            await vm.send(here, await vm.prepare(there, power="paused"))
            await vm.arrives(there, "paused")
            before = vm.text(vm.there)
            await there.land(vm.order(power="paused"))
            assert vm.text(vm.there) == before
            await there.resume(vm.order())
            await vm.counts_on(vm.here, vm.there)

    with pair(tmp_path) as vm:
        asyncio.run(run())


def test_a_guest_that_keeps_writing_memory_is_slowed_down_until_it_fits(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with both(vm) as (here, there):
            await vm.move(here, there, MoveInfo(bandwidth_bytes=60 * MIB, downtime_ms=100))
            await vm.counts_on(vm.here, vm.there)
            assert vm.progress[-1].passes > 2

    with pair(tmp_path, "roost.dirty=24") as vm:
        asyncio.run(run())


def test_post_copy_lets_the_guest_go_on_before_all_of_its_memory_is_there(tmp_path: Path) -> None:
    async def run() -> None:
        await vm.start()
        async with both(vm) as (here, there):
            move = MoveInfo(bandwidth_bytes=20 * MIB, post_copy=True)
            sending = asyncio.create_task(vm.send(here, await vm.prepare(there, move)))
            await vm.counts(vm.there, 1)
            seen = await there.look(VM)
            assert seen is not None
            # The source still serves its memory, so it must not be told that the VM is there.
            assert sending.done() or (seen.state, seen.arrived) == ("ready", False)
            await sending
            await vm.arrives(there)
            await vm.counts_on(vm.here, vm.there)

    with pair(tmp_path, "roost.dirty=24") as vm:
        asyncio.run(run())
