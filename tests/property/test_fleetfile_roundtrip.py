"""A fleet file says exactly what was dumped into it, whatever the names and amounts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.units import MAX_AMOUNT
from roost.model.constraints import Constraints, LabelOperator, LabelTerm, Preference, Toleration
from roost.model.description import FleetDescription, HoldSpec, PlacedVM, UsedSpec
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import (
    Admin,
    Cell,
    Device,
    Health,
    HostSpec,
    Resource,
    Scope,
    Taint,
    TaintEffect,
)
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.wire.text import words
from roost.wire.text.fleetfile import dump, parse
from roost.wire.text.requestwords import parse_line, write_request
from tests.turns import draws_in_turn

# Characters that mean something in a fleet file come up more often than by chance.
ODD = st.text(st.sampled_from('ab1 ,=:#*?x[]-\\"\n\r\t\u00a0\u2028!.'), max_size=6)
TEXT = st.one_of(st.sampled_from(["a", "b-1", "tier"]), ODD, st.text(max_size=6))
NAME = TEXT.filter(bool)
AMOUNT = st.one_of(st.integers(0, 10_000), st.integers(0, MAX_AMOUNT))
POSITIVE = AMOUNT.map(lambda amount: max(1, amount))


def tuples(items: st.SearchStrategy, size: int = 2) -> st.SearchStrategy:
    return st.lists(items, max_size=size).map(tuple)


def pairs(values: st.SearchStrategy, size: int = 2) -> st.SearchStrategy:
    keys = NAME.filter(lambda name: name not in ("cpu", "memory", "disk"))
    return st.dictionaries(keys, values, max_size=size).map(lambda found: tuple(found.items()))


RESOURCE = st.builds(
    Resource,
    total=st.one_of(st.none(), st.integers(0, 2**40)),
    reserve=st.one_of(st.just(0), AMOUNT),
    ratio_milli=st.one_of(st.just(1000), st.integers(1, 200_000)),
)
LABELS = st.dictionaries(TEXT, TEXT, max_size=2).map(lambda found: tuple(found.items()))
HOST = st.builds(
    HostSpec,
    name=NAME,
    cpu=RESOURCE,
    memory=RESOURCE,
    disk=RESOURCE,
    extended=pairs(RESOURCE),
    zone=TEXT,
    rack=TEXT,
    site=TEXT,
    labels=LABELS,
    taints=tuples(st.builds(Taint, TEXT, TEXT, st.sampled_from(TaintEffect))),
    architecture=TEXT,
    driver=TEXT,
    capabilities=tuples(TEXT),
    devices=tuples(st.builds(Device, TEXT, AMOUNT, st.booleans()), 3),
    cells=tuples(st.builds(Cell, AMOUNT, AMOUNT), 3),
    max_vms=st.one_of(st.none(), st.integers(0, 1000)),
    health=st.sampled_from(Health),
    admin=st.sampled_from(Admin),
)
DEMAND = st.builds(
    Demand,
    cpu_milli=POSITIVE,
    memory_bytes=POSITIVE,
    disk_bytes=AMOUNT,
    extended=pairs(AMOUNT),
    devices=st.one_of(
        st.none(),
        st.builds(DeviceDemand, st.integers(1, 16), st.integers(1, 1000), tuples(TEXT), AMOUNT),
    ),
    numa=st.sampled_from(NumaMode),
)
TERM = st.one_of(
    st.builds(
        LabelTerm,
        TEXT,
        st.sampled_from([LabelOperator.IN, LabelOperator.NOT_IN]),
        st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(LabelTerm, TEXT, st.sampled_from([LabelOperator.EXISTS, LabelOperator.ABSENT])),
    st.builds(
        LabelTerm,
        TEXT,
        st.sampled_from([LabelOperator.GREATER, LabelOperator.LESS]),
        st.integers().map(lambda number: (str(number),)),
    ),
)
CONSTRAINTS = st.builds(
    Constraints,
    labels=tuples(TERM),
    tolerations=tuples(st.builds(Toleration, TEXT, st.one_of(st.none(), TEXT))),
    architecture=st.one_of(st.none(), NAME),
    driver=st.one_of(st.none(), NAME),
    capabilities=tuples(TEXT),
    zones=tuples(TEXT),
    racks=tuples(TEXT),
    sites=tuples(TEXT),
    pinned=tuples(TEXT),
    excluded=tuples(TEXT),
    preferences=tuples(st.builds(Preference, TERM, st.integers(1, 100))),
)
GROUP = st.builds(
    GroupSpec,
    NAME,
    st.sampled_from(GroupRule),
    st.sampled_from(Scope),
    st.booleans(),
    st.integers(1, 1000),
    st.integers(1, 100),
)


@st.composite
def fleets(draw: st.DrawFn) -> FleetDescription:
    """A fleet whose VMs, holds and measurements speak of its own hosts and groups."""
    hosts = draw(st.lists(HOST, max_size=3, unique_by=lambda host: host.name))
    groups = draw(st.lists(GROUP, max_size=2, unique_by=lambda group: group.name))
    hosts.sort(key=lambda host: host.name)
    if not hosts:
        return FleetDescription(groups=tuple(groups))
    at = st.sampled_from(hosts)
    vms = []
    for name in draw(st.lists(NAME, max_size=3, unique=True)):
        host = draw(at)
        vms.append(
            PlacedVM(
                name,
                host.name,
                draw(DEMAND),
                draw(CONSTRAINTS),
                tuple(group.name for group in groups if draw(st.booleans())),
                tuple(n for n in range(len(host.devices)) if draw(st.booleans())),
                tuple(n for n in range(len(host.cells)) if draw(st.booleans())),
            )
        )
    holds = [
        HoldSpec(name, draw(at).name, draw(DEMAND))
        for name in draw(st.lists(NAME, max_size=2, unique=True))
    ]
    used = [UsedSpec(host.name, (("memory", 5), *draw(pairs(AMOUNT)))) for host in hosts[:1]]
    return FleetDescription(tuple(hosts), tuple(groups), tuple(vms), tuple(holds), tuple(used))


@draws_in_turn()
@given(fleets())
def test_parse_gives_back_what_was_dumped(fleet: FleetDescription) -> None:
    assert parse(dump(fleet)) == fleet


@draws_in_turn()
@given(fleets())
def test_dump_does_not_depend_on_the_order_of_the_hosts(fleet: FleetDescription) -> None:
    assert dump(replace(fleet, hosts=fleet.hosts[::-1])) == dump(fleet)


@given(
    st.builds(
        PlaceRequest,
        name=NAME,
        demand=DEMAND,
        constraints=CONSTRAINTS,
        groups=tuples(st.one_of(NAME, GROUP)),
        strategy=st.one_of(st.none(), NAME),
        seed=st.one_of(st.none(), st.integers(0, 2**62)),
        priority=st.integers(-100, 100),
        project=TEXT,
    )
)
def test_a_request_survives_being_written_as_a_line(asked: PlaceRequest) -> None:
    assert parse_line(write_request(asked)) == asked


def test_the_round_trip_catches_a_writer_that_forgets_to_escape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roost.wire.text.hostwords.escape", lambda text: text)
    host = HostSpec("h", Resource(1), Resource(1), Resource(0), labels=(("k", "a,b"),))
    assert words.escape("a,b") != "a,b"
    assert parse(dump(FleetDescription((host,)))) != FleetDescription((host,))
