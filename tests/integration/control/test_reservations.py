"""Reservations: kept from everybody else on every path, drawn on by their owners, ended in time."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict, InvalidRequest, NoFit, NotFound
from roost.base.timestamps import timestamp
from roost.control.reservations import reading
from roost.ledger.claims.holding import HELD
from roost.ledger.schema.tables import host_amounts
from roost.ledger.writes.transaction import Tx
from roost.model.kept import NOTHING_KEPT
from roost.parts.access import Principal
from roost.wire.bodies import CreateProject, CreateVMs, DemandBody, DryRun, MigrateVM, ResizeVM
from roost.wire.constraints import CreateConstraint
from roost.wire.policies import ApplyPolicy, CreatePolicy, PolicyRuleBody
from roost.wire.reservations import (
    AskCalendar,
    ChangeReservation,
    CreateReservation,
    ListReservations,
    ReservationDetail,
)
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, body_of, digest_of, run

MINUTE_MS = 60_000


async def reserve(rig: Rig, name: str = "r", cores: int = 4, **given: Any) -> ReservationDetail:
    key = given.pop("key", None)
    if not given.keys() & {"user", "purpose"}:
        given.setdefault("project", "shop")
    demand = DemandBody(cpu=cores, memory=f"{cores}GiB")
    body = CreateReservation(name=name, demand=demand, **given)
    return await rig.plane.reservations.create(body, ADMIN, key)


async def shop(rig: Rig, *hosts: str, cpu: int = 4) -> None:
    for host in hosts or ("h1",):
        await rig.host(host, cpu=cpu, memory=64)
    await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)


def at(rig: Rig, minutes: float) -> str:
    """Return the moment that is so many minutes from now."""
    return timestamp(rig.clock.wall_ms() + round(minutes * MINUTE_MS))


def test_only_its_owner_gets_what_is_reserved(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        made = await reserve(rig, cores=3)
        assert (made.state, [unit.host for unit in made.placed]) == ("live", ["h1"])
        await rig.create("open", cpu=1)
        with pytest.raises(NoFit, match="held") as refused:
            await rig.create("more", cpu=1)
        assert "held" in str(refused.value.as_json())
        for name in ("own-1", "own-2", "own-3"):
            await rig.create(name, project="shop", cpu=1)
        assert (await rig.plane.reservations.get("r", ADMIN)).drawn == 3
        with pytest.raises(NoFit):
            await rig.create("own-4", project="shop", cpu=1)
        await rig.settle()
        await rig.plane.vms.delete("own-2", "shop", ADMIN)
        await rig.settle()
        with pytest.raises(NoFit):
            await rig.create("more", cpu=1)
        await rig.create("own-5", project="shop", cpu=1)
        await rig.settle()

    run(database_url, test, dated=True)


def test_a_deleted_reservation_lets_go_and_its_vms_run_on(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=4)
        await rig.running("own", project="shop", cpu=1)
        await rig.plane.reservations.delete("r", ADMIN)
        await rig.create("more", cpu=3)
        await rig.settle()
        assert (await rig.get("own", "shop")).state == "running"
        with pytest.raises(NotFound):
            await rig.plane.reservations.get("r", ADMIN)

    run(database_url, test, dated=True)


def test_a_short_vm_uses_the_room_before_and_is_deleted_at_its_time(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=4, start=at(rig, 2))
        with pytest.raises(NoFit, match="held"):
            await rig.create("long", cpu=1)
        with pytest.raises(NoFit):
            await rig.create("too-long", cpu=1, until=at(rig, 3))
        made = await rig.running("short", cpu=4, until=at(rig, 1))
        assert made.until is not None
        await rig.pass_by(70)
        await rig.settle()
        with pytest.raises(NotFound):
            await rig.get("short")
        await rig.pass_by(60)
        assert (await rig.plane.reservations.get("r", ADMIN)).state == "live"
        await rig.running("own", project="shop", cpu=4)

    run(database_url, test, dated=True)


def test_a_reservation_is_ended_in_time(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=4, end=at(rig, 1))
        with pytest.raises(NoFit):
            await rig.create("open", cpu=1)
        await rig.pass_by(70)
        assert (await rig.plane.reservations.get("r", ADMIN)).state == "ended"
        await rig.create("open", cpu=4)

    run(database_url, test, dated=True)


def test_one_that_was_over_while_nobody_looked_ends_and_does_not_keep_others(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, cpu=8)
        await reserve(rig, "a", recurrence="FREQ=DAILY;COUNT=70", lasts_s=3600)
        await reserve(rig, "b", end=at(rig, 1))
        rig.clock.move(75 * 86_400)
        await rig.pass_by(70)
        page = await rig.plane.reservations.list(ListReservations(), OPERATOR)
        assert {each.state for each in page.reservations} <= {"ended"}
        await rig.create("open", cpu=8)

    run(database_url, test, dated=True)


def test_units_are_on_hosts_that_keep_them_and_move_when_one_is_lost(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, "h1", "h2", "h3")
        made = await reserve(rig, cores=4, units=2)
        homes = sorted(unit.host or "" for unit in made.placed)
        assert len(set(homes)) == 2
        [spare] = {"h1", "h2", "h3"} - set(homes)
        await rig.plane.hosts.cordon(homes[0], ADMIN)
        await rig.pass_by(30)
        moved = await rig.plane.reservations.get("r", ADMIN)
        assert sorted(unit.host or "" for unit in moved.placed) == sorted([homes[1], spare])
        await rig.plane.hosts.cordon(spare, ADMIN)
        await rig.pass_by(30)
        lost = await rig.plane.reservations.get("r", ADMIN)
        assert lost.state == "unhonoured"
        assert "1 of 2" in lost.unhonoured
        await rig.plane.hosts.uncordon(homes[0], ADMIN)
        await rig.pass_by(30)
        assert (await rig.plane.reservations.get("r", ADMIN)).state == "live"

    run(database_url, test, dated=True)


def test_a_host_that_is_silent_for_a_moment_keeps_its_units(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, "h1", "h2")
        made = await reserve(rig, cores=4)
        [home] = [unit.host for unit in made.placed]
        assert home is not None
        await rig.pass_by(24, silent=(home,))
        assert (await rig.plane.hosts.get(home)).health == "suspect"
        assert (await rig.plane.reservations.get("r", ADMIN)).placed == made.placed
        await rig.pass_by(30)
        kept = await rig.plane.reservations.get("r", ADMIN)
        assert (kept.placed, kept.state) == (made.placed, "live")

    run(database_url, test, dated=True)


def test_a_unit_stays_with_the_vm_that_draws_on_it(database_url: str) -> None:
    """Moved, one unit would be kept for two VMs of its owner."""

    async def test(rig: Rig) -> None:
        await shop(rig, cpu=8)
        await reserve(rig, cores=4, units=2)
        await rig.host("h2", cpu=8, memory=64)
        await rig.running("own", project="shop", cpu=4)
        await rig.plane.hosts.cordon("h1", ADMIN)
        await rig.pass_by(30)
        apart = await rig.plane.reservations.get("r", ADMIN)
        assert sorted(unit.host or "" for unit in apart.placed) == ["h1", "h2"]
        assert apart.state == "live"
        await rig.plane.vms.delete("own", "shop", ADMIN)
        await rig.pass_by(30)
        both = await rig.plane.reservations.get("r", ADMIN)
        assert [unit.host for unit in both.placed] == ["h2", "h2"]

    run(database_url, test, dated=True)


def test_a_clock_that_jumps_gives_nothing_away(database_url: str) -> None:
    """Any VM that ends makes its host hold anew what it must; by that clock it is nothing."""

    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=3, start=at(rig, 60), end=at(rig, 180))
        rig.clock.ahead_s = 30 * 86400
        await rig.pass_by(10)
        await rig.create("short", cpu=1, until=at(rig, 60 * 24 * 60))
        assert await cores_held(rig) == [3000]
        with pytest.raises(NoFit):
            await rig.create("thief", cpu=1)
        rig.clock.ahead_s = 0.0
        await rig.pass_by(30)
        rig.clock.move(3600)
        await rig.pass_by(20)
        own = await rig.create("own", project="shop", cpu=3)
        assert own.host == "h1"

    run(database_url, test, dated=True)


def test_an_owner_draws_after_a_jump_of_the_clock(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=4, start=at(rig, 60), end=at(rig, 180))
        rig.clock.ahead_s = 90 * 60
        await rig.pass_by(10)
        own = await rig.running("own", project="shop", cpu=4)
        assert own.host == "h1"

    run(database_url, test, dated=True)


async def give_away(rig: Rig) -> None:
    """Hold nothing on the only host, as a process does whose clock is past all windows."""

    def change(tx: Tx) -> None:
        [row] = tx.find_all(host_amounts)
        tx.change(host_amounts, {"host": row["host"]}, **dict.fromkeys(HELD, 0))
        tx.held[row["host"]] = NOTHING_KEPT
        tx.event("hosts.test", "host/h1", {})

    await rig.store.write(change)
    await rig.plane.follower.catch_up()


async def cores_held(rig: Rig) -> list[int]:
    return [row["cpu_milli_held"] for row in await rig.rows(select(host_amounts))]


def test_room_that_was_given_away_is_held_again_where_it_is_free(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=3, start=at(rig, 60), end=at(rig, 180))
        await give_away(rig)
        assert await cores_held(rig) == [0]
        await rig.pass_by(10)
        assert await cores_held(rig) == [3000]
        assert (await rig.plane.reservations.get("r", ADMIN)).state == "waiting"

    run(database_url, test, dated=True)


def test_a_reservation_whose_room_was_taken_says_so_until_it_is_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=3, start=at(rig, 60), end=at(rig, 180))
        await give_away(rig)
        rig.shrunk = True  # what is held again is not there
        for name in ("one", "two"):
            await rig.create(name, cpu=1)
        await rig.pass_by(20)
        lost = await rig.plane.reservations.get("r", ADMIN)
        assert lost.state == "unhonoured"
        assert "1 of 1 units" in lost.unhonoured
        troubles = [each.message for each in (await rig.plane.doctor()).troubles]
        assert any("'r' is not honoured" in each for each in troubles)
        with pytest.raises(NoFit):
            await rig.create("three", cpu=1)
        await rig.plane.vms.delete("one", None, ADMIN)
        await rig.pass_by(30)
        assert (await rig.plane.reservations.get("r", ADMIN)).state == "waiting"

    run(database_url, test, dated=True)


def test_what_cannot_be_honoured_is_refused_with_when_and_where_it_could(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=4, memory=64, zone="a")
        await rig.host("h2", cpu=4, memory=64, zone="b")
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        later = at(rig, 2)
        await reserve(rig, "first", cores=4, end=later, hosts=["h1"])
        with pytest.raises(Conflict) as refused:
            await reserve(rig, "second", cores=4, zones=["a"], end=at(rig, 1))
        assert refused.value.details["later"] == later
        assert "on other hosts" in (refused.value.hint or "")
        with pytest.raises(Conflict) as refused:
            await reserve(rig, "third", cores=4, units=5)
        assert "1 of 5" in str(refused.value)
        await reserve(rig, "second", cores=4, zones=["a"], start=later, end=at(rig, 3))

    run(database_url, test, dated=True)


def test_the_nearest_start_may_be_an_earlier_one(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        earlier, later = at(rig, 30), at(rig, 120)
        await reserve(rig, "busy", start=at(rig, 60), end=later)
        with pytest.raises(Conflict, match="0 of 1 units fit") as refused:
            await reserve(rig, "asked", start=at(rig, 50), end=at(rig, 80))
        assert (refused.value.details["start"], refused.value.details["later"]) == (earlier, None)
        with pytest.raises(Conflict) as refused:
            await reserve(rig, "asked", start=at(rig, 100), end=at(rig, 130))
        assert refused.value.details["start"] == refused.value.details["later"] == later
        with pytest.raises(Conflict) as refused:  # without an end only a later one could do
            await reserve(rig, "asked", start=at(rig, 50))
        assert refused.value.details["start"] == later
        await reserve(rig, "asked", start=earlier, end=at(rig, 60))

    run(sqlite_url, test, dated=True)


def test_a_start_that_is_far_off_is_found_behind_many_that_will_not_do(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        daily = {"recurrence": "FREQ=DAILY;COUNT=50", "lasts_s": 23 * 3600, "start": at(rig, 1)}
        busy = await reserve(rig, "busy", **daily)
        with pytest.raises(Conflict) as refused:
            await reserve(rig, "asked", start=at(rig, 2), end=at(rig, 122))
        assert refused.value.details["start"] == busy.windows[-1].end

    run(sqlite_url, test, dated=True)


def test_other_hosts_are_named_first_those_of_the_zone_that_was_asked_for(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name, zone in (("h1", "a"), ("h2", "b"), ("h3", "a")):
            await rig.host(name, cpu=4, memory=64, zone=zone)
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        await reserve(rig, "first", hosts=["h1"])
        with pytest.raises(Conflict) as refused:
            await reserve(rig, "second", hosts=["h1"], zones=["a"])
        assert refused.value.details["hosts"] == ["h3"]
        assert "on other hosts, as it is: h3" in (refused.value.hint or "")
        with pytest.raises(Conflict) as refused:
            await reserve(rig, "second", units=2, rule='host.name == "h1" || host.name == "h3"')
        assert refused.value.details["hosts"] == ["h2", "h3"]
        with pytest.raises(Conflict) as refused:
            await reserve(rig, "second", units=3, zones=["a"])
        assert (refused.value.details["hosts"], refused.value.details["elsewhere"]) == ([], 2)

    run(sqlite_url, test, dated=True)


async def two_zones(rig: Rig) -> None:
    """Let hosts join of which the engine would take the one in zone b for a unit."""
    await rig.host("in-b", cpu=4, memory=64, zone="b")
    await rig.host("in-a", cpu=8, memory=64, zone="a")
    await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)


async def only_zone_a(rig: Rig, name: str = "near", expression: str = 'host.zone == "a"') -> None:
    body = CreateConstraint(name=name, expression=expression, project="shop")
    await rig.plane.constraints.create(body, ADMIN)


async def drawn_on_in_zone_a(rig: Rig) -> None:
    """Reserve, and see the unit where the project's VMs may go and one of them draw on it."""
    made = await reserve(rig, cores=4)
    assert [unit.host for unit in made.placed] == ["in-a"]
    await rig.create("open-a", cpu=4)
    await rig.create("open-b", cpu=4)
    assert (await rig.create("own", project="shop", cpu=1)).host == "in-a"
    assert (await rig.plane.reservations.get("r", ADMIN)).drawn == 1


