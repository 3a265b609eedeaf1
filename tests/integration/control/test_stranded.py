"""Who would be stranded by a loss: named to those who may see it, and to nobody else."""

from roost.parts.access import Principal
from roost.wire.bodies import CapacityBody, CapacityQuestion, CreateProject, DemandBody
from tests.integration.control.rig import ADMIN, GIB, OPERATOR, Rig, run

MEMBER = Principal("mia", "member", project="lab")


async def apart(rig: Rig) -> None:
    """Three hosts, and a group of the project `shop` that has a VM on each of them."""
    for name in ("a", "b", "c"):
        await rig.host(name, cpu=8, memory=64)
    for project in ("shop", "lab"):
        await rig.plane.projects.create(CreateProject(name=project), ADMIN)
    group = {"name": "web", "rule": "anti-affinity", "scope": "host"}
    for number in range(3):
        await rig.create(f"web-{number}", project="shop", groups=[group])


async def asked(rig: Rig, who: Principal, cpu: int = 4, project: str = "shop") -> CapacityBody:
    question = CapacityQuestion(
        name="new", project=project, demand=DemandBody(cpu=cpu, memory=GIB), survive="host"
    )
    return await rig.plane.questions.capacity(question, who)


def test_a_vm_is_named_with_the_reasons_of_its_refusal(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await apart(rig)
        found = await asked(rig, OPERATOR)
        assert found.count == 0
        assert found.stranded is not None
        vm = await rig.plane.vms.get(found.stranded.vm, "shop", OPERATOR)
        assert found.blocking == f"host {vm.host}"
        assert found.stranded.message == (
            f"no host for VM '{vm.name}': 3 hosts refused (1 not_online, 2 anti_affinity)"
        )
        assert [(each.reason, each.total) for each in found.stranded.reasons] == [
            ("not_online", 1),
            ("anti_affinity", 2),
        ]

    run(database_url, test)


def test_a_member_learns_nothing_of_another_projects_vm(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await apart(rig)
        found = await asked(rig, MEMBER, project="lab")
        assert found.stranded is not None
        assert found.stranded.vm == "a VM of another project"
        assert found.stranded.message == "no host for a VM of another project"
        assert (found.stranded.reasons, found.stranded.nearest_miss) == ([], None)

    run(database_url, test)


def test_a_copy_keeps_the_name_that_was_asked_for(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("a", "b"):
            await rig.host(name, cpu=4, memory=64)
        found = await asked(rig, OPERATOR, project="default")
        assert found.count == 1
        assert found.stranded is not None
        assert found.stranded.vm == "new"

    run(database_url, test)
