"""The count of `capacity` is a promise: it is what the engine really places.

And the count under a loss: every loss can be restarted, and with one copy more some loss cannot.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope
from roost.model.reasons import Reason
from roost.placement import capacity as counting
from roost.placement.capacity import capacity
from roost.placement.engine import Engine
from tests.builders import engine_on, host, request
from tests.property import generators
from tests.property.laws import FOCI, SEEDS, examples, grown

MOST = 400


def placed_one_by_one(engine: Engine, asked: PlaceRequest) -> int:
    """Return how many copies the engine places by single calls, on a snapshot."""
    world = Engine(
        engine.fleet.snapshot(), engine.default_strategy, engine.mix, engine.rules, engine.clock
    )
    world.cursor = engine.cursor
    for count in range(MOST):
        copy = replace(asked, name=f"{asked.name}-{count}")
        placement = world.find(copy)
        if placement is None:
            return count
        world.commit(copy, placement)
    return MOST


def counts_what_is_placed(seed: int, hosts: int, focus: str = "any") -> None:
    """Capacity equals what single calls place, for a request of any kind."""
    pair = grown(seed, hosts, hosts, focus)
    asked = generators.request(pair.climate, "copy")
    expected = placed_one_by_one(pair.engine, asked)
    if expected < MOST:
        assert capacity(pair.engine, asked).count == expected


@given(SEEDS, st.integers(1, 30), FOCI)
@examples(60)
def test_capacity_is_what_single_calls_place(seed: int, hosts: int, focus: str) -> None:
    counts_what_is_placed(seed, hosts, focus)


def test_the_law_notices_a_count_that_is_one_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = counting._fill
    monkeypatch.setattr(counting, "_fill", lambda world, asked: honest(world, asked) + 1)

    def all_seeds() -> None:
        for seed in range(20):
            counts_what_is_placed(seed, 10)

    with pytest.raises(AssertionError):
        all_seeds()


def survives(engine: Engine, scope: Scope) -> bool:
    """Rehearse every loss with single calls only: remove, place the largest first, count."""
    fleet = engine.fleet
    for domain in np.unique(fleet.hosts.arrays.domain[: fleet.hosts.count, scope]).tolist():
        if domain < 0:
            continue
        world = Engine(fleet.snapshot(), engine.default_strategy)
        hosts, vms = world.fleet.hosts, world.fleet.vms
        rows = np.flatnonzero(hosts.arrays.domain[: hosts.count, scope] == domain)
        lost = np.flatnonzero(np.isin(vms.host[: vms.count], rows)).tolist()
        lost.sort(key=lambda vm: -_size(*vms.demand[vm, :3].tolist()))
        requests = [_as_request(world, vm) for vm in lost]
        for vm in lost:
            world.fleet.remove(vm)
        hosts.arrays.takes[rows] = False
        world.fleet.changes.add_many(rows)
        for again in requests:
            placement = world.find(again)
            if placement is None:
                return False
            world.commit(again, placement)
    return True


def _size(cpu_milli: int, memory_bytes: int, disk_bytes: int) -> float:
    """Return the size of a VM, added up in the engine's order: equal sizes must stay equal."""
    return (
        0.4 * cpu_milli / 64_000
        + 0.4 * memory_bytes / (256 * 2**30)
        + 0.2 * disk_bytes / (4 * 2**40)
    )


def _as_request(world: Engine, vm: int) -> PlaceRequest:
    fleet = world.fleet
    amounts = fleet.vms.demand[vm].tolist()
    groups = fleet.groups.set_members(int(fleet.vms.group_set[vm]))
    specs = tuple(fleet.groups.specs[group] for group in groups)
    return request(f"again-{vm}", *amounts[:3], groups=specs)


