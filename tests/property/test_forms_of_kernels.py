"""Kernels as Python decide as compiled ones do, and forms may change between any two calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest, Rejection
from roost.model.hosts import Scope
from roost.placement.capacity import capacity
from roost.placement.engine import Engine
from roost.placement.kernels import compiling, directory, running
from roost.placement.kernels.running import compiled_here, interpret, is_interpreting
from roost.placement.preempting import make_room
from roost.placement.strategies import STRATEGIES
from tests.builders import host
from tests.property import generators
from tests.property.laws import FOCI, SEEDS, all_columns, examples, grown, same_columns

pytestmark = pytest.mark.kernel


@contextmanager
def as_python(yes: bool = True) -> Iterator[None]:
    interpret(yes)
    try:
        yield
    finally:
        interpret(False)


def forms_agree(seed: int, hosts: int, focus: str = "any") -> None:
    """Ask the same of three engines: compiled, as Python, and by turns; all answers are equal."""
    pair = grown(seed, hosts, hosts, focus)
    turns = Random(seed)
    ways = (lambda: False, lambda: True, lambda: turns.random() < 0.5)
    engines = []
    for _ in ways:
        engine = Engine(pair.fleet.snapshot(), rules=pair.engine.rules, clock=pair.engine.clock)
        engine.cursor = pair.engine.cursor
        engines.append(engine)

    def ask(request: PlaceRequest, way: int) -> tuple:
        engine = engines[way]
        with as_python(ways[way]()):
            answer = engine.place(request, runners_up=2)
        scores = None
        with as_python(ways[way]()):
            scores = engine.scores(request).tolist()
        room = None
        with as_python(ways[way]()):
            if isinstance(answer, Rejection):
                room = make_room(engine, replace(request, priority=10))
            else:
                engine.commit(request, answer)
        return answer, scores, room

    for number, strategy in enumerate(STRATEGIES):
        request = replace(generators.request(pair.climate, number), strategy=strategy)
        first, *others = (ask(request, way) for way in range(3))
        for other in others:
            assert other == first, request
    batch = [generators.request(pair.climate, f"b{at}") for at in range(5)]
    batch = [replace(each, strategy=None) for each in batch]
    told = []
    for engine, way in zip(engines, ways, strict=True):
        with as_python(way()):
            answers = engine.place_batch(batch)
        with as_python(way()):
            fits = capacity(engine, replace(batch[0], name="more"))
        with as_python(way()):
            survives = capacity(engine, replace(batch[0], name="more"), Scope.HOST)
        told.append((answers, fits, survives))
    assert told[1:] == told[:1] * 2
    columns = [all_columns(engine.fleet) for engine in engines]
    for each in columns[1:]:
        same_columns(columns[0], each)


@examples(30)
@given(seed=SEEDS, hosts=st.integers(1, 12), focus=FOCI)
def test_answers_and_columns_are_the_same_in_both_forms(seed: int, hosts: int, focus: str) -> None:
    forms_agree(seed, hosts, focus)


def test_a_body_that_decides_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    if running.runs_python():
        pytest.skip("the compiler is off: there is one form")
    whole = running.body_of(directory.decide)

    def always_the_first(*bundles: object) -> int:
        answered = whole(*bundles)
        out = bundles[6]
        out.row[out.row > 0] = 0  # type: ignore[attr-defined]
        return answered

    monkeypatch.setitem(running._bodies, id(directory.decide), always_the_first)
    with pytest.raises(AssertionError):
        forms_agree(1, 8)


def test_nothing_is_compiled_while_kernels_run_as_python() -> None:
    told: list[str] = []
    fleet = Fleet()
    for number in range(3):
        fleet.register(host(f"h{number}", 8000, 2**34))
    compiling.on_first_compile(lambda: told.append("compiled"))
    try:
        with as_python():
            engine = Engine(fleet)
            request = generators.request(generators.climate(1), 0)
            engine.place(request)
            capacity(engine, request, Scope.HOST)
    finally:
        compiling.on_first_compile(lambda: None)
    assert told == []


def test_one_thread_loads_compiled_code_while_the_process_does_without() -> None:
    if running.runs_python():
        pytest.skip("the compiler is off: there is one form")
    with as_python():
        assert is_interpreting()
        with compiled_here():
            assert not is_interpreting()
            assert running.running(directory.decide) is directory.decide
        assert running.running(directory.decide) is not directory.decide
    assert not is_interpreting()


def test_bodies_lead_to_bodies() -> None:
    body = running.body_of(directory.decide)
    assert not any(running.is_jitted(each) for each in body.__globals__.values())
