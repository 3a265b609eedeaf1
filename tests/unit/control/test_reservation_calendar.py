"""When reservations are live: recurrences by a clock, the odd days of summer time, horizons."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from time import process_time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import InvalidRequest
from roost.control.reservations.calendar import (
    AHEAD_MS,
    DAY_MS,
    MOST_WINDOWS,
    Recurrence,
    check_recurrence,
    expand,
    merge,
    reaches_further,
    read_moment,
)

HOUR_MS = 3_600_000
BERLIN = "Europe/Berlin"


def ms(text: str, zone: str = "UTC") -> int:
    return read_moment(text, zone, "start")


def utc(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%m-%d %H:%M}"


def daily(first: str, hours: float = 1, rule: str = "FREQ=DAILY", **given: int | str) -> Recurrence:
    zone = str(given.get("zone", BERLIN))
    until = given.get("until_ms")
    return Recurrence(
        rule, ms(first, zone), round(hours * HOUR_MS), None if until is None else int(until), zone
    )


def starts(recurrence: Recurrence, now: str, count: int) -> list[str]:
    return [utc(start) for start, _ in expand(recurrence, ms(now)).windows[:count]]


def test_it_begins_by_the_wall_clock_on_both_sides_of_a_change() -> None:
    # Berlin's clocks go back on the 25th of October 2026, and forward on the 28th of March 2027.
    autumn = daily("2026-10-24T08:00")
    assert starts(autumn, "2026-10-24T00:00", 3) == ["10-24 06:00", "10-25 07:00", "10-26 07:00"]
    spring = daily("2027-03-27T08:00")
    assert starts(spring, "2027-03-27T00:00", 3) == ["03-27 07:00", "03-28 06:00", "03-29 06:00"]


def test_in_the_hour_that_is_skipped_it_begins_as_much_later() -> None:
    skipped = daily("2027-03-27T02:30")
    # 02:30 is 01:30 UTC in winter and 00:30 UTC in summer; on the day itself it is 03:30 there.
    assert starts(skipped, "2027-03-27T00:00", 3) == ["03-27 01:30", "03-28 01:30", "03-29 00:30"]


def test_in_the_hour_that_comes_twice_it_begins_the_first_time() -> None:
    twice = daily("2026-10-24T02:30")
    assert starts(twice, "2026-10-24T00:00", 3) == ["10-24 00:30", "10-25 00:30", "10-26 01:30"]


def test_it_lasts_as_long_as_ever_across_a_change() -> None:
    for first in ("2026-10-24T22:00", "2027-03-27T22:00"):
        start, end = expand(daily(first, hours=8), ms(first, BERLIN)).windows[0]
        assert end is not None
        assert end - start == 8 * HOUR_MS


def test_occurrences_that_overlap_or_touch_are_one_window() -> None:
    assert merge([(5, 7), (1, 3), (3, 4), (6, 9)]) == [(1, 4), (5, 9)]
    whole = expand(daily("2026-11-17T00:00", hours=30, zone="UTC"), ms("2026-11-17T00:00"))
    assert whole.windows == ((ms("2026-11-17T00:00"), None),)


def test_behind_the_horizon_it_is_live_without_a_gap() -> None:
    now = ms("2026-11-17T00:00")
    times = expand(daily("2026-11-17T08:00", zone="UTC"), now)
    assert times.expanded_ms is not None
    assert times.windows[-1] == (times.expanded_ms, None)
    assert times.expanded_ms >= now + AHEAD_MS - DAY_MS
    ended = expand(daily("2026-11-17T08:00", rule="FREQ=DAILY;COUNT=3", zone="UTC"), now)
    assert (len(ended.windows), ended.expanded_ms) == (3, None)


@given(
    st.sampled_from(("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")),
    st.integers(0, 2 * 365 * 24),
    st.integers(1, 40),
    st.sampled_from(("FREQ=DAILY", "FREQ=WEEKLY;BYDAY=MO,SA,SU", "FREQ=DAILY;BYHOUR=1,8,15,22")),
    st.integers(0, 100),
)
def test_later_windows_lie_within_earlier_ones(
    zone: str, begins: int, hours: int, rule: str, later_days: int
) -> None:
    """An expansion never keeps less than what is live: going on only makes gaps."""
    first = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=begins)
    from_ms = round(first.timestamp() * 1000)
    recurrence = Recurrence(rule, from_ms, hours * HOUR_MS, None, zone)
    before = expand(recurrence, from_ms).windows
    after = expand(recurrence, from_ms + later_days * DAY_MS).windows
    for start, end in after:
        inside = [
            (a, b)
            for a, b in before
            if a <= start and (b is None or (end is not None and end <= b))
        ]
        assert inside, (start, end)
    for (_, end), (start, _) in pairwise(after):
        assert end is not None
        assert end < start


@given(st.integers(0, 3 * 365), st.sampled_from(("Europe/Berlin", "America/New_York")))
def test_every_day_has_one_start_that_the_clock_shows(days: int, zone: str) -> None:
    first = datetime(2026, 1, 1, 2, 30, tzinfo=UTC) + timedelta(days=days)
    begins = ms(f"{first:%Y-%m-%dT%H:%M}", zone)
    recurrence = Recurrence("FREQ=DAILY", begins, HOUR_MS, None, zone)
    times = expand(recurrence, recurrence.from_ms)
    for start, _ in times.windows[:-1]:
        local = datetime.fromtimestamp(start / 1000, ZoneInfo(zone))
        assert (local.hour, local.minute) in ((2, 30), (3, 30))


def test_what_makes_no_sense_is_said() -> None:
    for said, recurrence in (
        ("cannot be read", daily("2026-11-17T08:00", rule="whenever")),
        (
            "cannot be read",
            daily("2026-11-17T08:00", rule="DTSTART:20261117T000000\nRRULE:FREQ=DAILY"),
        ),
        ("cannot be read", daily("2026-11-17T08:00", rule="FREQ=DAILY;UNTIL=20261301")),
        ("never happens", daily("2026-11-17T08:00", rule="FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30")),
        ("counts by SECONDLY", daily("2026-11-17T08:00", rule="FREQ=SECONDLY")),
        ("counts by hourly", daily("2026-11-17T08:00", rule="freq = hourly;BYMONTHDAY=30")),
        (
            f"more than {MOST_WINDOWS}",
            daily("2026-11-17T08:00", rule=f"FREQ=DAILY;BYHOUR={','.join(map(str, range(24)))}"),
        ),
    ):
        with pytest.raises(InvalidRequest, match=said):
            check_recurrence(recurrence)
    with pytest.raises(InvalidRequest, match="no time zone"):
        ms("2026-11-17T08:00", "../etc/passwd")
    with pytest.raises(InvalidRequest, match="no moment"):
        ms("eight o'clock")
    assert ms("2026-11-17T08:00", BERLIN) == ms("2026-11-17T07:00:00Z", BERLIN)


def test_that_a_daily_one_never_happens_is_found_within_the_calendars_cycle() -> None:
    never = daily("2026-11-17T08:00", rule="FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30")
    begun = process_time()
    with pytest.raises(InvalidRequest, match="never happens"):
        check_recurrence(never)
    assert process_time() - begun < 10  # to the year 9999 it takes more than 20


@pytest.mark.parametrize(
    ("until", "last"),
    [
        ("20261119", "11-19 07:00"),
        ("20261119T080000", "11-19 07:00"),
        ("20261119T065959Z", "11-18 07:00"),
    ],
)
def test_the_last_moment_to_begin_may_be_a_day_a_local_time_or_utc(until: str, last: str) -> None:
    ends = daily("2026-11-17T08:00", rule=f"FREQ=DAILY;UNTIL={until}")
    assert starts(ends, "2026-11-17T00:00", 10)[-1] == last


def test_one_that_is_dense_just_now_is_written_again_only_when_it_reaches_further() -> None:
    hours = ",".join(map(str, range(24)))
    dense = daily("2026-06-25T00:00", rule=f"FREQ=DAILY;BYMONTH=6,12;BYHOUR={hours}", zone="UTC")
    check_recurrence(dense)
    written = 0
    now = ms("2026-12-01T00:00")
    times = expand(dense, now)
    for _ in range(10 * 24):
        now += HOUR_MS
        found = expand(dense, now)
        assert times.expanded_ms is not None
        if reaches_further(found, times.expanded_ms, now):
            times, written = found, written + 1
    assert 1 <= written <= 3
