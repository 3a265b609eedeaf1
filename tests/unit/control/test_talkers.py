"""Names and groups of VMs that talk: found without a walk through all of them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from roost.control.memory.talkers import Talkers
from roost.control.topology.wiring import Wiring
from roost.fleet.fleet import Fleet
from roost.ledger.claims.capacity import RUN, claim_id
from roost.model.hosts import HostSpec, Resource
from roost.model.resources import Demand

NAMES = [f"p/{name}" for name in "abcdef"]


def renamed(ids: dict[str, str], vm: str, name: str | None) -> dict[str, str]:
    """Return what names mean once a VM has this one, said again plainly."""
    left = {ref: known for ref, known in ids.items() if known != vm or ref == name}
    return left if name is None else left | {name: vm}


@pytest.mark.parametrize("seed", range(20))
def test_names_mean_the_vms_that_had_them_last(seed: int) -> None:
    random, talkers = Random(seed), Talkers()
    pairs = [(a, b, 1) for a in NAMES for b in NAMES if a < b]
    ids = {"p/a": "vm-1", "p/b": "vm-2"}
    talkers.set_pairs(pairs, ids)
    for _ in range(60):
        vm, name = f"vm-{random.randrange(4)}", random.choice([*NAMES, None])
        if random.random() < 0.1:
            talkers.set_pairs(pairs, talkers.ids)
        talkers.named(vm, name)
        ids = renamed(ids, vm, name)
        assert talkers.ids == ids


class Unwalked(dict[str, Any]):
    """A dict through which nobody goes."""

    def items(self) -> Any:
        raise AssertionError("all names were gone through for one VM")

    values = items

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all names were gone through for one VM")


def test_an_event_about_one_vm_goes_through_no_other_names() -> None:
    talkers = Talkers()
    talkers.set_pairs([("p/a", "p/b", 1)], {"p/a": "vm-1", "p/b": "vm-2"})
    talkers.ids = Unwalked(talkers.ids)
    for vm, name in (("vm-3", "p/c"), ("vm-1", "p/a"), ("vm-1", None), ("vm-3", "p/a")):
        talkers.named(vm, name)
    assert (talkers.vms_of("p/a"), talkers.vms_of("p/b")) == (["vm-3"], ["vm-2"])


class Counted(dict[str, tuple[str, ...]]):
    """A dict that counts who goes through all of it."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


@dataclass
class Places:
    """What wiring reads of a roster."""

    talkers: Talkers = field(default_factory=Talkers)
    fleet: Fleet = field(default_factory=Fleet)


def test_flows_of_groups_are_summed_by_host_in_one_walk_through_the_members() -> None:
    places, groups = Places(), Counted()
    for number in range(3):
        places.fleet.register(HostSpec(f"h{number}", *[Resource(100)] * 3))
    for number in range(30):
        vm = f"vm-{number}"
        groups[vm] = ("p/front",) if number < 12 else ("p/back",)
        one = places.fleet.vector(Demand(1, 1, 1))
        places.fleet.apply(claim_id(vm, RUN), number % 3, one)
    places.talkers.in_group = groups
    places.talkers.set_pairs(
        [("group:p/front", "group:p/back", 7), ("group:p/front", "vm-29", 5)], {}
    )
    flows = {(flow.a, flow.b): flow.kbit for flow in Wiring(places).flows()}  # type: ignore[arg-type]
    # Of 12 and 18 members a third is on each host, and vm-29 is on h2.
    between = 2 * 4 * 6 * 7
    assert flows == {
        ("h0", "h1"): between,
        ("h0", "h2"): between + 4 * 5,
        ("h1", "h2"): between + 4 * 5,
    }
    assert groups.walks <= 1
