"""Two control planes that plan by themselves, on one PostgreSQL: one does, and nobody fights."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from roost.client import Client
from roost.wire.plans import PlanDetail
from tests.system.processes import (
    Server,
    Site,
    all_settled,
    assert_healthy,
    eventually,
    examine,
    small,
)

pytestmark = pytest.mark.slow

#: The shortest time between two looks that the command takes.
EVERY_S = 10
VMS = 12
CALM = "no goal wants anything moved"


def own_plans(client: Client) -> list[PlanDetail]:
    """Return the plans that nobody asked for, the oldest first."""
    found = [each for each in client.list_plans().plans if each.created_by == "continuous"]
    return [client.get_plan(each.id) for each in reversed(found)]


def planner(site: Site, *servers: Server) -> Server | None:
    """Return the process that says that it looks at the fleet, if just one does."""
    found = []
    for server in servers:
        with site.client(server) as client:
            if client.get_continuous().looks_here:
                found.append(server)
    return found[0] if len(found) == 1 else None


@pytest.mark.turns(2)
def test_one_of_two_planners_plans_and_the_other_goes_on_when_it_is_killed(
    site: Site, postgres_url: str
) -> None:
    asked: dict[str, object] = {"database": postgres_url, "continuous": "apply"}
    asked["continuous_every"] = EVERY_S
    first, second = site.serve("first", **asked), site.serve("second", **asked)
    site.hosts("full", first, second)
    with site.client(first) as client:
        for number in range(VMS):
            client.create_vm(small(f"vm-{number}", cpu=1, memory="4GiB"))
        all_settled(client)
    site.hosts("empty", second, first, count=2)  # only now is there somewhere to go
    with site.client(first) as client:
        eventually("somebody has planned", lambda: own_plans(client))
    holder = eventually("one of them plans", lambda: planner(site, first, second))
    other = second if holder is first else first
    holder.kill()
    with site.client(other) as client:
        eventually("the other plans", lambda: planner(site, other))

        def even() -> bool:
            over = all(each.state == "done" for each in own_plans(client))
            return over and len({vm.host for vm in client.all_vms()}) == 3

        eventually("all hosts have their share", even, every_s=0.5)
        eventually("it is calm", lambda: client.get_continuous().said == CALM, every_s=0.5)
        made = own_plans(client)
        moved = Counter(each.vm for plan in made for each in plan.listed if each.state == "done")
        assert set(moved.values()) == {1}, "a VM that has moved rests for ten minutes"
        for before, after in pairwise(made):
            assert before.ended_at is not None
            assert before.ended_at <= after.created_at, "two plans were open at once"
        for plan in made:  # who was killed may not have come to say so
            told = [f"plan {plan.id!r} is applied" in each.log() for each in (first, second)]
            assert sum(told) <= 1, "two processes have made one plan"
        assert f"continuous mode: {CALM}" in other.log()
        site.doctor(other)
    assert other.stop() == 0
    assert_healthy(asyncio.run(examine(postgres_url)))
