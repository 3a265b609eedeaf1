"""What is asked of a fleet is kept, shared by processes, and named by the decisions it made."""

import pytest
from sqlalchemy import select, update

from roost.base.errors import NoFit
from roost.control.create.mixing import keep
from roost.ledger.schema.tables import asked, mixes
from roost.placement.asked import MOST_COUNTED, ONE
from roost.placement.mix import Mix, TypicalRequest
from roost.wire.mixes import read_kinds
from tests.integration.control.rig import Rig, run, run_two


def cores(rig: Rig) -> list[int]:
    """Return the cores of the kinds that a plane takes for typical."""
    return [kind.cpu_milli // 1000 for kind in rig.plane.roster.asked.mix().kinds]


def test_what_was_asked_outlives_the_process(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.host("h", cpu=4, memory=16)
        await rig.running("one", cpu=1)
        with pytest.raises(NoFit):
            await rig.create("huge", cpu=64)
        await rig.plane.mix.keep()
        await rig.restart()
        assert cores(rig) == [1, 64]

    run(database_url, story, strategy="fragmentation")


def test_a_decision_names_the_mix_that_it_went_by(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.host("h", cpu=4, memory=16)
        made = await rig.running("one", cpu=1)
        await rig.plane.mix.keep()
        [kept] = await rig.rows(select(mixes))
        digest, kinds = kept["digest"], kept["kinds"]
        assert made.placement is not None
        assert made.placement.mix == digest
        assert Mix(tuple(read_kinds(kinds))).digest == digest

    run(database_url, story, strategy="fragmentation")


def test_a_mix_is_kept_as_long_as_decisions_go_by_it(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.host("h", cpu=4, memory=16)
        await rig.running("one", cpu=1)
        await rig.plane.mix.keep()
        await rig.store.write(lambda tx: tx.connection.execute(update(mixes).values(at_ms=1)))
        [before] = await rig.rows(select(mixes))
        await rig.plane.mix.keep()
        assert await rig.rows(select(mixes)) == [before]  # nothing was asked
        await rig.create("two", cpu=1)
        await rig.plane.mix.keep()
        [after] = await rig.rows(select(mixes))
        assert after["digest"] == before["digest"]
        assert after["at_ms"] > before["at_ms"] == 1

    run(database_url, story, strategy="fragmentation")


def test_a_fleet_that_never_counted_learns_from_the_vms_that_it_has(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        await rig.host("h", cpu=4, memory=16)
        await rig.running("one", cpu=2)
        await rig.restart()  # nothing of it was kept
        assert cores(rig) == [2]

    run(database_url, story, strategy="fragmentation")


def test_processes_learn_from_what_others_are_asked(postgres_url: str) -> None:
    async def story(one: Rig, two: Rig) -> None:
        await one.host("h", cpu=8, memory=16)
        await one.create("a", cpu=1)
        await one.plane.mix.keep()
        await two.create("b", cpu=2)
        await two.plane.mix.keep()
        assert cores(two) == [1, 2]

    run_two(postgres_url, story)


def test_counts_are_halved_when_they_are_many(database_url: str) -> None:
    async def story(rig: Rig) -> None:
        often, once = TypicalRequest(1000, 2**30), TypicalRequest(2000, 2**30)
        await rig.store.write(lambda tx: keep(tx, {once: 1}, None))
        sums = await rig.store.write(lambda tx: keep(tx, {often: MOST_COUNTED * ONE + 2}, None))
        assert sums == {often: MOST_COUNTED * ONE // 2 + 1}
        assert len(await rig.rows(select(asked))) == 1

    run(database_url, story)
