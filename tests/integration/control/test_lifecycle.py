"""VMs that exist: power, size and the end, with reports that come late, twice or never."""

import pytest

from roost.base.errors import Conflict, NoFit, NotFound, QuotaExceeded
from roost.wire.agentlink import SeenVM
from roost.wire.bodies import CreateProject, QuotaBody, ResizeVM
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


def test_a_vm_that_shall_not_start_is_stopped(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.create("web", start=False)
        await rig.settle()
        assert await rig.state("web") == ("stopped", "h1")

    run(database_url, test)


def test_growing_takes_room_at_once_and_shrinking_gives_it_back_late(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", cpu=4)
        await rig.running("web")
        vms = rig.plane.vms
        await vms.resize("web", None, ResizeVM(cpu=3, memory="2GiB"), OPERATOR)
        assert rig.committed("h1") == 3000
        await rig.settle()
        with pytest.raises(NoFit, match="no room"):
            await vms.resize("web", None, ResizeVM(cpu=5), OPERATOR)
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
        with pytest.raises(QuotaExceeded):
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
        old = SeenVM(made.id, a.done[made.id] - 3, "absent")  # of the copy that left for b
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
        late = SeenVM(made.id, a.done[made.id] - 3, "absent")
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


def test_a_host_ahead_of_a_restored_ledger_is_obeyed_again(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        made = await rig.running("web")
        await rig.report("h1", SeenVM(made.id, 9, "running"))
        assert (await rig.get("web")).generation == 10
        await rig.check()

    run(database_url, test)
