"""The soft taint: with hysteresis, without flapping, and never at the cost of another's."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roost.kube.base.names import FAKE_TAINT_KEY, PRESSURE_TAINT_KEY
from roost.kube.metering.tainting import is_tainted, retainted, wants_taint

HIGH, LOW = 0.5, 0.35
shares = st.floats(min_value=0.0, max_value=1.0)


def writes(pressures: list[float], has: bool = False) -> int:
    """Return how often a node's taint changes as its pressure goes through these values."""
    changes = 0
    for pressure in pressures:
        wants = wants_taint(has, pressure, HIGH, LOW)
        changes += wants != has
        has = wants
    return changes


@given(st.lists(st.floats(min_value=LOW, max_value=HIGH)), st.booleans())
def test_a_pressure_that_stays_within_the_band_changes_nothing(
    pressures: list[float], has: bool
) -> None:
    assert writes(pressures, has) == 0


@given(st.lists(shares, max_size=50))
def test_every_change_takes_a_way_through_the_whole_band(pressures: list[float]) -> None:
    crossings, above = 0, False
    for pressure in pressures:
        if (above and pressure < LOW) or (not above and pressure > HIGH):
            above, crossings = not above, crossings + 1
    assert writes(pressures) == crossings


taints = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([PRESSURE_TAINT_KEY, FAKE_TAINT_KEY, "other"]),
            "effect": st.sampled_from(["PreferNoSchedule", "NoSchedule", "NoExecute"]),
        }
    )
)


def ours(taint: dict[str, Any]) -> bool:
    return taint["key"] == PRESSURE_TAINT_KEY and taint["effect"] == "PreferNoSchedule"


@given(taints, st.booleans())
def test_only_our_taint_is_touched(there: list[dict[str, Any]], tainted: bool) -> None:
    node = {"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"taints": there}}
    change = retainted(node, tainted)
    left = change["spec"]["taints"]
    assert [each for each in left if not ours(each)] == [each for each in there if not ours(each)]
    assert sum(ours(each) for each in left) == tainted
    assert is_tainted({"spec": change["spec"]}) == tainted
    # Made from this version only: whoever wrote in between is not written over.
    assert change["metadata"]["resourceVersion"] == "7"


def test_a_node_without_taints_can_be_given_ours() -> None:
    bare = {"metadata": {"name": "a", "resourceVersion": "1"}, "spec": {}}
    assert not is_tainted(bare)
    assert is_tainted({"spec": retainted(bare, tainted=True)["spec"]})
