"""Near those that a VM talks with: bounds at their edge, unknown hosts, charges in proportion."""

from dataclasses import replace

import pytest

from roost.model.constraints import Talk
from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.model.reasons import Reason
from roost.model.resources import Demand
from roost.placement.engine import Engine
from roost.placement.explain import explain
from roost.placement.kernels.tally import WEIGHT_ONE
from roost.placement.nearness import MOST_CHARGED, SATURATED_WEIGHT, HostNetwork, Nearness
from roost.placement.replay import record, replay
from roost.placement.whatif import WhatIf
from roost.topology.distances import Distances
from roost.topology.network import Link, Node, checked
from tests.builders import fleet_of, host

#: Three hosts on a line of switches, and one that nobody described.
NETWORK = checked(
    [Node(name, "host") for name in ("near", "mid", "far")]
    + [Node(name, "switch") for name in ("s1", "s2", "s3")],
    [Link("near", "s1", 1000, 0.1), Link("mid", "s2", 1000, 0.1), Link("far", "s3", 1000, 0.1),
     Link("s1", "s2", 500, 1.0), Link("s2", "s3", 500, 2.0, 0.5)],
)  # fmt: skip


def engine(saturated: frozenset[str] = frozenset()) -> Engine:
    """Return an engine with a partner on the first host."""
    fleet = fleet_of(host("unheard"), host("far"), host("mid"), host("near"))
    made = Engine(fleet, "first_fit", network=HostNetwork(Distances(NETWORK), saturated))
    partner = PlaceRequest("db", Demand(1000, 1))
    fleet.apply("db", fleet.row("near"), fleet.vector(partner.demand), 0, 0)
    return made


def asking(**bound: int) -> PlaceRequest:
    """Return a request of a VM that talks with the partner."""
    return PlaceRequest("web", Demand(1000, 1), talks=(Talk("db", "db", **bound),))


def hosts_that_fit(made: Engine, request: PlaceRequest) -> set[str]:
    """Return the hosts that pass every filter."""
    return {each.host for each in explain(made, request).verdicts() if each.fits}


@pytest.mark.parametrize(
    ("most_us", "fit"),
    [(0, {"near"}), (1199, {"near"}), (1200, {"near", "mid"}), (3200, {"near", "mid", "far"})],
)
def test_a_latency_that_is_just_met_is_met(most_us: int, fit: set[str]) -> None:
    assert hosts_that_fit(engine(), asking(most_us=most_us)) == fit


@pytest.mark.parametrize(
    ("least_kbit", "fit"),
    [(250_000, {"near", "mid", "far"}), (250_001, {"near", "mid"}), (500_001, {"near"})],
)
def test_a_bandwidth_that_is_just_met_is_met(least_kbit: int, fit: set[str]) -> None:
    assert hosts_that_fit(engine(), asking(least_kbit=least_kbit)) == fit


def test_a_refusal_names_the_bound_and_the_nearest_host() -> None:
    made = engine()
    asked = asking(most_us=100)
    asked = replace(asked, constraints=replace(asked.constraints, excluded=("near",)))
    refused = made.place(asked)
    assert isinstance(refused, Rejection)
    assert "latency at most 0.1 ms to db, nearest mid with 1.2 ms" in refused.message
    assert {fix.rule for fix in refused.fixes} == {"how near to db", "excludes near"}
    told = {each.reason: each for each in refused.reasons}
    assert told[Reason.LATENCY].first == 3


def test_who_is_nowhere_asks_nothing_and_without_a_network_nobody_is_near() -> None:
    made = engine()
    gone = replace(asking(most_us=1), talks=(Talk("gone", "gone", most_us=1),))
    assert len(hosts_that_fit(made, gone)) == 4
    made.set_network(None)
    assert hosts_that_fit(made, asking(most_us=10**6)) == {"near"}  # its own host is no way


def test_distance_charges_by_traffic_and_an_unknown_host_as_the_farthest() -> None:
    made = engine()
    found = made.place(asking(kbit=100_000), runners_up=3)
    assert isinstance(found, Placement)
    assert found.host == "near"
    charged = {each.host: each.score // WEIGHT_ONE for each in found.runners_up}
    # 100 Mbit/s over 1.2 ms and three hops, over 3.2 ms and four.
    assert charged == {"mid": 123, "far": 324, "unheard": 324}
    much = made.place(asking(kbit=10_000_000), runners_up=3)
    assert isinstance(much, Placement)
    assert max(each.score for each in much.runners_up) == MOST_CHARGED * WEIGHT_ONE
    order = [each.host for each in much.runners_up]
    assert order == ["mid", "unheard", "far"]  # in proportion, so in the same order


def test_placements_tell_what_distance_and_uplinks_charged() -> None:
    made = engine(frozenset({"near"}))
    asked = asking(kbit=30_000)
    asked = replace(asked, constraints=replace(asked.constraints, pinned=("near",)))
    found = made.place(asked)
    assert isinstance(found, Placement)
    assert dict(found.breakdown)["saturated uplink"] == SATURATED_WEIGHT * WEIGHT_ONE
    away = replace(asked, constraints=replace(asked.constraints, pinned=("mid",)))
    found = made.place(away)
    assert isinstance(found, Placement)
    assert dict(found.breakdown) == {"distance to talkers": 37 * WEIGHT_ONE}
    assert made.place(replace(asking(), talks=())).host == "unheard"  # type: ignore[union-attr]


def test_worlds_and_replays_know_the_network() -> None:
    made = engine()
    assert WhatIf.like(made).find(asking(kbit=100_000)).host == "near"  # type: ignore[union-attr]
    kept = record(made, asking(kbit=100_000))
    assert replay(kept, made.fleet) == kept.answer


def test_hosts_that_come_later_are_found_in_the_network() -> None:
    fleet = fleet_of(host("near"))
    near = Nearness(fleet, HostNetwork(Distances(NETWORK)))
    fleet.apply("db", 0, fleet.vector(Demand(1, 1)), 0, 0)
    talks = [Talk("db", "db", 1_000_000)]
    assert near.charges(talks).tolist() == [0]
    row = fleet.register(host("mid"))
    assert near.charges(talks)[row] == MOST_CHARGED
