"""A refusal names who keeps room without running where the VM comes nearest, and how it is freed.

The law is read from the ledger by a scan of its own: what is told of a host is what its failed and
stopped VMs have claimed there, no more and no less, and nobody reads a name of another project.
"""

from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

from roost.base.errors import NoFit
from roost.base.units import GIB
from roost.parts.access import Principal
from roost.wire.bodies import CreateProject, DemandBody, DryRun, IdleBody, RejectionBody
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run

MEMBER = Principal("mo", "member", project="theirs")


async def refusal(rig: Rig, who: Principal = OPERATOR, **given: object) -> RejectionBody:
    """Ask for a VM that fits nowhere, and return why."""
    with pytest.raises(NoFit) as refused:
        await rig.create("large", who=who, cpu=4, **given)
    found = convert(refused.value.details["rejection"], RejectionBody)
    assert found.message == refused.value.message
    return found


async def fail(rig: Rig, host: str, name: str, **given: object) -> None:
    """Let a VM come to grief on its host, for good."""
    made = await rig.create(name, **given)
    rig.agents[host].failing[made.id] = "boot_failed"
    await rig.settle()


def test_a_failed_vm_is_named_with_what_it_keeps_and_the_command(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await fail(rig, "a", "broken", cpu=3)
        await rig.running("well")
        found = await refusal(rig)
        assert found.idle == [
            IdleBody(
                host="a", count=1, cpu_milli=3000, memory_bytes=GIB, disk_bytes=0, vm="broken",
                project="default", state="failed",
                remedy="roost vm delete broken --project default",
            )
        ]  # fmt: skip
        assert "VM broken on a is failed and keeps 3 cores and 1 GiB of memory" in found.message
        assert found.message.endswith(": roost vm delete broken --project default")
        body = DryRun(name="large", demand=DemandBody(cpu=4, memory="1GiB"))
        dry = await rig.plane.questions.dry_run(body, OPERATOR)
        assert isinstance(dry, RejectionBody)
        assert dry.idle == found.idle
        await rig.plane.vms.delete("broken", None, OPERATOR)  # the remedy does what it says
        await rig.settle()
        assert rig.committed("a") == 1000

    run(database_url, test)


def test_a_vm_is_not_in_its_own_way_when_it_is_explained(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.running("rests", cpu=2)
        await rig.running("other", cpu=2)
        for name in ("rests", "other"):
            await rig.plane.vms.stop(name, None, OPERATOR)
        await rig.settle()
        told = await rig.plane.vms.explain("rests", None, [], OPERATOR)
        assert told.fitting == 1
        waits = await rig.create("waits", cpu=3, on_no_fit="queue")
        told = await rig.plane.vms.explain(waits.id, None, [], OPERATOR)
        assert isinstance(told.answer, RejectionBody)
        assert {each.vm for each in told.answer.idle} == {"rests", "other"}

    run(database_url, test)


drawn = st.lists(
    st.tuples(st.sampled_from(["default", "theirs"]), st.sampled_from(["run", "stop", "fail"])),
    min_size=1,
    max_size=12,
)


@settings(max_examples=6)
@given(plan=drawn, member=st.booleans())
def test_what_is_told_is_what_vms_keep_that_do_not_run(
    plan: list[tuple[str, str]], member: bool
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=15, memory=64)
        await rig.plane.projects.create(CreateProject(name="theirs"), ADMIN)
        for number, (project, how) in enumerate(plan):
            name = f"v{number}"
            if how == "fail":
                await fail(rig, "a", name, project=project)
            else:
                await rig.running(name, project=project)
            if how == "stop":
                await rig.plane.vms.stop(name, project, OPERATOR)
        await rig.settle()
        if len(plan) < 12:
            await rig.running("filler", cpu=12 - len(plan))
        who = MEMBER if member else OPERATOR
        found = await refusal(rig, who, project="theirs")
        resting = {f"v{n}": project for n, (project, how) in enumerate(plan) if how != "run"}
        assert sum(each.count for each in found.idle) == len(resting)
        assert sum(each.cpu_milli for each in found.idle) == 1000 * len(resting)
        named = [each for each in found.idle if each.vm]
        assert {each.vm: each.project for each in named}.items() <= resting.items()
        seen = [name for name, project in resting.items() if not member or project == "theirs"]
        assert len(named) == min(5, len(seen))
        assert not member or all(each.project == "theirs" for each in named)
        failed = [each.state for each in named]
        assert failed == sorted(failed)  # those that have failed come first

    with TemporaryDirectory() as folder:
        run(f"sqlite:///{folder}/roost.db", test)
