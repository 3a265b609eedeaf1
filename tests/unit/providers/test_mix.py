"""The cheapest mix of machine types: exact, within limits, and the same each time."""

from random import Random

import pytest

from roost.base.errors import InvariantBroken
from roost.base.units import GIB
from roost.model.job import MachineType
from roost.model.resources import Demand
from roost.providers.mix.problem import Filled, Mix, MixLimits, Need, Offer, check
from roost.providers.mix.program import cheapest_mix
from tests.naive.mix import cheapest


def offer(cpu: int, memory: int, price: int, *, most: int | None = None) -> Offer:
    """Return an offer of so many cores and GiB."""
    name = f"t{cpu}-{memory}"
    return Offer(MachineType(name, cpu * 1000, memory * GIB, 100 * GIB, price), most=most)


def need(cpu: int, memory: int, count: int = 1, weight: int = 1) -> Need:
    """Return a need of so many cores and GiB."""
    return Need(Demand(cpu * 1000, memory * GIB), count, weight)


def random_case(seed: int, *, jobs: int = 6) -> tuple[list[Need], list[Offer]]:
    """Return needs and offers that chance made; prices are near to, never equal to, amounts."""
    random = Random(seed)
    needs = [need(random.randint(1, 6), random.randint(1, 16)) for _ in range(jobs)]
    offers = []
    for cpu in (2, 4, 8):
        for ratio in (1, 2, 4):
            price = round(1000 * (cpu + cpu * ratio * 0.15) * random.uniform(0.7, 1.3))
            offers.append(offer(cpu, cpu * ratio, price))
    return needs, random.sample(offers, 4)


@pytest.mark.parametrize("seed", range(20))
def test_a_mix_costs_what_trying_everything_finds(seed: int) -> None:
    needs, offers = random_case(seed)

    mix = cheapest_mix(needs, offers)

    check(mix, needs, offers, MixLimits())
    assert (sum(mix.left), mix.cost_micro) == cheapest(needs, offers)
    assert mix.proven
    assert mix.bound_micro <= mix.cost_micro or any(mix.left)


@pytest.mark.parametrize("seed", range(20, 32))
def test_limits_leave_as_few_as_they_must(seed: int) -> None:
    needs, offers = random_case(seed, jobs=5)
    random = Random(seed)
    limits = MixLimits(
        machines=random.choice([None, 1, 2]),
        cpu_milli=random.choice([None, 6000, 12000]),
        budget_micro=random.choice([None, 4000, 12000]),
    )

    mix = cheapest_mix(needs, offers, limits)

    check(mix, needs, offers, limits)
    assert (sum(mix.left), mix.cost_micro) == cheapest(needs, offers, limits)


def test_memory_is_never_forgotten_for_cores() -> None:
    """A type is chosen by every amount: (1 core, 10 GiB) does not go where only 2 GiB are."""
    small, large = offer(1, 2, 10), offer(2, 16, 40)

    mix = cheapest_mix([need(1, 10)], [small, large])

    assert [each.offer for each in mix.filled] == [1]


def test_a_job_larger_than_every_type_is_left_and_not_squeezed_in() -> None:
    mix = cheapest_mix([need(64, 4), need(1, 1)], [offer(4, 8, 10)])

    assert mix.left == (1, 0)
    assert mix.machines == 1


def test_two_slots_merge_into_one_machine_of_the_same_price() -> None:
    mix = cheapest_mix([need(2, 4, 2)], [offer(2, 4, 100), offer(4, 8, 200)])

    assert [(each.offer, each.machines) for each in mix.filled] == [(1, 1)]


def test_what_is_sold_out_is_not_chosen() -> None:
    mix = cheapest_mix([need(2, 4, 3)], [offer(2, 4, 10, most=1), offer(2, 4, 30, most=None)])

    assert mix.cost_micro == 10 + 30 + 30


def test_the_heavier_is_served_where_limits_bind() -> None:
    needs = [need(4, 4, weight=1), need(4, 4, weight=9)]

    mix = cheapest_mix(needs, [offer(4, 8, 10)], MixLimits(machines=1))

    assert mix.left == (1, 0)


def test_an_array_of_a_hundred_thousand_is_as_quick_as_one_job() -> None:
    needs = [need(1, 2, 60_000), need(2, 3, 40_000)]
    offers = [offer(4, 8, 170), offer(16, 32, 640), offer(16, 64, 900)]

    mix = cheapest_mix(needs, offers)

    check(mix, needs, offers, MixLimits())
    assert mix.left == (0, 0)
    assert mix.cost_micro <= mix.bound_micro * 1.02


def test_many_distinct_demands_are_served_near_the_bound() -> None:
    random = Random(7)
    needs = [
        Need(Demand(random.randint(100, 8000), random.randint(1, 30 * 1024) * 2**20), 20)
        for _ in range(300)
    ]
    offers = [offer(c, c * r, c * (10 + 2 * r)) for c in (2, 4, 8, 16) for r in (2, 4, 8)]

    mix = cheapest_mix(needs, offers, effort=1.0)

    check(mix, needs, offers, MixLimits())
    assert not any(mix.left)
    assert not mix.proven
    assert mix.cost_micro <= mix.bound_micro * 1.3


def test_the_same_question_has_the_same_answer() -> None:
    needs, offers = random_case(3, jobs=9)

    assert cheapest_mix(needs, offers) == cheapest_mix(needs, offers)


def test_nothing_needs_nothing() -> None:
    assert cheapest_mix([], [offer(1, 1, 1)]) == Mix((), 0, (), True)


def test_a_wrong_answer_is_found() -> None:
    needs, offers = [need(2, 2, 2)], [offer(2, 4, 10)]
    overfull = Mix((Filled(0, 1, ((0, 2),)),), 10, (0,), True)
    lost = Mix((Filled(0, 1, ((0, 1),)),), 10, (0,), True)

    for wrong in (overfull, lost):
        with pytest.raises(InvariantBroken):
            check(wrong, needs, offers, MixLimits())