@given(st.integers(2, 9), st.integers(0, 2**16), st.sampled_from(list(Scope)), st.booleans())
@examples(50)
def test_every_loss_survives_the_count_and_not_one_more(
    hosts: int, seed: int, scope: Scope, spread: bool
) -> None:
    rng = np.random.default_rng(seed)
    engine = engine_on(
        *(
            host(
                f"h{number}",
                int(rng.integers(4, 33)) * 1000,
                zone=f"z{number % 3}",
                rack=f"r{number // 2}",
            )
            for number in range(hosts)
        ),
        strategy="least_loaded",
    )
    for number in range(int(rng.integers(0, 2 * hosts))):
        asked = request(
            f"old-{number}",
            int(rng.integers(1, 9)) * 1000,
            int(rng.integers(1, 9)) << 30,
            groups=(GroupSpec("even", GroupRule.SPREAD),) if spread else (),
        )
        placement = engine.find(asked)
        if placement is not None:
            engine.commit(asked, placement)
    asked = request("copy", int(rng.integers(1, 6)) * 1000, int(rng.integers(1, 9)) << 30)
    answer = capacity(engine, asked, scope)
    count = answer.count
    assert (answer.stranded is not None) == bool(answer.blocking)
    held = []
    world = Engine(engine.fleet.snapshot(), "least_loaded")
    for number in range(count + 1):
        held.append(survives(world, scope))
        copy = replace(asked, name=f"copy-{number}")
        placement = world.find(copy)
        if placement is None:
            break
        world.commit(copy, placement)
    if count == 0:
        assert not held[0] or len(held) == 1 or not survives(world, scope)
    else:
        assert held[count]
        placed_one_more = len(world.fleet.vms.numbers) - len(engine.fleet.vms.numbers) == count + 1
        assert not placed_one_more or not survives(world, scope)


@pytest.mark.parametrize(("hosts", "sampled"), [(6, False), (14, True)])
def test_two_losses_are_sampled_where_they_are_many_and_say_so(hosts: int, sampled: bool) -> None:
    engine = engine_on(*(host(f"h{number}", zone="a") for number in range(hosts)))
    answer = capacity(engine, request(cpu_milli=4000), Scope.HOST, losses=2)
    assert answer.sampled == sampled
    assert 0 < answer.count <= 4 * (hosts - 2)


@pytest.mark.parametrize("strategy", ["least_loaded", "random", "round_robin"])
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (GroupRule.ANTI_AFFINITY, Reason.ANTI_AFFINITY),
        (GroupRule.SPREAD, Reason.CPU),  # played through with the engine, not in one kernel
    ],
    ids=["anti-affinity", "spread"],
)
def test_the_vm_that_a_loss_strands_is_named_with_its_reasons(
    strategy: str, rule: GroupRule, reason: Reason
) -> None:
    engine = engine_on(*(host(f"h{number}", 4000) for number in range(3)), strategy=strategy)
    own = GroupSpec("web", rule, Scope.HOST)
    for number in range(3):
        vm = request(f"web-{number}", 3000, groups=(own,))
        placement = engine.find(vm)
        assert placement is not None
        engine.commit(vm, placement)
    answer = capacity(engine, request("copy", 1000), Scope.HOST)
    stranded = answer.stranded
    assert (answer.count, answer.blocking) == (0, f"host h{answer.blocking[-1]}")
    assert stranded is not None
    lost = engine.fleet.vms.numbers[stranded.vm]
    assert engine.fleet.hosts.names[int(engine.fleet.vms.host[lost])] == answer.blocking[5:]
    counted = {each.reason: each.total for each in stranded.reasons}
    assert counted[Reason.NOT_ONLINE] == 1
    assert counted[reason] >= 2


def test_a_copy_that_a_loss_strands_has_the_name_that_was_asked_for() -> None:
    engine = engine_on(host("h1", 4000), host("h2", 4000))
    answer = capacity(engine, request("copy", 4000), Scope.HOST)
    assert answer.count == 1
    assert answer.stranded is not None
    assert answer.stranded.vm == "copy"
    assert answer.refused is None


def test_the_fleet_is_left_as_it_was() -> None:
    engine = engine_on(host("h1"), host("h2"))
    before, version = engine.fleet.to_description(), engine.fleet.version
    capacity(engine, request(), Scope.HOST)
    assert (engine.fleet.to_description(), engine.fleet.version) == (before, version)
