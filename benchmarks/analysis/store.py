"""The store of series: bytes of a point, what ingesting costs, and how long a fortnight takes.

    python -m benchmarks.analysis.store [--short]

Readings are as agents send them: JSON messages of one host each, with the figures of VMs on QEMU,
decoded, checked, queued and put; filing into chunks is part of the cost. CPU time, not wall time.
`measure` returns the rows for who prints a larger table.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console

from benchmarks.analysis.sizes import Sizes
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, table
from roost.model.series import DAY_MS, HOUR_MS, MINUTE_MS, Reading, Resolution, Subject
from roost.series.embedded import EmbeddedSeries
from roost.series.sqlite import SqliteShelf
from roost.wire.agentlink import SampleInfo, Samples

EVERY_MS = 15_000
_BEGIN_MS = 1_793_923_200_000  # a midnight
_GIB = 1 << 30


class Load:
    """VMs of a rhythm each, with noise and counters, as an agent on QEMU reads them."""

    def __init__(self, vms: int, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._vms = vms
        draw = self._random.random
        self._level, self._swing = 200 + 3000 * draw(vms), 2000 * draw(vms)
        self._phase = draw(vms)
        self._memory = np.round(draw(vms) * 2**20) * 4096 + _GIB
        self._counters = {
            name: np.zeros(vms)
            for name in (
                "disk_read_bytes", "disk_write_bytes", "disk_reads", "disk_writes",
                "net_sent_bytes", "net_received_bytes", "net_sent_packets", "net_received_packets",
            )
        }  # fmt: skip

    def step(self, at_ms: int) -> dict[str, np.ndarray]:
        """Return the next reading of every VM, by figure."""
        vms, random = self._vms, self._random
        day = (at_ms % DAY_MS) / DAY_MS
        rhythm = 1 + np.sin(2 * np.pi * (day + self._phase))
        cpu = self._level + self._swing * rhythm + random.normal(0, 80, vms)
        self._memory = np.maximum(_GIB, self._memory + 4096 * np.round(random.normal(0, 300, vms)))
        for name, counter in self._counters.items():
            size = 512 if "disk" in name and "bytes" in name else 1
            mean = 2e6 if "bytes" in name else 400.0
            counter += np.round(random.gamma(1.5, mean, vms) * rhythm / size) * size
        return {
            "cpu_milli": np.round(np.maximum(0, cpu)),
            "memory_bytes": self._memory.copy(),
            "disk_bytes": np.full(vms, 40.0 * _GIB),
            "rss_bytes": self._memory + 64 * 2**20,
            "guest_available_bytes": np.maximum(0, 16.0 * _GIB - self._memory),
            **{name: counter.copy() for name, counter in self._counters.items()},
        }


def messages(figures: dict[str, np.ndarray], at_ms: int, on_host: int) -> Iterator[bytes]:
    """Yield what agents send of one round: a message for each host."""
    columns = {name: values.tolist() for name, values in figures.items()}
    vms = len(columns["cpu_milli"])
    plain = ("cpu_milli", "memory_bytes", "disk_bytes")
    for first in range(0, vms, on_host):
        told = [
            SampleInfo(
                f"vm-{vm:08d}",
                at_ms + (first // on_host * 37) % EVERY_MS,
                *(int(columns[name][vm]) for name in plain),
                more={name: values[vm] for name, values in columns.items() if name not in plain},
            )
            for vm in range(first, min(vms, first + on_host))
        ]
        yield msgspec.json.encode(Samples(told))


def decoded(message: bytes) -> list[Reading]:
    """Return the readings of a message, as the control plane makes them."""
    return [
        Reading(
            Subject("vm", sample.vm),
            sample.at_ms,
            {
                "cpu_milli": float(sample.cpu_milli),
                "memory_bytes": float(sample.memory_bytes),
                "disk_bytes": float(sample.disk_bytes),
                **sample.more,
            },
        )
        for sample in _decode(message).samples
    ]


_decode = msgspec.json.Decoder(Samples).decode


async def ingest(folder: Path, vms: int, rounds: int) -> Result:
    """Measure the CPU time of readings from decoding to chunks, as a share of a core."""
    store = EmbeddedSeries(SqliteShelf(folder / "ingest.db", inline=True))
    load, spent = Load(vms, 1), 0.0
    for at_ms in range(_BEGIN_MS, _BEGIN_MS + rounds * EVERY_MS, EVERY_MS):
        sent = list(messages(load.step(at_ms), at_ms, 20))
        began = time.process_time()
        readings = [reading for message in sent for reading in decoded(message)]
        put = await store.put(readings, at_ms)
        spent += time.process_time() - began
        assert put == (vms, 0), put
    putting = spent / (rounds * EVERY_MS / 1000)
    now = _BEGIN_MS + rounds * EVERY_MS
    began = time.process_time()
    await store.file_all(now)
    filing = (time.process_time() - began) / (rounds * EVERY_MS / 1000)
    last = await store.read(Subject("vm", f"vm-{vms - 1:08d}"), _BEGIN_MS, now + EVERY_MS)
    assert len(last) == rounds, len(last)
    await store.close()
    share = 100 * (putting + filing)
    detail = f"{vms} VMs, {rounds} rounds: putting {100 * putting:.1f}%, filing {100 * filing:.1f}%"
    return at_most("ingest", share, "% of a core", 10.0, note=detail)


async def fortnight(folder: Path, days: int) -> list[Result]:
    """Measure the bytes of a point, and how long a fortnight of one VM takes to read."""
    path = folder / "fortnight.db"
    store = EmbeddedSeries(SqliteShelf(path, inline=True))
    vms, load, points = 4, Load(4, 2), 0
    waiting: list[Reading] = []
    end = _BEGIN_MS + days * DAY_MS
    for at_ms in range(_BEGIN_MS, end, EVERY_MS):
        figures = load.step(at_ms)
        for vm in range(vms):
            told = {name: float(values[vm]) for name, values in figures.items()}
            waiting.append(Reading(Subject("vm", f"vm-{vm:08d}"), at_ms + 37 * vm, told))
            points += len(told)
        if (at_ms + EVERY_MS) % (2 * HOUR_MS) == 0:
            await store.put(waiting, at_ms)
            await store.file_all(at_ms)
            waiting.clear()
    await store.close()
    size = path.stat().st_size
    detail = f"{points} points with all roll-ups, whole file"
    rows = [at_most("store bytes per point", size / points, "bytes", 4.0, note=detail)]
    for resolution, figure in (
        (Resolution.FIVE_MINUTES, "cpu_milli"),
        (Resolution.RAW, "cpu_milli"),
    ):
        rows.append(await _read(path, resolution, figure, end))
    return rows


async def _read(path: Path, resolution: Resolution, figure: str, end: int) -> Result:
    spent, found = [], 0
    for vm in range(4):
        store = EmbeddedSeries(SqliteShelf(path, inline=True))
        await store.newest(Subject("vm", "vm-00000000"))  # the file is open
        began = time.process_time()
        columns = await store.read(
            Subject("vm", f"vm-{vm:08d}"), end - 14 * DAY_MS, end + MINUTE_MS, resolution, [figure]
        )
        spent.append(1000 * (time.process_time() - began))
        found = len(columns)
        days = min(14, (end - _BEGIN_MS) // DAY_MS)
        assert found == days * DAY_MS // (resolution.bucket_ms or EVERY_MS), found
        await store.close()
    name = "read fortnight" if resolution is Resolution.FIVE_MINUTES else "read fortnight, raw"
    detail = f"{found} moments of {figure} at {resolution.value}"
    return at_most(name, sorted(spent)[len(spent) // 2], "ms", 20.0, note=detail)


def measure(*, short: bool = False) -> list[Result]:
    """Return every row of the store."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        vms, rounds, days = (2000, 20, 4) if short else (10_000, 120, 14)
        return [
            *asyncio.run(fortnight(path, days)),
            asyncio.run(ingest(path, vms, rounds)),
        ]


def jobs(sizes: Sizes) -> list[Job]:
    """Return the one job of this topic."""
    return [Job("store", lambda: measure(short=not sizes.full))]


def main() -> None:
    """Print the rows."""
    Console(width=140).print(table("Store of series", measure(short="--short" in sys.argv[1:])))


if __name__ == "__main__":
    main()
