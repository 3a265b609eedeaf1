"""What every store of series must do, whatever it is kept in; each law takes an empty store."""

from collections.abc import Awaitable, Callable, Mapping

import numpy as np

from roost.model.series import (
    DAY_MS,
    DUPLICATES,
    HOUR_MS,
    JUMPS,
    MINUTE_MS,
    NEGATIVE,
    NOT_FINITE,
    NOTES,
    OUT_OF_ORDER,
    Columns,
    Kept,
    Reading,
    Resolution,
    Subject,
)
from roost.series.embedded import EmbeddedSeries
from roost.series.filing import PERIODS

Law = Callable[[EmbeddedSeries], Awaitable[None]]

WEB, OTHER, H1 = Subject("vm", "vm-web"), Subject("vm", "vm-other"), Subject("host", "h1")
#: A midnight in November 2026.
BEGIN = 1_793_923_200_000


def reading(at_ms: int, cpu: float, subject: Subject = WEB, **more: float) -> Reading:
    return Reading(subject, at_ms, {"cpu_milli": cpu, **more})


def points(columns: Columns, figure: str = "cpu_milli") -> list[tuple[int, float]]:
    """Return the known points of a figure."""
    values = columns.figures.get(figure, np.empty(0))
    return [
        (int(at), float(value))
        for at, value in zip(columns.at_ms, values, strict=bool(len(values)))
        if not np.isnan(value)
    ]


async def whole(store: EmbeddedSeries, subject: Subject = WEB) -> Columns:
    return await store.read(subject, BEGIN - DAY_MS, BEGIN + 10 * DAY_MS)


async def what_is_put_is_read(store: EmbeddedSeries) -> None:
    put = await store.put([reading(BEGIN + 1, 0.25), reading(BEGIN + 15_002, 7, OTHER)], BEGIN)
    assert put == (2, 0)
    assert points(await whole(store)) == [(BEGIN + 1, 0.25)]
    assert points(await whole(store, OTHER)) == [(BEGIN + 15_002, 7)]
    assert len(await whole(store, H1)) == 0


async def filing_changes_nothing_that_is_read(store: EmbeddedSeries) -> None:
    now = await a_day(store, WEB)
    before = [await store.read(WEB, BEGIN, now, resolution) for resolution in Resolution]
    await store.file_all(now)
    for resolution, old in zip(Resolution, before, strict=True):
        same(old, await store.read(WEB, BEGIN, now, resolution))
    assert len(before[0]) == DAY_MS // MINUTE_MS


async def late_and_repeated_readings_merge(store: EmbeddedSeries) -> None:
    last = reading(BEGIN + 2 * MINUTE_MS, 3)
    await store.put([reading(BEGIN, 1), last], BEGIN)
    await store.file_all(BEGIN)
    await store.put([reading(BEGIN + MINUTE_MS, 2), last, last], BEGIN)
    right = [(BEGIN + minute * MINUTE_MS, minute + 1.0) for minute in range(3)]
    assert points(await whole(store)) == right
    await store.file_all(BEGIN)
    assert points(await whole(store)) == right
    rolled = await store.read(WEB, BEGIN, BEGIN + DAY_MS, Resolution.FIVE_MINUTES)
    assert points(rolled, "cpu_milli.mean") == [(BEGIN, 2.0)]


async def figures_of_one_moment_add_up(store: EmbeddedSeries) -> None:
    await store.put([reading(BEGIN, 1, memory_bytes=5)], BEGIN)
    await store.put([reading(BEGIN, 2, disk_bytes=9)], BEGIN)
    for _ in range(2):
        found = await whole(store)
        assert (points(found), points(found, "memory_bytes"), points(found, "disk_bytes")) == (
            [(BEGIN, 2)], [(BEGIN, 5)], [(BEGIN, 9)]
        )  # fmt: skip
        await store.file_all(BEGIN)


async def counters_are_rates_and_begin_anew(store: EmbeddedSeries) -> None:
    counted = (1000, 4000, 500, 2000)
    await store.put(
        [
            reading(BEGIN + 15_000 * place, 1, disk_read_bytes=value)
            for place, value in enumerate(counted)
        ],
        BEGIN,
    )
    found = await store.read(WEB, BEGIN, BEGIN + HOUR_MS, figures=["disk_read_bytes_per_s"])
    assert list(found.figures) == ["disk_read_bytes_per_s"]
    assert points(found, "disk_read_bytes_per_s") == [(BEGIN + 15_000, 200), (BEGIN + 45_000, 100)]


