"""The choice of victims beside everything else a plane does, and who counts as away meanwhile."""

import threading

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict
from roost.control.preempt import choosing
from roost.ledger.schema.tables import preemptions
from roost.model.flow import PlaceRequest
from roost.placement.engine import Engine
from roost.placement.preempting import Limits, MadeRoom, make_room
from roost.wire.groups import SetBudget
from tests.integration.control.rig import OPERATOR, Rig, run
from tests.integration.control.test_preemption import classes


def test_the_choice_leaves_the_event_loop_alone(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice among many VMs takes long: it is made on a copy, in another thread."""
    asked: list[tuple[Engine, int]] = []

    def noted(engine: Engine, request: PlaceRequest, limits: Limits) -> MadeRoom | None:
        asked.append((engine, threading.get_ident()))
        return make_room(engine, request, limits)

    monkeypatch.setattr(choosing, "make_room", noted)

    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        await rig.create("new", cpu=2, priority_class="high", on_no_fit="queue")
        await rig.plane.run_singletons()
        assert len(await rig.rows(select(preemptions))) == 1
        assert asked
        for engine, thread in asked:
            assert engine is not rig.plane.roster.engine
            assert thread != threading.get_ident()

    run(database_url, test)


def test_a_member_that_was_placed_again_is_away_until_it_is_seen(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        group = {"name": "web", "rule": "spread", "hard": False}
        lost = await rig.host("h1", cpu=1, guard=5.0)
        await rig.running("w0", groups=[group], restart="elsewhere")
        await rig.host("h2", cpu=1)
        await rig.running("w1", groups=[group], restart="elsewhere")
        await rig.plane.groups.set_budget("web", None, SetBudget(at_most=1), OPERATOR)
        await rig.host("h3", cpu=1)
        await rig.host("h4", cpu=1)
        lost.disconnect()
        while (await rig.row("w0")).host in (None, rig.number("h1")):
            await rig.pass_by(2, silent=("h1",))
        assert (await rig.row("w0")).observed == ""
        with pytest.raises(Conflict, match="1 are"):
            await rig.migrate("w1")
        await rig.settle()
        assert (await rig.state("w0"))[0] == "running"
        await rig.migrate("w1")

    run(database_url, test)
