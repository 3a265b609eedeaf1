"""When rules hold: their conditions, and that none ever flaps, whatever the conditions do."""

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import InvalidRequest, RuleError
from roost.control.rules.switching import Said, ask, begins_active, is_to_switch, timing
from roost.control.rules.timezones import require_zone, time_in
from roost.fleet.fleet import Fleet
from roost.ledger.schema.rows import ConstraintRow
from roost.rules.fields import FIELDS

BERLIN = "Europe/Berlin"
ROW = ConstraintRow(
    id="busy", project="", name="busy", description="", expression="true", form="cel",
    kind="hard", weight=1000, priority=0, created_ms=0, created_by="root", changed_ms=0,
    changed_by="root", applies_when="fleet.load > 0.8", dwell_s=60, active=False,
)  # fmt: skip
SAID = st.builds(Said, st.sampled_from([True, False, None]), st.sampled_from([True, False, None]))


def switches(steps: list[tuple[int, Said]], dwell_s: int) -> list[int]:
    """Return when a rule is switched by what its conditions say, one after the other."""
    row, now, found = msgspec.structs.replace(ROW, dwell_s=dwell_s), 0, []
    for passes_ms, said in steps:
        now += passes_ms
        if is_to_switch(row, said, now):
            row = msgspec.structs.replace(row, active=not row.active, switched_ms=now)
            found.append(now)
    return found


STEPS = st.lists(st.tuples(st.integers(0, 20_000), SAID), max_size=60)


@given(STEPS, st.integers(10, 60))
def test_two_switches_are_never_closer_than_the_dwell(
    steps: list[tuple[int, Said]], dwell_s: int
) -> None:
    times = switches(steps, dwell_s)
    assert all(b - a >= 1000 * dwell_s for a, b in pairwise(times))


def test_that_property_finds_a_switch_without_a_dwell(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(row: ConstraintRow, said: Said, now_ms: int) -> bool:
        return bool(said.until if row.active else said.when)

    monkeypatch.setitem(globals(), "is_to_switch", hasty)
    with pytest.raises(AssertionError):
        test_two_switches_are_never_closer_than_the_dwell()


def test_between_two_thresholds_a_rule_stays_as_it_is() -> None:
    between = Said(when=False, until=False)
    assert not is_to_switch(ROW, between, 10**9)
    assert not is_to_switch(msgspec.structs.replace(ROW, active=True), between, 10**9)


def test_a_condition_that_ends_in_an_error_switches_nothing() -> None:
    error = ask("fleet.vms / fleet.hosts > 2", None, None, Fleet(), 0)
    assert error == Said(None, None)
    for active in (True, False):
        row = msgspec.structs.replace(ROW, active=active)
        assert not is_to_switch(row, error, 10**9)
    assert begins_active({"applies_when": "1 / fleet.hosts > 2"}, Fleet(), 0)


def at(zone: str, *moment: int, fold: int = 0) -> int:
    return int(datetime(*moment, tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1000)  # type: ignore[misc]


def test_the_time_is_read_in_the_rules_own_zone() -> None:
    now = at(BERLIN, 2026, 7, 31, 23, 30)
    assert time_in(now, BERLIN) == {"hour": 23, "minute": 30, "weekday": 5}
    assert time_in(now) == {"hour": 21, "minute": 30, "weekday": 5}
    assert time_in(now, "Pacific/Auckland") == {"hour": 9, "minute": 30, "weekday": 6}


def hours_on(*day: int) -> list[int]:
    """Return the hours that a rule in Berlin reads on a day, one for every hour that passes."""
    begin = at(BERLIN, *day)
    end = at(BERLIN, *day[:2], day[2] + 1)
    return [time_in(now, BERLIN)["hour"] for now in range(begin, end, 3_600_000)]


def test_an_hour_is_missing_when_summer_time_begins_and_comes_twice_when_it_ends() -> None:
    assert hours_on(2026, 3, 29) == [0, 1, *range(3, 24)]
    assert hours_on(2026, 10, 25) == [0, 1, 2, 2, *range(3, 24)]


def test_a_rule_by_night_holds_as_long_as_the_night_is() -> None:
    when = "fleet.hour >= 22 || fleet.hour < 6"
    for day, hours in (((2026, 3, 28), 7), ((2026, 10, 24), 9), ((2026, 6, 1), 8)):
        begin = at(BERLIN, *day, 12)
        said = [
            ask(when, None, BERLIN, Fleet(), now).when
            for now in range(begin, begin + 24 * 3_600_000, 3_600_000)
        ]
        assert said.count(True) == hours


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"when": "host.zone == 'a'"}, "not on host.zone"),
        ({"when": "vm.priority > 3"}, "not on vm.priority"),
        ({"until": "fleet.load < 0.5"}, "this rule always holds"),
        ({"when": "fleet.load > 1", "time_zone": "Europe/Berln"}, "no time zone 'Europe/Berln'"),
    ],
)
def test_a_condition_is_about_the_fleet_and_the_time(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        timing(given, None, FIELDS)


def test_a_mistake_in_a_condition_has_its_place() -> None:
    with pytest.raises(RuleError, match="fleet has no field 'lod'"):
        timing({"when": "fleet.lod > 0.8"}, None, FIELDS)
    with pytest.raises(InvalidRequest) as refused:
        require_zone("Europe/Berln")
    assert refused.value.hint == "Maybe 'Europe/Berlin'?"


def test_a_change_keeps_what_it_does_not_name() -> None:
    changed = timing({"until": "fleet.load < 0.5"}, ROW, FIELDS)
    assert changed == {
        "applies_when": "fleet.load > 0.8",
        "applies_until": "fleet.load < 0.5",
        "time_zone": None,
        "dwell_s": 60,
    }
    assert set(timing({"when": None}, ROW, FIELDS).values()) == {None}
    assert timing({}, ROW, FIELDS) == {}


def test_a_switch_by_a_clock_that_was_ahead_does_not_keep_the_rule_as_it_is() -> None:
    row = msgspec.structs.replace(ROW, active=True, switched_ms=10**12)
    assert is_to_switch(row, Said(when=False, until=True), 10**9)
