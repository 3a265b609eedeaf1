"""Fixes of a refusal can be carried out, and are never absurd."""

import pytest

from roost.base.errors import NoFit, NotFound
from roost.wire.bodies import MigrateVM
from roost.wire.queries import VMQuery
from tests.integration.control.rig import OPERATOR, Rig, run


def test_no_move_is_told_to_go_where_the_vm_is(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        for n in range(2):
            await rig.host(f"h{n}", 4, 8)
            await rig.running(f"a{n}", cpu=4, constraints={"hosts": [f"h{n}"]})
        await rig.host("h2", 1, 1)
        await rig.running("b", cpu=1)
        assert (await rig.get("b")).host == "h2"
        with pytest.raises(NoFit) as refused:
            await rig.plane.moves.migrate("b", None, MigrateVM(), OPERATOR)
        rejection = refused.value.details["rejection"]
        assert isinstance(rejection, dict)
        assert {fix["host"] for fix in rejection["fixes"]} <= {"h0", "h1"}, rejection["fixes"]
        assert "h2" not in refused.value.message.partition("smallest fix")[2]
        told = (await rig.plane.hosts.drain("h2", OPERATOR)).blocked
        assert told, "the host cannot be emptied"
        for blocked in told:
            hosts = {fix["host"] for fix in blocked["rejection"]["fixes"]}
            assert "h2" not in hosts, hosts

    run(sqlite_url, test)


def test_a_list_of_what_is_not_there_says_so(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h0", 4, 8)
        await rig.running("a", cpu=1)
        for wrong in (VMQuery(host="nope"), VMQuery(project="nope")):
            with pytest.raises(NotFound, match="nope"):
                await rig.plane.vms.list(wrong, OPERATOR)
        assert len((await rig.plane.vms.list(VMQuery(host="h0"), OPERATOR)).vms) == 1
        with pytest.raises(NotFound, match="no host 'nope'"):
            await rig.plane.moves.migrate("a", None, MigrateVM(host="nope"), OPERATOR)

    run(sqlite_url, test)
