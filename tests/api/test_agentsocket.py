"""The agents' WebSocket: real connections, whole and broken frames, bad peers, shutdown.

An agent that sends heartbeats without a hello is told so each time: that is the answer by which
these tests see that a message has come through.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Event

import msgspec
import pytest
import websockets
from websockets.asyncio.client import ClientConnection, connect

from roost.api.fast import agentsocket
from roost.base.errors import FleetUnavailable, Forbidden, NotFound
from roost.control.agents import sessions
from roost.testing.clock import HandClock
from roost.wire.agentlink import MOST_BYTES, Heartbeat, Refused, decode_to_agent, encode
from tests.api.planes import TappedSession, token
from tests.api.serving import TIMEOUT_S, Running, serving

HANDSHAKE = (
    "GET /api/v1/agents/connect HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    f"Sec-WebSocket-Version: 13\r\nAuthorization: Bearer {token('agent')}\r\n\r\n"
).encode()


def address(running: Running) -> str:
    """Return where agents connect."""
    return running.server.url.replace("http", "ws") + agentsocket.PATH


@asynccontextmanager
async def agent(running: Running, role: str = "agent") -> AsyncIterator[ClientConnection]:
    """Connect as an agent."""
    headers = {"Authorization": f"Bearer {token(role)}"}
    async with connect(
        address(running), additional_headers=headers, max_size=None, open_timeout=TIMEOUT_S
    ) as connection:
        yield connection


async def session_of(running: Running) -> TappedSession:
    """Return the session of the only connection."""
    await until(lambda: len(running.plane.agents.sessions) == 1)
    return running.plane.agents.sessions[0]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that follows soon."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def gone(session: TappedSession) -> None:
    """Wait until the session has heard that its connection is gone."""
    async with asyncio.timeout(TIMEOUT_S):
        await session.gone.wait()


def beat(number: int, size: int = 0) -> bytes:
    """Return a heartbeat, filled up with blanks to a size."""
    return encode(Heartbeat(number)).ljust(size)


async def answered(connection: ClientConnection) -> None:
    """Read the answer to a heartbeat without a hello."""
    async with asyncio.timeout(TIMEOUT_S):
        answer = decode_to_agent(await connection.recv(decode=False))
    assert answer == Refused("invalid_request", "say hello first")


def frame(payload: bytes, first: int = 0x81) -> bytes:
    """Return a masked frame of a short payload."""
    mask = os.urandom(4)
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    size = len(payload)
    head = bytes([first, 0x80 | size]) if size < 126 else bytes([first, 0xFE]) + size.to_bytes(2)
    return head + mask + masked


@asynccontextmanager
async def raw(
    running: Running,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect without a library in between."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
    try:
        writer.write(HANDSHAKE)
        async with asyncio.timeout(TIMEOUT_S):
            answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 ")
        yield reader, writer
    finally:
        writer.close()


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 1_000_000])
def test_messages_of_every_length_are_answered(size: int) -> None:
    async def run() -> None:
        async with serving() as running, agent(running) as connection:
            message = beat(1, size)
            await connection.send(message)
            await connection.send(message.decode())
            for _ in range(2):
                await answered(connection)
            assert (await session_of(running)).messages == [message, message]

    asyncio.run(run())


@pytest.mark.parametrize("size", [1, 125, 126, 65_535, 65_536, 1_000_000])
def test_what_the_session_sends_arrives_whole(size: int) -> None:
    async def run() -> None:
        async with serving() as running, agent(running) as connection:
            (await session_of(running)).link.send(b"m" * size)
            async with asyncio.timeout(TIMEOUT_S):
                assert await connection.recv(decode=False) == b"m" * size

    asyncio.run(run())


def test_an_idle_connection_holds_no_parser() -> None:
    async def run() -> None:
        async with serving() as running, agent(running) as connection:
            session = await session_of(running)
            parts = beat(3).decode()
            for message in (beat(1), beat(2, 200_000), [parts[:5], parts[5:9], parts[9:]]):
                await connection.send(message)
                await answered(connection)
            await (await connection.ping())
            assert isinstance(session.link, agentsocket.AgentSocket)
            assert session.link._wire is None
            assert session.link._fragments is None
            assert session.messages[2] == beat(3)

    asyncio.run(run())


@pytest.mark.parametrize("cut", [1, 2, 5, 6, 7, 20, 139, 140, 141, 150])
def test_messages_arrive_whole_however_the_bytes_are_cut(cut: int) -> None:
    part = beat(3)
    stream = (
        frame(beat(1))
        + frame(beat(2, 130))
        + frame(part[:4], first=0x01)
        + frame(b"", first=0x89)
        + frame(part[4:], first=0x80)
        + frame(beat(4), first=0x82)
    )

    async def run() -> None:
        async with serving() as running, raw(running) as (reader, writer):
            session = await session_of(running)
            for at in range(0, len(stream), cut):
                writer.write(stream[at : at + cut])
                await writer.drain()
                await asyncio.sleep(0)
            async with asyncio.timeout(TIMEOUT_S):
                for _ in range(4):
                    await reader.readuntil(b"say hello first")
            assert session.messages == [beat(1), beat(2, 130), beat(3), beat(4)]

    asyncio.run(run())


def test_a_token_that_must_be_looked_up_is_let_in() -> None:
    async def run() -> None:
        async with serving() as running, agent(running, "slowagent") as connection:
            await connection.send(beat(1))
            await answered(connection)
            session = await session_of(running)
            assert session.principal.host == "h2"
            assert session.link.peer.startswith("127.0.0.1:")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "header", "status", "code"),
    [
        ("", None, 401, "unauthorized"),
        ("", "Basic x", 401, "unauthorized"),
        ("", "Bearer nobody", 401, "unauthorized"),
        ("", f"Bearer {token('admin')}", 403, "forbidden"),
        ("", f"Bearer {token('member')}", 403, "forbidden"),
        ("/x", f"Bearer {token('agent')}", 404, "not_found"),
    ],
)
def test_the_handshake_refuses(path: str, header: str | None, status: int, code: str) -> None:
    async def run() -> None:
        async with serving() as running:
            headers = {} if header is None else {"Authorization": header}
            with pytest.raises(websockets.InvalidStatus) as caught:
                await connect(address(running) + path, additional_headers=headers)
            response = caught.value.response
            assert response.status_code == status
            assert code in bytes(response.body or b"").decode()
            assert response.headers["Content-Type"] == "application/json"
            assert running.plane.agents.sessions == []
            await until(lambda: not running.server.server_state.connections)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("line", "status"),
    [(b"Sec-WebSocket-Version: 13\r\n", b"400"), (b"Sec-WebSocket-Key: dGhl", b"400")],
)
def test_a_handshake_without_its_headers_is_refused(line: bytes, status: bytes) -> None:
    async def run() -> None:
        async with serving() as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
            writer.write(HANDSHAKE.replace(line, b"X: x\r\nY: " if b"Key" in line else b""))
            async with asyncio.timeout(TIMEOUT_S):
                answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 " + status)
            assert b'"code":"invalid_request"' in answer
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("failure", "code"), [(NotFound("no such host"), 1008), (FleetUnavailable("wait"), 1013)]
)
def test_a_plane_that_does_not_want_the_agent_closes(failure: Exception, code: int) -> None:
    async def run() -> None:
        async with serving() as running:
            running.plane.agents.failure = failure
            async with agent(running) as connection:
                await connection.wait_closed()
                assert connection.close_code == code

    asyncio.run(run())


@pytest.mark.parametrize("message", [b"", b"x", b'{"type": "nonsense"}'])
def test_what_cannot_be_read_is_refused_and_ends_the_connection(message: bytes) -> None:
    async def run() -> None:
        async with serving() as running, agent(running) as connection:
            await connection.send(message)
            await connection.wait_closed()
            assert connection.close_code == 1007
            await gone(await session_of(running))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("failure", "code"), [(msgspec.DecodeError("broken"), 1007), (Forbidden("not you"), 1008)]
)
def test_a_session_that_fails_at_a_message_ends_the_connection(
    failure: Exception, code: int
) -> None:
    async def run() -> None:
        async with serving() as running, agent(running) as connection:
            session = await session_of(running)
            session.failure = failure
            await connection.send(beat(1))
            await connection.wait_closed()
            assert connection.close_code == code
            await gone(session)

    asyncio.run(run())


def test_the_session_can_close_and_hears_of_it_once() -> None:
    async def run() -> None:
        async with serving() as running, agent(running) as connection:
            session = await session_of(running)
            session.link.close(1000, "as you wish")
            await connection.wait_closed()
            assert connection.close_code == 1000
            await gone(session)

    asyncio.run(run())


def test_an_agent_that_says_goodbye_is_answered() -> None:
    async def run() -> None:
        async with serving() as running:
            async with agent(running) as connection:
                session = await session_of(running)
                await connection.close(1001, "going away")
            assert connection.close_code == 1001
            await gone(session)
            session.link.send(b"too late")  # harmless
            session.link.close(1000, "too late")

    asyncio.run(run())


def test_an_agent_that_vanishes_is_noticed() -> None:
    async def run() -> None:
        async with serving() as running:
            async with raw(running) as (_, writer):
                session = await session_of(running)
                writer.transport.abort()
                await gone(session)
            await until(lambda: not running.server.server_state.connections)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x05hello", 1002),  # not masked
        (frame(b"x", first=0xC1), 1002),  # an extension nobody agreed on
        (frame(b"x", first=0x80), 1002),  # goes on with nothing
        (frame(b"x", first=0x83), 1002),  # no such opcode
        (b"\x81\xff" + (MOST_BYTES + 1).to_bytes(8) + b"mask", 1009),
    ],
    ids=["unmasked", "extension", "continuation", "opcode", "too large"],
)
def test_broken_frames_end_the_connection(data: bytes, code: int) -> None:
    async def run() -> None:
        async with serving() as running, raw(running) as (reader, writer):
            session = await session_of(running)
            writer.write(data)
            async with asyncio.timeout(TIMEOUT_S):
                answer = await reader.read()
            assert answer[:1] == b"\x88"
            assert int.from_bytes(answer[2:4]) == code
            await gone(session)

    asyncio.run(run())


def test_a_fragmented_message_may_not_exceed_the_limit_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agentsocket, "MOST_BYTES", 200)

    async def run() -> None:
        async with serving() as running, raw(running) as (reader, writer):
            writer.write(frame(b"x" * 100, first=0x01) + frame(b"x" * 101, first=0x80))
            async with asyncio.timeout(TIMEOUT_S):
                answer = await reader.read()
            assert int.from_bytes(answer[2:4]) == 1009

    asyncio.run(run())


def flood(session: TappedSession, messages: int) -> None:
    """Send an agent more than it can take, 1 MiB each."""
    for _ in range(messages):
        session.link.send(b"x" * 2**20)


def test_a_peer_that_does_not_read_is_dropped() -> None:
    async def run() -> None:
        async with serving() as running, raw(running) as (_, writer):
            session = await session_of(running)
            writer.transport.pause_reading()
            flood(session, 64)
            await gone(session)

    asyncio.run(run())


def test_a_peer_that_reads_nothing_for_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agentsocket, "STALLED_S", 0.2)
    monkeypatch.setattr(agentsocket, "MOST_WAITING_BYTES", 2**30)

    async def run() -> None:
        async with serving() as running, raw(running) as (_, writer):
            session = await session_of(running)
            writer.transport.pause_reading()
            flood(session, 32)
            await gone(session)

    asyncio.run(run())


def test_a_peer_that_ignores_the_closing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agentsocket, "CLOSING_S", 0.2)

    async def run() -> None:
        async with serving() as running, raw(running):
            session = await session_of(running)
            session.link.close(1000, "as you wish")
            await gone(session)

    asyncio.run(run())


def test_all_agents_are_told_when_the_server_stops() -> None:
    async def run() -> None:
        async with serving() as running:
            async with agent(running) as one, agent(running) as other:
                await until(lambda: len(running.plane.agents.sessions) == 2)
                running.server.should_exit = True
                async with asyncio.timeout(TIMEOUT_S):
                    await one.wait_closed()
                    await other.wait_closed()
                assert (one.close_code, other.close_code) == (1012, 1012)
            for session in running.plane.agents.sessions:
                await gone(session)

    asyncio.run(run())


def test_a_plain_request_to_the_socket_s_path_is_not_found() -> None:
    async def run() -> None:
        async with serving() as running:
            assert (await running.ask("GET", agentsocket.PATH)).status_code == 404

    asyncio.run(run())


def test_an_agent_whose_messages_take_too_long_is_read_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sessions, "_SHARE", 1e-9)  # whatever a message takes is too long
    monkeypatch.setattr(sessions, "_GRACE_S", 0.0)
    monkeypatch.setattr(sessions, "_MOST_REST_S", 0.3)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with serving() as running, agent(running) as connection:
            begun = loop.time()
            for number in range(4):
                await connection.send(beat(number))
                await answered(connection)
            assert loop.time() - begun > 0.8  # and is heard all the same

    asyncio.run(run())


def test_a_pause_of_the_process_is_not_held_against_an_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with serving() as running, agent(running) as connection:
            session = await session_of(running)
            monkeypatch.setattr(session, "received", lambda data: Event().wait(0.2))
            spent: list[float] = []
            monkeypatch.setattr(session, "rest_s", lambda seconds: spent.append(seconds) or 0.0)
            await connection.send(beat(1))
            await until(lambda: bool(spent))
            assert spent[0] < 0.1

    asyncio.run(run())


def test_what_an_agent_owes_is_made_up_for_in_the_longest_rest() -> None:
    async def run() -> None:
        clock = HandClock()
        async with serving() as running, agent(running):
            running.plane.plane.agents.clock = clock
            session = await session_of(running)
            assert session.rest_s(3.0) == sessions._MOST_REST_S
            clock.move(sessions._MOST_REST_S)
            assert session.rest_s(0.0) == 0.0
            clock.move(sessions._GRACE_S)
            assert session.rest_s(0.001) == 0.0

    asyncio.run(run())
