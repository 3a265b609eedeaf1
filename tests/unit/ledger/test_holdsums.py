"""What a host must hold, against a plain twin that looks at every moment."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from roost.ledger.claims import holdsums
from roost.ledger.claims.holdsums import (
    FOREVER,
    Held,
    Limits,
    Living,
    held_during,
    held_on,
    merged_claims,
    merged_holds,
    owed,
)
from roost.model.kept import NOTHING_KEPT, Counters, Kept, counters_in_order

NOW, LAST = 10, 30
AXES = range(6)

_amount = st.integers(0, 5)
_limits = st.tuples(_amount, _amount, _amount, _amount)
_owner = st.sampled_from(("red", "blue"))
COUNTERS = ("device:00", "x:fpga")
_counters = st.dictionaries(st.sampled_from(COUNTERS), st.integers(1, 5)).map(counters_in_order)


@st.composite
def _windows(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    times = sorted(draw(st.sets(st.integers(0, LAST), min_size=2, max_size=6)))
    found = list(zip(times[::2], times[1::2], strict=False))
    if draw(st.booleans()):
        found[-1] = (found[-1][0], FOREVER)
    return tuple(found)


_holds = st.lists(st.builds(Held, _owner, _limits, _windows(), _counters), max_size=4)
_claims = st.lists(
    st.builds(
        Living,
        _limits,
        st.one_of(st.integers(0, LAST), st.just(FOREVER)),
        st.none() | _owner,
        _counters,
    ),
    max_size=4,
)


def wide(each: Held | Living) -> Limits:
    """Return its amounts, with those of all counters behind them."""
    counted = dict(each.counters)
    return (*each.limits, *(counted.get(name, 0) for name in COUNTERS))


def kept(amounts: Sequence[int]) -> Kept:
    """Return such amounts as what is kept."""
    counted = dict(zip(COUNTERS, amounts[4:], strict=True))
    return Kept.of(amounts[:4], counters_in_order(counted))


def amounts(of: Kept) -> Limits:
    """Return what is kept as amounts, with those of all counters behind them."""
    return wide(Living(of.limits, FOREVER, None, of.counters))


def load(
    holds: Sequence[Held], claims: Sequence[Living], at: int, but: str | None
) -> tuple[int, ...]:
    """Return what is promised or held at one moment; a claim whose end has passed is there."""
    found = list(AXES)
    alive = [claim for claim in claims if at < claim.until_ms or claim.until_ms <= NOW]
    for axis in range(len(found)):
        found[axis] = sum(wide(claim)[axis] for claim in alive)
        for owner in ("red", "blue"):
            if owner == but:
                continue
            holding = sum(
                wide(hold)[axis]
                for hold in holds
                if hold.owner == owner and any(a <= at < b for a, b in hold.windows)
            )
            drawn = sum(wide(claim)[axis] for claim in alive if claim.draws_on == owner)
            found[axis] += max(0, holding - drawn)
    return tuple(found)


def plainly(
    holds: Sequence[Held], claims: Sequence[Living], until: int | None, but: str | None
) -> Kept:
    moments = [at for at in range(NOW, LAST + 2) if until is None or at < until]
    loads = [load(holds, claims, at, but) for at in moments]
    now = [sum(wide(claim)[axis] for claim in claims) for axis in AXES]
    return kept(
        [max(0, max(each) - here) for each, here in zip(zip(*loads, strict=True), now, strict=True)]
    )


@given(_holds, _claims, st.none() | st.integers(NOW + 1, LAST), st.none() | _owner)
def test_a_host_holds_the_greatest_load_of_any_moment(
    holds: list[Held], claims: list[Living], until: int | None, but: str | None
) -> None:
    assert held_on(holds, claims, NOW, until, but) == plainly(holds, claims, until, but)


@given(
    _holds, _claims, _limits, _counters, st.none() | st.integers(NOW + 1, LAST), st.none() | _owner
)
def test_what_fits_beside_the_held_of_its_life_breaks_no_moment(
    holds: list[Held],
    claims: list[Living],
    more: Limits,
    counters: Counters,
    until: int | None,
    but: str | None,
) -> None:
    """A claim that just fits never makes any moment's load greater than the capacity."""
    new = Living(more, FOREVER if until is None else until, but, counters)
    committed = [sum(wide(claim)[axis] for claim in claims) for axis in AXES]
    always = held_on(holds, claims, NOW)
    life = held_on(holds, claims, NOW, until, but)
    after = held_on(holds, [*claims, new], NOW)
    for axis in AXES:
        have, asked = committed[axis], wide(new)[axis]
        most = max(have + amounts(always)[axis], have + amounts(life)[axis] + asked)
        assert have + asked + amounts(after)[axis] <= most


@given(_holds, _claims, st.integers(NOW, LAST))
def test_time_only_takes_away(holds: list[Held], claims: list[Living], later: int) -> None:
    """What was held a while ago is what is owed now, while claims that are over are still there."""
    before, after = held_on(holds, claims, NOW), owed(holds, claims, later)
    assert after.is_within(before)


