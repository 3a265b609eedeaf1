"""A real Prometheus as a reader of series, and one that is broken."""

import asyncio
from contextlib import suppress

import pytest

from roost.base.errors import InvalidRequest, SeriesUnavailable
from roost.model.series import HOUR_MS, MINUTE_MS, Resolution, Subject
from roost.series import prometheus
from roost.series.prometheus import PrometheusSeries
from tests.conformance.series import points
from tests.prometheus import BEGIN, END, MOMENTS, WEB, cpu

QUERIES = {"cpu_milli": 'cpu{vm="$name"}', "disk_read_bytes_per_s": 'rate(read{vm="$name"}[1m])'}


def read(url: str, **given: object) -> list[tuple[int, float]]:
    figure = str(given.pop("figure", "cpu_milli"))
    reader = PrometheusSeries(url, QUERIES)
    asked = reader.read(WEB, BEGIN, END, figures=[figure], **given)  # type: ignore[arg-type]
    return points(asyncio.run(asked), figure)


def test_readings_are_those_of_the_one_that_was_asked_for(prometheus_url: str) -> None:
    assert read(prometheus_url) == [(at, cpu(at)) for at in MOMENTS]


def test_rates_are_asked_for_as_rates(prometheus_url: str) -> None:
    found = read(prometheus_url, figure="disk_read_bytes_per_s")
    assert {round(value) for _, value in found[8:]} == {2000}


def test_a_long_span_takes_several_questions(
    prometheus_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(prometheus_url)
    monkeypatch.setattr(prometheus, "MOST_POINTS", 7)
    assert read(prometheus_url) == whole


def test_roll_ups_are_asked_for_as_such(prometheus_url: str) -> None:
    found = read(prometheus_url, figure="cpu_milli.max", resolution=Resolution.FIVE_MINUTES)
    assert found[1][0] == BEGIN + 5 * MINUTE_MS
    # Prometheus counts a bucket from behind: the reading at its end is in it.
    first = BEGIN + 5 * MINUTE_MS
    inside = [cpu(at) for at in range(first, first + 5 * MINUTE_MS + 1, 15_000)]
    assert found[1][1] == max(inside)
    assert [at for at, _ in found] == list(range(BEGIN, END, 5 * MINUTE_MS))


def test_a_query_that_gives_several_series_is_said(prometheus_url: str) -> None:
    reader = PrometheusSeries(prometheus_url, {"cpu_milli": "cpu"})
    with pytest.raises(SeriesUnavailable, match="2 series"):
        asyncio.run(reader.read(WEB, BEGIN, BEGIN + HOUR_MS))


def test_a_query_that_is_refused_is_said(prometheus_url: str) -> None:
    reader = PrometheusSeries(prometheus_url, {"cpu_milli": "cpu{"})
    with pytest.raises(SeriesUnavailable, match=r"refuses 'cpu\{'"):
        asyncio.run(reader.read(WEB, BEGIN, BEGIN + HOUR_MS))


def test_what_has_no_series_is_empty(prometheus_url: str) -> None:
    reader = PrometheusSeries(prometheus_url, QUERIES)
    assert len(asyncio.run(reader.read(Subject("vm", "x"), BEGIN, BEGIN + HOUR_MS))) == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b'HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{"status":"success"}',
        b'HTTP/1.1 503 no\r\ncontent-length: 2\r\n\r\n{}',
        b"HTTP/1.1 200 OK\r\n\r\n" + bytes(17 * 2**20),
    ],
    ids=["nothing", "no JSON", "no data", "no status", "too much"],
)  # fmt: skip
def test_a_broken_prometheus_says_so(answer: bytes) -> None:
    async def story() -> None:
        gone: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            with suppress(ConnectionError):
                writer.write(answer)
                await writer.drain()
            writer.close()
            gone.append(writer)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            series = PrometheusSeries(f"http://127.0.0.1:{port}", QUERIES)
            with pytest.raises(SeriesUnavailable):
                await series.read(WEB, BEGIN, BEGIN + HOUR_MS)
            while not gone:
                await asyncio.sleep(0)
            with suppress(ConnectionError):
                await gone[0].wait_closed()

    asyncio.run(story())


def test_one_that_is_silent_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "PATIENCE_S", 0.2)

    async def story() -> None:
        gone: list[asyncio.StreamWriter] = []

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            gone.append(writer)

        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            series = PrometheusSeries(f"http://127.0.0.1:{port}", QUERIES)
            with pytest.raises(SeriesUnavailable, match="does not answer"):
                await series.read(WEB, BEGIN, BEGIN + HOUR_MS)
            while not gone:
                await asyncio.sleep(0)
            with suppress(ConnectionError):
                await gone[0].wait_closed()

    asyncio.run(story())


def test_one_that_trickles_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "PATIENCE_S", 0.3)

    async def story() -> None:
        done = asyncio.Event()

        async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
            with suppress(ConnectionError):
                for _ in range(100):  # each piece is soon there, all of them take ten seconds
                    writer.write(b" ")
                    await writer.drain()
                    await asyncio.sleep(0.1)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            done.set()

        server = await asyncio.start_server(trickle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            series = PrometheusSeries(f"http://127.0.0.1:{port}", QUERIES)
            async with asyncio.timeout(5):
                with pytest.raises(SeriesUnavailable, match="does not answer"):
                    await series.read(WEB, BEGIN, BEGIN + HOUR_MS)
            await done.wait()

    asyncio.run(story())


@pytest.mark.parametrize("url", ["", "localhost:9090", "ftp://x", "http://"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        PrometheusSeries(url)
