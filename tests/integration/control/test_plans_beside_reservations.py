"""Plans are not drafted into room that is reserved, whatever their goal."""

import pytest

from roost.wire.plans import PlanDetail
from tests.integration.control.rig import ADMIN, Rig, run
from tests.integration.control.test_plans import plan
from tests.integration.control.test_reservations import reserve, shop

#: What is asked of the planner, of a fleet whose first host has four VMs and a second one is empty.
GOALS: dict[str, dict[str, object]] = {
    "balance": {"goal": "balance"},
    "drain": {"goal": "drain", "hosts": ["h1"]},
    "move": {"goal": "move", "vms": ["vm-0", "vm-1"], "to": "h2"},
}


def targets(made: PlanDetail) -> list[str]:
    """Return where the moves of a plan go."""
    return [move.target for move in made.listed]


@pytest.mark.parametrize("goal", GOALS)
def test_no_plan_is_drafted_into_reserved_room(database_url: str, goal: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig, "h1", cpu=8)
        for n in range(4):
            await rig.running(f"vm-{n}")
        await rig.host("h2", cpu=4, memory=64)
        await reserve(rig, cores=4, hosts=["h2"])
        assert targets(await plan(rig, **GOALS[goal])) == []
        await rig.plane.reservations.delete("r", ADMIN)
        assert "h2" in targets(await plan(rig, **GOALS[goal]))

    run(database_url, test)
