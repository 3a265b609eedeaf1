"""The exact search agrees with trying everything; its solutions pass the engine's filters.

And what it says of a refusal holds: without the conflict the batch fits, with any part of it put
back it does not.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.fleet.fleet import Fleet
from roost.model.constraints import Constraints, Toleration
from roost.model.flow import Placement, PlaceRequest
from roost.model.resources import NumaMode
from roost.placement.engine import NO_FIT, Engine
from roost.placement.solver import relaxing, searching
from roost.placement.solver.checking import passes
from roost.placement.solver.program import Program
from roost.placement.solver.relaxing import conflict_of
from roost.placement.solver.restrictions import without
from roost.placement.solver.searching import Found, search
from tests.property import generators
from tests.property.laws import SEEDS, examples, grown

FOCI = st.sampled_from(["any", "none", "groups", "devices", "cells", "attributes", "rules"])


def batch(seed: int, hosts: int, count: int, focus: str) -> tuple[Engine, list[PlaceRequest]]:
    """Return a small fleet and a batch that is large for it, with equal VMs and hosts in them."""
    pair = grown(seed, hosts, hosts // 2, focus)
    for number in range(seed % 3):
        equal = generators.host(pair.climate, 0)
        pair.engine.fleet.register(replace(equal, name=f"equal-{number}"))
    rng = Random(seed)
    asked = []
    for number in range(count):
        drawn = generators.request(pair.climate, rng.randrange(max(1, count - 1)))
        demand = drawn.demand
        larger = replace(
            demand,
            cpu_milli=demand.cpu_milli * (1 + seed % 3),
        )
        asked.append(replace(drawn, name=f"of-batch-{number}", demand=larger, strategy=None))
    return pair.engine, asked


def seats(fleet: Fleet, request: PlaceRequest, row: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield every choice of devices and cells there could be, suitable or not."""
    ask = request.demand.devices
    devices = range(fleet.hosts.arrays.device_free.shape[1])
    cells = range(fleet.hosts.arrays.cell_free.shape[1])
    width = {NumaMode.ANY: 0, NumaMode.ONE_CELL: 1}.get(request.demand.numa, 2)
    yield from product(
        combinations(devices, ask.count if ask is not None else 0), combinations(cells, width)
    )


def by_programs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be placed in turn, which solves most small batches before any program."""
    monkeypatch.setattr(searching._Search, "_in_turn", lambda *_: [])


def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hardest VMs be decided apart, and on few hosts, as in batches that are large."""
    monkeypatch.setattr(searching, "_FEW_SEATS", 6)
    monkeypatch.setattr(searching, "_NARROW", (0, 1))


def fits_somehow(engine: Engine, requests: Sequence[PlaceRequest]) -> bool:
    """Try every order and every place, with the kernels' verdict at every step."""
    fleet = engine.fleet
    tried: set[frozenset[object]] = set()

    def rest(left: tuple[int, ...], taken: frozenset[object]) -> bool:
        if not left:
            return True
        if taken in tried:
            return False
        tried.add(taken)
        for index in left:
            request = requests[index]
            scores = engine.scores(request)
            for row in [at for at, score in enumerate(scores.tolist()) if score != NO_FIT]:
                for devices, cells in seats(fleet, request, row):
                    there = Placement(request.name, "", row, "first_fit", 0, devices, cells)
                    if not passes(engine, request, there):
                        continue
                    mark = fleet.mark()
                    engine.commit(request, there)
                    others = tuple(each for each in left if each != index)
                    found = rest(others, taken | {(index, row, devices, cells)})
                    fleet.undo(mark)
                    if found:
                        return True
        return False

    return rest(tuple(range(len(requests))), frozenset())


def is_a_solution(engine: Engine, requests: Sequence[PlaceRequest], found: Found) -> None:
    """Every VM fits where it is put, by the kernels, in the order that was found."""
    assert found.placements is not None
    assert sorted(found.order) == list(range(len(requests)))
    mark = engine.fleet.mark()
    for index in found.order:
        placement = found.placements[index]
        assert engine.scores(requests[index])[placement.host_row] != NO_FIT
        engine.commit(requests[index], placement)
    engine.fleet.undo(mark)


def search_equals_trying_everything(seed: int, hosts: int, count: int, focus: str = "any") -> None:
    """The search finds places exactly where there are some, or says that it has proven nothing."""
    engine, asked = batch(seed, hosts, count, focus)
    found = search(engine, asked)
    if found.placements is not None:
        is_a_solution(engine, asked, found)
    elif found.proven:
        assert not fits_somehow(engine, asked)
    else:
        # Only what the program cannot say of every order at once is left open.
        assert any(engine.terms_of(each).rules for each in asked)