def test_units_go_where_the_rules_of_their_project_let_its_vms_go(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_zones(rig)
        await only_zone_a(rig)
        await drawn_on_in_zone_a(rig)
        with pytest.raises(Conflict, match="'shop/near' does not hold on 1 host") as refused:
            await reserve(rig, "more", cores=4)
        assert refused.value.details["rules"] == ["shop/near"]

    run(database_url, test, dated=True)


def test_units_go_where_the_default_policy_of_their_project_lets_its_vms_go(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await two_zones(rig)
        rules = [PolicyRuleBody(name="near", expression='host.zone == "a"')]
        await rig.plane.policies.create(CreatePolicy(name="calm", rules=rules), ADMIN)
        await rig.plane.policies.apply("shop", ApplyPolicy(policy="calm"), ADMIN)
        await drawn_on_in_zone_a(rig)
        with pytest.raises(Conflict, match="calm/near"):
            await reserve(rig, "more", cores=4)

    run(database_url, test, dated=True)


def test_a_unit_that_moves_goes_where_its_project_may(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_zones(rig)
        await only_zone_a(rig)
        await reserve(rig, cores=4)
        await rig.plane.hosts.cordon("in-a", ADMIN)
        await rig.pass_by(70)
        assert (await rig.plane.reservations.get("r", ADMIN)).state == "unhonoured"
        await rig.host("also-a", cpu=4, memory=64, zone="a")
        await rig.pass_by(70)
        found = await rig.plane.reservations.get("r", ADMIN)
        assert [unit.host for unit in found.placed] == ["also-a"]

    run(database_url, test, dated=True)


def test_what_rules_count_of_a_project_now_keeps_no_unit_from_a_host(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await two_zones(rig)
        await only_zone_a(rig, expression='host.zone == "a" && project.vms < 1')
        await rig.create("first", project="shop", cpu=1)
        made = await reserve(rig, cores=4, start=at(rig, 5))
        assert [unit.host for unit in made.placed] == ["in-a"]

    run(database_url, test, dated=True)


def test_a_purpose_must_be_named_and_a_user_is_whoever_creates(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, "drill", cores=2, purpose="fire drill")
        await reserve(rig, "mine", cores=2, user="olga")
        with pytest.raises(NoFit):
            await rig.create("open", cpu=1, who=Principal("otto", "operator"))
        await rig.create("hers", cpu=2)
        with pytest.raises(NoFit):
            await rig.create("drilled", cpu=1)
        await rig.create("drilled", cpu=2, reservation="drill")
        assert (await rig.plane.reservations.get("drill", ADMIN)).drawn == 1

    run(database_url, test, dated=True)


def test_moves_resizes_and_the_queue_honour_a_reservation(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, "h1", "h2")
        await reserve(rig, cores=3, hosts=["h2"])
        await rig.running("grow", cpu=1, constraints={"hosts": ["h2"]})
        with pytest.raises((Conflict, NoFit)):
            await rig.plane.vms.resize("grow", None, ResizeVM(cpu=2), ADMIN)
        await rig.running("big", cpu=2, constraints={"hosts": ["h1"]})
        with pytest.raises((Conflict, NoFit)):
            await rig.plane.moves.migrate("big", None, MigrateVM(host="h2"), ADMIN)
        await rig.create("waits", cpu=3, on_no_fit="queue")
        await rig.pass_by(30)
        assert (await rig.get("waits")).state == "pending"
        own = await rig.running("own", project="shop", cpu=3)
        assert own.host == "h2"
        await rig.settle()

    run(database_url, test, dated=True)


def test_bad_reservations_are_refused(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        for said, given in (
            ("in the past", {"start": at(rig, -9)}),
            ("in the past", {"end": at(rig, -9)}),
            ("not after the start", {"start": at(rig, 2), "end": at(rig, 1)}),
            ("no time zone", {"timezone": "Mars/Olympus"}),
            ("cannot be read", {"recurrence": "FREQ=DAILY;BYDAY=XX", "lasts_s": 60}),
            ("how long", {"recurrence": "FREQ=DAILY"}),
            ("counts by MINUTELY", {"recurrence": "FREQ=MINUTELY", "lasts_s": 60}),
            ("never happens", {"recurrence": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "lasts_s": 60}),
            ("no moment", {"start": "tomorrow"}),
            ("no host", {"hosts": ["nowhere"]}),
            ("for a project, for a user", {"project": "shop", "user": "olga"}),
        ):
            with pytest.raises(InvalidRequest, match=said):
                await reserve(rig, **given)
        with pytest.raises(InvalidRequest, match="in the past"):
            await rig.create("late", until=at(rig, -9))

    run(database_url, test, dated=True)


def test_the_same_key_reserves_once(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        first = await reserve(rig, key="k")
        again = await reserve(rig, key="k")
        assert first == again
        with pytest.raises(Conflict, match="another request"):
            await reserve(rig, cores=1, key="k")
        with pytest.raises(Conflict, match="already"):
            await reserve(rig, cores=1)

    run(database_url, test, dated=True)


def test_it_is_listed_changed_and_in_the_calendar(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, "h1", "h2")
        now = datetime.fromtimestamp(rig.clock.wall_ms() / 1000, UTC)
        await reserve(
            rig, cores=2, recurrence="FREQ=DAILY;COUNT=3", lasts_s=3600, start=now.isoformat()
        )
        page = await rig.plane.reservations.list(ListReservations(), OPERATOR)
        assert [row.name for row in page.reservations] == ["r"]
        lines = (await rig.plane.reservations.calendar(AskCalendar(), OPERATOR)).lines
        assert [line.cpu_milli for line in lines] == [2000, 2000, 2000]
        changed = await rig.plane.reservations.change("r", ChangeReservation(units=3), ADMIN)
        assert (changed.version, len(changed.placed)) == (2, 3)
        with pytest.raises(Conflict, match="cannot be honoured"):
            await rig.plane.reservations.change("r", ChangeReservation(units=9), ADMIN)
        with pytest.raises(Conflict, match="version"):
            await rig.plane.reservations.change("r", ChangeReservation(units=1, version=1), ADMIN)
        member = Principal("mia", "member", project="other")
        with pytest.raises(NotFound):
            await rig.plane.reservations.get("r", member)

    run(database_url, test, dated=True)


def test_list_and_calendar_come_in_pages_that_hold_what_the_asker_may_see(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, "h1", "h2", "h3")
        await rig.plane.projects.create(CreateProject(name="other"), ADMIN)
        now = datetime.fromtimestamp(rig.clock.wall_ms() / 1000, UTC).isoformat()
        daily = {"recurrence": "FREQ=DAILY;COUNT=3", "lasts_s": 3600, "start": now}
        await reserve(rig, "a", cores=3, units=3, **daily)
        await reserve(rig, "b", cores=1, project="other", **daily)
        await reserve(rig, "c", cores=1, **daily)
        member = Principal("mia", "member", project="shop")
        seen, asked = [], ListReservations(limit=1)
        while True:
            page = await rig.plane.reservations.list(asked, member)
            seen += [each.name for each in page.reservations]
            if page.next is None:
                break
            asked = ListReservations(limit=1, after=page.next)
        assert seen == ["a", "c"]
        monkeypatch.setattr(reading, "MOST_PLACES", 2)
        told: list[tuple[str, str]] = []
        question = AskCalendar(limit=2)
        while True:
            found = await rig.plane.reservations.calendar(question, OPERATOR)
            told += [(line.start, line.reservation) for line in found.lines]
            if not found.more:
                break
            question = AskCalendar(limit=2, after=found.next)
        whole = await rig.plane.reservations.calendar(AskCalendar(), OPERATOR)
        assert told == [(line.start, line.reservation) for line in whole.lines]
        assert [name for _, name in told] == ["a", "b", "c"] * 3
        assert whole.next is None
        first = whole.lines[0]
        assert (first.hosts, first.more_hosts) == (["h1", "h2"], 1)
        mine = await rig.plane.reservations.calendar(AskCalendar(host="h1"), member)
        assert {line.reservation for line in mine.lines} <= {"a", "c"}
        with pytest.raises(InvalidRequest, match="next"):
            await rig.plane.reservations.calendar(AskCalendar(after="soon"), OPERATOR)

    run(database_url, test, dated=True)


def test_what_a_vm_draws_on_goes_with_it_and_is_given_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, "h1", "h2")
        await reserve(rig, cores=3, units=2)
        own = await rig.running("own", project="shop", cpu=3, restart="elsewhere")
        assert own.host is not None
        [other] = {"h1", "h2"} - {own.host}
        await rig.plane.moves.migrate("own", "shop", MigrateVM(host=other), ADMIN)
        await rig.settle()
        moved = await rig.get("own", "shop")
        assert moved.host == other
        with pytest.raises(NoFit):
            await rig.create("open", cpu=2)
        again = await rig.running("again", project="shop", cpu=3)
        assert again.host == own.host
        with pytest.raises(NoFit):
            await rig.create("open", cpu=2)
        await rig.create("open", cpu=1)

    run(database_url, test, dated=True)


def test_a_dry_run_sees_what_the_create_would(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=4, start=at(rig, 2))

        async def tried(**given: Any) -> str:
            body = DryRun(name="vm", demand=DemandBody(cpu=2, memory="1GiB"), **given)
            answer = await rig.plane.questions.dry_run(body, ADMIN)
            return type(answer).__name__

        assert await tried() == "RejectionBody"
        assert await tried(until=at(rig, 1)) == "PlacementBody"
        assert await tried(until=at(rig, 3)) == "RejectionBody"
        assert await tried(project="shop", reservation="r") == "PlacementBody"

    run(database_url, test, dated=True)


def test_batches_and_groups_keep_to_reservations(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, "h1", "h2")
        await reserve(rig, cores=3, hosts=["h1"])
        apart = [{"name": "web", "rule": "anti-affinity"}]
        vms = [body_of(f"web-{n}", cpu=2, groups=apart) for n in range(2)]
        for atomic in (True, False):
            many = CreateVMs(vms=vms, atomic=atomic)
            if atomic:
                with pytest.raises(NoFit):
                    await rig.plane.admit.create_many(many, ADMIN, None, digest_of(many))
                continue
            made = await rig.plane.admit.create_many(many, ADMIN, None, digest_of(many))
            assert sorted(item.id is not None for item in made.batch.results) == [False, True]
        own = CreateVMs(vms=[body_of(f"own-{n}", project="shop", cpu=1) for n in range(3)])
        made = await rig.plane.admit.create_many(own, ADMIN, None, digest_of(own))
        assert all(item.id is not None for item in made.batch.results)
        assert (await rig.plane.reservations.get("r", ADMIN)).drawn == 3

    run(database_url, test, dated=True)


def test_vms_of_a_lost_host_draw_on_the_units_that_moved(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("h1", "h2"):
            await rig.host(name, cpu=4, memory=64, guard=1.5)
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        await reserve(rig, cores=3, hosts=["h1", "h2"])
        own = await rig.running("own", project="shop", cpu=3, restart="elsewhere")
        home = own.host
        assert home is not None
        rig.agents[home].disconnect()
        await rig.pass_by(200, silent=(home,))
        [left] = {"h1", "h2"} - {home}
        detail = await rig.plane.reservations.get("r", ADMIN)
        assert [unit.host for unit in detail.placed] == [left]
        assert (await rig.get("own", "shop")).host == left
        with pytest.raises(NoFit):
            await rig.create("open", cpu=2)

    run(database_url, test, dated=True)
