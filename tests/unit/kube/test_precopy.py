"""A live copy: bytes are conserved, and more bandwidth or fewer writes never take longer."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roost.kube.moving.copying import Copying, fair_shares
from roost.kube.moving.precopy import Copy, Limits, Stage, bytes_per_s
from tests.turns import draws_in_turn

GIB = float(2**30)
MEMORY = st.floats(0.0, 512 * GIB)
RATE = st.floats(1e6, 1e10)
DIRTY = st.floats(0.0, 1e10)
PATIENT = Limits(limit_s=1e9)


def run(copy: Copy, bandwidth: float) -> Copy:
    copy.advance(1e12, bandwidth)
    assert copy.over
    return copy


def finished_s(memory: float, dirty: float, bandwidth: float, limits: Limits) -> float:
    copy = run(Copy(memory, dirty, limits=limits), bandwidth)
    return copy.ended_s if copy.stage is Stage.DONE else math.inf


def test_a_busy_vm_takes_the_time_that_its_rounds_take() -> None:
    # 8 GiB, 4 of 10 Gbit/s written: 6.87, 2.75, 1.10, 0.44 s of rounds, then 0.18 s standing still.
    copy = run(Copy(8 * GIB, bytes_per_s(4000)), bytes_per_s(10_000))
    assert copy.stage is Stage.DONE
    first_s = 8 * GIB / bytes_per_s(10_000)
    assert copy.rounds == pytest.approx([8 * GIB * 0.4**n for n in range(5)])
    assert copy.ended_s == pytest.approx(first_s * sum(0.4**n for n in range(5)))
    assert copy.downtime_s == pytest.approx(first_s * 0.4**4)
    assert copy.downtime_s < 0.3


def test_a_vm_that_writes_faster_than_it_is_sent_is_given_up() -> None:
    copy = run(Copy(8 * GIB, bytes_per_s(4000)), bytes_per_s(4000))
    assert copy.stage is Stage.ABORTED
    assert "cannot converge: the guest writes 4,000 Mbit/s" in copy.reason
    assert len(copy.rounds) == 3


def test_a_copy_that_takes_too_long_is_given_up_then() -> None:
    copy = run(Copy(80 * GIB, bytes_per_s(800)), bytes_per_s(1000))
    assert (copy.stage, copy.ended_s) == (Stage.ABORTED, 300.0)
    assert "300 s" in copy.reason
    assert copy.copied_bytes == pytest.approx(300 * bytes_per_s(1000))


def test_an_empty_vm_is_there_at_once() -> None:
    copy = Copy(0.0, 1e9, 5.0)
    copy.advance(5.0, 1e9)
    assert (copy.stage, copy.ended_s, copy.progress) == (Stage.DONE, 5.0, 1.0)


@given(MEMORY, DIRTY, RATE, st.floats(0.0, 400.0))
def test_what_was_sent_is_bandwidth_times_time(
    memory: float, dirty: float, bandwidth: float, to_s: float
) -> None:
    copy = Copy(memory, dirty)
    copy.advance(to_s, bandwidth)
    busy_s = min(copy.ended_s, to_s)
    assert copy.copied_bytes == pytest.approx(busy_s * bandwidth, rel=1e-6, abs=1.0)
    if copy.stage is Stage.DONE:
        assert copy.copied_bytes == pytest.approx(sum(copy.rounds))
    assert all(0 <= each <= memory for each in copy.rounds)


@given(MEMORY, DIRTY, RATE, st.floats(1.0, 10.0), st.sampled_from([Limits(), PATIENT]))
def test_more_bandwidth_is_never_later(
    memory: float, dirty: float, bandwidth: float, factor: float, limits: Limits
) -> None:
    slow = finished_s(memory, dirty, bandwidth, limits)
    assert finished_s(memory, dirty, bandwidth * factor, limits) <= slow * (1 + 1e-9)


@given(MEMORY, DIRTY, RATE, st.floats(1.0, 10.0), st.sampled_from([Limits(), PATIENT]))
def test_more_writing_is_never_sooner(
    memory: float, dirty: float, bandwidth: float, factor: float, limits: Limits
) -> None:
    calm = finished_s(memory, dirty, bandwidth, limits)
    assert finished_s(memory, dirty * factor, bandwidth, limits) >= calm * (1 - 1e-9)


@given(MEMORY, RATE, st.floats(0.0, 3.0))
def test_it_converges_exactly_when_less_is_written_than_sent(
    memory: float, bandwidth: float, share: float
) -> None:
    assume(not 0.98 < share < 1.02)
    fits_downtime = memory <= bandwidth * PATIENT.downtime_s
    copy = run(Copy(memory, bandwidth * share, limits=PATIENT), bandwidth)
    assert (copy.stage is Stage.DONE) == (share < 1 or fits_downtime)
    assert copy.downtime_s <= PATIENT.downtime_s * (1 + 1e-9)


@given(MEMORY, DIRTY, RATE, RATE, st.lists(st.floats(0.0, 400.0), max_size=20))
def test_looking_often_changes_nothing(
    memory: float, dirty: float, before: float, after: float, looks: list[float]
) -> None:
    once, often = Copy(memory, dirty), Copy(memory, dirty)
    looks = sorted(looks)
    change_s = looks[len(looks) // 2] if looks else 100.0
    once.advance(change_s, before)
    once.advance(400.0, after)
    for to_s in looks[: len(looks) // 2]:
        often.advance(to_s, before)
    often.advance(change_s, before)
    for to_s in looks[len(looks) // 2 :]:
        often.advance(to_s, after)
    often.advance(400.0, after)
    assert vars(often) == vars(once)


@given(MEMORY, DIRTY, RATE, st.lists(st.floats(0.0, 400.0), min_size=2))
def test_progress_only_grows(
    memory: float, dirty: float, bandwidth: float, looks: list[float]
) -> None:
    copy, seen = Copy(memory, dirty), 0.0
    for to_s in sorted(looks):
        copy.advance(to_s, bandwidth)
        assert seen <= copy.progress <= 1.0
        seen = copy.progress


# Shared bandwidth

NODES = ["a", "b", "c", "d", "e"]
PAIRS = st.tuples(st.sampled_from(NODES), st.sampled_from(NODES)).filter(lambda p: p[0] != p[1])
CAPACITIES = st.fixed_dictionaries({node: st.integers(1, 100) for node in NODES})


def naive_shares(flows: dict[int, tuple[str, str]], nic: dict[str, float]) -> dict[int, float]:
    """Pour in drops: every flow gets one more as long as both its nodes have room for it."""
    rates, drop, growing = dict.fromkeys(flows, 0.0), 0.01, set(flows)
    while growing:
        for key in growing:
            rates[key] += drop
        used = {node: sum(rates[k] for k, pair in flows.items() if node in pair) for node in nic}
        full = {node for node in nic if used[node] > nic[node] - drop}
        growing = {key for key in growing if not full & set(flows[key])}
    return rates


@draws_in_turn()
@given(st.lists(PAIRS, max_size=8), CAPACITIES)
def test_shares_are_those_of_pouring_in_drops(
    pairs: list[tuple[str, str]], nic: dict[str, int]
) -> None:
    flows = dict(enumerate(pairs))
    shares = fair_shares(flows, nic.__getitem__)
    poured = naive_shares(flows, {node: float(many) for node, many in nic.items()})
    assert shares == pytest.approx(poured, abs=0.1)


@given(st.lists(PAIRS, min_size=1, max_size=12), CAPACITIES)
def test_no_node_is_overrun_and_everyone_is_held_by_a_full_one(
    pairs: list[tuple[str, str]], nic: dict[str, int]
) -> None:
    flows = dict(enumerate(pairs))
    shares = fair_shares(flows, nic.__getitem__)
    used = {node: sum(shares[k] for k, pair in flows.items() if node in pair) for node in nic}
    assert all(used[node] <= nic[node] * (1 + 1e-9) for node in nic)
    for key, pair in flows.items():
        # Max-min fair: at one of its nodes, which is full, nobody gets more.
        assert any(
            used[node] == pytest.approx(nic[node])
            and all(shares[o] <= shares[key] * (1 + 1e-9) for o, p in flows.items() if node in p)
            for node in pair
        )


@given(st.floats(1.0, 64 * GIB), st.floats(0.0, 1e9), st.integers(1, 5))
def test_equal_copies_at_once_end_at_once_and_as_one_with_its_share(
    memory: float, dirty: float, many: int
) -> None:
    nic = 1.25e9
    copying: Copying[int] = Copying(lambda _: nic)
    for number in range(many):
        copying.begin(number, "source", f"target-{number}", Copy(memory, dirty))
    copying.advance(1e6)
    ends = {copy.ended_s for n in range(many) if (copy := copying.get(n))}
    assert len(ends) == 1
    assert ends == {run(Copy(memory, dirty), nic / many).ended_s}


def test_the_second_half_goes_faster_when_the_neighbour_is_done() -> None:
    copying: Copying[str] = Copying(lambda _: 100.0)
    limits = Limits(limit_s=1e6)
    copying.begin("short", "a", "b", Copy(500.0, 0.0, limits=limits))
    copying.begin("long", "a", "c", Copy(1500.0, 0.0, limits=limits))
    copying.advance(1e6)
    short, long = copying.get("short"), copying.get("long")
    assert short
    assert short.ended_s == pytest.approx(10.0)
    assert long
    assert long.ended_s == pytest.approx(10.0 + 1000.0 / 100.0)


def test_a_copy_that_began_before_we_came_catches_up() -> None:
    copying: Copying[str] = Copying(lambda _: 100.0)
    copying.advance(50.0)
    copying.begin("old", "a", "b", Copy(1000.0, 0.0, begins_s=45.0))
    assert copying.now_s == 50.0
    old = copying.get("old")
    assert old
    assert old.copied_bytes == pytest.approx(500.0)
    copying.advance(60.0)
    assert old.ended_s == pytest.approx(55.0)


@given(
    st.lists(st.tuples(PAIRS, st.floats(0.0, 100.0), st.floats(1.0, 1e4)), max_size=6),
    st.lists(st.floats(0.0, 500.0), max_size=10),
)
def test_looking_often_at_all_copies_changes_nothing(
    begun: list[tuple[tuple[str, str], float, float]], looks: list[float]
) -> None:
    def play(moments: list[float]) -> list[float]:
        copying: Copying[int] = Copying(lambda _: 100.0)
        plan = [(at_s, number) for number, (_, at_s, _) in enumerate(begun)]
        plan += [(at_s, -1) for at_s in moments]
        for at_s, number in sorted(plan):
            copying.advance(at_s)
            if number >= 0:
                (source, target), _, memory = begun[number]
                copying.begin(number, source, target, Copy(memory, 10.0, at_s))
        copying.advance(1e6)
        return [copy.ended_s for n in range(len(begun)) if (copy := copying.get(n))]

    assert play(looks) == pytest.approx(play([]))
