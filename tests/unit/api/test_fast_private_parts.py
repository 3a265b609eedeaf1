"""The parts of uvicorn and websockets that `api/fast` leans on are as it takes them to be.

None of them is promised by those libraries. When a test fails here after an upgrade, read what the
library does now, mend `roost.api.fast` (its head lists the parts), and only then this table.
"""

import ast
import asyncio
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
import uvicorn.server
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from websockets.datastructures import Headers
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.utils import apply_mask

from roost.api.fast.agentsocket import AgentSocket
from roost.api.fast.httpprotocol import LeanCycle, LeanHttp


def changed(part: str, what: str) -> str:
    """Return what a test says when a part is not what it was."""
    return f"{part} {what}: roost.api.fast builds on it, so look there before you upgrade"


def arguments(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.fixture
def connection() -> Iterator[HttpToolsProtocol]:
    """Yield a connection of uvicorn's own, at the beginning of a request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nothing is served here")

    loop = asyncio.new_event_loop()
    config = uvicorn.Config(app, http="httptools", log_config=None)
    made = HttpToolsProtocol(config, uvicorn.server.ServerState(), {}, _loop=loop)
    made.on_message_begin()
    yield made
    loop.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cycle", type(None)),  # none before the first request
        ("expect_100_continue", bool),
        ("connections", set),
        ("client", type(None)),  # none before it is connected
        ("flow", type(None)),
        ("scope", dict),
        ("headers", list),
        ("loop", asyncio.AbstractEventLoop),
        ("parser", object),
        ("server_state", uvicorn.server.ServerState),
        ("tasks", set),
        ("transport", object),
        ("url", bytes),
    ],
)
def test_a_connection_of_uvicorn_keeps_what_we_read(
    connection: HttpToolsProtocol, name: str, kind: type
) -> None:
    part = f"HttpToolsProtocol.{name} of uvicorn {uvicorn.__version__}"
    assert hasattr(connection, name), changed(part, "is gone")
    found = getattr(connection, name)
    assert found is None or isinstance(found, kind), changed(part, f"is now {found!r}")


@pytest.mark.parametrize("name", ["get_method", "get_http_version", "should_keep_alive"])
def test_the_parser_of_a_connection_answers_what_we_ask(
    connection: HttpToolsProtocol, name: str
) -> None:
    assert callable(getattr(connection.parser, name, None)), changed(f"parser.{name}", "is gone")


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("on_headers_complete", []),
        ("on_message_complete", []),
        ("on_response_complete", []),
        ("on_message_begin", []),
        ("connection_made", ["transport"]),
        ("connection_lost", ["exc"]),
        ("data_received", ["data"]),
        ("resume_writing", []),
        ("handle_websocket_upgrade", []),
        ("_should_upgrade", []),
        ("_unset_keepalive_if_required", []),
    ],
)
def test_what_we_override_or_call_is_called_as_ever(name: str, takes: list[str]) -> None:
    part = f"HttpToolsProtocol.{name}"
    assert hasattr(HttpToolsProtocol, name), changed(part, "is gone")
    assert arguments(getattr(HttpToolsProtocol, name)) == takes, changed(part, "takes other words")
    assert arguments(getattr(LeanHttp, name)) == takes


def test_a_cycle_and_the_flow_of_uvicorn_have_what_we_look_at() -> None:
    cycle = inspect.getsource(httptools_impl.RequestResponseCycle)
    for name in (
        "response_started",
        "waiting_for_100_continue",
        "response_complete",
        "disconnected",
        "message_event",
    ):
        assert f"self.{name} =" in cycle, changed(f"RequestResponseCycle.{name}", "is gone")
    flow = inspect.getsource(httptools_impl.FlowControl)
    for name in ("read_paused", "write_paused"):
        assert f"self.{name} =" in flow, changed(f"FlowControl.{name}", "is gone")


def test_uvicorn_asks_nothing_of_a_cycle_that_ours_does_not_have() -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(HttpToolsProtocol)))
    asked = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) in ("self.cycle", "existing_cycle")
    }
    assert asked, changed("HttpToolsProtocol", "has no cycle any more")
    ours = LeanCycle("/", [], keep_alive=True, known=None)
    missing = {name for name in asked if not hasattr(ours, name)}
    assert not missing, changed("RequestResponseCycle", f"is asked for {sorted(missing)} as well")
    assert ours.message_event.set() is None  # type: ignore[func-returns-value]


def test_status_lines_are_whole_lines_by_number() -> None:
    line = getattr(httptools_impl, "STATUS_LINE", {}).get(409)
    assert line == b"HTTP/1.1 409 Conflict\r\n", changed("STATUS_LINE of uvicorn", f"has {line!r}")


def test_the_state_of_a_server_has_connections_and_default_headers() -> None:
    state = uvicorn.server.ServerState()
    assert isinstance(state.connections, set), changed("ServerState.connections", "is no set")
    assert isinstance(state.default_headers, list), changed("ServerState.default_headers", "moved")


def test_an_upgraded_connection_is_handed_over_as_ever() -> None:
    found = inspect.getsource(HttpToolsProtocol.handle_websocket_upgrade)
    calls = [node for node in ast.walk(ast.parse(textwrap.dedent(found)))
             if isinstance(node, ast.Call)]  # fmt: skip
    made = [[word.arg for word in call.keywords] for call in calls
            if ast.unparse(call.func) == "self.ws_protocol_class"]  # fmt: skip
    said = changed("handle_websocket_upgrade of uvicorn", "hands a connection over otherwise")
    assert made == [arguments(AgentSocket)], said
    for step in ("connection_made(self.transport)", "data_received(", "set_protocol(protocol)"):
        assert step in found, said
    assert ".shutdown()" in inspect.getsource(uvicorn.server.Server.shutdown), changed(
        "Server.shutdown of uvicorn", "does not shut each connection down any more"
    )


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("accept", ["request"]),
        ("close_expected", []),
        ("data_to_send", []),
        ("events_received", []),
        ("receive_data", ["data"]),
        ("reject", ["status", "text"]),
        ("send_close", ["code", "reason"]),
        ("send_response", ["response"]),
    ],
)
def test_the_parser_of_websockets_is_called_as_ever(name: str, takes: list[str]) -> None:
    part = f"ServerProtocol.{name} of websockets"
    assert hasattr(ServerProtocol, name), changed(part, "is gone")
    assert arguments(getattr(ServerProtocol, name)) == takes, changed(part, "takes other words")


def test_a_parser_that_starts_open_knows_whether_a_message_is_under_way() -> None:
    wire = ServerProtocol(state=State.OPEN, max_size=100)
    part = "ServerProtocol.current_size of websockets"
    assert hasattr(wire, "current_size"), changed(part, "is gone")
    sizes = []
    for first, data in ((0x01, b"ab"), (0x00, b"c"), (0x80, b"d")):  # text, more, the end
        wire.receive_data(bytes([first, 0x80 | len(data), 0, 0, 0, 0]) + data)
        sizes.append(wire.current_size)
    frames = wire.events_received()
    assert sizes[0] is not None, changed(part, "does not tell of a message under way")
    assert sizes[-1] is None, changed(part, "does not end with its message")
    assert [type(each) for each in frames] == [Frame] * 3, changed("events_received()", "is new")
    assert wire.state is State.OPEN


def test_frames_requests_and_responses_have_the_fields_we_use() -> None:
    said = changed("a type of websockets", "has other fields")
    assert arguments(Frame)[:3] == ["opcode", "data", "fin"], said
    assert {"TEXT", "BINARY", "CONT"} <= set(Opcode.__members__), said
    assert arguments(Request)[:2] == ["path", "headers"], said
    assert arguments(Response)[:4] == ["status_code", "reason_phrase", "headers", "body"], said
    assert Headers([("a", "1"), ("A", "2")]).get_all("a") == ["1", "2"], said


def test_a_mask_is_applied_by_four_bytes() -> None:
    masked = apply_mask(b"hello", b"\x01\x02\x03\x04")
    assert masked == b"igohn", changed("apply_mask of websockets", f"gives {masked!r}")
