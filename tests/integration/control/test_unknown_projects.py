"""Questions about a project that is not there are refused: a typing error has no answer."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from roost.base.errors import NotFound
from roost.parts.access import Principal
from roost.wire.bodies import CapacityQuestion, CreateProject, DemandBody, DryRun, DryRunBatch
from roost.wire.constraints import CheckConstraints, DryRunConstraint
from roost.wire.policies import DryRunPolicy
from roost.wire.recommendations import AskRecommendations
from tests.integration.control.rig import ADMIN, GIB, OPERATOR, Rig, body_of, run

DEMAND = DemandBody(cpu=1, memory=GIB)
Question = Callable[[Rig, str], Awaitable[Any]]


def vm(project: str) -> DryRun:
    return DryRun(name="x", demand=DEMAND, project=project)


QUESTIONS: dict[str, Question] = {
    "capacity": lambda rig, project: rig.plane.questions.capacity(
        CapacityQuestion(name="x", demand=DEMAND, project=project), OPERATOR
    ),
    "a dry run": lambda rig, project: rig.plane.questions.dry_run(vm(project), OPERATOR),
    "a dry run of many": lambda rig, project: rig.plane.questions.dry_run_many(
        DryRunBatch(vms=[body_of("y"), body_of("x", project=project)]), OPERATOR
    ),
    "recommendations": lambda rig, project: rig.plane.questions.recommend(
        AskRecommendations(new=body_of("x", project=project)), OPERATOR
    ),
    "a policy": lambda rig, project: rig.plane.policies.dry_run(DryRunPolicy(project=project)),
    "a rule": lambda rig, project: rig.plane.constraints.dry_run(
        DryRunConstraint(expression='host.name == "h1"', project=project), OPERATOR
    ),
    "a check of rules": lambda rig, project: rig.plane.constraints.check(
        CheckConstraints(project=project), OPERATOR
    ),
}


@pytest.mark.parametrize("asked", QUESTIONS)
def test_a_question_about_an_unknown_project_is_refused(database_url: str, asked: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=8, memory=64)
        await rig.plane.projects.create(CreateProject(name="shop"), ADMIN)
        with pytest.raises(NotFound, match="no project 'shpo'"):
            await QUESTIONS[asked](rig, "shpo")
        await QUESTIONS[asked](rig, "shop")  # there, though without any VM

    run(database_url, test)


def test_a_member_asks_for_its_own_project(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=8, memory=64)
        await rig.plane.projects.create(CreateProject(name="lab"), ADMIN)
        member = Principal("mia", "member", project="lab")
        question = CapacityQuestion(name="x", demand=DEMAND)
        assert (await rig.plane.questions.capacity(question, member)).count == 8

    run(database_url, test)
