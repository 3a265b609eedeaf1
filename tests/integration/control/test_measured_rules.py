"""Rules that read what agents measure: use and pressure, and what is not known or too old."""

from typing import Any

import pytest

from roost.base.errors import NoFit
from roost.control.rules import measuring
from roost.wire.agentlink import SampleInfo
from roost.wire.constraints import CreateConstraint, DryRunConstraint
from tests.integration.control.rig import ADMIN, Rig, run, run_two


async def two_hosts(rig: Rig) -> None:
    for name in ("h0", "h1"):
        await rig.host(name, cpu=8, memory=64)


async def measure(rig: Rig, host: str, cpu_milli: int, age_s: int = 0, **more: float) -> None:
    """Let a host's agent send a reading, and wait until that is in the store."""
    entry = rig.plane.roster.entry(host)
    assert entry is not None
    at_ms = rig.clock.wall_ms() - 1000 * age_s
    rig.plane.readings.take(entry.number, [SampleInfo("", at_ms, cpu_milli, 0, more=more)])
    await rig.plane.readings.flush()


async def rule(rig: Rig, expression: str, **more: Any) -> Any:
    body = CreateConstraint(name="r", expression=expression, **more)
    return await rig.plane.constraints.create(body, ADMIN)


async def look(rig: Rig) -> None:
    await rig.plane.constraints._measured.look()


def test_a_rule_reads_what_hosts_use(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await measure(rig, "h0", 7000)
        await measure(rig, "h1", 1000)
        await rule(rig, "host.used.cpu < 4000")
        assert (await rig.create("a")).host == "h1"
        rig.clock.move(10)
        await measure(rig, "h0", 100)
        await measure(rig, "h1", 7000)
        await look(rig)
        assert (await rig.create("b")).host == "h0"

    run(database_url, test)


async def nothing_old_passes(rig: Rig) -> None:
    await two_hosts(rig)
    await measure(rig, "h1", 1000)
    await rule(rig, "host.used.cpu < 4000")
    assert (await rig.create("a")).host == "h1"
    rig.clock.move(290)
    await look(rig)
    assert (await rig.create("b")).host == "h1"
    rig.clock.move(20)
    await look(rig)
    with pytest.raises(NoFit) as refused:
        await rig.create("c")
    assert "rule_error" in str(refused.value.details)


def test_what_is_not_known_or_old_never_passes(database_url: str) -> None:
    run(database_url, nothing_old_passes)


def test_a_build_that_does_not_look_at_the_age_is_found(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "MOST_AGE_MS", 10**9)
    with pytest.raises(pytest.fail.Exception):
        run(sqlite_url, nothing_old_passes)


def test_a_rule_reads_pressure(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await measure(rig, "h0", 1000, psi_io_some_avg10=40.0)
        await measure(rig, "h1", 1000, psi_io_some_avg10=2.5)
        body = DryRunConstraint(expression="host.pressure.io < 10.0")
        assert not (await rig.plane.constraints.dry_run(body, ADMIN)).locks_out
        await rule(rig, "host.pressure.io < 10.0")
        assert (await rig.create("a")).host == "h1"
        assert (await rig.plane.doctor()).findings == []

    run(sqlite_url, test)


def test_another_process_knows_it_too(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        await two_hosts(one)
        await two.plane.follower.catch_up()
        await measure(one, "h0", 7000)
        await measure(one, "h1", 1000)
        await rule(one, "host.used.cpu < 4000")
        await two.plane.follower.catch_up()
        await look(two)
        assert (await two.create("a")).host == "h1"

    run_two(postgres_url, test)


def test_hosts_above_a_bound_on_pressure_take_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_hosts(rig)
        await measure(rig, "h0", 100, psi_io_some_avg10=60.0)
        await measure(rig, "h1", 7000, psi_io_some_avg10=10.0)
        assert (await rig.create("at-first")).host == "h0"  # nothing was read yet
        await look(rig)
        assert (await rig.create("b")).host == "h1"
        rig.clock.move(60)
        await measure(rig, "h0", 100, psi_io_some_avg10=50.0)
        await measure(rig, "h1", 100, psi_io_some_avg10=51.0)
        await look(rig)
        assert (await rig.create("c")).host == "h0"
        # What is not known is above every bound.
        rig.clock.move(measuring.MOST_AGE_MS / 1000 + 1)
        await look(rig)
        with pytest.raises(NoFit) as refused:
            await rig.create("d")
        reasons = refused.value.details["rejection"]["reasons"]
        assert [(each["reason"], each["total"]) for each in reasons] == [("pressure", 2)]
        rig.plane.roster.fleet.set_pressure_bounds({})

    run(database_url, test, pressure_bounds={"io": 50.0})
