"""A lowered limit: what is on its way goes first, then what is idle, then what has fewest jobs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.jobs.deciding.shedding import LEAVING, Passed, Rented, to_leave

STATES = ("pending", "allocating", "allocated", "ready", "draining", "returning")


def rented(
    name: str, state: str = "ready", jobs: int = 0, cpu: int = 1000, price: int = 10, **given: str
) -> Rented:
    amounts = {"machines": 1, "cpu_milli": cpu, "micro": price}
    of = {"pool": "p", "account": ""} | given
    return Rented(name, of["pool"], of["account"], state, jobs, amounts)


def pool(name: str = "p", **most: int) -> Passed:
    return Passed("pool", name, most)


def left(limits: list[Passed], *machines: Rented) -> list[str]:
    return [machine.id for machine, _ in to_leave(limits, machines)]


MIXED = (
    rented("busy", jobs=2),
    rented("idle"),
    rented("idle and dear", price=20),
    rented("less busy", jobs=1),
    rented("coming", "allocated"),
)
IN_ORDER = ["coming", "idle and dear", "idle", "less busy", "busy"]


@pytest.mark.parametrize("most", range(6))
def test_machines_leave_in_order_and_no_more_than_must(most: int) -> None:
    assert left([pool(machines=most)], *MIXED) == IN_ORDER[: 5 - most]


def test_what_leaves_already_makes_no_other_leave() -> None:
    assert left([pool(machines=1)], rented("gone", "draining", 1), rented("here", jobs=1)) == []


def test_a_machine_of_which_the_limit_gets_nothing_stays() -> None:
    """A machine that costs nothing helps no budget."""
    assert left([pool(micro=5)], rented("free", price=0), rented("dear", jobs=1)) == ["dear"]


def test_an_account_s_limit_goes_over_all_its_pools_after_their_own() -> None:
    machines = [
        rented("a1", jobs=1, pool="a", account="ours"), rented("a2", pool="a", account="ours"),
        rented("b1", pool="b", account="ours"), rented("c1", pool="c", account="theirs"),
    ]  # fmt: skip
    limits = [Passed("account", "ours", {"machines": 1}), pool("a", machines=1)]
    assert left(limits, *machines) == ["a2", "b1"]


@settings(max_examples=200, deadline=None)
@given(
    drawn=st.lists(
        st.tuples(st.sampled_from(STATES), st.integers(0, 3), st.integers(1, 4), st.integers(0, 4)),
        max_size=8,
    ),
    most=st.fixed_dictionaries(
        {}, optional={name: st.integers(0, 12) for name in ("machines", "cpu_milli", "micro")}
    ),
)
def test_what_stays_is_within_the_limits_and_the_last_that_left_had_to(
    drawn: list[tuple[str, int, int, int]], most: dict[str, int]
) -> None:
    machines = [
        rented(str(at), state, jobs if state == "ready" else 0, cpu, price)
        for at, (state, jobs, cpu, price) in enumerate(drawn)
    ]
    chosen = left([Passed("pool", "p", most)], *machines)
    stays = [m for m in machines if m.state not in LEAVING and m.id not in chosen]

    def within(those: list[Rented]) -> bool:
        return all(sum(m.amounts[n] for m in those) <= limit for n, limit in most.items())

    assert within(stays)
    assert not chosen or not within([*stays, *(m for m in machines if m.id == chosen[-1])])
    idle_stays = any(m.state == "ready" and not m.jobs and m.amounts["micro"] for m in stays)
    assert not (idle_stays and any(m.jobs for m in machines if m.id in chosen))
