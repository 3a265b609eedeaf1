"""Whole connections, drawn by Hypothesis, harm nobody; mistakes that would let them are found.

`make fuzz` runs more and longer attacks of the same kind. Each law is seen red once: a mistake is
planted into the production code, and the words that use it are said over real connections.
"""

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Connection

from roost.api.fast.agentsocket import AgentSocket
from roost.api.fast.httpprotocol import LeanHttp
from roost.control.agents.sessions import Agents, Session
from roost.control.vms import lookup
from roost.ledger.schema.rows import VMRow
from roost.parts.access import Principal
from roost.wire.agentlink import PROTOCOL, Hello
from tests.fuzz.attack import CONVERSATION, Attack, attacks, frame, requests
from tests.fuzz.siege import EVIL, Siege, request
from tests.sim.test_rogue import any_hello, anybody_reports, not_tried

Patch = pytest.MonkeyPatch
# What is drawn from has a long name: that is no reason to fail.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")


def test_an_attack_over_whole_connections_harms_nobody() -> None:
    run_state_machine_as_test(Attack, settings=attacks(5, 15))


def members_see_all(patch: Patch) -> None:
    """Find VMs of every project, whoever asks."""
    real = lookup.vm_row

    def vm_row(connection: Connection, ref: str, project: str | None, who: Principal) -> VMRow:
        return real(connection, ref, project, Principal(who.name, "operator"))

    patch.setattr(lookup, "vm_row", vm_row)


def nobody_catches(patch: Patch) -> None:
    """Take a hello in a task whose exceptions nobody asks for."""

    async def take(self: Session, hello: Hello) -> None:
        try:
            await self._register(hello)
        finally:
            self._greeting = False

    patch.setattr(Session, "_hello", take)


def tasks_wait(patch: Patch) -> None:
    """Leave a task behind for every connection that is lost."""
    real = Session.closed
    kept: list[asyncio.Task[None]] = []

    def closed(self: Session) -> None:
        real(self)
        kept.append(asyncio.ensure_future(self._agents.clock.sleep(1e9)))

    patch.setattr(Session, "closed", closed)


def sessions_stay(patch: Patch) -> None:
    """Forget to tell a session that its connection is lost."""
    patch.setattr(Agents, "detach", lambda self, session, number: None)


def connections_stay(patch: Patch) -> None:
    """Forget to count a connection out that is lost in the middle of a request."""
    real = LeanHttp.connection_lost

    def lost(self: LeanHttp, exc: Exception | None) -> None:
        real(self, exc)
        if self._unread_bytes or self._receiving:
            self.connections.add(self)

    patch.setattr(LeanHttp, "connection_lost", lost)


_HELLO = {
    "type": "hello", "protocol": PROTOCOL, "host": EVIL, "instance": "first", "version": "1",
    "inventory": "KNOWN", "conversation": 2,
}  # fmt: skip
_MODELS = {
    **{name: {"total": 1000} for name in ("cpu_milli", "memory_bytes", "disk_bytes")},
    "devices": [{"model": f"a{n}"} for n in range(62)],
}
_OTHER_MODELS = _MODELS | {"devices": [{"model": "b"}]}
_LIE = {
    "type": "report",
    "vms": [{"id": "ID-OF-web", "generation": 1, "seen": "failed", "code": "x"}],
}
#: A mistake, what an agent says and a client asks, and a word of the law that it breaks.
MISTAKES: dict[Any, tuple[list[Any], bytes, str]] = {
    not_tried: ([_HELLO | {"inventory": _MODELS}, _HELLO | {"inventory": _OTHER_MODELS}], b"",
                "stuck"),
    anybody_reports: ([_HELLO, _LIE], b"", "vms of others"),
    any_hello: ([_HELLO | {"host": "h2"}], b"", "connection of h2"),
    nobody_catches: ([_HELLO | {"inventory": _MODELS}], b"", "nobody handled"),
    tasks_wait: ([_HELLO], b"", "tasks are left"),
    sessions_stay: ([_HELLO], b"", "agents are left"),
    members_see_all: ([], request("DELETE", "/api/v1/vms/ID-OF-web"), "vms of others"),
    connections_stay: ([], b"GET / HTTP/1.1\r\nHo", "connections are left"),
}  # fmt: skip


