"""What a host said by an older connection must not overwrite what it said by a newer one."""

import pytest

from roost.control.agents.connections import ConnectionOrder
from roost.wire.agentlink import Report, SeenVM, encode
from tests.integration.control.rig import Rig, run, run_two


def test_a_report_that_waited_in_one_process_is_old_news_in_another(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        await one.host("h1")
        made = await one.running()
        row = await one.row("vm")
        assert row is not None
        assert row.host is not None
        await two.plane.follower.catch_up()
        fenced = SeenVM(made.id, row.generation, "stopped", code="no_lease", message="waits")
        runs = SeenVM(made.id, row.generation, "running")
        # The database is away for the second process; the agent has gone on at the first.
        two.plane.intake.report(row.host, [fenced], [], ConnectionOrder("first", 2))
        one.plane.intake.report(row.host, [runs], None, ConnectionOrder("first", 3))
        await one.plane.intake.flush()
        await two.plane.intake.flush()
        now = await one.row("vm")
        assert now is not None
        assert now.observed == "running"

    run_two(postgres_url, test)


def test_the_newest_conversation_counts_and_another_life_of_the_agent_begins_anew(
    postgres_url: str,
) -> None:
    async def test(one: Rig, two: Rig) -> None:
        agent = await one.host("h1")
        made = await one.running()
        row = await one.row("vm")
        assert row is not None
        assert row.host is not None

        async def say(instance: str, number: int, seen: str) -> str:
            sighting = SeenVM(made.id, row.generation, seen)  # type: ignore[arg-type]
            one.plane.intake.report(row.host, [sighting], None, ConnectionOrder(instance, number))
            await one.plane.intake.flush()
            now = await one.row("vm")
            assert now is not None
            return now.observed

        assert await say("first", 7, "stopped") == "stopped"
        assert await say("first", 6, "running") == "stopped"
        assert await say("first", 7, "paused") == "paused"
        assert await say("second", 9, "running") == "paused", "nobody knows such an agent"
        agent.instance = "second"
        agent.connect(one.plane)
        await one.settle()
        assert await say("first", 99, "stopped") == "running", "it is dead"

    run_two(postgres_url, test)


def test_a_host_that_lets_vms_wait_to_be_destroyed_is_logged_now_and_then(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        for _ in range(50):
            agent.outbox.append(encode(Report(refused_destroying=3)))
            agent.speak()
        said = [line for line in caplog.messages if "wait" in line and "destroyed" in line]
        assert said == ["host h1 lets 3 VMs wait that are to be destroyed"]

    run(sqlite_url, test)
