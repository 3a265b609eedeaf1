"""A wall clock that is suddenly ahead ends no VM and no reservation."""

from tests.integration.control.rig import ADMIN, Rig, run
from tests.integration.control.test_reservations import at, reserve, shop


def test_a_clock_that_jumps_ends_nothing_until_it_is_steady(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await shop(rig)
        await reserve(rig, cores=1, end=at(rig, 60))
        await rig.running("short", cpu=1, until=at(rig, 60))
        rig.clock.ahead_s = 30 * 86_400
        await rig.pass_by(60)
        assert await rig.state("short") == ("running", "h1")
        assert (await rig.plane.reservations.get("r", ADMIN)).placed
        assert ["clock" in each.check for each in (await rig.plane.doctor()).troubles] == [True]
        rig.clock.ahead_s = 0.0  # it was set right
        await rig.pass_by(60)
        assert await rig.state("short") == ("running", "h1")
        assert not (await rig.plane.doctor()).troubles
        rig.clock.ahead_s = 7200  # as after a sleep: it stays so
        await rig.pass_by(300)
        assert await rig.state("short") == ("running", "h1")
        await rig.pass_by(400)
        assert await rig.row("short") is None
        assert not (await rig.plane.reservations.get("r", ADMIN)).placed

    run(database_url, test, dated=True)
