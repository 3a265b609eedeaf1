"""Probes between agents over loopback: who is let in, how much passes, and what is believed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf, nan

import pytest

from roost.agent.talk import probeline
from roost.agent.talk.probeline import (
    FLUSH_S,
    Found,
    Mark,
    ProbeDoor,
    ProbeFailed,
    measure,
    proof,
    rate_mbit,
    read_took,
    took_line,
)
from roost.agent.talk.probing import BURST_S, SHARE, ProbeSettings, Probing, TimeShare
from roost.base.clock import RealClock
from roost.testing.clock import HandClock
from roost.wire.agentlink import ProbeInfo, ProbeOrder, ProbeReply, probe_address

WORD, OTHER = "5" * 40, "6" * 40
LOOPBACK = "127.0.0.1"
MIB = 2**20


def order(word: str = WORD, address: str = "", **given: float) -> ProbeOrder:
    """Return an order of 4 MiB or a second each way."""
    return ProbeOrder(
        7, word, address, 5, int(given.get("bytes", 4 * MIB)), given.get("seconds", 1)
    )


@asynccontextmanager
async def probing() -> AsyncIterator[tuple[Probing, str]]:
    """Yield the probes of one host, and the address of its port."""
    made = Probing(ProbeSettings(LOOPBACK, 0), RealClock())
    try:
        yield made, (await made.info()).address
    finally:
        await made.close()


def run(test: Callable[[Probing, Probing, str], Awaitable[None]]) -> None:
    """Run a test with two hosts: one that probes, one that is probed, and where."""

    async def both() -> None:
        async with probing() as (one, _), probing() as (other, address):
            await test(one, other, address)

    asyncio.run(both())


async def said_to(address: str, *lines: bytes) -> bytes:
    """Say lines to a probe port; return all that it answers."""
    where = probe_address(address)
    assert where is not None
    reader, writer = await asyncio.open_connection(*where)
    writer.writelines(lines)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def test_one_agent_measures_the_way_to_another() -> None:
    async def test(one: Probing, other: Probing, address: str) -> None:
        assert await other.answer(order(bytes=32 * MIB)) == ProbeReply(7)
        found = await one.answer(order(address=address, bytes=32 * MIB))
        assert (found.number, found.code, found.message) == (7, "", "")
        assert found.round_trip_ms is not None
        assert found.median_ms is not None
        assert 0 < found.round_trip_ms <= found.median_ms < 1000
        assert found.out_mbit is not None
        assert found.back_mbit is not None

    run(test)


def test_who_does_not_know_the_word_is_not_let_in() -> None:
    async def test(one: Probing, other: Probing, address: str) -> None:
        assert await said_to(address, b"ping x\n") == b""  # nobody is expected yet
        await other.answer(order())
        for verb in (b"ping", b"take", b"give"):
            wrong = proof(OTHER, "prober", verb.decode())
            assert await said_to(address, verb + b" " + wrong + b"\n") == b""
            # What a target says is no proof of a prober, nor is the proof of another verb.
            for side, other_verb in (("target", verb.decode()), ("prober", "pong")):
                stolen = proof(WORD, side, other_verb)
                assert await said_to(address, verb + b" " + stolen + b"\n") == b""
        found = await one.answer(order(OTHER, address))
        assert (found.code, found.round_trip_ms, found.out_mbit) == ("probe_refused", None, None)

    run(test)


def test_a_proof_is_good_for_one_connection() -> None:
    async def test(one: Probing, other: Probing, address: str) -> None:
        await other.answer(order())
        assert (await one.answer(order(address=address))).code == ""
        for verb in ("ping", "take", "give"):
            again = b"%s %s\n" % (verb.encode(), proof(WORD, "prober", verb))
            assert await said_to(address, again) == b""
        assert (await one.answer(order(address=address))).code == "probe_refused"

    run(test)


def test_a_stranger_at_the_address_is_sent_nothing_but_one_line() -> None:
    heard, ended = bytearray(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        heard.extend(line)
        writer.write(line.replace(b"ping", b"here"))  # sent back, as an echo would
        heard.extend(await reader.read())
        writer.close()
        ended.set()

    async def test(one: Probing, other: Probing, address: str) -> None:
        server = await asyncio.start_server(answer, LOOPBACK, 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            found = await one.answer(order(address=f"{LOOPBACK}:{port}"))
            await ended.wait()
        assert found.code == "probe_stranger"
        assert heard.count(b"\n") == 1
        assert WORD.encode() not in heard
        assert found.out_mbit is None

    run(test)


def test_a_target_that_never_answers_costs_a_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probeline, "_LINE_S", 0.1)
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    async def test(one: Probing, other: Probing, address: str) -> None:
        server = await asyncio.start_server(silent, LOOPBACK, 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            found = await one.answer(order(address=f"{LOOPBACK}:{port}"))
            await ended.wait()
        assert found.code == "probe_timeout"
        assert "does not answer in time" in found.message
        refused = await one.answer(order(address=f"{LOOPBACK}:{port}"))
        assert refused.code == "probe_unreachable"

    run(test)


def test_strangers_without_end_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probeline, "_LINE_S", 30.0)

    async def test(one: Probing, other: Probing, address: str) -> None:
        await other.answer(order())
        where = probe_address(address)
        assert where is not None
        silent = [await asyncio.open_connection(*where) for _ in range(40)]
        ended = [asyncio.ensure_future(reader.read()) for reader, _ in silent]
        while sum(each.done() for each in ended) < 24:
            await asyncio.sleep(0.01)
        assert (await one.answer(order(address=address))).code == ""
        for _, writer in silent:
            writer.close()
        await asyncio.gather(*ended, return_exceptions=True)

    run(test)


def test_more_than_was_ordered_is_not_taken() -> None:
    async def test(one: Probing, other: Probing, address: str) -> None:
        await other.answer(order(bytes=64 * 1024))
        found = await one.answer(order(address=address, bytes=4 * MIB))
        assert found.round_trip_ms is not None
        assert (found.out_mbit, bool(found.code)) == (None, True)
        await other.answer(order(bytes=4 * MIB))
        asked = b"give %s\n" % proof(WORD, "prober", "give")
        given = await said_to(address, asked)
        assert len(given.partition(b"\n")[2]) == 4 * MIB
        await other.answer(order(bytes=2**60, seconds=1e9))
        expected = other._door._expected
        assert expected is not None
        assert (expected.bytes, expected.seconds) == (64 * MIB, 5.0)

    run(test)


@pytest.mark.parametrize(
    "line",
    [
        b"took 1 nan",
        b"took 1 inf",
        b"took 1 -inf",
        b"took 1 -5",
        b"took 1 0",
        b"took 1 1e10",
        b"took 1 1e999",
        b"took -1 5",
        b"took 101 5",
        b"took 1",
        b"took 1 5 5",
        b"gave 1 5",
        b"took one 5",
        b"took 1 \xff",
        b"",
    ],
)
def test_what_a_target_says_that_it_took_is_believed_within_bounds(line: bytes) -> None:
    with pytest.raises(ProbeFailed, match="makes no sense"):
        read_took(line, 100)


@pytest.mark.parametrize(("mbit", "read"), [(None, None), (941.25, 941.25), (1e9, 1e9)])
def test_what_a_target_took_is_read_back(mbit: float | None, read: float | None) -> None:
    assert read_took(took_line(mbit, 100).strip(), 100) == read


def test_the_rate_is_that_of_what_came_after_the_first_quarter() -> None:
    burst = [Mark(0.0, 100_000), Mark(0.0001, 250_000)]  # let through at once
    steady = [Mark(0.0001 + at / 100, 250_000 + at * 12_500) for at in range(1, 61)]
    assert rate_mbit([*burst, *steady]) == pytest.approx(10.0, rel=0.01)


@pytest.mark.parametrize(
    "marks",
    [
        [],
        [Mark(0.0, 5)],
        [Mark(0.0, 5), Mark(0.0, 10)],
        [Mark(0.0, 5), Mark(0.0005, 10)],
        [Mark(1.0, 5), Mark(2.0, 5)],
        [Mark(nan, 5), Mark(1.0, 100)],
        [Mark(0.0, 5), Mark(inf, 100)],
        [Mark(2.0, 50), Mark(1.0, 100)],
    ],
)
def test_a_rate_that_cannot_be_told_is_unknown(marks: list[Mark]) -> None:
    assert rate_mbit(marks) is None


def test_a_host_probes_for_a_share_of_its_time_alone() -> None:
    clock = HandClock()
    share = TimeShare(clock)
    assert share.wait_s(10.0) == 0
    share.spend(BURST_S)
    assert share.wait_s(10.0) == pytest.approx(10 / SHARE)
    clock.now += 10 / SHARE + 0.001
    assert share.wait_s(10.0) == 0
    clock.now += 1e9
    assert share.wait_s(BURST_S + 1) > 0


def test_orders_that_an_agent_does_not_carry_out_say_why() -> None:
    async def test(one: Probing, other: Probing, address: str) -> None:
        off = Probing(None, RealClock())
        assert await off.info() == ProbeInfo()
        assert (await off.answer(order())).code == "probe_off"
        for word in ("", "secret", "g" * 40):
            assert (await one.answer(order(word))).code == "probe_word"
        for where in ("nowhere", "a:b", "a:0", "a:65536", "http://a:1", "a b:1", "-:1\n",
                      "db.example:1", "1.2.3:1", "999.1.1.1:1", "[::1:1"):  # fmt: skip
            assert (await one.answer(order(address=where))).code == "probe_address"
        one._share.spend(BURST_S)
        spent = await one.answer(order())
        assert spent.code == "probe_share"
        assert "again in" in spent.message

    run(test)


def test_a_port_that_is_taken_is_told_and_tried_again() -> None:
    async def test(one: Probing, other: Probing, address: str) -> None:
        where = probe_address(address)
        assert where is not None
        late = Probing(ProbeSettings(*where), RealClock())
        info = await late.info()
        assert info.address == ""
        assert f"port {where[1]} of {LOOPBACK} cannot be opened" in info.why
        assert (await late.answer(order())).message == info.why
        await other.close()
        assert (await late.info()).address == address
        await late.close()

    run(test)


def test_one_host_measures_one_way_at_a_time() -> None:
    async def test(one: Probing, other: Probing, address: str) -> None:
        await other.answer(order())
        first = asyncio.create_task(one.answer(order(address=address)))
        await asyncio.sleep(0)
        assert (await one.answer(order(address=address))).code == "probe_busy"
        assert (await first).code == ""

    run(test)


def test_a_word_ends_with_its_time() -> None:
    async def test() -> None:
        clock, word = HandClock(), order()
        door = ProbeDoor(clock, lambda seconds: None)
        port = await door.open(LOOPBACK, 0)
        door.expect(word)
        clock.now += 60.0
        with pytest.raises(ProbeFailed, match="does not let it in"):
            await measure(word, LOOPBACK, port, RealClock(), Found())
        await door.close()

    asyncio.run(test())
    assert FLUSH_S < 60.0
