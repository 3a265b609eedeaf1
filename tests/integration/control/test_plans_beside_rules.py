"""Plans keep to rules that are newer than they are, and to disruption budgets, move by move."""

import pytest

from roost.base.timestamps import timestamp
from roost.control.groups import budgets
from roost.control.memory.rulebook import Rulebook
from roost.control.moves import moving
from roost.wire.constraints import CreateConstraint
from roost.wire.groups import SetBudget
from roost.wire.plans import PlanDetail
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run
from tests.integration.control.test_plans import plan

MINUTE_MS = 60_000
NOT_B = CreateConstraint(name="not-b", expression='host.name != "b"')


async def in_a_minute(rig: Rig) -> PlanDetail:
    """Plan to move a VM of a group to another host, in a minute."""
    await rig.host("a", cpu=4, memory=4)
    await rig.running("vm", groups=[{"name": "web", "rule": "spread", "hard": False}])
    await rig.host("b", cpu=4, memory=4)
    starts = timestamp(rig.clock.wall_ms() + MINUTE_MS)
    return await plan(rig, goal="move", vms=["vm"], to="b", start=starts, apply=True)


async def a_rule_is_kept(rig: Rig) -> None:
    made = await in_a_minute(rig)
    await rig.plane.constraints.create(NOT_B, ADMIN)
    await rig.pass_by(120)
    assert await rig.state("vm") == ("running", "a")
    assert (await rig.plane.plans.get(made.id)).done == 0


async def a_budget_is_kept(rig: Rig) -> None:
    made = await in_a_minute(rig)
    await rig.plane.groups.set_budget("web", None, SetBudget(at_most=0), OPERATOR)
    await rig.pass_by(120)
    assert await rig.state("vm") == ("running", "a")
    assert (await rig.plane.plans.get(made.id)).done == 0


@pytest.mark.parametrize("law", [a_rule_is_kept, a_budget_is_kept])
def test_a_plan_begins_no_move_that_may_not_be_any_more(law, database_url: str) -> None:
    run(database_url, law)


def deaf(patch: pytest.MonkeyPatch) -> None:
    """The engine does not hear of rules."""
    follow = Rulebook.follow
    patch.setattr(Rulebook, "follow", lambda self, changes: follow(self, changes) and False)


def spendthrift(patch: pytest.MonkeyPatch) -> None:
    """Budgets are not asked when a move begins, nor when it is planned anew."""
    patch.setattr(moving, "keep_budgets", lambda *_: None)
    patch.setattr(budgets, "allowed_of", lambda *_: None)


@pytest.mark.parametrize(
    ("law", "mistake"), [(a_rule_is_kept, deaf), (a_budget_is_kept, spendthrift)]
)
def test_a_broken_build_is_found(
    law, mistake, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        run(sqlite_url, law)