async def a_rate_reaches_over_the_edge_of_a_chunk(store: EmbeddedSeries) -> None:
    edge = BEGIN + PERIODS[Resolution.RAW]
    await store.put([reading(edge - 5_000, 1, disk_reads=10)], edge)
    await store.file_all(edge)
    await store.put([reading(edge + 5_000, 1, disk_reads=30)], edge)
    await store.file_all(edge)
    found = await store.read(WEB, edge, edge + HOUR_MS, figures=["disk_reads_per_s"])
    assert points(found, "disk_reads_per_s") == [(edge + 5_000, 2)]
    rolled = await store.read(WEB, edge, edge + HOUR_MS, Resolution.FIVE_MINUTES)
    assert points(rolled, "disk_reads_per_s.max") == [(edge, 2)]


async def roll_ups_say_mean_maximum_and_p95(store: EmbeddedSeries) -> None:
    now = await a_day(store, WEB)
    await store.file_all(now)
    found = await store.read(WEB, BEGIN, now, Resolution.HOUR)
    assert found.at_ms.tolist() == list(range(BEGIN, now, HOUR_MS))
    values = [cpu_at(BEGIN + minute * MINUTE_MS) for minute in range(60)]
    assert found.figures["cpu_milli.max"][0] == max(values)
    assert found.figures["cpu_milli.p95"][0] == sorted(values)[56]  # the 57th of 60
    assert found.figures["cpu_milli.mean"][0] == round(sum(values) / 60)
    day = await store.read(WEB, BEGIN, now, Resolution.DAY, ["cpu_milli.max"])
    assert points(day, "cpu_milli.max") == [
        (BEGIN, max(cpu_at(at) for at in range(BEGIN, now, MINUTE_MS)))
    ]


async def what_is_too_old_goes_and_its_roll_up_stays(store: EmbeddedSeries) -> None:
    kept = Kept(raw_days=2, five_minutes_days=30, hour_days=60, day_days=90)
    now = await a_day(store, WEB)
    await store.file_all(now)
    while await store.tidy(now + 3 * DAY_MS, kept):
        pass
    assert len(await whole(store)) == 0
    rolled = await store.read(WEB, BEGIN, now, Resolution.FIVE_MINUTES)
    assert len(rolled) == 288
    # A late reading of a day that is closed adds nothing to what was rolled up of it.
    await store.put([reading(BEGIN + 1, 9999)], now, old=True)
    await store.file_all(now)
    same(rolled, await store.read(WEB, BEGIN, now, Resolution.FIVE_MINUTES))
    while await store.tidy(now + 200 * DAY_MS, kept):
        pass
    assert len(await store.read(WEB, BEGIN, now, Resolution.FIVE_MINUTES)) == 0


async def nonsense_is_left_out_and_counted(store: EmbeddedSeries) -> None:
    put = await store.put(
        [
            reading(BEGIN - 30 * DAY_MS, 1),
            reading(BEGIN + DAY_MS, 1),
            reading(BEGIN, -1),
            reading(BEGIN, float("nan")),
            Reading(WEB, BEGIN, {"of_my_own": 1.0}),
            reading(BEGIN, 4, of_my_own=1.0),
        ],
        BEGIN,
    )
    assert put == (1, 5)
    found = await whole(store)
    assert list(found.figures) == ["cpu_milli"]
    assert points(found) == [(BEGIN, 4)]


async def what_was_wrong_is_noted_and_told_to_who_asks(store: EmbeddedSeries) -> None:
    await store.put([reading(BEGIN, -1), reading(BEGIN - 30 * DAY_MS, 1)], BEGIN)
    assert len(await whole(store)) == 0  # both wait for a reading to stand beside
    step = 15_000
    now = BEGIN + 9 * step
    first, nan = reading(BEGIN + step, 1), reading(BEGIN + 3 * step, 2, disk_bytes=float("nan"))
    for some in ([first, first, nan], [nan], [reading(BEGIN + 2 * step, 3), reading(now, 4)]):
        await store.put(some, now)
    right = {NEGATIVE: 1, JUMPS: 1, DUPLICATES: 2, NOT_FINITE: 2, OUT_OF_ORDER: 1}
    for _ in range(2):
        told = await store.read(WEB, BEGIN, now + 1, Resolution.RAW, sorted(NOTES))
        assert {name: np.nansum(values) for name, values in told.figures.items()} == right
        assert list((await whole(store)).figures) == ["cpu_milli"]
        assert (await store.newest(WEB))[0].figures == {"cpu_milli": 4}
        rolled = await store.read(WEB, BEGIN, now + 1, Resolution.FIVE_MINUTES)
        assert {name.partition(".")[0] for name in rolled.figures} == {"cpu_milli"}
        week = Resolution.FIVE_MINUTES
        assert (await store.read(WEB, BEGIN, now + 1, week, sorted(NOTES))).figures == {}
        await store.file_all(now)