async def _attack(siege: Siege, said: list[Any], asked: bytes) -> None:
    agent, client = await siege.open_agent(), await siege.open_client()
    try:
        await siege.send(agent, *(frame(siege.said(message)) for message in said))
        await siege.send(client, siege.named(asked))
        await siege.look()
        await siege.pass_by(1.0)
        await siege.look()
    finally:
        for line in (agent, client):
            await line.close(rudely=True)
    await siege.leave()


@pytest.mark.turns(2)
@pytest.mark.parametrize("planted", [False, True], ids=["as it is", "planted"])
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_planted_mistake_breaks_its_law(mistake: Any, planted: bool, monkeypatch: Patch) -> None:
    said, asked, law = MISTAKES[mistake]
    if planted:
        mistake(monkeypatch)
    siege = Siege()
    siege.begin()
    try:
        with pytest.raises(AssertionError, match=law) if planted else nullcontext():
            siege.do(lambda: _attack(siege, said, asked))
    finally:
        monkeypatch.undo()
        siege.running.server.server_state.connections.clear()
        siege.end()


# What stays in memory


async def _converse(siege: Siege, said: list[Any], asked: list[bytes], cut: int) -> None:
    """Open both kinds of connection, say everything but the last bytes, and hang up."""
    agent, client = await siege.open_agent(), await siege.open_client()
    await siege.send(agent, *(frame(siege.said(message)) for message in said))
    await siege.send(agent, frame(b"x" * 40)[:cut])
    await siege.send(client, siege.named(b"".join(asked))[: -cut or None])
    for line in (agent, client):
        await line.close(rudely=bool(cut))
    await siege.pass_by(1.0)


def grown(said: list[Any], asked: list[bytes], cut: int, times: int = 12) -> dict[str, int]:
    """Return of which types there are more objects the more often a conversation is held."""
    siege = Siege()
    siege.begin()
    try:
        for _ in range(4):  # what is made once
            siege.do(lambda: _converse(siege, said, asked, cut))
        before = siege.objects()
        for _ in range(times):
            siege.do(lambda: _converse(siege, said, asked, cut))
        after = siege.objects()
        siege.do(siege.leave)
        # Half of the times: a timer that is still set keeps a few of the last ones.
        return {
            kind: n - before[kind] for kind, n in after.items() if n - before[kind] >= times // 2
        }
    finally:
        siege.end()


_ASKED = st.lists(requests(), min_size=1, max_size=3)


@settings(attacks(4, 1))
@given(CONVERSATION.map(list), _ASKED, st.integers(0, 20))
def test_a_conversation_that_is_repeated_leaves_nothing_in_memory(
    said: list[Any], asked: list[bytes], cut: int
) -> None:
    assert grown(said, asked, cut) == {}


def test_who_hangs_up_on_an_answer_leaves_nothing_in_memory() -> None:
    # Once it is written, a timer is set; then the reset of who has not read it arrives.
    assert grown([], [request("GET", "/api/v1/openapi.json")], 0) == {}


def keep_sockets(patch: Patch) -> None:
    """Keep every connection of an agent in a list."""
    real, kept = AgentSocket.connection_lost, []

    def lost(self: AgentSocket, exc: Exception | None) -> None:
        real(self, exc)
        kept.append(self)

    patch.setattr(AgentSocket, "connection_lost", lost)


def test_what_is_kept_in_memory_is_found(monkeypatch: Patch) -> None:
    keep_sockets(monkeypatch)
    assert any("AgentSocket" in kind for kind in grown([{"type": "heartbeat"}], [b"GET"], 3))
