"""A rogue agent harms its own host only; mistakes that would let it do more are found.

Each mistake is planted into the production code and names a seed whose world breaks a law with it.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from roost.control.agents import intake
from roost.control.agents.sessions import Session
from roost.control.memory.roster import Roster
from roost.control.survive import restore_apply, restore_judge
from roost.control.topology import flows as counting
from roost.control.topology.flows import LearntTraffic
from roost.ledger.schema.rows import HostRow
from roost.ledger.schema.tables import vms
from roost.ledger.writes.transaction import Tx
from roost.sim.histories.draws import draw_rogue_history
from roost.sim.histories.history import Action, History
from roost.sim.world import run_history
from roost.wire.agentlink import FlowInfo, Hello, ProbeReply, SeenVM

Patch = pytest.MonkeyPatch
#: Worlds that are tried before a mistake counts as missed.
MOST_WORLDS = 40


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", range(4))
def test_other_hosts_and_their_vms_are_not_harmed(seed: int) -> None:
    verdict = run_history(draw_rogue_history(seed))
    assert verdict.broken == ""
    # It has really spoken, was really let in, and has put the ledger in doubt.
    assert verdict.coverage["commit.host.registered"] > 20
    assert verdict.coverage["commit.ledger.restored"] >= 1


def anybody_reports(patch: Patch) -> None:
    """Take a report on a VM from whichever host it comes."""
    real = intake._take

    def take(tx: Tx, host: int, seen: SeenVM, doubting: intake.Doubting) -> bool:
        found = tx.find(vms, id=seen.id)
        return real(tx, (found and found["host"]) or host, seen, doubting)

    patch.setattr(intake, "_take", take)
    patch.setattr(intake, "_of_their_own", lambda tx, latest: latest)


def anybody_lands(patch: Patch) -> None:
    """Take the word of any host that a VM which moves has arrived, as if it were its target."""
    real = intake._take

    def take(tx: Tx, host: int, seen: SeenVM, doubting: intake.Doubting) -> bool:
        found = tx.find(vms, id=seen.id)
        if found is not None and found["target"] is not None and host != found["host"]:
            host = found["target"]
        return real(tx, host, seen, doubting)

    patch.setattr(intake, "_take", take)
    patch.setattr(intake, "_of_their_own", lambda tx, latest: latest)


def any_generation(patch: Patch) -> None:
    """Let a VM that was found go beyond every generation that any host has said of it."""
    patch.setattr(restore_judge, "countable", lambda vm, found, had: list(found))
    patch.setattr(restore_apply, "MOST_GENERATION", 2**80)


def anybody_has_what_rests(patch: Patch) -> None:
    """Believe a stranger that has no room for a VM, though nobody has seen the VM leave home."""
    patch.setattr(restore_judge, "seen_to_leave", lambda vm, found, had: True)


def any_hello(patch: Patch) -> None:
    """Believe a hello about which host it is from, whatever the credential says."""
    real = Session._register

    async def register(self: Session, hello: Hello) -> None:
        self.host = hello.host
        await real(self, hello)

    patch.setattr(Session, "_register", register)


def not_tried(patch: Patch) -> None:
    """Write down what a host registers with, and see afterwards whether it fits the columns."""
    real = Roster._put_host

    def put_host(self: Roster, row: HostRow, generation: int) -> None:
        real(self, row, generation)
        if (why := self.hosts[row.number].aside) != "":
            raise ValueError(why)

    patch.setattr(Roster, "try_host", lambda self, name, inventory: None)
    patch.setattr(Roster, "_put_host", put_host)


def anybody_counts(patch: Patch) -> None:
    """Learn who talks from whichever host counts it, wherever the VM is."""
    real = LearntTraffic.take

    def take(self: LearntTraffic, host: int, flows: Sequence[FlowInfo]) -> None:
        entry = self._roster.hosts.get(host)
        with pytest.MonkeyPatch.context() as within:
            within.setattr(counting, "host_of_claim", lambda roster, claim: entry)
            real(self, host, flows)

    patch.setattr(LearntTraffic, "take", take)


def anybody_answers(patch: Patch) -> None:
    """Take the answer to a probe from whichever agent gives it."""
    asked: dict[int, asyncio.Future[ProbeReply | None]] = {}
    real = Session.__init__

    def begin(self: Session, *arguments: Any, **words: Any) -> None:
        real(self, *arguments, **words)
        self._probing = asked

    patch.setattr(Session, "__init__", begin)


def busy_with_moves(seed: int) -> History:
    """Return a world in which six VMs move, one after the other, without rest."""
    vms = [Action(0.0, "create", f"vm{number}", {"cpu": 1}) for number in range(6)]
    moves = [Action(5.0 + at, "migrate", f"vm{at % 6}") for at in range(60)]
    return History(seed, hosts=4, planes=1, calm_s=120.0, rogue=True, actions=[*vms, *moves])


def busy_with_rest(seed: int) -> History:
    """Return a world of VMs that execute nowhere: stopped, started again, waiting, deleted."""
    resting = {"cpu": 1, "restart": "elsewhere"}
    actions = [Action(0.0, "create", f"vm{n}", resting) for n in range(6)]
    actions += [Action(0.0, "create", f"waits{n}", {"cpu": 60, "queue": True}) for n in range(2)]
    actions += [Action(0.0, "create", f"ends{n}", {"cpu": 1}) for n in range(2)]
    actions += [Action(3.0, "stop", f"vm{n}") for n in range(6)]
    actions += [Action(4.0, "delete", f"ends{n}") for n in range(2)]
    for at in range(40):
        actions.append(Action(8.0 + at, ("start", "stop")[at // 6 % 2], f"vm{at % 6}"))
        actions.append(Action(8.5 + at, "create", f"new{at}", {"cpu": 1}))
    return History(seed, hosts=4, planes=1, calm_s=120.0, rogue=True, actions=actions)


def busy_with_probes(seed: int) -> History:
    """Return a world of four VMs whose network is measured without rest."""
    vms = [Action(0.0, "create", f"vm{number}", {"cpu": 1}) for number in range(4)]
    return History(
        seed, hosts=4, planes=1, calm_s=120.0, length_s=180.0, rogue=True, measured=True,
        actions=vms,
    )  # fmt: skip


@pytest.mark.turns(2)
def test_what_honest_hosts_measure_is_what_they_say() -> None:
    verdicts = [run_history(busy_with_probes(seed)) for seed in range(2)]
    assert [verdict.broken for verdict in verdicts] == [""] * 2
    assert all(verdict.coverage["measured"] > 1 for verdict in verdicts)
    # With the rogue among those who measure, too, if it names a door at that moment.
    assert sum(verdict.coverage.get("measured.rogue", 0) for verdict in verdicts) > 0


@pytest.mark.turns(2)
def test_what_executes_nowhere_keeps_its_host_and_its_turn() -> None:
    claimed = 0
    for seed in range(3, 6):
        verdict = run_history(busy_with_rest(seed))
        assert verdict.broken == ""
        claimed += verdict.coverage.get("commit.vm.not_adopted", 0)
    assert claimed > 0  # it was in doubt whether the rogue has some of them


#: A mistake, the worlds that find it, and the first seed that does.
FOUND_AT = {
    anybody_lands: (busy_with_moves, 0),
    anybody_has_what_rests: (busy_with_rest, 16),
    any_generation: (busy_with_rest, 23),
    anybody_reports: (draw_rogue_history, 0),
    anybody_counts: (draw_rogue_history, 0),
    any_hello: (draw_rogue_history, 0),
    not_tried: (draw_rogue_history, 0),
    anybody_answers: (busy_with_probes, 0),
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("mistake", FOUND_AT, ids=lambda mistake: mistake.__name__)
def test_a_planted_mistake_is_found(mistake, monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    world, first = FOUND_AT[mistake]
    for seed in range(first, first + MOST_WORLDS):
        if broken := run_history(world(seed)).broken:
            print(f"{mistake.__name__}: found at seed {seed}: {broken}")
            return
    raise AssertionError(f"found in none of {MOST_WORLDS} worlds")
