"""Metrics that people are woken by: hosts, waiting VMs, leases; and the alert rules on them."""

import asyncio
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from roost.base.errors import NotFound, Unavailable
from roost.control.memory.follower import COUNTED
from roost.control.vms.counting import PATIENCE_S, PERIOD_S, STALE_S
from roost.control.vms.states import STATES
from roost.ledger.store import DatabaseContended, DatabaseUnavailable, InDoubt
from roost.testing.clock import HandClock
from tests.api.planes import SmallPlane, small_plane
from tests.integration.control.rig import ADMIN, OPERATOR, TIMERS, Rig, body_of, run, run_two
from tests.prometheus import find_prometheus
from tests.unit.docs.test_deploy import known_metrics

DEPLOYED = Path(__file__).parents[3] / "deploy" / "prometheus"


async def told(rig: Rig | SmallPlane) -> dict[str, float]:
    """Return every sample of a plane."""
    text = (await rig.plane.metrics.text()).decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_a_silent_host_and_a_waiting_vm_are_in_the_metrics(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.host("h1")
        h2 = await rig.host("h2")
        await rig.create("waits", cpu=64, on_no_fit="queue")
        await rig.pass_by(20)
        h2.disconnect()
        await rig.pass_by(100)
        found = await told(rig)
        assert found['roost_host_up{host="h1"}'] == 1
        assert found['roost_host_up{host="h2"}'] == 0
        assert found['roost_hosts{admin="open",health="offline"}'] == 1
        assert found['roost_hosts{admin="open",health="online"}'] == 1
        assert found["roost_queue_oldest_seconds"] >= 100
        assert found["process_resident_memory_bytes"] > 0
        assert found["roost_leases_held"] > 0

    run(database_url, story)


async def events(rig: Rig) -> dict[str, float]:
    """Return how many events of each kind a plane has counted, without those of no kind."""
    kinds = {re.fullmatch(r'roost_events_total{kind="(.+)"}', name): value
             for name, value in (await told(rig)).items()}  # fmt: skip
    return {kind[1]: value for kind, value in kinds.items() if kind is not None and value}


def test_moves_are_counted_and_those_that_are_abandoned(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("vm")
        await rig.host("h2")
        await rig.move("vm", "h2")
        seen = await events(rig)
        assert (seen["vm.created"], seen["vm.move_begun"], seen["vm.moved"]) == (1, 1, 1)
        assert "vm.move_abandoned" not in seen
        await rig.migrate("vm", "h1")
        await rig.plane.moves.cancel("vm", None, OPERATOR)
        await rig.settle()
        assert await rig.state("vm") == ("running", "h2")
        seen = await events(rig)
        assert (seen["vm.move_begun"], seen["vm.moved"], seen["vm.move_abandoned"]) == (2, 1, 1)

    run(database_url, story)


def test_a_lost_host_is_counted_and_what_is_recovered_from_it(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.host("h1", guard=5.0)
        await rig.running("vm", restart="elsewhere")
        await rig.host("h2")
        assert not {"host.offline", "host.fenced", "vm.recovered"} & (await events(rig)).keys()
        rig.agents["h1"].disconnect()
        await rig.pass_by(2 * TIMERS.lease_s + TIMERS.offline_s, silent=("h1",))
        await rig.settle()
        assert await rig.state("vm") == ("running", "h2")
        seen = await events(rig)
        assert (seen["host.offline"], seen["host.fenced"], seen["vm.recovered"]) == (1, 1, 1)

    run(database_url, story)


def test_every_process_counts_the_events_of_all(postgres_url: str) -> None:
    async def story(one: Rig, two: Rig) -> None:
        await one.host("h1")
        await one.running("a")
        await two.plane.follower.catch_up()
        await two.create("b")
        await one.plane.follower.catch_up()
        counted = await events(one)
        assert counted == await events(two)
        assert counted["vm.created"] == 2

    run_two(postgres_url, story)


async def states(rig: Rig | SmallPlane) -> dict[str, float]:
    """Return how many VMs are in each state by the metrics."""
    found = await told(rig)
    return {word: found[f'roost_vms{{state="{word}"}}'] for word in STATES
            if f'roost_vms{{state="{word}"}}' in found}  # fmt: skip


def test_vms_are_counted_by_what_they_are_shown_as(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        nothing = dict.fromkeys(STATES, 0.0)
        assert await states(rig) == nothing
        h1 = await rig.host("h1")
        await rig.running("a")
        await rig.running("b")
        await rig.create("waits", cpu=64, on_no_fit="queue")
        await rig.plane.vms.stop("b", None, OPERATOR)
        await rig.settle()
        await rig.pass_by(PERIOD_S)
        assert await states(rig) == nothing | {"running": 1, "stopped": 1, "pending": 1}
        h1.disconnect()
        await rig.pass_by(TIMERS.offline_s + PERIOD_S)
        assert await states(rig) == nothing | {"unknown": 2, "pending": 1}

    run(database_url, story)


def test_vms_are_counted_when_something_has_happened_and_not_at_every_scrape() -> None:
    async def story() -> None:
        clock = HandClock()
        async with small_plane(clock=clock) as plane:

            async def asked() -> int:
                before = plane.store.reads
                await states(plane)
                return plane.store.reads - before

            assert [await asked() for _ in range(2)] == [1, 0]
            clock.move(1000)
            assert await asked() == 0, "nothing has happened"
            await plane.plane.admit.create(body_of("web"), ADMIN, None, b"")
            assert [await asked() for _ in range(2)] == [1, 0]
            await plane.plane.admit.create(body_of("db"), ADMIN, None, b"")
            clock.move(PERIOD_S - 1)
            assert await asked() == 0, "it was asked a moment ago"
            clock.move(1)
            assert await asked() == 1
            assert (await states(plane))["starting"] == 2

    asyncio.run(story())


def test_a_scrape_waits_little_for_the_database_and_tells_no_numbers_that_are_old() -> None:
    async def story() -> None:
        clock = HandClock()
        async with small_plane(clock=clock) as plane:
            assert len(await states(plane)) == len(STATES)
            await plane.plane.admit.create(body_of("web"), ADMIN, None, b"")
            clock.move(PERIOD_S)
            plane.store.hold()
            for wait_s, known in ((PATIENCE_S, True), (STALE_S, False)):
                scraping = asyncio.create_task(states(plane))
                await clock.settle()
                assert not scraping.done()
                clock.move(wait_s)
                assert bool(await scraping) == known
            plane.store.let_go()
            await clock.settle()
            assert (await states(plane))["starting"] == 1
            await plane.plane.admit.create(body_of("db"), ADMIN, None, b"")
            clock.move(PERIOD_S)
            plane.store.failure = DatabaseUnavailable("the disk is full")
            assert await states(plane) == {}

    asyncio.run(story())


@pytest.mark.parametrize(
    ("failure", "word"),
    [
        (DatabaseUnavailable("the disk is full"), "unavailable"),
        (DatabaseContended("too many"), "contended"),
        (InDoubt("it went away"), "in_doubt"),
    ],
    ids=["unavailable", "contended", "in doubt"],
)
def test_what_the_database_does_not_take_is_counted(failure: Exception, word: str) -> None:
    async def story() -> None:
        async with small_plane() as plane:
            line = 'roost_database_errors_total{error="%s",op="%s"}'
            before = await told(plane)
            assert before[line % (word, "write")] == before[line % (word, "claim")] == 0
            plane.store.failure = failure
            with pytest.raises(DatabaseUnavailable):
                await plane.plane.leases.tick()
            with pytest.raises(DatabaseUnavailable):
                await plane.plane.vms.get("web", None, ADMIN)
            with pytest.raises(Unavailable):
                await plane.plane.admit.create(body_of("web"), ADMIN, None, b"")
            found = await told(plane)
            assert [found[line % (word, op)] for op in ("read", "write", "claim")] == [1, 1, 1]
            plane.store.failure = None
            with pytest.raises(NotFound):
                await plane.plane.vms.get("web", None, ADMIN)
            assert (await told(plane))[line % (word, "read")] == 1, "no VM is no error of it"

    asyncio.run(story())


def test_how_long_the_database_takes_is_in_the_metrics() -> None:
    async def story() -> None:
        clock = HandClock()
        async with small_plane(clock=clock) as plane:
            name = "roost_database_duration_seconds"
            before = await told(plane)
            plane.store.hold()
            writing = asyncio.create_task(plane.plane.leases.tick())
            await plane.store.waits()
            clock.move(0.3)
            plane.store.let_go()
            await writing
            found = await told(plane)
            grown = {line: found[line] - before[line] for line in found if line.startswith(name)}
            assert grown[f'{name}_sum{{op="write"}}'] == pytest.approx(0.3)
            assert grown[f'{name}_bucket{{le="0.2",op="write"}}'] == 0
            assert grown[f'{name}_bucket{{le="0.5",op="write"}}'] == 1
            assert grown[f'{name}_count{{op="claim"}}'] == 0

    asyncio.run(story())


def test_kinds_that_are_counted_are_kinds_of_events() -> None:
    page = (DEPLOYED.parents[1] / "docs" / "reference" / "events.md").read_text()
    assert [kind for kind in COUNTED if f"`{kind}`" not in page] == []


def test_every_metric_of_an_alert_is_one_that_a_server_tells(database_url: str) -> None:
    rules = yaml.safe_load((DEPLOYED / "roost.rules.yml").read_text())["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"\broost_\w+", rule["expr"])}
    assert len(asked) > 8

    async def story(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("vm")
        names = {name.partition("{")[0] for name in await told(rig)}
        assert asked <= names

    run(database_url, story)


def test_every_metric_that_a_server_tells_is_in_the_reference(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("vm")
        names = {re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0])
                 for name in await told(rig)}  # fmt: skip
        ours = {name for name in names if name.startswith("roost_")}
        assert {name for name in ours if not name.endswith("_created")} - known_metrics() == set()

    run(database_url, story)


@pytest.mark.parametrize("arguments", [("check", "rules", "roost.rules.yml"),
                                       ("test", "rules", "roost.rules.test.yml")])  # fmt: skip
def test_promtool_accepts_the_alert_rules(arguments: tuple[str, ...]) -> None:
    program = find_prometheus().with_name("promtool")
    done = subprocess.run(
        [program, *arguments], cwd=DEPLOYED, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