@given(_holds, _claims)
def test_what_is_held_is_owed_while_no_claim_is_over(
    holds: list[Held], claims: list[Living]
) -> None:
    living = [claim for claim in claims if claim.until_ms > NOW]
    assert owed(holds, living, NOW) == held_on(holds, living, NOW)


def test_more_must_be_held_once_a_claim_is_over_and_still_there() -> None:
    holds = [Held("red", (4, 0, 0, 0), ((NOW + 10, NOW + 20),))]
    late = [Living((4, 0, 0, 1), NOW + 5, None)]
    assert held_on(holds, late, NOW) == NOTHING_KEPT
    assert held_on(holds, late, NOW + 6) == Kept(4, 0, 0, 0)
    assert owed(holds, late, NOW + 6) == NOTHING_KEPT


def test_the_room_before_a_reservation_is_free_to_a_short_vm() -> None:
    holds = [Held("red", (8, 8, 0, 0), ((NOW + 10, NOW + 20),))]
    assert held_on(holds, [], NOW) == Kept(8, 8, 0, 0)
    assert held_on(holds, [], NOW, NOW + 10) == NOTHING_KEPT
    assert held_on(holds, [], NOW, NOW + 11) == Kept(8, 8, 0, 0)
    assert held_on(holds, [], NOW, None, "red") == NOTHING_KEPT


def test_what_is_drawn_is_held_no_more() -> None:
    holds = [Held("red", (8, 8, 0, 2), ((0, FOREVER),))]
    drawn = [Living((3, 2, 1, 1), FOREVER, "red")]
    assert held_on(holds, drawn, NOW) == Kept(5, 6, 0, 1)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_left", lambda kept, drawn: kept),
        ("_left", lambda kept, drawn: tuple(k - d for k, d in zip(kept, drawn, strict=True))),
        ("_negative", lambda limits: limits),
    ],
)
def test_broken_sums_are_caught(
    monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[..., Limits]
) -> None:
    monkeypatch.setattr(holdsums, name, broken)

    @settings(phases=[Phase.generate], database=None)
    @given(_holds, _claims)
    def law(holds: list[Held], claims: list[Living]) -> None:
        assert held_on(holds, claims, NOW) == plainly(holds, claims, None, None)

    with pytest.raises(AssertionError):
        law()


@given(_holds, _claims, _windows())
def test_what_is_held_in_some_windows_is_the_most_at_any_of_their_moments(
    holds: list[Held], claims: list[Living], windows: tuple[tuple[int, int], ...]
) -> None:
    now = [sum(wide(claim)[axis] for claim in claims) for axis in AXES]
    loads = [
        load(holds, claims, at, None)
        for at in range(NOW, LAST + 2)
        if any(start <= at < stop for start, stop in windows)
    ]
    most = [max(axis) for axis in zip(*loads, strict=True)]
    wanted = kept([m - n for m, n in zip(most, now, strict=True)]) if loads else NOTHING_KEPT
    assert held_during(holds, claims, NOW, windows) == wanted


_few_windows = st.sampled_from((((5, 20),), ((5, 20), (25, FOREVER)), ((12, 15),)))
_units = st.lists(st.builds(Held, _owner, _limits, _few_windows, st.just(())), max_size=8)
_kinds_of_claims = st.lists(
    st.builds(Living, _limits, st.sampled_from((8, 18, FOREVER)), st.none() | _owner, st.just(())),
    max_size=8,
)


@given(_units, _kinds_of_claims, st.none() | st.integers(NOW + 1, LAST), st.none() | _owner)
def test_what_is_merged_is_held_like_what_is_not(
    holds: list[Held], claims: list[Living], until: int | None, but: str | None
) -> None:
    for hold in merged_holds(holds):
        alike = [each for each in holds if (each.owner, each.windows) == (hold.owner, hold.windows)]
        assert hold.limits == tuple(map(sum, zip(*(each.limits for each in alike), strict=True)))
    wanted = plainly(holds, claims, until, but)
    assert held_on(holds, claims, NOW, until, but) == wanted
    assert plainly(merged_holds(holds), merged_claims(claims), until, but) == wanted


@pytest.mark.parametrize("name", ["held_on", "held_during"])
def test_units_of_a_reservation_are_gone_through_once(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """80 units of 60 windows, and 80 claims on them, take the steps of one."""
    windows = tuple((day * 100 + 50, day * 100 + 80) for day in range(60))
    hold, claim = Held("red", (1, 1, 0, 1), windows), Living((1, 1, 0, 1), FOREVER, "red")
    taken, left = 0, holdsums._left

    def counted(kept: Limits, drawn: Limits) -> Limits:
        nonlocal taken
        taken += 1
        return left(kept, drawn)

    monkeypatch.setattr(holdsums, "_left", counted)
    asked = (windows,) if name == "held_during" else ()
    reckon = getattr(holdsums, name)
    reckon([hold], [claim], NOW, *asked)
    of_one, taken = taken, 0
    reckon([hold] * 80, [claim] * 80, NOW, *asked)
    assert taken == of_one > 0
