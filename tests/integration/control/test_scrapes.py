"""What Prometheus is given: the text of its format, written in slices and shared by who asks."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from sqlalchemy import update

from roost.control.memory import exposition
from roost.control.memory.exposition import MOST_SHARED_S, SHARED_S, SLICE, Exposition
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.fleet.layout import CPU, DISK, MEMORY
from roost.ledger.schema.tables import hosts
from roost.ledger.writes.transaction import Tx
from roost.testing.clock import HandClock
from roost.wire.queries import Hosts
from tests.databases import opened
from tests.integration.ledger.records import add_host

#: What an operator may name a host is less; the format has to bear whatever a ledger says.
ODD = 'a "b"\\c\nd'


class Twin(Collector):
    """The lines of every host by Prometheus' own classes, metric by metric, all in one turn."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster

    def collect(self) -> Iterator[Metric]:
        arrays, used = self._roster.fleet.hosts.arrays, self._roster.fleet.hosts.used
        amounts = {"capacity": arrays.capacity, "committed": arrays.committed, "used": used}
        for name, column, unit, divisor in (
            ("cpu", CPU, "cores", 1000), ("memory", MEMORY, "bytes", 1), ("disk", DISK, "bytes", 1)
        ):  # fmt: skip
            for kind, values in amounts.items():
                text = f"{name} {kind} of a host."
                family = GaugeMetricFamily(
                    f"roost_host_{name}_{kind}_{unit}", text, labels=["host"]
                )
                for entry in self._roster.hosts.values():
                    if (value := int(values[entry.fleet_row, column])) >= 0:
                        family.add_metric([entry.name], value / divisor)
                yield family
        text = "1 while a host is online, 0 while it is suspect or offline."
        up = GaugeMetricFamily("roost_host_up", text, labels=["host"])
        for entry in self._roster.hosts.values():
            up.add_metric([entry.name], float(entry.row.health == "online"))
        yield up


def on_hosts(
    url: str, count: int, test: Callable[[Exposition, Roster, HandClock], Awaitable[None]]
) -> None:
    """Run a test on a roster of so many hosts; a silent one and one of an odd name among them."""

    def fill(tx: Tx) -> None:
        for number in range(1, count + 1):
            add_host(tx, number, cpu_milli=1500 * (number % 50 + 1), disk_bytes=number << 30)
        silent = update(hosts).where(hosts.c.number == 2).values(health="offline")
        tx.connection.execute(silent)
        tx.connection.execute(update(hosts).where(hosts.c.number == 3).values(name=ODD))
        tx.events.clear()

    async def whole() -> None:
        async with opened(url) as store:
            await store.write(fill)
            clock, telemetry, roster = HandClock(), Telemetry("1"), Roster("least_loaded")
            await store.read(roster.load)
            roster.fleet.hosts.used[:3, MEMORY] = 2**33 + 1, 10**6, 0
            telemetry.watch(roster)
            await test(Exposition(telemetry, roster, clock), roster, clock)

    asyncio.run(whole())


def test_the_lines_of_hosts_are_those_that_prometheus_writes_itself(sqlite_url: str) -> None:
    async def test(metrics: Exposition, roster: Roster, _clock: HandClock) -> None:
        twin = CollectorRegistry()
        twin.register(Twin(roster))
        text = await metrics.text()
        first = text.index(b"# HELP roost_host_cpu_capacity")
        assert text[first:] == generate_latest(twin)
        families = {f.name: f for f in text_string_to_metric_families(text.decode())}
        up = {sample.labels["host"]: sample.value for sample in families["roost_host_up"].samples}
        assert up == {"h1": 1, "h2": 0, ODD: 1, "h4": 1}
        by_state = [(s.labels, s.value) for s in families["roost_hosts"].samples if s.value]
        assert by_state == [
            ({"health": "online", "admin": "open"}, 3),
            ({"health": "offline", "admin": "open"}, 1),
        ]

    on_hosts(sqlite_url, 4, test)


