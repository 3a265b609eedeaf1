"""What machines came with is known of each as a whole: no job rents one after the other in vain."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base.units import GIB
from roost.jobs.deciding import experience
from roost.jobs.deciding.experience import LAST, Amounts, Experience, Spoken, amounts_of, newest
from roost.jobs.deciding.ordering import Queued
from roost.jobs.deciding.planning import Rows, plan_pool
from roost.model.job import MachineType, Pool
from roost.providers.mix.problem import MixLimits

TYPES = (
    MachineType("small", 4000, 8 * GIB, 0, price_micro=100_000),
    MachineType("large", 8000, 16 * GIB, 0, price_micro=250_000),
)
#: Of a type's cores and memory, in tenths: no one of them has the most of both.
MANY_CORES, MUCH_MEMORY = (10, 8), (8, 10)
Form = tuple[int, int]


@dataclass
class Market:
    """A pool of one machine at a time, whose machines come in forms that nobody foretells."""

    forms: Sequence[Form]
    queued: list[Queued]
    known: dict[str, list[Spoken]] = field(default_factory=dict)
    rented: list[tuple[str, bool]] = field(default_factory=list)  # its type, and whether it got one

    def run(self) -> None:
        """Rent, place and give back until nothing is wanted, or until the forms are used up."""
        pool = Pool(name="p", provider="model", max_machines=1)
        for at, form in enumerate(self.forms):
            known: Experience = {name: newest(each) for name, each in self.known.items()}
            plan = plan_pool(pool, (), self.queued, {}, TYPES, MixLimits(1), known)
            if not plan.wanted:
                return
            ((kind, _),) = plan.wanted
            has = _shaped(kind, form)
            self.learn(kind, has, at)
            self.rented.append((kind.name, self._work(pool, _row(has))))

    def learn(self, kind: MachineType, has: Amounts, at: int) -> None:
        """Remember what a machine came with."""
        spoken = Spoken(at, f"machine-{at}", amounts_of(kind), has)
        self.known.setdefault(kind.name, []).append(spoken)

    def _work(self, pool: Pool, row: dict[str, object]) -> bool:
        """Let a machine do all that it can, one job after the other; say whether it did any."""
        done = False
        while True:
            plan = plan_pool(pool, (row,), self.queued, {}, (), MixLimits(0))
            if not plan.assigned:
                return done
            done = True
            for (_, array), number in plan.assigned.items():
                self.queued = [
                    replace(q, number=q.number - number) if q.array == array else q
                    for q in self.queued
                ]
            self.queued = [q for q in self.queued if q.number]

    @property
    def most_in_vain(self) -> int:
        """Return how many machines of a type were rented in vain in a row at most."""
        most = 0
        for name in {name for name, _ in self.rented}:
            row = 0
            for of, useful in self.rented:
                if of == name:
                    row = 0 if useful else row + 1
                    most = max(most, row)
        return most


def _shaped(kind: MachineType, form: Form) -> Amounts:
    return kind.cpu_milli * form[0] // 10, kind.memory_bytes * form[1] // 10, 0


def _row(has: Amounts) -> dict[str, object]:
    names = ("cpu_milli", "memory_bytes", "disk_bytes", "attempts")
    found: dict[str, object] = {"id": "m", "state": "ready", "market": "on_demand"}
    for name, amount in zip(names, (*has, 64), strict=True):
        found |= {f"{name}_capacity": amount, f"{name}_committed": 0}
    return found


def _job(name: str, cpu_tenths: int, memory_tenths: int, number: int = 1) -> Queued:
    """Return a job that asks for parts of the small type."""
    return Queued(name, "p", 400 * cpu_tenths, memory_tenths * GIB * 8 // 10, 0, number)


#: Of the large type, one job for each form, and one for what it is called.
ONE_OF_EACH = [_job("cores", 20, 16), _job("memory", 16, 20), _job("whole", 20, 20)]


def _alternating(queued: list[Queued]) -> Market:
    """Run a market that has seen both forms, which come in turn."""
    found = Market(list(islice(cycle((MANY_CORES, MUCH_MEMORY)), 60)), queued)
    for kind in TYPES:
        for at, form in ((-2, MANY_CORES), (-1, MUCH_MEMORY)):
            found.learn(kind, _shaped(kind, form), at)
    found.run()
    return found


@settings(max_examples=40, deadline=None)
@given(
    forms=st.lists(st.tuples(st.integers(6, 10), st.integers(6, 10)), min_size=40, max_size=60),
    asked=st.lists(
        st.tuples(st.integers(5, 20), st.integers(5, 20), st.integers(1, 3)), max_size=4
    ),
)
def test_of_a_type_so_many_machines_at_most_are_rented_in_vain_in_a_row(
    forms: list[Form], asked: list[tuple[int, int, int]]
) -> None:
    market = Market(forms, [_job(f"job-{at}", *each) for at, each in enumerate(asked)])
    market.run()
    assert market.most_in_vain <= LAST


def test_a_job_that_asks_for_the_most_of_two_amounts_rents_no_machine_after_machine() -> None:
    market = _alternating(ONE_OF_EACH)
    assert [each.array for each in market.queued] == ["whole"]
    assert len(market.rented) <= 4 + LAST


@pytest.mark.parametrize("tenths", [(10, 8), (8, 10)])
def test_a_form_that_comes_every_other_time_is_waited_for(tenths: Form) -> None:
    market = _alternating([_job("some", *tenths, number=6)])
    assert market.queued == []


def test_the_mistake_is_found_of_taking_the_most_of_each_amount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if machines that came with many cores and others with much memory had been one."""

    def most_of_each(kind: MachineType, known: Experience) -> list[MachineType]:
        came = [each.has for each in known.get(kind.name, ())]
        if not came:
            return [kind]
        cpu, memory, disk = map(max, zip(*came, strict=True))
        return [replace(kind, cpu_milli=cpu, memory_bytes=memory, disk_bytes=disk)]

    monkeypatch.setattr(experience, "forms", most_of_each)
    assert _alternating(ONE_OF_EACH).most_in_vain > 10 * LAST


def test_what_a_type_was_called_before_says_nothing_of_it() -> None:
    small = amounts_of(TYPES[0])
    before, after = Spoken(1, "a", (1, 1, 1), (1, 1, 1)), Spoken(2, "b", small, small)
    assert newest([before, after]) == (after,)


def test_what_is_on_its_way_is_counted_in_every_form_that_it_may_take() -> None:
    """Else a second one would be rented for the same job while the first is on its way."""
    kind = TYPES[0]
    forms = [(4000, 6 * GIB, 0), (3000, 8 * GIB, 0)]
    known = {"small": [Spoken(at, str(at), amounts_of(kind), has) for at, has in enumerate(forms)]}
    row: dict[str, object] = _row(forms[0]) | {"state": "pending"}
    rows: Rows = [experience.foreseen(row, kind, known)]
    pool = Pool(name="p", provider="model", max_machines=2)
    for cpu, memory, disk in forms:
        job = Queued("job", "p", cpu, memory, disk, 1)
        found = plan_pool(pool, rows, [job], {}, TYPES, MixLimits(1), known)
        assert found.coming == {"job": 1}
        assert not found.wanted