async def the_newest_readings_are_found_filed_or_not(store: EmbeddedSeries) -> None:
    await store.put([reading(BEGIN + at, at) for at in (1, 3, 2)], BEGIN)
    for _ in range(2):
        assert [each.figures["cpu_milli"] for each in await store.newest(WEB, 2)] == [3, 2]
        assert (await store.newest(WEB))[0].at_ms == BEGIN + 3
        await store.file_all(BEGIN)
    assert await store.newest(OTHER) == []


async def the_newest_of_all_hosts_are_found_together(store: EmbeddedSeries) -> None:
    h2 = Subject("host", "h2")
    await store.put(
        [reading(BEGIN, 1, H1), reading(BEGIN, 9), reading(BEGIN - DAY_MS, 3, h2)], BEGIN
    )
    await store.put([reading(BEGIN + 5, 2, H1)], BEGIN + 5)
    found: Mapping[str, Reading] = await store.newest_of("host", BEGIN - HOUR_MS, BEGIN + 10)
    assert {name: each.figures["cpu_milli"] for name, each in found.items()} == {"h1": 2}


async def what_is_due_is_filed_and_the_newest_stays(store: EmbeddedSeries) -> None:
    await store.put([reading(BEGIN, 1, H1)], BEGIN)
    assert await store.tidy(BEGIN + 50 * MINUTE_MS, Kept()) == 0
    now = BEGIN + 61 * MINUTE_MS
    await store.put([reading(now, 2, H1)], now)
    assert await store.tidy(now, Kept()) == 1
    assert "h1" in await store.newest_of("host", now, now)
    assert points(await whole(store, H1)) == [(BEGIN, 1), (now, 2)]


async def what_a_clock_far_ahead_has_put_holds_nothing_up(store: EmbeddedSeries) -> None:
    await store.put([reading(BEGIN, 1, H1)], BEGIN + 5 * DAY_MS, old=True)
    await store.put([reading(BEGIN, 2), reading(BEGIN + MINUTE_MS, 2, H1)], BEGIN)
    now, filed = BEGIN + 61 * MINUTE_MS, 0
    await store.put([reading(now, 3, H1)], now)
    while done := await store.tidy(now, Kept()):
        filed += done
    assert filed == 3
    assert "h1" in await store.newest_of("host", now, now)
    assert points(await whole(store, H1)) == [(BEGIN, 1), (BEGIN + MINUTE_MS, 2), (now, 3)]
    assert points(await whole(store)) == [(BEGIN, 2)]


LAWS: tuple[Law, ...] = (
    what_is_put_is_read,
    filing_changes_nothing_that_is_read,
    late_and_repeated_readings_merge,
    figures_of_one_moment_add_up,
    counters_are_rates_and_begin_anew,
    a_rate_reaches_over_the_edge_of_a_chunk,
    roll_ups_say_mean_maximum_and_p95,
    what_is_too_old_goes_and_its_roll_up_stays,
    nonsense_is_left_out_and_counted,
    what_was_wrong_is_noted_and_told_to_who_asks,
    the_newest_readings_are_found_filed_or_not,
    the_newest_of_all_hosts_are_found_together,
    what_is_due_is_filed_and_the_newest_stays,
    what_a_clock_far_ahead_has_put_holds_nothing_up,
)


def cpu_at(at_ms: int) -> int:
    """Return what a VM of these laws uses at a moment."""
    return 1000 + (at_ms // MINUTE_MS * 7919) % 997


async def a_day(store: EmbeddedSeries, subject: Subject) -> int:
    """Put a reading for each minute of a day; return its end."""
    end = BEGIN + DAY_MS
    await store.put(
        [
            reading(at, cpu_at(at), subject, net_sent_bytes=float(at - BEGIN))
            for at in range(BEGIN, end, MINUTE_MS)
        ],
        end,
    )
    return end


def same(one: Columns, two: Columns) -> None:
    """See that two parts of a series are the same to the bit."""
    assert one.at_ms.tolist() == two.at_ms.tolist()
    assert list(one.figures) == list(two.figures)
    for name, values in one.figures.items():
        np.testing.assert_array_equal(values, two.figures[name], name)
