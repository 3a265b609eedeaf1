"""Fixes of a refusal can be carried out, and are never absurd."""

import pytest

from roost.base.errors import NoFit
from roost.wire.bodies import MigrateVM
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
        told = (await rig.plane.hosts.drain("h2", OPERATOR)).blocked
        assert told, "the host cannot be emptied"
        for blocked in told:
            hosts = {fix["host"] for fix in blocked["rejection"]["fixes"]}
            assert "h2" not in hosts, hosts

    run(sqlite_url, test)
