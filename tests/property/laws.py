"""The laws of fleet and engine, as functions of a seed that raise AssertionError.

The property tests state them with Hypothesis; test_broken_engines.py shows that each of them
notices an engine that is broken on purpose.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from roost.fleet.fleet import Fleet
from roost.model.description import FleetDescription
from roost.model.flow import Rejection
from roost.placement.batching import columns_of
from roost.placement.engine import NO_FIT, Engine
from roost.placement.registry import FILTERS
from tests.naive.engine import CELL_RULES
from tests.naive.filters import TWINS, count_fewest, fits
from tests.property import generators
from tests.property.filing import rankings_are_sound
from tests.property.pair import TIMELY, Pair, settled, step
from tests.turns import D, draws_in_turn

SEEDS = st.integers(0, 2**32 - 1)
FOCI = st.sampled_from(["any", *generators.FOCI])  # "any" twice as often


def examples(count: int) -> Callable[[D], D]:
    """Let a law draw so many examples, a third of them at each commit (`tests.turns`).

    The `long` profile runs ten times as many.
    """
    return draws_in_turn(max(1, count * settings().max_examples // 100))


def grown(seed: int, hosts: int, steps: int = 0, focus: str = "any") -> Pair:
    """Return a pair on which VMs were placed, put by hand, moved about and held."""
    pair = Pair(generators.climate(seed, focus), hosts)
    for number in range(steps):
        step(pair, f"growing-{number}")
    while pair.marks:
        pair.keep()
    return pair


def requests(pair: Pair, count: int, strategy: str | None = None) -> list:
    """Return new requests for a pair."""
    asked = [generators.request(pair.climate, f"asked-{number}") for number in range(count)]
    return [replace(each, strategy=strategy) for each in asked]


# Laws


def engine_equals_twin(seed: int, hosts: int, focus: str = "any") -> None:
    """A fresh engine gives the twin's answer for every strategy, runners-up included."""
    pair = grown(seed, hosts, hosts, focus)
    for number, strategy in enumerate(CELL_RULES):
        asked = replace(generators.request(pair.climate, number), strategy=strategy)
        pair.ask(asked, runners_up=number % 5)


def long_lived_engine_equals_twin(
    seed: int, hosts: int, steps: int, focus: str = "any", every: int = 1
) -> Engine:
    """One engine gives the twin's answers through any sequence of changes."""
    pair = Pair(generators.climate(seed, focus), hosts)
    for number in range(steps):
        step(pair, number)
        if number % every == 0:
            pair.check()
    pair.check()
    for strategy in CELL_RULES:
        pair.ask(replace(generators.request(pair.climate, strategy), strategy=strategy))
        rankings_are_sound(pair.engine)
    return pair.engine


