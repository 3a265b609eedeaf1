"""Gates fail as networks do: silently, in one direction, late, or with a reset."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.campaign.proxy import Gate, Network, Way

_PATIENCE_S = 30.0
#: Long enough for what passes to have passed, on loopback.
_MOMENT_S = 0.2


class Echo:
    """A server that takes what comes and sends it back, one line at a time."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                visitor, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(visitor,)))
            self._threads[-1].start()

    def _serve(self, visitor: socket.socket) -> None:
        with visitor, visitor.makefile("rb") as lines:
            try:
                for line in lines:
                    self.heard.append(line)
                    visitor.sendall(line)
            except OSError:
                return  # it was reset

    def close(self) -> None:
        """Listen no more, and wait for all visitors to leave."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(_PATIENCE_S)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def gate(echo: Echo) -> Iterator[Gate]:
    with Network() as network:
        yield network.gate(echo.port)


@contextmanager
def visitor(gate: Gate) -> Iterator[socket.socket]:
    port = int(gate.url.rpartition(":")[2])
    with closing(socket.create_connection(("127.0.0.1", port), _PATIENCE_S)) as made:
        yield made


def hears(visitor: socket.socket, within_s: float = _PATIENCE_S) -> bytes | None:
    visitor.settimeout(within_s)
    try:
        return visitor.recv(100)
    except TimeoutError:
        return None


def test_an_open_gate_passes_everything_both_ways(gate: Gate) -> None:
    with visitor(gate) as one, visitor(gate) as other:
        for each, said in ((one, b"one\n"), (other, b"other\n")):
            each.sendall(said)
            assert hears(each) == said


def test_a_shut_gate_takes_everything_and_says_nothing(gate: Gate, echo: Echo) -> None:
    with visitor(gate) as before:
        before.sendall(b"1\n")
        assert hears(before) == b"1\n"
        gate.shut()
        before.sendall(b"2\n")
        with visitor(gate) as later:
            later.sendall(b"3\n")
            assert hears(before, _MOMENT_S) is None
            assert hears(later, _MOMENT_S) is None
            assert echo.heard == [b"1\n"]
            gate.open()
            assert hears(before) == b"2\n"
            assert hears(later) == b"3\n"


@pytest.mark.parametrize(("way", "arrives"), [("up", False), ("down", True)])
def test_one_direction_can_be_shut_alone(gate: Gate, echo: Echo, way: Way, arrives: bool) -> None:
    with visitor(gate) as one:
        one.sendall(b"1\n")
        assert hears(one) == b"1\n"
        gate.shut(way)
        one.sendall(b"2\n")
        assert hears(one, _MOMENT_S) is None
        assert (b"2\n" in echo.heard) == arrives
        gate.open()
        assert hears(one) == b"2\n"


def test_what_a_gate_held_back_is_lost_with_a_reset(gate: Gate, echo: Echo) -> None:
    with visitor(gate) as one:
        one.sendall(b"1\n")
        assert hears(one) == b"1\n"
        gate.shut()
        one.sendall(b"2\n")
        gate.reset()
        with pytest.raises(ConnectionResetError):
            hears(one)
        gate.open()
    with visitor(gate) as again:
        again.sendall(b"3\n")
        assert hears(again) == b"3\n"
    assert echo.heard == [b"1\n", b"3\n"]


def test_a_slow_gate_is_late(gate: Gate) -> None:
    with visitor(gate) as one:
        gate.slow(_MOMENT_S)
        one.sendall(b"1\n")
        assert hears(one, _MOMENT_S) is None
        assert hears(one) == b"1\n"


def test_whoever_visits_a_server_that_is_down_is_reset() -> None:
    with socket.socket() as taken, Network() as network:
        taken.bind(("127.0.0.1", 0))  # and does not listen; nobody else gets the port
        gate = network.gate(taken.getsockname()[1])
        # It may come as early as the visit itself.
        with pytest.raises(ConnectionResetError), visitor(gate) as one:
            hears(one)


def test_a_network_that_is_shut_can_be_closed(echo: Echo) -> None:
    with Network() as network:
        gate = network.gate(echo.port)
        with visitor(gate) as one:
            one.sendall(b"1\n")
            assert hears(one) == b"1\n"
            gate.shut()
            one.sendall(b"2\n")
