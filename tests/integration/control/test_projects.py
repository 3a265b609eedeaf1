import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.control.admin.projects import Projects
from roost.ledger.claims.proposals import Verdict
from roost.ledger.store import Store
from roost.parts.access import Principal
from roost.wire.bodies import CreateProject, QuotaBody, SetQuota
from tests.databases import opened
from tests.examining import doctor
from tests.integration.ledger.records import GIB, add_host, delete_vm, proposal

ROOT = Principal("root", "admin")
MEMBER = Principal("ann", "member", "lab")
LAB = CreateProject(name="lab", quota=QuotaBody(cpu="2500m", memory="8GiB", vms=3))


def run(url: str, test: Callable[[Store, Projects], Awaitable[None]]) -> None:
    async def both() -> None:
        async with opened(url) as store:
            await test(store, Projects(store))
            assert (await doctor(store)).findings == []

    asyncio.run(both())


async def place(store: Store, *vms: str) -> list[Verdict]:
    asked = [proposal(vm, project="lab") for vm in vms]
    return [o.verdict for o in await store.claim(asked, ["ann"] * len(asked), 0)]


def test_a_project_shows_its_quota_and_what_it_uses(database_url: str) -> None:
    async def test(store: Store, projects: Projects) -> None:
        await store.write(lambda tx: add_host(tx, 1))
        made = await projects.create(LAB, ROOT)
        assert (made.cpu_milli.used, made.cpu_milli.quota) == (0, 2500)
        assert await place(store, "vm-1", "vm-2") == [Verdict.KEPT] * 2
        seen = await projects.get("lab", MEMBER)
        assert (seen.cpu_milli.used, seen.memory_bytes.used, seen.vms.used) == (2000, 2 * GIB, 2)
        assert (seen.memory_bytes.quota, seen.disk_bytes.quota) == (8 * GIB, None)
        assert await place(store, "vm-3") == [Verdict.QUOTA]

    run(database_url, test)


def test_members_see_their_own_project_and_no_other(database_url: str) -> None:
    async def test(store: Store, projects: Projects) -> None:
        await projects.create(LAB, ROOT)
        assert [p.name for p in (await projects.list(MEMBER)).projects] == ["lab"]
        assert [p.name for p in (await projects.list(ROOT)).projects] == ["default", "lab"]
        with pytest.raises(NotFound):
            await projects.get("default", MEMBER)
        with pytest.raises(NotFound):
            await projects.get("nowhere", ROOT)

    run(database_url, test)


def test_a_quota_below_what_is_used_is_accepted_and_noted(database_url: str) -> None:
    async def test(store: Store, projects: Projects) -> None:
        await store.write(lambda tx: add_host(tx, 1))
        await projects.create(LAB, ROOT)
        await place(store, "vm-1", "vm-2")
        seen = await projects.set_quota("lab", SetQuota(quota=QuotaBody(cpu=1)), ROOT)
        assert (seen.cpu_milli.used, seen.cpu_milli.quota, seen.vms.quota) == (2000, 1000, None)
        assert await place(store, "vm-3") == [Verdict.QUOTA]
        found = await doctor(store)
        assert found.ok
        assert [note.check for note in found.notes] == ["quota_below_use"]
        with pytest.raises(NotFound):
            await projects.set_quota("nowhere", SetQuota(quota=QuotaBody()), ROOT)

    run(database_url, test)


def test_a_name_is_taken_once(database_url: str) -> None:
    async def test(store: Store, projects: Projects) -> None:
        made = [projects.create(LAB, ROOT) for _ in range(5)]
        answers = await asyncio.gather(*made, return_exceptions=True)
        assert sum(isinstance(answer, Conflict) for answer in answers) == 4

    run(database_url, test)


def test_the_same_key_gives_the_same_answer_and_another_body_a_conflict(database_url: str) -> None:
    async def test(store: Store, projects: Projects) -> None:
        first = await projects.create(LAB, ROOT, "key-1")
        assert await projects.create(LAB, ROOT, "key-1") == first
        with pytest.raises(Conflict, match="idempotency"):
            await projects.create(CreateProject(name="lab"), ROOT, "key-1")
        with pytest.raises(Conflict, match="already"):
            await projects.create(LAB, Principal("other", "admin"), "key-1")
        # A create that failed has not used its key up.
        with pytest.raises(Conflict, match="already"):
            await projects.create(LAB, ROOT, "key-2")
        other = await projects.create(CreateProject(name="other"), ROOT, "key-2")
        assert other.name == "other"

    run(database_url, test)


def test_one_key_used_at_once_in_two_processes_makes_one_project(postgres_url: str) -> None:
    async def race() -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(postgres_url)) for _ in range(2)]
            made = await asyncio.gather(
                *(Projects(stores[n % 2]).create(LAB, ROOT, "key") for n in range(8))
            )
            assert all(each == made[0] for each in made)
            assert (await doctor(stores[0])).ok

    asyncio.run(race())


def test_only_an_empty_project_is_deleted(database_url: str) -> None:
    async def test(store: Store, projects: Projects) -> None:
        await store.write(lambda tx: add_host(tx, 1))
        await projects.create(LAB, ROOT)
        await place(store, "vm-1")
        with pytest.raises(Conflict, match="still has 1 VMs"):
            await projects.delete("lab", ROOT)
        await store.write(lambda tx: delete_vm(tx, "vm-1"))
        await projects.delete("lab", ROOT)
        with pytest.raises(NotFound):
            await projects.delete("lab", ROOT)
        with pytest.raises(Conflict):
            await projects.delete("default", ROOT)
        assert await place(store, "vm-2") == [Verdict.NO_PROJECT]

    run(database_url, test)


def test_a_vm_is_never_left_in_a_project_that_is_gone(postgres_url: str) -> None:
    async def race() -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(postgres_url)) for _ in range(2)]
            projects = Projects(stores[0])
            await stores[0].write(lambda tx: add_host(tx, 1))
            for turn in range(15):
                await projects.create(LAB, ROOT)
                verdicts, deleted = await asyncio.gather(
                    place(stores[1], f"vm-{turn}"),
                    projects.delete("lab", ROOT),
                    return_exceptions=True,
                )
                assert not isinstance(verdicts, BaseException)
                kept = verdicts == [Verdict.KEPT]
                assert kept == isinstance(deleted, Conflict)
                if kept:
                    await stores[0].write(lambda tx: delete_vm(tx, f"vm-{turn}"))  # noqa: B023
                    await projects.delete("lab", ROOT)
            assert (await doctor(stores[0])).ok

    asyncio.run(race())


@pytest.mark.parametrize("quota", [{"memory": "8Gb"}, {"cpu": "x"}, {"cpu": 0.0001}])
def test_a_quota_that_makes_no_sense_is_refused(sqlite_url: str, quota: dict[str, object]) -> None:
    async def test(store: Store, projects: Projects) -> None:
        with pytest.raises(InvalidRequest):
            await projects.create(CreateProject(name="lab", quota=QuotaBody(**quota)), ROOT)  # type: ignore[arg-type]

    run(sqlite_url, test)
