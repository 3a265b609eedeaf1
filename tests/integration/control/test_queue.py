"""VMs that wait: their reason, their order, and that nobody starves."""

from roost.wire.bodies import ResizeVM
from tests.integration.control.rig import OPERATOR, Rig, run


async def queue(rig: Rig, name: str, cpu: int = 1, **given: object) -> None:
    made = await rig.create(name, cpu=cpu, on_no_fit="queue", **given)
    assert (made.state, made.host) == ("pending", None)
    assert made.pending is not None
    rig.clock.move(0.5)


async def placed(rig: Rig, *names: str) -> list[str]:
    """Return which of these VMs have a host after a look."""
    await rig.plane.run_singletons()
    await rig.check()
    rows = {name: await rig.row(name) for name in names}
    return [name for name, row in rows.items() if row is not None and row.host is not None]


def test_a_vm_waits_with_its_reason_until_a_host_joins(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await queue(rig, "web")
        seen = (await rig.get("web")).pending
        assert seen is not None
        assert seen.code == "no_available_agents"
        await rig.host("h1", cpu=1, memory=0)
        assert await placed(rig, "web") == []
        seen = (await rig.get("web")).pending
        assert seen is not None
        assert seen.code == "insufficient_resources"  # its reason lives
        await rig.host("h2")
        assert await placed(rig, "web") == ["web"]
        await rig.settle()
        assert await rig.state("web") == ("running", "h2")

    run(database_url, test)


def test_room_by_delete_by_uncordon_and_by_resizing_is_noticed(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2)
        await queue(rig, "a", cpu=2)
        await rig.plane.vms.delete("old", None, OPERATOR)
        assert await placed(rig, "a") == []
        await rig.settle()
        assert await placed(rig, "a") == ["a"]
        await rig.settle()
        await queue(rig, "b")
        await rig.host("h2", cpu=3)
        await rig.plane.hosts.cordon("h2", OPERATOR)
        await rig.plane.vms.resize("a", None, ResizeVM(cpu=1), OPERATOR)
        assert await placed(rig, "b") == []
        await rig.settle()
        assert await placed(rig, "b") == ["b"]
        await queue(rig, "c", cpu=2)
        await rig.plane.hosts.uncordon("h2", OPERATOR)
        assert await placed(rig, "c") == ["c"]
        await queue(rig, "d", cpu=3)
        await rig.plane.vms.resize("d", None, ResizeVM(cpu=1), OPERATOR)
        assert await placed(rig, "d") == ["d"]

    run(database_url, test)


def test_the_most_urgent_is_first_and_waiting_makes_urgent(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=1)
        await rig.running("old")
        await queue(rig, "patient")
        rig.clock.move(120)
        await queue(rig, "urgent", priority=5)
        await queue(rig, "hasty", priority=1)
        order = []
        for _ in range(3):
            for name in ("old", *order):
                if await rig.row(name) is not None:
                    await rig.plane.vms.delete(name, None, OPERATOR)
            await rig.settle()
            order += await placed(rig, *({"patient", "urgent", "hasty"} - set(order)))
            await rig.settle()
        assert order == ["urgent", "patient", "hasty"]

    run(database_url, test)


def test_nobody_overtakes_the_first_in_line_once_its_patience_is_over(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=3)
        for n in range(3):
            await rig.running(f"v{n}")
        await queue(rig, "big", cpu=3)
        rig.clock.move(30)
        await queue(rig, "small")
        await rig.plane.vms.delete("v0", None, OPERATOR)
        await rig.settle()
        assert await placed(rig, "big", "small") == ["small"]  # patience is not over yet
        await rig.settle()
        await queue(rig, "small2")
        rig.clock.move(100)
        for n in (1, 2):
            await rig.plane.vms.delete(f"v{n}", None, OPERATOR)
            await rig.settle()
            assert await placed(rig, "big", "small2") == []  # room adds up for the first
        await rig.plane.vms.delete("small", None, OPERATOR)
        await rig.settle()
        assert await placed(rig, "big", "small2") == ["big"]

    run(database_url, test, patience_s=60.0)


def test_a_vm_that_can_never_fit_keeps_nobody_waiting(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2)
        await queue(rig, "giant", cpu=64)
        await queue(rig, "elsewhere", constraints={"hosts": ["nowhere"]})
        rig.clock.move(1000)
        await queue(rig, "small")
        await rig.plane.vms.delete("old", None, OPERATOR)
        await rig.settle()
        assert await placed(rig, "giant", "elsewhere", "small") == ["small"]

    run(database_url, test, patience_s=60.0)


def test_whoever_waited_behind_one_that_is_deleted_is_tried(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=2)
        await rig.running("old")
        await rig.running("gone")
        await queue(rig, "big", cpu=2)
        await queue(rig, "small")
        rig.clock.move(100)
        await rig.plane.vms.delete("gone", None, OPERATOR)
        await rig.settle()
        assert await placed(rig, "big", "small") == []
        await rig.plane.vms.delete("big", None, OPERATOR)
        assert await rig.row("big") is None
        assert await placed(rig, "small") == ["small"]

    run(database_url, test, patience_s=60.0)


def test_a_queued_vm_is_changed_and_deleted_like_any_other(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await queue(rig, "web", labels={"app": "web"}, groups=[{"name": "g", "rule": "spread"}])
        await rig.plane.vms.stop("web", None, OPERATOR)
        await rig.check()
        await rig.host("h1")
        await rig.settle(keep=True)
        assert await rig.state("web") == ("stopped", "h1")
        await queue(rig, "other", cpu=9)
        await rig.restart()
        await rig.check()
        await rig.plane.vms.delete("other", None, OPERATOR)
        assert await rig.row("other") is None

    run(database_url, test)
