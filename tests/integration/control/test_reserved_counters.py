"""Reservations of devices, NUMA cells and extended resources, on every path that takes them."""

from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from roost.base.errors import Conflict, NoFit
from roost.control.admin.upgrade import finish_upgrade
from roost.control.create import drawing
from roost.ledger.schema.changes import HELD, changes_decoder
from roost.ledger.schema.tables import counters, host_counters
from roost.ledger.upgrade.older import BEFORE_COUNTERS
from roost.ledger.writes.transaction import held_event
from roost.model.kept import Kept
from roost.parts.sealing import Seal
from roost.testing.agent import inventory
from roost.wire.agentlink import AmountInfo, CellInfo, DeviceInfo
from roost.wire.bodies import (
    CreateProject,
    CreateVMs,
    DemandBody,
    DeviceBody,
    DryRun,
    MigrateVM,
    PlacementBody,
)
from roost.wire.reservations import AskCalendar, CreateReservation, ReservationDetail
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, body_of, digest_of, run
from tests.integration.control.test_reservations import at

GIB = 2**30
A100 = DeviceInfo("a100", shareable=True)


async def reserve(rig: Rig, name: str = "r", **given: Any) -> ReservationDetail:
    asked = {key: given.pop(key) for key in ("gpu", "extended", "numa", "cpu") if key in given}
    demand = DemandBody(**{"cpu": 1, "memory": "1GiB", **asked})
    body = CreateReservation(name=name, demand=demand, project="shop", **given)
    return await rig.plane.reservations.create(body, ADMIN)


async def special(rig: Rig, *names: str, cards: int = 2) -> None:
    """Let hosts join with cards, two cells and four licences, and make the project."""
    await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
    for name in names or ("h1",):
        await rig.host(
            name, cpu=16, memory=64, extended={"licences": AmountInfo(4)}, devices=[A100] * cards,
            cells=[CellInfo(8000, 32 * GIB), CellInfo(8000, 32 * GIB)],
        )  # fmt: skip


async def held(rig: Rig) -> dict[str, int]:
    """Return what is held of counters, on whichever host."""
    rows = await rig.rows(select(host_counters).where(host_counters.c.held != 0))
    return {row["counter"]: row["held"] for row in rows}


