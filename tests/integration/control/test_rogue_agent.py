"""An agent may say anything of its own host, and of other hosts' VMs nothing that counts."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from sqlalchemy import func, select

from roost.control.survive.restore_apply import JUMP
from roost.control.survive.restore_judge import Settling
from roost.ledger.schema.tables import copies, doubts, events, tombstones
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.testing.agent import ModelAgent, inventory
from roost.wire.agentlimits import MOST_AHEAD, MOST_GENERATION
from roost.wire.agentlink import (
    CopyInfo,
    ProgressInfo,
    Report,
    SeenVM,
    encode,
)
from roost.wire.bodies import VMBody
from tests.integration.control.rawagent import connect, hello
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run


class Liar(ModelAgent):
    """An agent that answers a roll call as a test says."""

    lies: list[CopyInfo] | None = None

    def present(self) -> list[CopyInfo]:
        return self.lies if self.lies is not None else super().present()


async def liar(rig: Rig) -> Liar:
    """Let the host join whose agent lies."""
    agent = Liar("evil", rig.clock.monotonic, inventory(4, 8), peers=rig.agents)
    rig.agents["evil"] = agent
    agent.connect(rig.plane)
    await rig.settle(check=False)
    return agent


async def two_hosts(rig: Rig) -> tuple[Liar, VMBody, VMBody]:
    """Let an evil and a good host join, with a VM each."""
    evil = await liar(rig)
    own = await rig.running("own")
    await rig.host("good")
    await rig.plane.hosts.cordon("evil", ADMIN)
    web = await rig.running("web", restart="elsewhere")
    await rig.plane.hosts.uncordon("evil", ADMIN)
    assert await rig.state("web") == ("running", "good")
    return evil, own, web


async def in_doubt(rig: Rig) -> set[str]:
    return {row["vm"] for row in await rig.rows(select(doubts))}


async def count_events(rig: Rig) -> int:
    return int((await rig.rows(select(func.count().label("n")).select_from(events)))[0]["n"])


@pytest.mark.parametrize("generation", [MOST_GENERATION, MOST_AHEAD + 2], ids=["2^62", "ahead"])
def test_a_generation_that_no_honest_host_can_have_reached_changes_nothing(
    database_url: str, generation: int
) -> None:
    async def test(rig: Rig) -> None:
        _, own, web = await two_hosts(rig)
        before = await count_events(rig)
        for vm in (own, web):
            await rig.report("evil", SeenVM(vm.id, generation, "running"))
        assert await in_doubt(rig) == set()
        assert await count_events(rig) == before

    run(database_url, test)


def test_a_roll_call_cannot_raise_a_generation_beyond_what_agents_can_say(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        evil, own, web = await two_hosts(rig)
        evil.lies = [CopyInfo(vm.id, MOST_GENERATION, "gone") for vm in (own, web)]
        await rig.report("evil", SeenVM(own.id, 9, "running"))
        assert own.id in await in_doubt(rig)
        await rig.pass_by(100.0)
        assert await in_doubt(rig) == set()
        for name in ("own", "web"):
            assert (await rig.get(name)).generation <= 9 + JUMP
        assert await rig.state("web") == ("running", "good")
        assert rig.agents["good"].refusal is None

    run(database_url, test)


@pytest.mark.parametrize(
    "state", ["gone", "stopped", "moved", "leaving", "ready", "lost", "running"]
)
def test_what_a_stranger_says_of_a_running_vm_does_not_count(database_url: str, state: str) -> None:
    async def test(rig: Rig) -> None:
        evil, own, web = await two_hosts(rig)
        evil.lies = [
            CopyInfo(own.id, 9, "running"),
            CopyInfo(web.id, 9, state),  # type: ignore[arg-type]
        ]
        await rig.report("evil", SeenVM(own.id, 9, "running"))
        await rig.pass_by(20.0)
        assert await in_doubt(rig) == set()
        assert await rig.state("web") == ("running", "good")
        assert await rig.rows(select(copies)) == []
        await rig.plane.vms.delete("web", None, OPERATOR)
        await rig.settle()

    run(database_url, test)


@pytest.mark.parametrize("state", ["gone", "stopped", "running", "unclear"])
def test_what_a_stranger_says_of_a_vm_that_lies_at_home_does_not_count(
    database_url: str, state: str
) -> None:
    async def test(rig: Rig) -> None:
        evil = await liar(rig)
        own = await rig.running("own")
        await rig.host("good")
        await rig.running("web", constraints={"hosts": ["good"]})
        web = await rig.plane.vms.stop("web", None, OPERATOR)
        await rig.settle()
        evil.lies = [
            CopyInfo(own.id, 9, "running"),
            CopyInfo(web.id, 9, state),  # type: ignore[arg-type]
        ]
        await rig.report("evil", SeenVM(own.id, 9, "running"))
        await rig.pass_by(20.0)
        assert await in_doubt(rig) == set()
        assert await rig.state("web") == ("stopped", "good")

    run(database_url, test)


@pytest.mark.parametrize("state", ["running", "stopped", "moved"])
def test_a_strangers_word_destroys_nothing_that_home_has(database_url: str, state: str) -> None:
    async def test(rig: Rig) -> None:
        evil = await liar(rig)
        own = await rig.running("own")
        good = await rig.host("good")
        web = await rig.running("web", constraints={"hosts": ["good"]}, restart="elsewhere")
        await rig.plane.vms.stop("web", None, OPERATOR)
        await rig.settle()
        evil.lies = [
            CopyInfo(own.id, 9, "running"),
            CopyInfo(web.id, 9, state),  # type: ignore[arg-type]
        ]
        rig.excused.add((web.id, "good"))  # what is held has no claim
        await rig.report("evil", SeenVM(own.id, 9, "running"))
        await rig.pass_by(100.0)
        assert await in_doubt(rig) == set()
        assert good.copies[web.id].state == "stopped"
        assert (
            await rig.rows(select(tombstones).where(tombstones.c.host == rig.number("good"))) == []
        )
        host = (await rig.get("web")).host
        held = [each.id for each in good.held()]
        assert (host, held) in (("good", []), ("evil", [web.id]))
        if host == "evil":  # the way back: the ledger lets go of it, and good's copy is adopted
            evil.lies = None
            await rig.plane.vms.delete("web", None, OPERATOR)
            await rig.settle()
            await rig.plane.hosts.adopt_held("good", web.id, ADMIN)
            await rig.settle()
            assert await rig.state("web") == ("stopped", "good")

    run(database_url, test)


@pytest.mark.parametrize("state", ["running", "stopped", "gone"])
def test_a_stranger_without_room_takes_no_room_from_a_vm_at_rest(
    database_url: str, state: str
) -> None:
    async def test(rig: Rig) -> None:
        evil = await liar(rig)
        own = await rig.running("own")
        good = await rig.host("good", cpu=64)
        web = await rig.running("web", cpu=32, constraints={"hosts": ["good"]}, restart="elsewhere")
        await rig.plane.vms.stop("web", None, OPERATOR)
        await rig.settle()
        copy = CopyInfo(web.id, 9, state)  # type: ignore[arg-type]
        evil.lies = [CopyInfo(own.id, 9, "running"), copy]
        await rig.report("evil", SeenVM(own.id, 9, "running"))
        await rig.pass_by(100.0)
        assert (await rig.get("web")).host == "good"
        assert await in_doubt(rig) == (set() if state == "gone" else {web.id})
        evil.lies = [CopyInfo(own.id, 9, "running")]  # it takes back what it said, and is heard
        await rig.pass_by(100.0)
        assert await in_doubt(rig) == set()
        assert await rig.state("web") == ("stopped", "good")
        assert good.copies[web.id].state == "stopped"

    run(database_url, test)


def test_reports_of_other_hosts_vms_have_no_effect(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        _, _, web = await two_hosts(rig)
        before = await count_events(rig)
        progress = ProgressInfo(downtime_ms=9_000_000)
        for seen in ("running", "absent", "failed", "stopped", "arrived", "ready", "switching"):
            for generation in (0, web.generation, web.generation + 1):
                await rig.report("evil", SeenVM(web.id, generation, seen))  # type: ignore[arg-type]
        await rig.report("evil", SeenVM(web.id, web.generation, "moved", progress=progress))
        assert await count_events(rig) == before
        assert await rig.state("web") == ("running", "good")

    run(database_url, test)


def test_a_host_puts_the_ledger_in_doubt_once_and_not_again_and_again(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        _, own, _ = await two_hosts(rig)
        declared = 0
        for _ in range(10):
            at = (await rig.get("own")).generation
            await rig.report("evil", SeenVM(own.id, at + 1, "running"))
            declared += bool(await in_doubt(rig))
            await rig.pass_by(10.0)
            assert await in_doubt(rig) == set()
        assert declared == 1

    run(database_url, test)


def test_an_invented_point_of_the_ledger_counts_once_in_the_life_of_a_process(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        evil, _, _ = await two_hosts(rig)
        for at in range(3):
            said = hello("evil", msgspec.to_builtins(evil.inventory), instance=f"i{at}",
                         heard={"seq": 10**6 + at, "tx": "invented"}, conversation=1)  # fmt: skip
            _, session = connect(rig, "evil")
            session.received(said)
            await rig.plane.agents.settle()
            assert bool(await in_doubt(rig)) == (at == 0)
            session.closed()
            evil.connect(rig.plane)
            await rig.pass_by(12.0)
            assert await in_doubt(rig) == set()

    run(database_url, test)


def test_one_bad_vm_of_a_report_is_left_out_and_the_connection_goes_on(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1")
        made = await rig.create("web")
        assert agent.connected
        link, session = connect(rig, "h1")
        found: dict[str, Any] = msgspec.to_builtins(inventory(4, 8))
        session.received(hello("h1", found, conversation=9))
        await rig.plane.agents.settle()
        said = msgspec.to_builtins(Report([SeenVM(made.id, 1, "running")], full=True))
        said["vms"].insert(0, {"id": "x\ny", "generation": 2**70, "seen": "flying"})
        session.received(msgspec.json.encode(said))
        await rig.hear()
        assert link.closed is None
        assert (await rig.row("web")).observed == "running"  # type: ignore[union-attr]
        assert b"roost_agent_entries_left_out_total 1.0" in rig.plane.telemetry.text()
        session.received(b'{"type":"report","vms":7}')
        assert link.closed is not None
        assert b"roost_agent_messages_refused_total 1.0" in rig.plane.telemetry.text()
        agent.connect(rig.plane)
        await rig.settle()

    run(database_url, test)


def test_a_report_as_an_agent_encodes_it_is_still_taken_whole() -> None:
    report = Report([SeenVM("a", MOST_GENERATION, "running")])
    assert msgspec.json.decode(encode(report), type=Report) == report


def test_one_odd_copy_of_a_roll_call_does_not_keep_the_ledger_in_doubt(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        evil, own, web = await two_hosts(rig)
        evil.lies = [*evil.present(), CopyInfo("x\ny", 1, "running")]
        evil.copies[own.id].generation += 1
        await rig.report("evil", SeenVM(own.id, own.generation + 1, "running"))
        assert await in_doubt(rig) == {own.id, web.id}
        await rig.pass_by(6.0)
        assert await in_doubt(rig) == set()

    run(database_url, test)


def test_the_doctor_names_a_host_whose_answer_cannot_be_read(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        evil, own, _ = await two_hosts(rig)
        evil.lies = [*evil.present(), CopyInfo(3, 1, "running")]  # type: ignore[arg-type]
        evil.copies[own.id].generation += 1
        await rig.report("evil", SeenVM(own.id, own.generation + 1, "running"))
        await rig.pass_by(6.0)
        assert own.id in await in_doubt(rig)
        told = {each.check: each.message for each in (await rig.plane.doctor()).troubles}
        assert "host evil" in told["roll_call"]
        evil.lies = None
        await rig.pass_by(6.0)
        assert await in_doubt(rig) == set()
        assert (await rig.plane.doctor()).troubles == []

    run(database_url, test)


class _Again(Exception):
    """The database lets a transaction be repeated."""


class _Repeating:
    """A store that does every change twice: the first time it is rolled back."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def write(self, change: Callable[[Tx], Any]) -> Any:
        def in_vain(tx: Tx) -> None:
            change(tx)
            raise _Again

        with suppress(_Again):
            await self._store.write(in_vain)
        return await self._store.write(change)


def test_a_home_is_asked_again_twice_also_when_transactions_are_repeated(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        evil, own, web = await two_hosts(rig)
        settling = next(part for part in rig.plane.parts if isinstance(part, Settling))
        settling._store = _Repeating(settling._store)  # type: ignore[assignment]
        evil.lies = [CopyInfo(own.id, 9, "running"), CopyInfo(web.id, 9, "running")]
        await rig.report("evil", SeenVM(own.id, 9, "running"))
        asked = set()
        for _ in range(10):
            await rig.pass_by(2.0)
            asked.add(settling._asked_again.get(web.id, 0))
        assert asked == {0, 1, 2}
        assert await in_doubt(rig) == set()
        assert await rig.state("web") == ("running", "good")

    run(database_url, test)
