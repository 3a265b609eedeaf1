"""Faults are drawn: the same from one seed, of every kind, and none on a victim that has one."""

import pytest

from tests.campaign.campaign import AGENTS, PLANES
from tests.campaign.faults import KINDS, Shape, draw_faults, struck


def shape(database: str) -> Shape:
    return Shape(PLANES[database], tuple(AGENTS), database)


def test_one_seed_draws_one_list() -> None:
    drawn = [draw_faults(7, 60, shape("postgresql")) for _ in range(2)]
    assert drawn[0] == drawn[1] != draw_faults(8, 60, shape("postgresql"))


@pytest.mark.parametrize("database", PLANES)
def test_every_kind_that_can_strike_does(database: str) -> None:
    drawn = {fault.kind for seed in range(5) for fault in draw_faults(seed, 300, shape(database))}
    assert drawn == {kind.name for kind in KINDS if kind.victims(shape(database))}


@pytest.mark.parametrize("database", PLANES)
def test_a_victim_has_one_fault_at_a_time(database: str) -> None:
    ends: dict[str, float] = {}
    for fault in draw_faults(3, 600, shape(database)):
        for victim in struck(fault, shape(database)):
            assert ends.get(victim, 0.0) < fault.at
            ends[victim] = fault.at + fault.for_s


def test_faults_are_shorter_and_longer_than_what_fences_a_host() -> None:
    lengths = {"kill_agent": [], "freeze_agent": [], "cut": []}
    for fault in draw_faults(1, 2000, shape("sqlite")):
        lengths.get(fault.kind, []).append(fault.for_s)
    for found in lengths.values():
        assert min(found) < 5
        assert max(found) > 13
