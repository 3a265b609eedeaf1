"""`fragmentation` takes the host, the device and the cell that its twin takes."""

from random import Random

import pytest
from hypothesis import given

from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.hosts import Cell, Device, HostSpec, Resource
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.placement.engine import Engine
from roost.placement.mix import Mix, TypicalRequest
from tests.naive.worth import Box, best
from tests.property.laws import SEEDS, examples

MODELS = ("A100", "T4")


def gpu_world(rng: Random) -> tuple[list[HostSpec], list[Demand]]:
    """Return hosts with GPUs, and demands for shares, whole GPUs and none."""
    hosts = [
        HostSpec(
            f"h{number}",
            Resource(rng.choice((32, 64, 96)) * 1000),
            Resource(rng.choice((128, 256)) * GIB),
            Resource(0),
            devices=(Device(rng.choice(MODELS)),) * rng.choice((1, 2, 4, 8)),
        )
        for number in range(rng.randint(1, 12))
    ]
    demands = []
    for _ in range(6):
        devices = None
        if rng.random() < 0.8:
            count, milli = rng.choice(
                ((1, 1000), (2, 1000), (4, 1000), (1, 250), (1, 500), (1, 810))
            )
            models = rng.choice(((), (), (rng.choice(MODELS),)))
            devices = DeviceDemand(count, milli, models)
        demands.append(Demand(rng.randint(1, 16) * 1000, rng.randint(1, 64) * GIB, 0, (), devices))
    return hosts, demands


def numa_world(rng: Random) -> tuple[list[HostSpec], list[Demand]]:
    """Return hosts of two cells, and demands for one cell, both, or anywhere."""
    hosts = [
        HostSpec(
            f"h{number}",
            Resource(80_000),
            Resource(180 * GIB),
            Resource(0),
            cells=(Cell(40_000, 90 * GIB),) * 2,
        )
        for number in range(rng.randint(1, 8))
    ]
    demands = []
    for _ in range(6):
        cpu, memory = rng.choice(((1, 1), (2, 8), (4, 8), (16, 32), (32, 64), (64, 128)))
        mode = NumaMode.SPLIT if memory > 10 else NumaMode.ONE_CELL
        demands.append(Demand(cpu * 1000, memory * GIB, 0, numa=mode))
    return hosts, demands


def amount_world(rng: Random) -> tuple[list[HostSpec], list[Demand]]:
    """Return hosts with cpu and memory alone, many of them alike, and demands for those."""
    sizes = [(rng.randint(1, 48) * 1000, rng.randint(1, 192) * GIB) for _ in range(4)]
    hosts = []
    for number in range(rng.randint(1, 16)):
        cpu, memory = rng.choice(sizes)
        hosts.append(HostSpec(f"h{number}", Resource(cpu), Resource(memory), Resource(0)))
    demands = [Demand(rng.randint(1, 16) * 500, rng.randint(1, 64) * GIB, 0) for _ in range(6)]
    return hosts, demands


def places_as_its_twin(seed: int, world) -> None:
    """Place until full, comparing every decision."""
    rng = Random(seed)
    hosts, demands = world(rng)
    mix = Mix(
        tuple(
            TypicalRequest(d.cpu_milli, d.memory_bytes, d.devices, d.numa)
            for d in dict.fromkeys(demands)
        )
    )
    fleet = Fleet()
    for spec in hosts:
        fleet.register(spec)
    engine = Engine(fleet, "fragmentation", mix)
    boxes = [Box(spec) for spec in hosts]
    for number in range(30):
        demand = rng.choice(demands)
        asked = PlaceRequest(f"vm{number}", demand)
        placement = engine.find(asked)
        expected = best(boxes, demand, mix)
        if expected is None:
            assert placement is None
            continue
        assert placement is not None
        found = (placement.host_row, placement.score, placement.devices, placement.cells)
        assert found == expected
        engine.commit(asked, placement)
        boxes[expected[0]] = boxes[expected[0]].take(demand, *expected[2:])


@pytest.mark.parametrize("world", [gpu_world, numa_world, amount_world])
def test_fragmentation_places_as_its_twin(world) -> None:
    @given(SEEDS)
    @examples(25)
    def law(seed: int) -> None:
        places_as_its_twin(seed, world)

    law()


def test_the_law_notices_another_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Mix.arrays

    def tampered(self: Mix, fleet: Fleet, hosts: int = 0) -> object:
        arrays = honest(self, fleet, hosts)
        arrays.kinds[:, 6] = 1
        return arrays

    monkeypatch.setattr(Mix, "arrays", tampered)

    def all_seeds() -> None:
        for seed in range(30):
            places_as_its_twin(seed, gpu_world)

    with pytest.raises(AssertionError):
        all_seeds()
