"""Profiles of what hosts must hold, against the sum for each end."""

from hypothesis import given
from hypothesis import strategies as st

from roost.control.memory.heldprofile import profile_of
from roost.ledger.claims.holdsums import FOREVER, Held, Living, held_on

_NOW, _LAST = 10, 30
_owner = st.sampled_from(("r", "s", "t"))
_limits = st.tuples(*(st.integers(0, 4),) * 4)
_end = st.integers(0, _LAST) | st.just(FOREVER)
_windows = st.lists(st.tuples(st.integers(0, _LAST), _end), max_size=4).map(
    lambda drawn: tuple((start, end) for start, end in drawn if end > start)
)
_counters = st.sampled_from(((), (("device:00", 3),), (("device:00", 1), ("x:fpga", 2))))
_holds = st.lists(st.builds(Held, _owner, _limits, _windows, _counters), max_size=5)
_claims = st.lists(st.builds(Living, _limits, _end, st.none() | _owner, _counters), max_size=5)


@given(_holds, _claims, st.none() | _owner)
def test_a_profile_is_the_sum_for_every_end_while_it_holds(
    holds: list[Held], claims: list[Living], but: str | None
) -> None:
    profile = profile_of(holds, claims, _NOW, but)
    assert profile.holds_at(_NOW)
    for now in range(_NOW, min(profile.before_ms, _LAST + 2)):
        for end in (*range(now + 1, _LAST + 2), FOREVER):
            assert profile.until(end) == held_on(holds, claims, now, end, but)