def test_a_reserved_card_is_its_owners_alone(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await special(rig)
        made = await reserve(rig, gpu=1)
        [unit] = made.placed
        assert (unit.devices, made.gpu and made.gpu.count) == ([0], 1)
        assert await held(rig) == {"device:00": 1000}
        other = await rig.running("other", gpu=1)
        with pytest.raises(NoFit, match="held"):
            await rig.create("more", gpu=1)
        own = await rig.running("own", gpu=1, project="shop")
        assert (own.placement.devices, other.placement.devices) == ([0], [1])
        assert await held(rig) == {}
        await rig.plane.vms.delete("own", "shop", OPERATOR)
        await rig.settle()
        assert await held(rig) == {"device:00": 1000}
        await rig.restart()
        with pytest.raises(NoFit, match="held"):
            await rig.create("more", gpu=1)
        await rig.check()

    run(database_url, test, dated=True)


def test_an_owner_takes_its_own_card_before_others(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await special(rig)
        await rig.running("first", gpu=1)
        made = await reserve(rig, gpu=1)
        await rig.plane.vms.delete("first", None, OPERATOR)
        await rig.settle()
        assert made.placed[0].devices == [1]
        asked = DryRun(name="q", demand=DemandBody(1, "1GiB", gpu=1), project="shop")
        answer = await rig.plane.questions.dry_run(asked, ADMIN)
        assert isinstance(answer, PlacementBody)
        own = await rig.running("own", gpu=1, project="shop")
        assert (answer.devices, own.placement.devices) == ([1], [1])
        assert (await rig.running("more", gpu=1, project="shop")).placement.devices == [0]
        await rig.check()

    run(sqlite_url, test, dated=True)


def test_a_build_that_gives_owners_any_card_is_caught(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "but_own", lambda fleet, row, kept, own: kept)
    with pytest.raises(AssertionError):
        test_an_owner_takes_its_own_card_before_others(sqlite_url)


def test_licences_are_kept_as_amounts_are(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await special(rig)
        made = await reserve(rig, extended={"licences": 3})
        assert made.extended == {"licences": 3}
        await rig.running("other", extended={"licences": 1})
        with pytest.raises(NoFit, match="held"):
            await rig.create("more", extended={"licences": 1})
        await rig.running("own", extended={"licences": 2}, project="shop")
        assert await held(rig) == {"x:licences": 1}
        await rig.plane.reservations.delete("r", ADMIN)
        await rig.running("more", extended={"licences": 1})
        assert await held(rig) == {}
        await rig.check()

    run(database_url, test, dated=True)


def test_a_cell_is_kept_whole_for_its_owner(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await special(rig)
        made = await reserve(rig, numa="one", cpu=6)
        [cell] = made.placed[0].cells
        first = await rig.running("other", numa="one", cpu=8)
        assert first.placement.cells == [1 - cell]
        with pytest.raises(NoFit, match="held"):
            await rig.create("more", numa="one", cpu=6)
        await rig.running("loose", cpu=2)  # of the host, not of a cell
        own = await rig.running("own", numa="one", cpu=6, project="shop")
        assert own.placement.cells == [cell]
        await rig.check()

    run(database_url, test, dated=True)


def test_a_short_vm_has_the_card_before_the_reservation_begins(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await special(rig, cards=1)
        await reserve(rig, gpu=1, start=at(rig, 60), end=at(rig, 120))
        with pytest.raises(NoFit, match="held"):
            await rig.create("for-ever", gpu=1)
        with pytest.raises(NoFit, match="held"):
            await rig.create("long", gpu=1, until=at(rig, 61))
        await rig.running("short", gpu=1, until=at(rig, 30))
        with pytest.raises(Conflict, match="0 of 1") as refused:
            await reserve(rig, "second", gpu=1, start=at(rig, 90), end=at(rig, 150))
        assert refused.value.details["later"] == at(rig, 120)
        await reserve(rig, "between", gpu=1, start=at(rig, 30), end=at(rig, 60))
        await rig.check()

    run(database_url, test, dated=True)


def test_what_cannot_be_kept_of_cards_is_refused_and_shares_are_added_up(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await special(rig)
        with pytest.raises(Conflict, match="0 of 1 units fit"):
            await reserve(rig, gpu=DeviceBody(count=1, models=["h100"]))
        with pytest.raises(Conflict, match="2 of 3 units fit"):
            await reserve(rig, gpu=1, units=3)
        half = DeviceBody(count=1, share_milli=500)
        made = await reserve(rig, gpu=half, units=3)
        assert sorted(each.devices for each in made.placed) == [[0], [0], [1]]
        await rig.running("open", gpu=half)
        with pytest.raises(NoFit, match="held"):
            await rig.create("more", gpu=half)
        lines = (await rig.plane.reservations.calendar(AskCalendar(), ADMIN)).lines
        assert [line.gpus for line in lines] == [3]
        await rig.check()

    run(database_url, test, dated=True)


def test_moves_batches_and_questions_keep_to_reserved_cards(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await special(rig, "h1", "h2", cards=1)
        await rig.running("other", gpu=1)
        made = await reserve(rig, gpu=1)
        assert made.placed[0].host == "h2"
        with pytest.raises(NoFit, match="held"):
            await rig.plane.moves.migrate("other", None, MigrateVM(host="h2"), ADMIN)
        many = CreateVMs(vms=[body_of("b1", gpu=1), body_of("b2", gpu=1)], atomic=True)
        with pytest.raises(NoFit):
            await rig.plane.admit.create_many(many, ADMIN, None, digest_of(many))
        for project, fits in (("default", False), ("shop", True)):
            asked = DryRun(name="q", demand=DemandBody(1, "1GiB", gpu=1), project=project)
            answer = await rig.plane.questions.dry_run(asked, ADMIN)
            assert (type(answer).__name__ == "PlacementBody") is fits
        own = await rig.running("own", gpu=1, project="shop")
        assert own.host == "h2"
        await rig.check()

    run(database_url, test, dated=True)


def test_a_unit_moves_when_its_card_is_lost(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await special(rig, "h1", "h2")
        made = await reserve(rig, gpu=1, hosts=["h1", "h2"])
        lost = made.placed[0].host
        assert lost is not None
        agent = rig.agents[lost]
        agent.inventory = inventory(
            16, 64, extended={"licences": AmountInfo(4)}, devices=[],
            cells=[CellInfo(8000, 32 * GIB), CellInfo(8000, 32 * GIB)],
        )  # fmt: skip
        agent.connect(rig.plane)
        await rig.settle(check=False)
        await rig.pass_by(30)
        found = await rig.plane.reservations.get("r", ADMIN)
        assert (found.state, found.placed[0].host != lost) == ("live", True)
        await rig.check()

    run(database_url, test, dated=True)


def test_a_unit_whose_card_is_lost_is_known_to_be_lost_after_a_restart(sqlite_url: str) -> None:
    """By then no host has any card, and the process no columns of them."""

    async def test(rig: Rig) -> None:
        await special(rig, "h1", cards=1)
        await reserve(rig, gpu=1)
        rig.agents["h1"].inventory = inventory(16, 64)
        rig.agents["h1"].connect(rig.plane)
        await rig.settle(check=False)
        await rig.restart()
        await rig.pass_by(30)
        found = await rig.plane.reservations.get("r", ADMIN)
        assert (found.state, found.unhonoured is not None) == ("unhonoured", True)

    run(sqlite_url, test, dated=True)


def test_no_card_is_reserved_while_a_process_of_the_schema_before_may_be_there(
    postgres_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await special(rig)
        flag = {"name": BEFORE_COUNTERS, "value": 1}
        await rig.store.write(lambda tx: tx.insert(counters, flag))
        with pytest.raises(Conflict, match="older processes"):
            await reserve(rig, gpu=1)
        await reserve(rig, "amounts")  # as that process knows them
        await finish_upgrade(rig.store, Seal(), "test")
        await reserve(rig, gpu=1)
        await rig.check()

    run(postgres_url, test, dated=True)


def test_what_is_held_is_said_as_the_schema_before_reads_it() -> None:
    plain, card = Kept(1, 2, 3, 4), Kept(1, 2, 3, 4, (("device:00", 5),))
    event = held_event({7: plain, 8: card}, "test", 0, "tx")
    said = msgspec.json.decode(event.changes)["held"]
    assert said == {"7": [1, 2, 3, 4], "8": [1, 2, 3, 4, [["device:00", 5]]]}
    assert dict(changes_decoder([HELD])(event.changes).of(HELD)) == {"7": plain, "8": card}


@pytest.mark.parametrize(
    ("kept", "asked", "short"),
    [
        ({"gpu": DeviceBody(count=2)}, {"gpu": 2}, "short by 2 devices on h1"),
        ({"gpu": DeviceBody(count=1)}, {"gpu": 2}, "short by 1 device on h1"),
        ({"numa": "one", "cpu": 6, "units": 2}, {"numa": "one", "cpu": 4}, "1 suitable NUMA cell"),
    ],
)
def test_a_refusal_says_how_much_of_what_is_kept_is_missing(
    sqlite_url: str, kept: dict[str, Any], asked: dict[str, Any], short: str
) -> None:
    async def test(rig: Rig) -> None:
        await special(rig)
        await reserve(rig, **kept)
        with pytest.raises(NoFit) as refused:
            await rig.create("other", **asked)
        assert short in str(refused.value)
        assert "held" in str(refused.value)

    run(sqlite_url, test)
