"""Reports: returns, balance over time, spread, and what is said of expectations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.kube.scenarios.reports import (
    Evictions,
    Move,
    NodeState,
    Place,
    Report,
    Return,
    judge,
    returns_of,
    sample_of,
    spread_of,
    time_to_balance,
)
from roost.kube.script.scenario import Expected
from roost.wire.text.strictyaml import Seconds


def move(vm: str, source: str, actual: str, at: float, phase: str = "Succeeded", **more) -> Move:
    return Move(
        vm=vm, number=int(at), source=source, actual=actual, started_s=at, phase=phase, **more
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=12))
def test_returns_are_what_a_walk_over_all_places_finds(hops) -> None:
    """Every move is checked against the whole way of its VM, kept as a list."""
    moves: list[Move] = []
    ways: dict[str, list[tuple[float, str]]] = {"a": [(-1.0, "x")], "b": [(-1.0, "x")]}
    expected = []
    for at, (vm, node) in enumerate(hops):
        way = ways[vm]
        here = way[-1][1]
        if node == here:
            continue
        moves.append(move(vm, here, node, float(at)))
        way.append((float(at), node))
        # Left at the time of the stop after it.
        stays = [i for i, (_, name) in enumerate(way[:-1]) if name == node]
        if stays:
            expected.append(Return(vm=vm, node=node, away_s=at - way[stays[-1] + 1][0]))
    assert returns_of(reversed(moves)) == expected


def test_a_move_that_failed_leads_nowhere() -> None:
    assert returns_of([move("a", "x", "y", 1), move("a", "y", "x", 2, "Failed")]) == []


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20), st.floats(0.0, 0.5))
def test_balance_is_since_the_last_time_it_was_not(highest, within) -> None:
    samples = [sample_of(float(at), [high, 0.0]) for at, high in enumerate(highest)]
    uneven = [s.at_s for s in samples if s.highest - s.mean > within + 1e-9]
    since = time_to_balance(samples, within)
    if uneven and uneven[-1] == samples[-1].at_s:
        assert since is None
    else:
        assert since == (uneven[-1] + 1 if uneven else 0.0)


def test_nothing_seen_is_not_called_even() -> None:
    assert time_to_balance([], 0.1) is None


def test_spread_says_how_even_nodes_are() -> None:
    nodes = [NodeState(name=str(n), vms=n, cpu=n / 10, memory=0.5) for n in (1, 3)]
    spread = spread_of(nodes)
    assert (spread.vms_deviation, spread.cpu_deviation, spread.memory_deviation) == (1.0, 0.1, 0.0)
    assert (spread.cpu_range, spread.cpu_above, spread.cpu_mean) == (0.2, 0.1, 0.2)
    assert spread_of([]).cpu_range == 0.0


def report(**more) -> Report:
    return Report(scenario="s", about="", seed=1, **more)


@pytest.mark.parametrize(
    ("expected", "met", "words"),
    [
        (Expected(pending=1), True, "1"),
        (Expected(pending=0), False, "1"),
        (Expected(pending_at_least=1), True, "1"),
        (Expected(pending_at_least=2), False, "1"),
        (Expected(moves_at_least=2), True, "2"),
        (Expected(moves_at_most=1), False, "2"),
        (Expected(elsewhere_at_least=1), True, "1"),
        (Expected(elsewhere_at_least=2), False, "1"),
        (Expected(aborted_at_most=0), False, "1"),
        (Expected(converted_at_least=3), True, "3"),
        (Expected(no_return_within=Seconds(3.0)), True, "none did"),
        (Expected(no_return_within=Seconds(4.0)), False, "1 did: a to x after 4.0 s"),
        (Expected(balanced_within=0.1), True, "even since 3.0 s"),
        (Expected(balanced_within=0.1, balanced_after=Seconds(2.0)), False, "even since 3.0 s"),
    ],
)
def test_expectations_are_judged(expected, met, words) -> None:
    found = report(
        vms=[
            Place(vm="a", first="x", node="x", phase="Running"),
            Place(vm="b", first="", node="", phase="Scheduling", reason="no room"),
        ],
        moves=[
            move("a", "x", "y", 1, wanted="z"),
            move("a", "y", "x", 5, wanted="x"),
            move("a", "x", "", 6, "Failed", wanted="y"),
        ],
        evictions=Evictions(asked=4, converted=3, refused=1),
        time_to_balance_s=3.0,
    )
    found.returns = returns_of(found.moves)
    found.judgements = judge(expected, found)
    first, last = found.judgements
    assert (first.met, last.expected) == (met, "every rule holds")
    assert words in first.found
    assert found.met is met


def test_a_broken_rule_is_told() -> None:
    found = report(violations=["web-1 and web-2 share sim-node-1"])
    (only,) = judge(Expected(), found)
    assert not only.met
    assert "web-2" in only.found
    assert judge(Expected(compliant=False), found) == []


def test_uneven_at_the_end_is_never_balanced() -> None:
    (first, _) = judge(Expected(balanced_within=0.1), report())
    assert not first.met
    assert "not even" in first.found
