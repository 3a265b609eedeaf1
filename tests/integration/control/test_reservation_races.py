"""Reservations with two planes on one PostgreSQL: neither breaks one, nor draws on it twice."""

import asyncio
import contextlib
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection, select

from roost.base.errors import Conflict, InvariantBroken, NoFit, PlacementContended
from roost.base.timestamps import timestamp
from roost.ledger.claims import capacity, holding
from roost.ledger.claims.holdsums import FOREVER, Held, Living
from roost.ledger.postgres import claims as postgresclaims
from roost.ledger.schema.rows import ClaimRow, HoldRow
from roost.ledger.schema.tables import claims, holds, host_amounts, host_counters
from roost.model.kept import NOTHING_KEPT
from roost.wire.agentlink import DeviceInfo
from roost.wire.bodies import CreateProject
from roost.wire.reservations import CreateReservation, DemandBody
from tests.integration.control.rig import ADMIN, Rig, run_two

CORES = 4
_REFUSED = (NoFit, Conflict, PlacementContended)


def broken(connection: Connection, now_ms: int) -> list[str]:
    """Return where claims and live reservations exceed a host at some moment from now on."""
    found = []
    for host in connection.execute(select(host_amounts)).mappings():
        number = host["host"]
        rows = connection.execute(select(claims).where(claims.c.host == number)).mappings()
        living = [Living.of(ClaimRow(**row)) for row in rows]
        rows = connection.execute(select(holds).where(holds.c.host == number)).mappings()
        kept = [Held.of(HoldRow(**row)) for row in rows]
        moments = {now_ms, *(start for each in kept for start, _ in each.windows)}
        for at in sorted(moment for moment in moments if moment >= now_ms):
            for name, most in _capacities(connection, number, host["cpu_milli_capacity"]):
                load = _load(kept, living, at, now_ms, name)
                if load > most:
                    found.append(f"host {number} at {timestamp(at)}: {load} of {name or 'cpu'}")
    return found


def _capacities(connection: Connection, host: int, cpu_milli: int) -> list[tuple[str, int]]:
    counted = select(host_counters.c.counter, host_counters.c.capacity)
    rows = connection.execute(counted.where(host_counters.c.host == host))
    return [("", cpu_milli), *((name, most) for name, most in rows)]


def _of(each: Held | Living, name: str) -> int:
    return dict(each.counters).get(name, 0) if name else each.limits[0]


def _load(kept: Sequence[Held], living: Sequence[Living], at: int, now_ms: int, name: str) -> int:
    alive = [each for each in living if at < each.until_ms or each.until_ms <= now_ms]
    load = sum(_of(each, name) for each in alive)
    for owner in {each.owner for each in kept}:
        has = sum(
            _of(each, name)
            for each in kept
            if each.owner == owner and any(a <= at < b <= FOREVER for a, b in each.windows)
        )
        drawn = sum(_of(each, name) for each in alive if each.draws_on == owner)
        load += max(0, has - drawn)
    return load


async def hammer(first: Rig, second: Rig, seed: int) -> list[str]:
    """Reserve, create, create for a while and delete on both planes at once."""
    chance = Random(seed)
    for name in ("h1", "h2", "h3"):
        await first.host(name, cpu=CORES, memory=64, devices=[DeviceInfo("a100")] * 2)
    await first.plane.projects.create(CreateProject(name="shop"), ADMIN)
    await second.plane.follower.catch_up()
    now = first.clock.wall_ms()

    async def one(number: int) -> None:
        rig = chance.choice((first, second))
        what = chance.randrange(4)
        cores, cards = chance.randint(1, 3), chance.randrange(2)
        later = timestamp(now + chance.randint(1, 9) * 60_000)
        try:
            if what == 0:
                demand = DemandBody(cpu=cores, memory="1GiB", gpu=cards)
                times: dict[str, Any] = {"start": later} if chance.random() < 0.5 else {}
                await rig.plane.reservations.create(
                    CreateReservation(name=f"r{number}", demand=demand, project="shop", **times),
                    ADMIN,
                )
            elif what == 1:
                await rig.create(f"own{number}", project="shop", cpu=cores, gpu=cards)
            elif what == 2:
                await rig.create(f"short{number}", cpu=cores, gpu=cards, until=later)
            else:
                await rig.create(f"vm{number}", cpu=1, gpu=cards)
        except _REFUSED:
            return

    for start in range(0, 24, 6):
        await asyncio.gather(*(one(start + n) for n in range(6)))
    return await first.store.read(lambda connection: broken(connection, now))


@pytest.mark.parametrize("seed", [1, 2])
def test_no_moment_is_promised_more_than_a_host_has(postgres_url: str, seed: int) -> None:
    async def test(first: Rig, second: Rig) -> None:
        assert await hammer(first, second, seed) == []

    run_two(postgres_url, test, dated=True)


async def behind(first: Rig, second: Rig, cores: int = CORES, cards: int = 0) -> list[str]:
    """Reserve a whole host on one plane; the other, which has not heard of it, creates a VM."""
    await first.host("h1", cpu=CORES, memory=64, devices=[DeviceInfo("a100")] * cards)
    await first.plane.projects.create(CreateProject(name="shop"), ADMIN)
    await second.plane.follower.catch_up()
    demand = DemandBody(cpu=cores, memory="1GiB", gpu=cards)
    body = CreateReservation(name="r", demand=demand, project="shop")
    await first.plane.reservations.create(body, ADMIN)
    with contextlib.suppress(NoFit):
        await second.create("late", cpu=1, gpu=min(1, cards))
    now = first.clock.wall_ms()
    return await first.store.read(lambda connection: broken(connection, now))


@pytest.mark.parametrize(("cores", "cards"), [(CORES, 0), (1, 2)], ids=["cores", "cards"])
def test_a_plane_that_lags_behind_breaks_no_reservation(
    postgres_url: str, cores: int, cards: int
) -> None:
    async def test(first: Rig, second: Rig) -> None:
        assert await behind(first, second, cores, cards) == []

    run_two(postgres_url, test, dated=True)


def test_a_ledger_that_forgets_what_is_held_is_caught(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = capacity.CHARGE_HOSTS.update
    for name in holding.HELD:
        update = update.replace(f" + t.{name}", "")
    monkeypatch.setattr(capacity, "CHARGE_HOSTS", capacity.CHARGE_HOSTS._replace(update=update))

    async def test(first: Rig, second: Rig) -> None:
        assert await behind(first, second) == []

    with pytest.raises((AssertionError, InvariantBroken)):
        run_two(postgres_url, test, dated=True)


def test_a_ledger_that_forgets_which_cards_are_held_is_caught(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = capacity.CHARGE_COUNTERS.update.replace(" + t.held", "")
    broken_build = capacity.CHARGE_COUNTERS._replace(update=update)
    monkeypatch.setattr(capacity, "CHARGE_COUNTERS", broken_build)

    async def test(first: Rig, second: Rig) -> None:
        assert await behind(first, second, 1, 2) == []

    with pytest.raises((AssertionError, InvariantBroken)):
        run_two(postgres_url, test, dated=True)


def test_a_ledger_that_draws_without_settling_is_caught(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever draws on a hold must leave what is left of it held."""
    monkeypatch.setattr(postgresclaims, "held_by_rows", lambda *given: NOTHING_KEPT)

    async def test(first: Rig, second: Rig) -> None:
        assert await hammer(first, second, 1) == []

    with pytest.raises((AssertionError, InvariantBroken)):
        run_two(postgres_url, test, dated=True)
