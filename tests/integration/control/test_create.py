"""Create: one, many, all or none; names, keys and quotas."""

import asyncio

import pytest

from roost.base.errors import Conflict, NoFit, NotFound, QuotaExceeded, RoostError
from roost.parts.access import Principal
from roost.wire.agentlink import AmountInfo, CellInfo, DeviceInfo
from roost.wire.bodies import (
    CreateProject,
    CreateVMs,
    DeviceBody,
    DryRun,
    DryRunBatch,
    PlacementBody,
    QuotaBody,
)
from roost.wire.groups import CreateGroup
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, body_of, digest_of, run

MEMBER = Principal("ann", "member", "lab")


def test_a_vm_is_placed_claimed_and_run(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.create("web")
        assert (made.state, made.host, made.hypervisor_id) == ("starting", "h1", "h1")
        assert made.placement is not None
        await rig.settle()
        assert await rig.state("web") == ("running", "h1")
        assert [copy.state for copy in agent.copies.values()] == ["running"]

    run(database_url, test)


def test_every_answer_gives_the_hosts_number_of_the_ledger(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=1)
        await rig.create("full", cpu=1)
        await rig.host("h2")
        number = (await rig.plane.hosts.get("h2")).number
        made = await rig.create("web")
        kept = await rig.get("web")
        asked = DryRun(name="other", demand=body_of("other").demand)
        dry = await rig.plane.questions.dry_run(asked, OPERATOR)
        many = await rig.plane.questions.dry_run_many(DryRunBatch(vms=[asked]), OPERATOR)
        explained = await rig.plane.vms.explain("web", "default", ["h2"], OPERATOR)
        for found in (made.placement, kept.placement, dry, *many.answers, explained.answer):
            assert isinstance(found, PlacementBody)
            assert (found.host, found.host_number) == ("h2", number)

    run(database_url, test)


def test_a_full_fleet_refuses_with_the_reason(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        with pytest.raises(NoFit) as none:
            await rig.create("web")
        assert none.value.code == "no_available_agents"
        await rig.host("h1", cpu=2)
        await rig.create("a", cpu=2)
        with pytest.raises(NoFit) as full:
            await rig.create("b")
        assert full.value.code == "insufficient_resources"
        assert full.value.details["rejection"]["reasons"]  # type: ignore[index]

    run(database_url, test)


def test_a_name_is_taken_once_per_project(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.plane.projects.create(CreateProject(name="lab"), ADMIN)
        await rig.create("web")
        await rig.create("web", project="lab")
        with pytest.raises(Conflict, match="already"):
            await rig.create("web")
        with pytest.raises(NotFound):
            await rig.create("web", project="nowhere")

    run(database_url, test)


def test_many_creates_of_one_name_at_once_make_one_vm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        asked = [rig.create("web") for _ in range(20)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, Conflict) for each in found) == 19
        assert rig.committed("h1") == 1000

    run(database_url, test, inline=False)


def test_a_replay_answers_with_the_same_vm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        body = body_of("web")
        first = await rig.plane.admit.create(body, OPERATOR, "k", digest_of(body))
        again = await rig.plane.admit.create(body, OPERATOR, "k", digest_of(body))
        assert (first.replayed, again.replayed) == (False, True)
        assert first.vm.id == again.vm.id
        other = body_of("web-2")
        with pytest.raises(Conflict, match="idempotency"):
            await rig.plane.admit.create(other, OPERATOR, "k", digest_of(other))
        assert rig.committed("h1") == 1000

    run(database_url, test)


def test_a_replay_is_answered_although_the_fleet_is_full_by_now(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=1)
        body = body_of("web")
        first = await rig.plane.admit.create(body, OPERATOR, "k", digest_of(body))
        again = await rig.plane.admit.create(body, OPERATOR, "k", digest_of(body))
        assert (again.replayed, again.vm.id) == (True, first.vm.id)
        other = body_of("other")
        with pytest.raises(Conflict, match="idempotency"):
            await rig.plane.admit.create(other, OPERATOR, "k", digest_of(other))
        with pytest.raises(NoFit):
            await rig.plane.admit.create(other, OPERATOR, "fresh", digest_of(other))

    run(database_url, test)


def test_replays_at_once_make_one_vm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=2)
        body = body_of("web")
        asked = [rig.plane.admit.create(body, OPERATOR, "k", digest_of(body)) for _ in range(30)]
        found = await asyncio.gather(*asked)
        assert len({each.vm.id for each in found}) == 1
        assert sum(not each.replayed for each in found) == 1

    run(database_url, test, inline=False)


def test_a_replay_after_the_vm_was_deleted_says_so(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("web", key="k")
        await rig.plane.vms.delete("web", None, OPERATOR)
        await rig.settle()
        assert await rig.row("web") is None
        with pytest.raises(Conflict, match="deleted since"):
            await rig.create("web", key="k")

    run(database_url, test)


def test_each_of_a_batch_is_answered_by_itself(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=4)
        await rig.create("taken")
        body = CreateVMs(vms=[
            body_of("ok"), body_of("taken"), body_of("big", cpu=9),
            body_of("lost", project="nowhere"), body_of("later", cpu=2, on_no_fit="queue"),
        ])  # fmt: skip
        found = await rig.plane.admit.create_many(body, OPERATOR, "k", digest_of(body))
        batch = found.batch
        assert (batch.created, batch.queued, batch.failed) == (1, 1, 3)
        codes = [item.error["code"] if item.error else item.state for item in batch.results]
        assert codes == ["starting", "conflict", "insufficient_resources", "not_found", "pending"]
        await rig.check()

    run(database_url, test)


@pytest.mark.parametrize("atomic", [False, True], ids=["each", "atomic"])
def test_a_batch_is_replayed_as_a_whole(database_url: str, atomic: bool) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=3)
        body = CreateVMs(vms=[body_of(f"v{n}") for n in range(3)], atomic=atomic)
        first = await rig.plane.admit.create_many(body, OPERATOR, "k", digest_of(body))
        again = await rig.plane.admit.create_many(body, OPERATOR, "k", digest_of(body))
        assert (first.replayed, again.replayed) == (False, True)
        ids = [[item.id for item in found.batch.results] for found in (first, again)]
        assert ids[0] == ids[1]
        assert rig.committed("h1") == 3000

    run(database_url, test)


def test_an_atomic_batch_keeps_all_or_none(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=2)
        await rig.host("h2", cpu=2)
        many = CreateVMs(vms=[body_of(f"v{n}") for n in range(5)], atomic=True)
        with pytest.raises(NoFit):
            await rig.plane.admit.create_many(many, OPERATOR, None, digest_of(many))
        assert await rig.claims() == {}
        await rig.create("v3")
        fits = CreateVMs(vms=[body_of(f"v{n}") for n in range(4)], atomic=True)
        with pytest.raises((NoFit, Conflict)):
            await rig.plane.admit.create_many(fits, OPERATOR, None, digest_of(fits))
        assert len(await rig.claims()) == 1
        await rig.check()
        exact = CreateVMs(vms=[body_of(f"w{n}") for n in range(3)], atomic=True)
        found = await rig.plane.admit.create_many(exact, OPERATOR, None, digest_of(exact))
        assert found.batch.created == 3

    run(database_url, test)


def test_a_quota_is_exact_under_a_storm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for n in range(3):
            await rig.host(f"h{n}", cpu=40, memory=100)
        quota = QuotaBody(cpu=17, vms=100)
        await rig.plane.projects.create(CreateProject(name="lab", quota=quota), ADMIN)
        asked = [rig.create(f"v{n}", who=MEMBER, project="lab") for n in range(60)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, QuotaExceeded) for each in found) == 43
        project = await rig.plane.projects.get("lab", ADMIN)
        assert (project.cpu_milli.used, project.vms.used) == (17_000, 17)
        assert sum(rig.committed(f"h{n}") for n in range(3)) == 17_000

    run(database_url, test, inline=False)


