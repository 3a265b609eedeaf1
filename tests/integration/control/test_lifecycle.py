"""VMs that exist: power, size and the end, with reports that come late, twice or never."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select

from roost.base.errors import AgentUnavailable, Conflict, NoFit, NotFound, QuotaExceeded
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import tombstones, vm_user_data
from roost.model.flow import Order
from roost.parts.sealing import MARK, KeyFile, Seal, new_key
from roost.testing.agent import ModelAgent
from roost.wire.agentlink import ConsoleRequest, SampleInfo, SeenVM
from roost.wire.bodies import BootBody, CreateProject, QuotaBody, RejectionBody, ResizeVM
from roost.wire.queries import VMQuery
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, gib, run


def test_power_follows_what_was_asked(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.running("web")
        vms = rig.plane.vms
        assert (await vms.stop("web", None, OPERATOR)).state == "stopping"
        await rig.settle()
        assert await rig.state("web") == ("stopped", "h1")
        with pytest.raises(Conflict, match="stopped"):
            await vms.restart("web", None, OPERATOR)
        generation = (await rig.get("web")).generation
        await vms.stop("web", None, OPERATOR)
        assert (await rig.get("web")).generation == generation  # nothing new, nothing written
        await vms.start("web", None, OPERATOR)
        await rig.settle()
        await vms.restart("web", None, OPERATOR)
        await rig.settle()
        assert await rig.state("web") == ("running", "h1")
        assert agent.vms[made.id].restarts == 1
        assert rig.committed("h1") == 1000

    run(database_url, test)


def test_what_a_vm_uses_is_told_with_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        made = await rig.running("web")
        assert (await rig.get("web")).used is None
        now_ms = rig.clock.wall_ms()
        for at_ms, written in ((now_ms - 10_000, 0), (now_ms, 5000)):
            more = {"disk_write_bytes": float(written)}
            reading = SampleInfo(made.id, at_ms, 250, 1 << 28, 1 << 30, more)
            rig.plane.readings.take(rig.number("h1"), [reading])
        await rig.settle()
        used = (await rig.get("web")).used
        assert used is not None
        assert (used.cpu_milli, used.memory_bytes) == (250, 1 << 28)
        assert used.disk_write_bytes_per_s == 500
        assert used.net_sent_bytes_per_s is None

    run(database_url, test)


def test_a_vm_that_shall_not_start_is_stopped(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.create("web", start=False)
        await rig.settle()
        assert await rig.state("web") == ("stopped", "h1")

    run(database_url, test)


def test_what_others_have_is_named_where_a_vm_grows_into_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=4)
        await rig.running("web")
        await rig.create("beside", cpu=2)
        with pytest.raises(NoFit, match="host 'h1', where 'web' is, has no room") as refused:
            await rig.plane.vms.resize("web", None, ResizeVM(cpu=3), OPERATOR)
        why = msgspec.convert(refused.value.details["rejection"], RejectionBody)
        assert why.nearest_miss is not None
        assert [(fix.kind, fix.shortages) for fix in why.fixes] == [
            ("free", why.nearest_miss.shortages)
        ]

    run(database_url, test)


def test_growing_takes_room_at_once_and_shrinking_gives_it_back_late(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", cpu=4)
        await rig.running("web")
        vms = rig.plane.vms
        await vms.resize("web", None, ResizeVM(cpu=3, memory="2GiB"), OPERATOR)
        assert rig.committed("h1") == 3000
        await rig.settle()
        with pytest.raises(NoFit, match="is too small for its new size: it has 4") as refused:
            await vms.resize("web", None, ResizeVM(cpu=5), OPERATOR)
        why = msgspec.convert(refused.value.details["rejection"], RejectionBody)
        assert why.nearest_miss is not None
        lacking = why.nearest_miss.shortages
        assert [(each.resource, each.need, each.free) for each in lacking] == [("cpu", 5000, 4000)]
        assert why.fixes == []  # nothing that could be freed there would do
        assert [(each.reason, each.first) for each in why.reasons] == [("cpu", 1)]
        await rig.check()
        await vms.resize("web", None, ResizeVM(cpu=1), OPERATOR)
        assert rig.committed("h1") == 3000  # its guest still has them
        with pytest.raises(NoFit):
            await rig.create("other", cpu=2)
        agent.listen()
        agent.work()
        assert rig.committed("h1") == 3000
        await rig.settle()
        assert rig.committed("h1") == 1000
        assert (await rig.get("web")).demand.memory_bytes == gib(2)

    run(database_url, test)


def test_resizing_while_an_older_size_is_not_reported_yet(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=4)
        await rig.running("web", cpu=3)
        vms = rig.plane.vms
        await vms.resize("web", None, ResizeVM(cpu=1), OPERATOR)
        await vms.resize("web", None, ResizeVM(cpu=2), OPERATOR)
        await rig.check()
        assert rig.committed("h1") == 3000
        await rig.settle()
        assert rig.committed("h1") == 2000

    run(database_url, test)


def test_resizing_keeps_to_the_quota_and_to_what_can_be_resized(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=8)
        quota = QuotaBody(cpu=2)
        await rig.plane.projects.create(CreateProject(name="lab", quota=quota), ADMIN)
        made = await rig.running("web", project="lab")
        vms = rig.plane.vms
        with pytest.raises(QuotaExceeded, match="cpu 2 asked, 1 of 2 left"):
            await vms.resize(made.id, None, ResizeVM(cpu=3), OPERATOR)
        assert rig.committed("h1") == 1000
        await vms.resize(made.id, None, ResizeVM(cpu=2), OPERATOR)
        assert (await rig.plane.projects.get("lab", ADMIN)).cpu_milli.used == 2000
        await rig.settle()
        await vms.delete(made.id, None, OPERATOR)
        with pytest.raises(Conflict, match="deleted"):
            await vms.resize(made.id, None, ResizeVM(cpu=1), OPERATOR)
        await rig.settle()
        assert (await rig.plane.projects.get("lab", ADMIN)).cpu_milli.used == 0

    run(database_url, test)


def test_a_deleted_vm_keeps_its_room_until_it_is_absent(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", cpu=1)
        made = await rig.running("web")
        vms = rig.plane.vms
        assert (await vms.delete("web", None, OPERATOR)).state == "deleting"
        assert (await vms.delete(made.id, None, OPERATOR)).state == "deleting"
        with pytest.raises(Conflict, match="being deleted"):
            await vms.start("web", None, OPERATOR)
        with pytest.raises(NoFit):
            await rig.create("next")
        agent.listen()
        assert made.id in agent.tombstones
        await rig.settle()
        with pytest.raises(NotFound):
            await rig.get("web")
        assert (agent.tombstones, agent.copies) == ({}, {})
        await rig.running("next")

    run(database_url, test)


def test_a_late_absent_of_an_earlier_life_changes_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        await rig.host("b")
        made = await rig.running("web")
        for target in ("b", "a"):
            await rig.move("web", target)
        old = SeenVM(made.id, a.done(made.id) - 3, "absent")  # of the copy that left for b
        await rig.plane.vms.delete("web", None, OPERATOR)
        await rig.report("a", old)
        await rig.check()
        assert (await rig.get("web")).state == "deleting"
        await rig.settle()
        assert await rig.row("web") is None
        assert a.copies == {}

    run(database_url, test)


def test_a_late_absent_does_not_clear_a_younger_tombstone(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        await rig.host("b")
        made = await rig.running("web")
        for target in ("b", "a"):
            await rig.move("web", target)
        late = SeenVM(made.id, a.done(made.id) - 3, "absent")
        await rig.migrate("web", "b")
        await rig.until_phase("web", "landing")
        rig.step(rig.agents["b"])
        await rig.hear()
        assert made.id in a.copies  # it has left, and its remains are not cleaned up yet
        await rig.report("a", late)
        assert (await rig.claims())["web:hold"] == "a"
        await rig.settle()
        assert await rig.claims() == {"web:run": "b"}

    run(database_url, test)


def test_a_copy_that_never_ran_goes_although_the_tombstone_is_of_an_earlier_one(
    database_url: str,
) -> None:
    # So it is when a ledger of before a move back to the source was restored, see `renew_cleanup`.
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        b = await rig.host("b")
        made = await rig.running("web")
        await rig.migrate("web", "b")
        await rig.until_phase("web", "landing")
        rig.step(b)
        await rig.hear()
        [grave] = await rig.rows(select(tombstones))
        lost = SeenVM(made.id, grave["generation"] + 1, "failed", "copy_lost", "it is dead")

        async def order() -> int:
            [found] = await rig.rows(select(tombstones))
            return int(found["generation"])

        await rig.report("a", lost)  # newer than anything that the ledger knows
        assert await order() == grave["generation"]
        await rig.plane.vms.stop("web", None, OPERATOR)
        await rig.report("a", lost)  # not yet at home as it was ordered
        assert await order() == grave["generation"]
        while (vm := await rig.row("web")).observed_generation != vm.generation:  # type: ignore[union-attr]
            rig.step(b)
            await rig.hear()
        other = SeenVM(made.id, lost.generation, "failed", "boot_failed", "it may have run")
        await rig.report("a", other)
        assert await order() == grave["generation"]
        await rig.report("a", lost)
        assert await order() == vm.generation  # type: ignore[union-attr]
        await rig.settle()
        assert await rig.claims() == {"web:run": "b"}
        assert a.copies == {}

    run(database_url, test)


def test_reports_of_old_and_of_unknown_generations_change_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        made = await rig.running("web")
        await rig.plane.vms.stop("web", None, OPERATOR)
        await rig.settle()
        for seen in ("running", "failed", "absent", "moved", "ready"):
            await rig.report("h1", SeenVM(made.id, 1, seen))  # type: ignore[arg-type]
        for seen in ("failed", "absent", "moved", "ready"):
            await rig.report("h1", SeenVM(made.id, 9, seen))  # type: ignore[arg-type]
        await rig.report("h1", SeenVM("vm-nobody", 1, "absent"))
        await rig.check()
        assert await rig.state("web") == ("stopped", "h1")

    run(database_url, test)


def test_a_vm_that_cannot_start_is_failed_and_says_why(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.create("web")
        agent.failing[made.id] = "no_image"
        await rig.settle()
        seen = await rig.get("web")
        assert (seen.state, seen.problem and seen.problem.code) == ("failed", "no_image")
        agent.failing.clear()
        await rig.plane.vms.restart("web", None, OPERATOR)
        await rig.settle()
        assert await rig.state("web") == ("running", "h1")

    run(database_url, test)


def test_a_vm_that_its_host_refuses_goes_elsewhere(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        made = await rig.create("web")
        said = SeenVM(made.id, 1, "failed", "insufficient_resources", "full", "capacity")
        await rig.report("a", said)
        await rig.check()
        await rig.settle(keep=True)
        assert await rig.state("web") == ("running", "b")
        assert await rig.claims() == {"web:run": "b"}

    run(database_url, test)


def test_a_vm_that_its_host_refuses_again_after_a_newer_order_goes_elsewhere(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        made = await rig.create("web")
        await rig.plane.vms.restart("web", None, OPERATOR)
        for generation in (1, 2):
            said = SeenVM(made.id, generation, "failed", "insufficient_resources", "", "capacity")
            await rig.report("a", said)
        await rig.settle(keep=True)
        assert await rig.state("web") == ("running", "b")

    run(database_url, test)


def test_a_host_that_finds_room_after_its_refusal_does_not_make_two(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a, _ = await rig.host("a"), await rig.host("b")
        made = await rig.create("web")
        said = SeenVM(made.id, 1, "failed", "insufficient_resources", "full", "capacity")
        await rig.report("a", said)
        inbox, a.inbox = a.inbox, []  # the tombstone is still on its way
        row = as_of(await rig.row("web"), 1)
        spec = rig.plane.roster.specs.of(row)
        a.vms[made.id] = rig.plane.dispatch.desired_vm(row, spec, "", Order("run"))
        a.work()
        assert a.copies[made.id].runs
        for _ in range(5):
            await rig.plane.run_singletons()
            rig.step(rig.agents["b"])
            await rig.hear()
            rig.one_copy()
        a.inbox = inbox
        a.digest = ""
        await rig.settle(keep=True)
        await rig.pass_by(4)
        assert await rig.state("web") == ("running", "b")
        await rig.converged()

    run(database_url, test)


def as_of(row: VMRow | None, generation: int) -> VMRow:
    """Return a VM as it was at an earlier generation."""
    assert row is not None
    return msgspec.structs.replace(row, generation=generation)


def test_a_refusal_of_a_vm_that_was_deleted_meanwhile_does_not_bring_it_back(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        made = await rig.create("web")
        await rig.plane.vms.delete("web", None, OPERATOR)
        said = SeenVM(made.id, 1, "failed", "insufficient_resources", "full", "capacity")
        await rig.report("a", said)
        await rig.settle(keep=True)
        assert await rig.row("web") is None
        await rig.converged()

    run(database_url, test)


def test_nothing_is_lost_when_the_plane_restarts_at_any_point(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.create("web")
        await rig.restart()
        agent.connect(rig.plane)
        await rig.settle()
        assert await rig.state("web") == ("running", "h1")
        await rig.plane.vms.delete("web", None, OPERATOR)
        await rig.restart()
        assert (await rig.get(made.id)).state == "deleting"
        agent.connect(rig.plane)
        await rig.settle()
        await rig.converged()

    run(database_url, test)


def test_what_the_guest_is_told_reaches_its_host_and_nobody_else(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        boot = BootBody(cmdline="quiet", user_data="password: hunter2")
        made = await rig.running("web", boot=boot)
        told = a.vms[made.id].boot
        assert told is not None
        assert (told.cmdline, told.user_data) == ("quiet", "password: hunter2")
        events = await rig.plane.events.page(0, 1000, ADMIN)
        assert b"hunter2" not in msgspec.json.encode(events)
        assert b"quiet" in msgspec.json.encode(events)
        assert b"hunter2" not in msgspec.json.encode(await rig.get("web"))

    run(database_url, test)


def test_a_vm_whose_user_data_does_not_open_is_held_and_its_host_works_on(
    database_url: str, tmp_path: Path
) -> None:
    file = KeyFile(tmp_path / "roost.key")
    file.put_first([new_key()])
    seal = Seal(file, file.load()[0].fingerprint)

    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.running("web", boot=BootBody(user_data="password: hunter2"))
        [kept] = await rig.rows(select(vm_user_data))
        changed = vm_user_data.update().values(user_data=f"{MARK}{'0' * 16}:AAAA")
        await rig.store.write(lambda tx: tx.connection.execute(changed))
        await rig.plane.vms.stop("web", None, OPERATOR)
        await rig.settle(check=False)  # the model agent refuses a list that has another digest
        assert made.id not in agent.vms
        assert agent.copies[made.id].state == "running", "what is on no list is held"
        await rig.create("other")
        await rig.settle(check=False)
        assert await rig.state("other") == ("running", "h1")
        agent.disconnect()
        await rig.restart()
        agent.connect(rig.plane)
        await rig.settle(check=False)
        assert agent.digest == rig.plane.dispatch.digest(rig.number("h1"))
        assert agent.copies[made.id].state == "running"

        back = vm_user_data.update().values(user_data=kept["user_data"])
        await rig.store.write(lambda tx: tx.connection.execute(back))
        await rig.plane.vms.start("web", None, OPERATOR)
        await rig.settle()
        told = agent.vms[made.id].boot
        assert told is not None
        assert told.user_data == "password: hunter2"

    run(database_url, test, seal=seal)


def test_a_paused_vm_stands_still_until_it_is_resumed(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        made = await rig.running("web")
        assert (await rig.plane.vms.pause("web", None, OPERATOR)).state == "pausing"
        await rig.settle()
        assert (a.vms[made.id].power, await rig.state("web")) == ("paused", ("paused", "a"))
        listed = await rig.plane.vms.list(VMQuery(state="paused", limit=10), ADMIN)
        assert [vm.name for vm in listed.vms] == ["web"]
        await rig.plane.vms.resume("web", None, OPERATOR)
        await rig.settle()
        assert await rig.state("web") == ("running", "a")
        await rig.plane.vms.stop("web", None, OPERATOR)
        for step in (rig.plane.vms.pause, rig.plane.vms.resume):
            with pytest.raises(Conflict, match="stopped"):
                await step("web", None, OPERATOR)

    run(database_url, test)


async def heard_question(agent: ModelAgent, count: int) -> ConsoleRequest:
    """Wait until an agent was asked so many questions, and return the last."""
    for _ in range(1000):
        agent.listen()
        asked = agent.said(ConsoleRequest)
        if len(asked) == count:
            assert isinstance(asked[-1], ConsoleRequest)
            return asked[-1]
        await asyncio.sleep(0.005)
    raise AssertionError("nobody asks")


def test_a_console_is_asked_of_the_host_that_has_the_vm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        made = await rig.running("web")
        a.consoles[made.id] = "booted\nhello"
        asking = asyncio.create_task(rig.plane.consoles.console("web", None, 7, 100, OPERATOR))
        question = await heard_question(a, 1)
        assert (question.vm, question.start, question.limit) == (made.id, 7, 100)
        a.speak()
        told = await asking
        assert (told.text, told.start, told.end) == ("hello", 7, 12)
        unanswered = asyncio.create_task(rig.plane.consoles.console("web", None, None, 9, OPERATOR))
        await heard_question(a, 2)
        a.disconnect()
        with pytest.raises(AgentUnavailable, match="does not answer"):
            await unanswered
        with pytest.raises(AgentUnavailable, match="not connected"):
            await rig.plane.consoles.console("web", None, None, 9, OPERATOR)

    run(database_url, test)
