"""Since when VMs are where hard rules do not want them: begun, kept over a restart, ended."""

from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select

from roost.control.rules import watching
from roost.control.rules.watching import compare
from roost.ledger.schema.rows import ViolationRow
from roost.ledger.schema.tables import events, violations
from roost.wire.bodies import SetLabels
from roost.wire.constraints import CheckConstraints, CreateConstraint
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run

SSD = 'host.labels["disk"] == "ssd"'


async def one_in_the_wrong_place(rig: Rig) -> None:
    await rig.host("slow", cpu=8, memory=64, labels={"disk": "hdd"})
    await rig.host("fast", cpu=8, memory=64, labels={"disk": "ssd"})
    await rig.running("before")
    body = CreateConstraint(name="ssd", expression=SSD)
    await rig.plane.constraints.create(body, ADMIN)


async def since(rig: Rig) -> list[tuple[str, str | None]]:
    found = await rig.plane.constraints.check(CheckConstraints(), ADMIN)
    return [(each.name, each.since) for each in found.violations]


async def told(rig: Rig) -> list[str]:
    query = select(events.c.kind).where(events.c.kind.like("vm.misplaced%"))
    return [row["kind"] for row in await rig.rows(query.order_by(events.c.seq))]


def test_it_is_known_since_when_a_vm_is_in_the_wrong_place(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await one_in_the_wrong_place(rig)
        assert await since(rig) == [("before", None)]
        await rig.pass_by(40)
        [(_, first)] = await since(rig)
        assert first is not None
        await rig.restart()
        for agent in rig.agents.values():
            agent.connect(rig.plane)
        await rig.settle()
        await rig.pass_by(60)
        assert await since(rig) == [("before", first)]
        assert await told(rig) == ["vm.misplaced"]
        await rig.plane.hosts.set_labels("slow", SetLabels(labels={"disk": "ssd"}), OPERATOR)
        await rig.pass_by(40)
        assert await rig.rows(select(violations)) == []
        assert await told(rig) == ["vm.misplaced", "vm.misplaced_ended"]
        assert (await rig.plane.doctor()).findings == []

    run(database_url, test)


def test_what_is_kept_of_a_vm_goes_with_it(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await one_in_the_wrong_place(rig)
        await rig.pass_by(40)
        await rig.plane.vms.delete("before", None, ADMIN)
        await rig.settle()
        await rig.pass_by(60)
        assert await rig.rows(select(violations)) == []
        assert (await rig.plane.doctor()).findings == []

    run(sqlite_url, test)


def test_a_judgement_that_takes_long_is_made_seldom(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await one_in_the_wrong_place(rig)
        judged, real = [], rig.plane.constraints.judge.violations

        async def slow(most: int) -> Any:
            judged.append(rig.clock.now)
            rig.clock.now += 10
            return await real(most)

        monkeypatch.setattr(rig.plane.constraints.judge, "violations", slow)
        for _ in range(15):
            await rig.pass_by(30)
        assert 2 <= len(judged) <= 4
        assert all(b - a >= 200 for a, b in pairwise(judged))

    run(sqlite_url, test)


def row(vm: str, host: int = 1, part: str = "p", since_ms: int = 0) -> ViolationRow:
    return ViolationRow(vm=vm, constraint_id="r", host=host, part=part, since_ms=since_ms)


def by_key(*rows: ViolationRow) -> dict[tuple[str, str], ViolationRow]:
    return {(each.vm, each.constraint_id): each for each in rows}


def test_another_host_begins_anew_and_another_part_does_not() -> None:
    kept = by_key(row("a"), row("b"), row("c"))
    found = by_key(row("a", since_ms=9), row("b", 2, since_ms=9), row("c", part="q", since_ms=9))
    assert compare(found, kept).begun == [row("b", 2, since_ms=9), row("c", part="q")]
    assert compare({}, kept).ended == list(kept.values())


def test_what_is_kept_is_bounded() -> None:
    kept = by_key(row("a"), row("b"))
    found = by_key(row("b"), row("c"), row("d"), row("e"))
    assert [each.vm for each in compare(found, kept, 3).begun] == ["c", "d"]
    assert watching.MOST_KEPT == 10_000