def batch_equals_singles(seed: int, hosts: int, count: int, focus: str = "any") -> None:
    """A batch means what its requests mean one after the other."""
    pair = grown(seed, hosts, 10, focus)
    asked = requests(pair, count)
    names = tuple(CELL_RULES)
    run = 1 + seed % 4  # the same strategy for so many requests in turn
    pair.place_batch(
        [
            replace(each, strategy=names[(seed + at // run) % len(names)])
            for at, each in enumerate(asked)
        ]
    )
    pair.check()


def explained_batch_equals_singles(seed: int, hosts: int, count: int, focus: str = "any") -> None:
    """A batch with runners-up says of each what it would have been told alone."""
    pair = grown(seed, hosts, 10, focus)
    alone, names = pair.fork().engine, tuple(CELL_RULES)
    asked = [
        replace(each, strategy=names[(seed + at // 3) % len(names)])
        for at, each in enumerate(requests(pair, count))
    ]
    answers = pair.engine.place_batch(asked, runners_up=2)
    for request, answer in zip(asked, answers, strict=True):
        found = alone.find(request, runners_up=2)
        if found is None:
            assert isinstance(answer, Rejection), (request, answer)
        else:
            assert answer == found, (request, answer, found)
            alone.commit(request, found)


def columns_equal_singles(
    seed: int, hosts: int, count: int, strategy: str, focus: str = "any"
) -> None:
    """Requests as columns mean what they mean one after the other."""
    pair = grown(seed, hosts, 10, focus)
    pair.place_columns(requests(pair, count), strategy)
    pair.check()


def snapshot_stands_apart(seed: int, hosts: int, steps: int, focus: str = "any") -> None:
    """A snapshot answers as the fleet did when it was taken, whatever happens to either."""
    pair = grown(seed, hosts, 10, focus)
    kept = pair.fork()
    assert kept.fleet.to_description() == pair.fleet.to_description()
    for number in range(steps):
        step(pair, number)
    for number in range(steps):
        step(kept, number + 1_000)
    pair.check()
    kept.check()


def apply_then_undo_is_identity(seed: int, hosts: int, steps: int, focus: str = "any") -> None:
    """Undo takes back every change since the mark: the same description, the same columns."""
    pair = grown(seed, hosts, 10, focus)
    for asked in requests(pair, 3):
        pair.ask(asked)
    description, columns = _sorted(pair.fleet.to_description()), all_columns(pair.fleet)
    pair.mark()
    for number in range(steps):
        step(pair, number, without=TIMELY)
    pair.undo()
    assert _sorted(pair.fleet.to_description()) == description, "the description differs"
    same_columns(columns, all_columns(pair.fleet))
    pair.check()
    for asked in requests(pair, 3):
        pair.ask(asked)


def filters_agree(seed: int, hosts: int, count: int = 3, focus: str = "any") -> None:
    """Each filter's column is its twin's, and all of them together are what the engine judges."""
    pair = grown(seed, hosts, 10 + 2 * hosts, focus)
    for asked in requests(pair, count):
        rows = pair.world.rows()
        ask = pair.world.ask(asked)
        count_fewest(rows, ask)
        numbers = np.array([row.number for row in rows], np.int64)
        posed = pair.engine.question(asked)
        passing = np.ones(len(rows), np.bool_)
        for each in FILTERS:
            column = np.ones(len(rows), np.bool_)
            if each.applies(posed):
                column = each.column(posed, numbers)
            expected = [TWINS[each.reason](row, ask) for row in rows]
            assert column.tolist() == expected, (each.reason, asked)
            passing &= column
        assert passing.tolist() == [fits(row, ask) for row in rows]
        scores = pair.engine.scores(asked)
        assert (scores[numbers] != NO_FIT).tolist() == passing.tolist(), asked


def search_equals_scores(seed: int, hosts: int, steps: int) -> Engine:
    """On a large fleet the search finds what the scores of all hosts say is best.

    For fleets that are too large for the twin: the scores are compared with it on small ones.
    """
    climate = generators.climate(seed)
    pair = Pair(climate, hosts)
    engine, fleet = pair.engine, pair.fleet
    kinds = [settled(generators.request(climate, number), engine) for number in range(50)]
    strategies = ("least_loaded", "best_fit", "worst_fit", "fewest_vms", "dot_product")
    for number in range(steps):
        strategy = strategies[number % len(strategies)]
        asked = replace(kinds[number % len(kinds)], name=f"vm-{number}", strategy=strategy)
        scores = engine.scores(asked)
        best = int(np.argmin(scores))
        expected = None if scores[best] == NO_FIT else (best, int(scores[best]))
        found = engine.find(asked)
        assert (found and (found.host_row, found.score)) == expected, (asked, found)
        if found is not None:
            engine.commit(asked, found)
            fleet.set_labels(found.host, generators.labels(generators.stream(seed, number)))
        if number % 50 == 0:
            many = [replace(kinds[at % len(kinds)], seed=at) for at in range(hosts)]
            engine.place_columns(columns_of(fleet, many, []), strategy)
    return engine


# What undo must bring back


def _sorted(description: FleetDescription) -> FleetDescription:
    """Return a description in which order does not count where it means nothing."""
    hosts = tuple(
        replace(host, extended=tuple(sorted(host.extended))) for host in description.hosts
    )
    holds = tuple(sorted(description.holds, key=lambda hold: hold.name))
    return replace(description, hosts=hosts, holds=holds)


def all_columns(fleet: Fleet) -> dict[str, np.ndarray]:
    """Return a copy of every column of the hosts, the VMs and the groups."""
    fleet.settle_ends()
    hosts, count = fleet.hosts, fleet.hosts.count
    width = len(hosts.resources)
    columns = {name: array[:count] for name, array in hosts.arrays._asdict().items()}
    headroom = columns.pop("headroom")
    columns["free"], columns["extras"] = headroom[:, :width], headroom[:, width:]
    for name in ("total", "reserve", "ratio", "held", "used", "max_vms", "health", "admin"):
        columns[name] = getattr(hosts, name)[:count]
    for name in ("known", "present", "site", "architecture", "driver"):
        columns[name] = getattr(hosts, name)[:count]
    for name in ("predicted_base", "predicted_shown"):
        columns[name] = getattr(hosts, name)[:count]
    for name in ("taint_set", "capability_set"):
        columns[name] = getattr(hosts, name)[:count]
    alive = np.flatnonzero(fleet.vms.host[: fleet.vms.count] >= 0)
    columns["vm"] = alive
    for name in ("host", "demand", "terms", "group_set", "devices", "cells", "expected"):
        columns[f"vm {name}"] = getattr(fleet.vms, name)[alive]
    groups = fleet.groups.arrays
    columns["members"] = groups.members[: len(fleet.groups)]
    entries = np.flatnonzero((groups.keys >= 0) & (groups.counts != 0))
    pairs = sorted(zip(groups.keys[entries].tolist(), groups.counts[entries].tolist(), strict=True))
    columns["member counts"] = np.array(pairs, np.int64).reshape(-1, 2)
    return {name: column.copy() for name, column in columns.items()}


def same_columns(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> None:
    """Compare columns; what was there only in between does not count."""
    for name, column in before.items():
        now = after[name][tuple(slice(0, length) for length in column.shape)]
        assert column.shape == now.shape, name
        assert (column == now).all(), (name, np.argwhere(column != now)[:3].tolist())
    assert not after["present"][len(before["present"]) :].any(), "a host stayed"
    assert len(after["vm"]) == len(before["vm"]), "a VM stayed"
