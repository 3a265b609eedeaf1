"""Row: the dry run of a policy: past requests taken again, twice, and the VMs of today judged.

As the control plane runs it in a thread, from the texts of events on: decoding them is part of it,
reading them from a database is not. Every tenth VM is gone again. Each answer is compared with what
the engine says to the same requests one by one, before and after.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from benchmarks.engine.checking import AnswersDiffer
from benchmarks.engine.fleets import FLAVORED, requests_of
from benchmarks.engine.measuring import Job, Sizes, timed
from benchmarks.results import Result, at_most
from benchmarks.rules.decisions import fleet_of
from roost.control.policies.recorded import Recorded, recorded_in
from roost.control.policies.trying import tried, with_policy
from roost.fleet.fleet import Fleet
from roost.model.flow import PlaceRequest
from roost.model.policies import Bundle, PolicyRule
from roost.model.vm import VMSpec
from roost.placement.engine import Engine
from roost.placement.whatif import WhatIf
from roost.wire.policies import PolicyDryRunBody
from roost.wire.spectext import spec_text

PROJECT = "shop"
BUNDLE = Bundle("least_loaded", rules=(PolicyRule("lot", 'host.labels.lot in ["0", "1"]'),))
_ROUNDS = 3
_encode = msgspec.json.encode

Events = list[tuple[str, str]]


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return the job; a short run has a smaller fleet and fewer requests."""
    count = min(10_000, sizes.many)
    yield Job("policy dry run", partial(_row, "policy dry run", count))


def recorded(fleet: Fleet, count: int) -> Events:
    """Place so many requests, every tenth of which goes again; return their events."""
    engine, events = Engine(fleet), []
    asked = requests_of(fleet, FLAVORED.columns(fleet, count, seed=6), "past")
    for number, each in enumerate(asked):
        key, demand = f"vm-{number}", each.demand
        request = PlaceRequest(each.name, demand, project=PROJECT, key=f"{key}:run")
        found = engine.find(request)
        if found is None:
            continue
        vm = engine.commit(request, found)
        row: dict[str, Any] = {"project": PROJECT, "name": each.name, "strategy": "least_loaded"}
        spec = {f"{key}|1": {"spec": spec_text(VMSpec(demand))}}
        events.append(("vm.created", _encode({"vms": {key: row}, "vm_specs": spec}).decode()))
        if number % 10 == 9:
            fleet.remove(vm)
            events.append(("vm.deleted", _encode({"vms": {key: None}}).decode()))
    return events


def _read(events: Events) -> list[Recorded]:
    return [each for kind, changes in events for each in recorded_in(kind, changes, ())]


def check(name: str, engine: Engine, events: Events, found: PolicyDryRunBody) -> None:
    """Take the requests again one by one; the counts must be those of the dry run."""
    answers = []
    for policy in ("", "tried"):
        world = WhatIf.like(engine)
        record = _read(events)
        for each in record:
            number = world.fleet.vms.numbers.get(f"{each.vm}:run")
            if number is not None:
                world.fleet.remove(number)
        world.set_rules(with_policy(world.rules, "tried", BUNDLE))
        hosts: dict[str, str] = {}
        for each in record:
            if each.request is None:
                number = world.fleet.vms.numbers.get(f"{each.vm}:run")
                if number is not None:
                    world.fleet.remove(number)
                continue
            past = each.request
            asked = PlaceRequest(
                past.name, past.demand, project=PROJECT, key=past.key, policy=policy
            )
            placed = world.find(asked)
            hosts[each.vm] = "" if placed is None else placed.host
            if placed is not None:
                world.commit(asked, placed)
        answers.append(hosts)
    one, other = answers
    elsewhere = sum(bool(one[vm] and other[vm]) and one[vm] != other[vm] for vm in one)
    refused = sum(bool(one[vm]) and not other[vm] for vm in one)
    if (elsewhere, refused) != (found.elsewhere, found.refused):
        raise AnswersDiffer(
            f"{name}: {found.elsewhere} elsewhere and {found.refused} refused, "
            f"one by one {elsewhere} and {refused}"
        )


def _row(name: str, count: int) -> Iterator[Result]:
    fleet = fleet_of(count)
    events = recorded(fleet, count)
    engine = Engine(fleet)
    best, found = float("inf"), None
    for _ in range(_ROUNDS):
        with timed() as span:
            world = WhatIf.like(engine)
            found = tried(world, [], _read(events), "tried", BUNDLE, PROJECT)
        best = min(best, span.cpu_s)
    assert found is not None
    check(name, engine, events, found)
    note = (
        f"{found.replayed:,} requests on {count:,} hosts, twice: {found.elsewhere:,} elsewhere, "
        f"{found.refused:,} refused"
    )
    yield at_most(name, best, "s", 2.0, 0.5, note=note)