def test_lines_of_hosts_are_left_out_or_told_alone(sqlite_url: str) -> None:
    async def test(metrics: Exposition, _roster: Roster, _clock: HandClock) -> None:
        async def names(hosts: Hosts) -> list[str]:
            text = (await metrics.text(hosts)).decode()
            return [family.name for family in text_string_to_metric_families(text)]

        rest, alone = await names("no"), await names("only")
        assert rest + alone == await names("yes"), "nothing is told twice, and all is told"
        assert len(alone) == 10
        assert all(name.startswith("roost_host_") for name in alone)
        assert {"roost_hosts", "roost_queue_oldest_seconds", "roost_build_info"} <= {*rest}

    on_hosts(sqlite_url, 4, test)


def test_ten_thousand_hosts_are_written_some_in_a_turn(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape of many hosts must not keep the loop: each turn writes a bounded number of them."""
    read: list[str] = []

    def name(entry: HostEntry) -> str:
        read.append(entry.row.name)
        return entry.row.name

    async def test(metrics: Exposition, _roster: Roster, _clock: HandClock) -> None:
        monkeypatch.setattr(HostEntry, "name", property(name))
        read.clear()
        writing, reached = metrics.text(), [0]
        text = b""
        while not text:
            try:
                writing.send(None)  # up to where it gives way
            except StopIteration as ended:
                text = ended.value
            reached.append(len(read))
        assert reached[-1] == 10_000, "every host is read, and none twice"
        assert max(after - before for before, after in pairwise(reached)) <= SLICE
        assert text.count(b"\nroost_host_up{") == 10_000

    on_hosts(sqlite_url, 10_000, test)


def test_a_host_that_goes_while_hosts_are_written_is_left_out(sqlite_url: str) -> None:
    async def test(metrics: Exposition, roster: Roster, _clock: HandClock) -> None:
        writing = asyncio.ensure_future(metrics.text())
        await asyncio.sleep(0)
        gone = roster.hosts.pop(SLICE + 1)
        text = await writing
        assert text.count(b"\nroost_host_up{") == SLICE + 1
        assert f'"{gone.name}"'.encode() not in text

    on_hosts(sqlite_url, SLICE + 2, test)


def test_those_who_ask_within_a_second_are_given_the_same(sqlite_url: str) -> None:
    async def test(metrics: Exposition, _roster: Roster, clock: HandClock) -> None:
        first, second = await asyncio.gather(metrics.shared(), metrics.shared())
        assert first is second
        clock.move(0.9 * SHARED_S)
        assert await metrics.shared() is first
        assert b"roost_host_up{" not in await metrics.shared("no")
        clock.move(0.2 * SHARED_S)
        assert await metrics.shared() is not first

    on_hosts(sqlite_url, 2, test)


def test_what_takes_long_to_write_is_shared_for_longer(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(metrics: Exposition, _roster: Roster, clock: HandClock) -> None:
        took_s = 0.5

        def write(_registry: Collector) -> bytes:
            clock.move(took_s)
            return b""

        monkeypatch.setattr(exposition, "generate_latest", write)
        first = await metrics.shared()
        clock.move(4)
        assert await metrics.shared() is first, "nine times as long as it took"
        clock.move(1)
        assert await metrics.shared() is not first
        took_s = 60
        clock.move(5)
        first = await metrics.shared()
        clock.move(MOST_SHARED_S)
        assert await metrics.shared() is not first

    on_hosts(sqlite_url, 2, test)


def test_who_hangs_up_while_it_is_written_keeps_nobody_else_from_it(sqlite_url: str) -> None:
    async def test(metrics: Exposition, _roster: Roster, _clock: HandClock) -> None:
        leaves, stays = (asyncio.ensure_future(metrics.shared()) for _ in range(2))
        await asyncio.sleep(0)
        leaves.cancel()
        assert b"roost_host_up{" in await stays

    on_hosts(sqlite_url, 2, test)
