"""The room that held copies take: what their orders say, of their own host, and nothing worse."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.units import GIB
from roost.control.memory.held_copies import without_held
from roost.ledger.schema.rows import HostRow
from roost.model.hosts import HostSpec, Resource

SPEC = HostSpec(
    "h",
    cpu=Resource(16_000, ratio_milli=4000),
    memory=Resource(64 * GIB, reserve=4 * GIB),
    disk=Resource(100 * GIB),
    extended=(("cpu", Resource(8)),),  # a name may be any word
    max_vms=10,
)
ORDER = {"cpu_milli": 3000, "memory_bytes": GIB, "disk_bytes": 2 * GIB, "extended": {"cpu": 2}}


def host_row(held: str) -> HostRow:
    return HostRow(
        number=1, name="h", inventory="{}", labels=None, health="online", admin="open",
        instance="", version="", guard_stop_s=None, fenced=None, held=held, registered_ms=0,
    )  # fmt: skip


def holds(*copies: dict[str, Any]) -> HostRow:
    return host_row(held=msgspec.json.encode(list(copies)).decode())


def held(seen: str = "running", order: Any = ORDER) -> dict[str, Any]:
    text = order if isinstance(order, str) else msgspec.json.encode(order).decode()
    return {"id": "vm-1", "seen": seen, "order": text}


def free(spec: HostSpec) -> dict[str, int]:
    return {name: resource.capacity for name, resource in spec.resources()[:3]}


def test_a_held_copy_takes_what_its_order_says() -> None:
    less = without_held(SPEC, holds(held(), held("stopped")))
    assert free(less) == {"cpu": 64_000 - 6000, "memory": 58 * GIB, "disk": 96 * GIB}
    assert less.extended[0][1].capacity == 4
    assert less.max_vms == 8


def test_what_has_moved_away_takes_its_disk_only() -> None:
    less = without_held(SPEC, holds(held("moved")))
    assert free(less) == {"cpu": 64_000, "memory": 60 * GIB, "disk": 98 * GIB}


def test_a_host_that_holds_nothing_is_as_it_is() -> None:
    assert without_held(SPEC, host_row(held="")) is SPEC
    assert without_held(SPEC, host_row(held="[]")) is SPEC


@pytest.mark.parametrize("order", ["", "{", "null", '{"cpu_milli": "x"}', '{"cpu_milli": 1e400}'])
def test_an_order_that_says_nothing_takes_one_place(order: str) -> None:
    less = without_held(SPEC, holds(held(order=order)))
    assert free(less) == free(SPEC)
    assert less.max_vms == 9


def test_a_list_that_cannot_be_read_changes_nothing() -> None:
    assert without_held(SPEC, host_row(held='[{"seen": "asleep"}]')) is SPEC


@given(
    st.lists(st.dictionaries(st.sampled_from([*ORDER]), st.integers(-(2**70), 2**70)), max_size=4)
)
def test_no_word_of_an_agent_makes_a_host_larger_or_unreadable(orders: list[Any]) -> None:
    less = without_held(SPEC, holds(*(held(order=order) for order in orders)))
    for name, amount in free(less).items():
        assert 0 <= amount <= free(SPEC)[name]
