"""Transactions that write holds lock hosts in ascending order, and projects only after them."""

from collections import defaultdict
from typing import Any

import pytest
from sqlalchemy import select

from roost.ledger.claims.makingroom import QUEUE, begin_hold
from roost.ledger.schema.tables import holds
from roost.ledger.writes.transaction import Tx
from tests.integration.control.rig import ADMIN, Rig, run
from tests.integration.control.test_preemption import classes
from tests.integration.control.test_reservations import reserve, shop

#: Above all hosts: what is locked after them.
AFTER = 10**6


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[int]]:
    """Note what each transaction locks: hosts by number."""
    found: dict[int, list[int]] = defaultdict(list)
    find, row = Tx.find, Tx.row

    def noted(tx: Tx, table: Any, *, lock: bool = False, **key: Any) -> Any:
        if lock and table.name == "host_amounts" and key["host"] not in found[id(tx)]:
            found[id(tx)].append(key["host"])
        return find(tx, table, lock=lock, **key)

    def noted_row(tx: Tx, statement: Any, **values: Any) -> Any:
        if "FROM projects" in str(statement):
            found[id(tx)].append(AFTER)
        return row(tx, statement, **values)

    monkeypatch.setattr(Tx, "find", noted)
    monkeypatch.setattr(Tx, "row", noted_row)
    return found


def in_order(locked: dict[int, list[int]]) -> None:
    assert any(len(order) > 1 for order in locked.values())
    for order in locked.values():
        assert order == sorted(order)


async def hold_on(rig: Rig, vm: str, host: str) -> None:
    entry = rig.plane.roster.entry(host)
    assert entry is not None
    await rig.store.write(lambda tx: begin_hold(tx, vm, entry.number, QUEUE))
    await rig.plane.follower.catch_up()


def test_a_reservation_that_is_made_and_moved(
    database_url: str, locked: dict[int, list[int]]
) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, "h1", "h2")
        locked.clear()
        await reserve(rig, cores=2, units=2)
        in_order(locked)
        await rig.plane.reservations.delete("r", ADMIN)
        filler = await rig.create("filler", cpu=4, constraints={"hosts": ["h1"]})
        await reserve(rig, cores=4)
        await rig.plane.vms.delete(filler.id, None, ADMIN)
        await rig.settle()
        locked.clear()
        await rig.plane.hosts.cordon("h2", ADMIN)
        await rig.pass_by(10)
        made = await rig.plane.reservations.get("r", ADMIN)
        assert [unit.host for unit in made.placed] == ["h1"]
        in_order(locked)

    run(database_url, test, dated=True)


def test_a_preemption_elsewhere_than_where_room_was_held(
    database_url: str, locked: dict[int, list[int]]
) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=1)
        await rig.host("h2", cpu=1)
        await rig.running("equal", priority_class="high", constraints={"hosts": ["h1"]})
        await rig.running("old", priority_class="low", restart="elsewhere")
        new = await rig.create("new", priority_class="high", on_no_fit="queue")
        await hold_on(rig, new.id, "h1")
        locked.clear()
        begun = await rig.plane.asking.begin("new", None, ADMIN)
        assert begun.preemption is not None
        assert begun.preemption.host == "h2"
        in_order(locked)

    run(database_url, test)


def test_room_that_is_held_for_another_than_before(
    database_url: str, locked: dict[int, list[int]]
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=3)
        await rig.host("h2", cpu=1)
        await rig.running("v1", cpu=2, constraints={"hosts": ["h1"]})
        await rig.running("v2", constraints={"hosts": ["h2"]})
        await rig.create("big", cpu=3, on_no_fit="queue")
        rig.clock.move(100)
        other = await rig.create("other", cpu=3, on_no_fit="queue", constraints={"hosts": ["h2"]})
        await hold_on(rig, other.id, "h2")
        locked.clear()
        await rig.plane.run_singletons()
        rows = await rig.rows(select(holds))
        assert [row["owner"] for row in rows] == [f"queue:{(await rig.get('big')).id}"]
        in_order(locked)

    run(database_url, test, patience_s=60.0)
