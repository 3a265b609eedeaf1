"""The laws of a move see what they are for: each of these broken control planes is noticed."""

import asyncio
from collections.abc import Callable

import pytest

from roost.control.moves.machine import TABLE, Abandon, GoBack
from roost.wire.agentlink import SeenVM
from tests.integration.control.rig import OPERATOR, TIMERS, Rig, run
from tests.sim.mutants import instead_of_recalling, plant

Patch = pytest.MonkeyPatch
GUARD_STOP_S = 4.0


async def lost_on_its_way(rig: Rig) -> None:
    """The incoming copy dies when everything was sent."""
    await rig.host("a")
    b = await rig.host("b")
    made = await rig.running("web")
    await rig.migrate("web", "b")
    await rig.until_phase("web", "landing")
    b.lose_incoming(made.id)
    await rig.settle()
    assert await rig.state("web") == ("running", "a")
    await rig.converged()


async def cancelled_at_the_last_moment(rig: Rig) -> None:
    """It has left when the ledger is asked to take it back."""
    a, b = await rig.host("a"), await rig.host("b")
    b.arrives_alone = True
    await rig.running("web")
    await rig.migrate("web", "b")
    await rig.until_phase("web", "moving")
    a.listen()
    a.work()
    b.work()
    await rig.plane.moves.cancel("web", None, OPERATOR)
    await rig.settle()
    assert await rig.state("web") == ("running", "b")
    await rig.converged()


async def undecided(rig: Rig) -> None:
    """The source cannot tell, and the target has it."""
    a, b = await rig.host("a"), await rig.host("b")
    b.arrives_alone = True
    made = await rig.running("web")
    await rig.migrate("web", "b")
    await rig.until_phase("web", "moving")
    a.peers = {}
    rig.step(a)
    a.copies[made.id].state, b.copies[made.id].received = "moved", "running"
    b.work()
    row = await rig.row("web")
    assert row is not None
    stuck = SeenVM(made.id, row.generation, "switching", "switchover_stuck", "?", "permanent")
    await rig.report("a", stuck)
    for _ in range(3):
        await rig.one_round()
    await rig.settle()
    assert await rig.state("web") == ("running", "b")
    await rig.converged()


async def source_lost(rig: Rig) -> None:
    """The source dies after everything was sent, and the target is slow to speak."""
    for name in ("a", "b", "c"):
        host = await rig.host(name, guard=GUARD_STOP_S)
        host.arrives_alone = True
    await rig.running("web", restart="elsewhere")
    await rig.pass_by(4)
    a, b = rig.agents["a"], rig.agents["b"]
    await rig.migrate("web", "b")
    await rig.until_phase("web", "moving")
    a.listen()
    a.work()
    a.disconnect()
    b.outbox.clear()
    limit = TIMERS.lease_s * TIMERS.fence_margin + GUARD_STOP_S + 2 * TIMERS.watch_s
    b.mute = True
    await rig.pass_by(limit)
    b.mute = False
    await rig.pass_by(10)
    assert await rig.state("web") == ("running", "b")


async def target_fenced(rig: Rig) -> None:
    """The target ran it, and is fenced before it could say so."""
    for name in ("a", "b"):
        host = await rig.host(name, guard=GUARD_STOP_S)
        host.arrives_alone = True
    made = await rig.running("web", restart="elsewhere")
    await rig.pass_by(4)
    a, b = rig.agents["a"], rig.agents["b"]
    await rig.migrate("web", "b")
    await rig.until_phase("web", "moving")
    a.listen()
    a.work()
    b.work()
    b.disconnect()
    limit = TIMERS.lease_s * TIMERS.fence_margin + GUARD_STOP_S + 4 * TIMERS.watch_s
    await rig.pass_by(max(limit, TIMERS.offline_s) + 10)
    await rig.settle(keep=True)
    assert await rig.state("web") == ("running", "a")
    assert a.copies[made.id].order.restarts == 1  # booted anew


async def refused_and_then_room(rig: Rig) -> None:
    """A host refuses a VM, and starts it after all before it hears that it is not its own."""
    a, _ = await rig.host("a"), await rig.host("b")
    made = await rig.create("web")
    a.listen()
    said = SeenVM(made.id, 1, "failed", "insufficient_resources", "full", "capacity")
    await rig.report("a", said)
    inbox, a.inbox = a.inbox, []
    await rig.plane.run_singletons()
    a.work()
    for _ in range(3):
        await rig.plane.run_singletons()
        rig.step(rig.agents["b"])
        await rig.hear()
        rig.one_copy()
    a.inbox = inbox
    await rig.settle(keep=True)


Scenario = Callable[[Rig], object]
BROKEN: dict[str, tuple[Scenario, Callable[[Patch], None]]] = {}


def broken(scenario: Scenario) -> Callable[[Callable[[Patch], None]], None]:
    def add(mutate: Callable[[Patch], None]) -> None:
        assert mutate.__doc__
        BROKEN[mutate.__doc__] = (scenario, mutate)

    return add


@broken(lost_on_its_way)
def _(patch: Patch) -> None:
    """the ledger switches on the source's word"""
    plant("source's word", patch)


@broken(cancelled_at_the_last_moment)
def _(patch: Patch) -> None:
    """a cancelled move is over without asking the source"""
    patch.setitem(TABLE, ("cancelled", "moving"), (Abandon,))


@broken(undecided)
def _(patch: Patch) -> None:
    """the source goes on without asking the target"""
    instead_of_recalling(patch, Abandon, but="late")


@broken(undecided)
def _(patch: Patch) -> None:
    """the source goes on before the target has answered"""
    plant("no waiting for the target", patch)


@broken(source_lost)
def _(patch: Patch) -> None:
    """a fenced source's VMs are restarted without asking the target"""
    plant("target not asked", patch)


@broken(target_fenced)
def _(patch: Patch) -> None:
    """what the source kept goes on although the target may have run it"""
    for phase in ("landing", "recalling"):
        patch.setitem(TABLE, ("target fenced", phase), (GoBack,))


@broken(refused_and_then_room)
def _(patch: Patch) -> None:
    """a refused VM goes elsewhere before its host has let go of it"""
    plant("no waiting for the refuser", patch)


SCENARIOS = (
    lost_on_its_way,
    cancelled_at_the_last_moment,
    undecided,
    source_lost,
    target_fenced,
    refused_and_then_room,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_a_whole_control_plane_keeps_the_laws_when(database_url: str, scenario: Scenario) -> None:
    run(database_url, scenario)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_a_broken_control_plane_is_noticed(
    case: tuple[Scenario, Callable[[Patch], None]], tmp_path, monkeypatch: Patch
) -> None:
    scenario, mutate = case
    mutate(monkeypatch)
    with pytest.raises((AssertionError, asyncio.TimeoutError)):
        run(f"sqlite:///{tmp_path}/roost.db", scenario)  # type: ignore[arg-type]
