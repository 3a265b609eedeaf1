"""Money: what is rented is used, kept by policy or given back, whoever else rents beside it."""

from tests.integration.jobs.rig import Rig, run


def test_idle_machines_of_several_pools_are_all_given_back(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("one", "two"):
            await rig.pool(name, idle_grace_s=30)
            await rig.submit(pool=name, count=2)
        await rig.pool("empty", idle_grace_s=30)
        await rig.settle()
        assert len(rig.cloud.running) == 2
        await rig.pass_by(60)
        assert rig.cloud.running == []

    run(database_url, test)
