"""A plane that samples its own fleet: what is wrong with it is said loudly, and harms nobody."""

import logging

import pytest

from roost.fleet import check
from tests.integration.control.rig import Rig, run


async def _doctor(rig: Rig) -> list[str]:
    return [f"{f.check}: {f.message}" for f in (await rig.plane.doctor()).findings]


def test_a_wrong_sum_is_logged_counted_and_found_until_it_is_right(
    sqlite_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.running("web")
        fleet, looks = rig.plane.roster.fleet, rig.plane.fleet_check
        await looks.sample()
        assert looks.wrong == []
        assert b"roost_fleet_wrong 0.0" in rig.plane.telemetry.text()
        committed = fleet.hosts.arrays.committed
        committed[fleet.row("a"), 0] += 7
        fleet.changes.add(fleet.row("a"))
        with caplog.at_level(logging.ERROR, "roost.fleet"):
            for _ in range(3):
                await looks.sample()
        told = [each for each in caplog.records if each.name == "roost.fleet"]
        assert len(told) == 1, "it is said once"
        assert "committed of host 'a'" in caplog.text
        assert b"roost_fleet_wrong 1.0" in rig.plane.telemetry.text()
        [said] = await _doctor(rig)
        assert said.startswith("fleet: column committed of host 'a' is [1007, ")
        await rig.create("another")  # it goes on
        committed[fleet.row("a"), 0] -= 7
        await looks.sample()
        assert looks.wrong == []
        assert await _doctor(rig) == []

    run(sqlite_url, test)


def test_every_host_and_group_is_looked_at_piece_by_piece(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "MOST_HOSTS", 2)
    monkeypatch.setattr(check, "MOST_GROUPS", 1)

    async def test(rig: Rig) -> None:
        for name in "abcde":
            await rig.host(name)
        for name in ("one", "two", "three"):
            group = {"name": f"group-{name}", "rule": "anti-affinity"}
            await rig.create(name, groups=[group])
        await rig.settle()
        fleet, looks = rig.plane.roster.fleet, rig.plane.fleet_check
        fleet.groups.arrays.members[2] += 1
        fleet.hosts.arrays.takes[fleet.row("e")] = False
        wrong = []
        for _ in range(3):  # five hosts by two, three groups by one
            await looks.sample()
            wrong.append(len(looks.wrong))
        assert wrong == [0, 0, 2]
        assert "column takes of host 'e' is False and should be True" in looks.wrong
        assert any("group-three" in said and "counts 2" in said for said in looks.wrong)
        fleet.groups.arrays.members[2] -= 1
        fleet.hosts.arrays.takes[fleet.row("e")] = True
        for _ in range(3):
            await looks.sample()
        assert looks.wrong == []

    run(sqlite_url, test)


def test_a_fleet_that_was_right_is_not_added_up_again_until_it_changes(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    real = check.wrong_hosts

    def counted(*given):
        looked.append(1)
        return real(*given)

    monkeypatch.setattr(check, "wrong_hosts", counted)

    async def test(rig: Rig) -> None:
        await rig.host("a")
        for _ in range(4):
            await rig.plane.fleet_check.sample()
        assert len(looked) == 1
        await rig.running("web", cpu=2)
        looked.clear()
        await rig.plane.fleet_check.sample()
        assert len(looked) == 1

    run(sqlite_url, test)