def test_members_cannot_touch_other_projects(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.plane.projects.create(CreateProject(name="lab"), ADMIN)
        other = await rig.running("web")
        vms = rig.plane.vms
        with pytest.raises(NotFound):
            await rig.create("mine", who=MEMBER, project="default")
        for call in (vms.get, vms.start, vms.stop, vms.restart, vms.delete):
            for ref in (other.id, "web"):
                for project in (None, "default"):
                    with pytest.raises(NotFound):
                        await call(ref, project, MEMBER)
        await rig.create("mine", who=MEMBER, project="lab")
        await rig.settle()
        assert (await vms.get("mine", None, MEMBER)).project == "lab"

    run(database_url, test)


def test_a_strategy_is_taken_from_the_request(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for n in range(1, 4):
            await rig.host(f"h{n}")
        await rig.create("a", strategy="first_fit")
        assert (await rig.create("b", strategy="best_fit")).host == "h1"
        assert (await rig.create("c", strategy="least_loaded")).host == "h2"
        turns = [(await rig.create(f"r{n}", strategy="round_robin")).host for n in range(3)]
        assert len(set(turns)) == 3
        with pytest.raises(RoostError) as wrong:
            await rig.create("d", strategy="psychic")
        assert wrong.value.code == "invalid_strategy"

    run(database_url, test)


def test_special_resources_are_counted(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host(
            "h1", cpu=8, memory=16,
            extended={"fpga": AmountInfo(2)},
            devices=[DeviceInfo("a100"), DeviceInfo("a100")],
            cells=[CellInfo(4000, 8 * 2**30), CellInfo(4000, 8 * 2**30)],
        )  # fmt: skip
        half = DeviceBody(count=1, share_milli=500)
        await rig.running("half", gpu=half)
        await rig.running("half2", gpu=half)
        await rig.running("whole", gpu=1)
        with pytest.raises(NoFit):
            await rig.create("more", gpu=half)
        await rig.running("x", extended={"fpga": 2})
        with pytest.raises(NoFit):
            await rig.create("y", extended={"fpga": 1})
        await rig.running("one", numa="one", cpu=3)
        await rig.plane.vms.delete("whole", None, OPERATOR)
        await rig.settle()
        await rig.running("again", gpu=1)
        await rig.restart()
        await rig.check()

    run(database_url, test)


def test_what_a_member_makes_and_names_no_project_for_is_in_the_members_own(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.plane.projects.create(CreateProject(name="lab", quota=QuotaBody()), ADMIN)
        made = await rig.create("mine", who=MEMBER)
        assert made.project == "lab"
        assert (await rig.create("theirs")).project == "default"
        asked = DryRun(name="next", demand=body_of("next").demand)
        assert isinstance(await rig.plane.questions.dry_run(asked, MEMBER), PlacementBody)
        many = CreateVMs(vms=[body_of("many-1"), body_of("many-2")])
        found = await rig.plane.admit.create_many(many, MEMBER, None, digest_of(many))
        assert found.batch.created == 2
        assert (await rig.get("many-1", "lab")).project == "lab"
        group = await rig.plane.groups.create(CreateGroup(name="web", rule="spread"), MEMBER)
        assert group.project == "lab"
        with pytest.raises(NotFound):
            await rig.create("elsewhere", who=MEMBER, project="default")

    run(database_url, test)
