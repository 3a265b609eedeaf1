"""VMs whose peaks lie apart score better together."""

from dataclasses import replace

from roost.model.constraints import Constraints
from roost.model.flow import Placement, PlaceRequest
from roost.model.outlook import DayCourse, Expected, Predicted, PredictionBasis
from roost.model.resources import Demand
from roost.placement.engine import Engine
from roost.placement.kernels.tally import WEIGHT_ONE
from roost.placement.peaks import MOST_CHARGED
from roost.placement.recommending import recommend
from roost.placement.replay import record, replay
from roost.placement.strategies import STRATEGIES
from roost.placement.whatif import WhatIf
from tests.builders import fleet_of, host

MORNING = DayCourse(3100, (0, 0, 31, 31, 0, 0, 0, 0))
NIGHT = DayCourse(3100, (31, 0, 0, 0, 0, 0, 0, 31))


def asking(name: str, day: DayCourse | None) -> PlaceRequest:
    strategy, expected = STRATEGIES["metrics_based"], Expected(10, 2**20, day=day)
    return PlaceRequest(
        name,
        Demand(1000, 2**30),
        strategy=strategy.name,
        expected=expected,
        day=strategy.day_for(expected),
    )


def engine() -> Engine:
    """Two hosts of which the same is predicted: one VM peaks in the morning, one at night."""
    fleet = fleet_of(host("a"), host("b"))
    nothing = dict.fromkeys(("a", "b"), Predicted(0, 0))
    fleet.set_predicted(nothing, PredictionBasis("a week"))
    made = Engine(fleet)
    for name, day, where in (("early", MORNING, "a"), ("late", NIGHT, "b")):
        request = replace(asking(name, day), constraints=Constraints(pinned=(where,)))
        found = made.place(request)
        assert isinstance(found, Placement)
        made.commit(request, found)
    return made


def test_a_vm_goes_where_its_neighbours_peak_at_other_hours() -> None:
    made = engine()
    for day, where in ((NIGHT, "a"), (MORNING, "b"), (None, "a")):  # a tie goes to the first
        found = made.place(asking("new", day))
        assert isinstance(found, Placement)
        assert found.host == where


def test_what_was_just_placed_counts_at_once_and_what_left_no_longer() -> None:
    made, asked = engine(), replace(asking("next", NIGHT), constraints=Constraints(pinned=("a",)))
    before = made.place(asked)
    new = replace(asked, name="new")
    number = made.commit(new, made.place(new))  # type: ignore[arg-type]
    beside = made.place(asked)
    assert isinstance(beside, Placement)
    assert dict(beside.breakdown)["peaks shared"] == MOST_CHARGED * WEIGHT_ONE
    made.fleet.remove(number)
    assert made.place(asked) == before
    assert isinstance(before, Placement)
    assert "peaks shared" not in dict(before.breakdown)


def test_a_strategy_that_foresees_nothing_has_no_days() -> None:
    expected = Expected(day=NIGHT)
    told = {name for name, each in STRATEGIES.items() if each.day_for(expected) is not None}
    assert told == {"metrics_based"}


def test_explanations_and_recommendations_name_the_charge_and_replays_agree() -> None:
    made = engine()
    asked = asking("new", NIGHT)
    kept = record(made, asked)
    assert replay(kept, made.fleet) == kept.answer
    told = recommend(WhatIf.like(made), asked, 2)
    shared = [dict(each.breakdown).get("peaks shared", 0) for each in told.ranked]
    assert sorted(shared) == [0, MOST_CHARGED * WEIGHT_ONE]


def test_a_batch_sees_the_days_of_those_before() -> None:
    alone, together = engine(), engine()
    requests = [asking(f"n{number}", NIGHT) for number in range(4)]
    rows = []
    for request in requests:
        found = alone.place(request)
        assert isinstance(found, Placement)
        alone.commit(request, found)
        rows.append(found.host_row)
    placed = together.place_batch(requests)
    assert [each.host_row for each in placed if isinstance(each, Placement)] == rows
    assert rows[0] == 0
    assert len(set(rows)) == 2