def conflict_is_minimal(seed: int, hosts: int, count: int, focus: str = "any") -> None:
    """Without the conflict a batch fits; with any one part of it back it does not."""
    engine, asked = batch(seed, hosts, count, focus)
    found = search(engine, asked)
    if found.placements is not None or not found.proven:
        return
    conflict = conflict_of(engine, asked)
    if conflict is None:
        assert any(engine.is_restless(each) or each.groups for each in asked)
        return
    chosen = conflict.restrictions
    if not chosen:
        bare = [
            replace(each, groups=(), lifted=tuple(rule.name for rule in engine.rules.rules))
            for each in asked
        ]
        assert not fits_somehow(engine, without_constraints(bare))
        return
    assert fits_somehow(engine, without(asked, chosen))
    for each in chosen:
        rest = [other for other in chosen if other is not each]
        assert not conflict.checked or not fits_somehow(engine, without(asked, rest))


def without_constraints(requests: list[PlaceRequest]) -> list[PlaceRequest]:
    return [
        replace(each, constraints=Constraints(tolerations=(Toleration(),))) for each in requests
    ]


WAYS = [lambda _: None, by_programs_alone, in_parts]


@pytest.mark.parametrize("way", WAYS, ids=["as it is", "programs alone", "in parts"])
@given(seed=SEEDS, hosts=st.integers(1, 3), count=st.integers(2, 4), focus=FOCI)
@examples(40)
def test_the_search_agrees_with_trying_everything(
    way: Callable[[pytest.MonkeyPatch], None], seed: int, hosts: int, count: int, focus: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        way(patch)
        search_equals_trying_everything(seed, hosts, count, focus)


@pytest.mark.parametrize("way", WAYS[::2], ids=["as it is", "in parts"])
@given(seed=SEEDS, hosts=st.integers(1, 3), count=st.integers(2, 4), focus=FOCI)
@examples(40)
def test_the_conflict_is_minimal(
    way: Callable[[pytest.MonkeyPatch], None], seed: int, hosts: int, count: int, focus: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        way(patch)
        conflict_is_minimal(seed, hosts, count, focus)


# Each law is seen red on a broken solver


def some_seeds(law: Callable[..., None], focus: str) -> None:
    for seed in range(60):
        law(seed, 1 + seed // 3 % 3, 2 + seed % 3, focus)


def no_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts hold whatever is put there, and nobody looks again."""
    monkeypatch.setattr(Program, "_add_capacity", lambda self: None)
    unchecked(monkeypatch)


def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_order(engine: Engine, requests: Sequence[PlaceRequest], *_: object) -> list[int]:
        return list(range(len(requests)))

    monkeypatch.setattr(searching, "order_that_fits", any_order)


def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are left out of the program, and nobody looks again."""
    monkeypatch.setattr(Program, "_add_groups", lambda self: None)
    unchecked(monkeypatch)


def one_of_equal_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hosts that are equal only one is looked at."""
    honest = searching.kept_hosts

    def fewer(*asked: Any) -> list[list[int]]:
        return [equal[:1] for equal in honest(*asked)]

    monkeypatch.setattr(searching, "kept_hosts", fewer)


def strict_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that keeps together chooses no domain."""
    monkeypatch.setattr(
        Program, "_add_affinity", lambda self, here, before, kept: self._add(False, kept)
    )


@pytest.mark.parametrize(
    ("broken", "focus"),
    [
        (no_capacity, "none"),
        (no_groups, "groups"),
        (one_of_equal_hosts, "none"),
        (strict_affinity, "groups"),
    ],
)
def test_the_search_is_seen_to_be_broken(
    broken: Callable[[pytest.MonkeyPatch], None], focus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    by_programs_alone(monkeypatch)
    with pytest.raises(AssertionError):
        some_seeds(search_equals_trying_everything, focus)


def test_a_conflict_that_is_too_large_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is lifted, and nothing is put back."""
    monkeypatch.setattr(Program, "lifted", lambda self: list(range(len(self._lifted))))

    def unchecked(engine: Engine, requests: Any, chosen: Any, effort: Any, **how: Any) -> Any:
        return relaxing.Conflict(tuple(chosen), checked=True, smallest=True)

    monkeypatch.setattr(relaxing, "_checked", unchecked)
    with pytest.raises(AssertionError):
        some_seeds(conflict_is_minimal, "attributes")


def test_a_conflict_that_does_not_help_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of what must be lifted is left out."""
    honest = relaxing._checked

    def fewer(*asked: Any, **how: Any) -> relaxing.Conflict | None:
        found = honest(*asked, **how)
        if found is None or len(found.restrictions) < 2:
            return found
        return replace(found, restrictions=found.restrictions[:-1])

    monkeypatch.setattr(relaxing, "_checked", fewer)
    with pytest.raises(AssertionError):
        some_seeds(conflict_is_minimal, "attributes")
