"""The pure step: every row of its table, by hand."""

import pytest
from msgspec.structs import replace

from roost.agent.converge import Leased, next_step
from roost.agent.drivers.base import LocalVM
from roost.agent.sightings import order_text
from roost.agent.store import Record
from roost.testing.orders import vm
from roost.wire.agentlink import DesiredVM, MoveInfo, Tombstone

OURS = Leased.CONFIRMED


def here(state: str, generation: int = 1, **changes: object) -> LocalVM:
    order = vm()
    given = {
        "id": order.id,
        "name": order.name,
        "state": state,
        "cpu_milli": order.cpu_milli,
        "memory_bytes": order.memory_bytes,
        "disk_bytes": order.disk_bytes,
        "generation": generation,
        "restarts": 0,
    }
    return LocalVM(**{**given, **changes})


def done(generation: int = 1, restarts: int = 0, **changes: object) -> Record:
    return Record("vm-1", "vm-1", generation, restarts, **changes)


def kind(order, record, local, leased: Leased = OURS) -> str | None:
    step = next_step(order, record, local, leased)
    return step and step.kind


CASES = {
    "nothing is here": (vm(), None, None, "start"),
    "nothing is here and it shall be stopped": (vm(power="stopped"), None, None, "settle"),
    "it runs as ordered and nobody wrote it down": (vm(), None, here("running"), "settle"),
    "it runs as ordered": (vm(), done(), here("running"), None),
    "it stopped by itself": (vm(), done(), here("stopped"), "start"),
    "a start was cut short": (vm(), None, here("starting"), "start"),
    "it shall be stopped": (vm(generation=2, power="stopped"), done(), here("running"), "stop"),
    "a start is not wanted any more": (vm(power="stopped"), None, here("starting"), "stop"),
    "another size": (vm(generation=2, cpu_milli=7), done(), here("running"), "resize"),
    "another size of a stopped one": (
        vm(generation=2, power="stopped", cpu_milli=7),
        done(),
        here("stopped"),
        "resize",
    ),
    "a restart is asked for": (vm(generation=2, restarts=1), done(), here("running"), "restart"),
    "the driver has restarted it before it was written down": (
        vm(generation=2, restarts=1),
        done(),
        here("running", 2, restarts=1),
        "settle",
    ),
    "nobody knows of earlier restarts": (
        vm(restarts=5),
        None,
        here("running", restarts=None),
        "settle",
    ),
    "it may run elsewhere from now on": (
        vm(generation=2, restart="elsewhere"),
        done(),
        here("running"),
        "protect",
    ),
    "an older order": (vm(generation=1, power="stopped"), done(2), here("running"), None),
    "an order older than the copy": (vm(generation=1), None, here("stopped", 2), None),
    "it is on no list": (None, done(), here("running"), None),
    "a tombstone": (Tombstone("vm-1", 2), done(), here("running"), "destroy"),
    "a tombstone of the same generation": (
        Tombstone("vm-1", 1),
        done(),
        here("running"),
        "destroy",
    ),
    "an older tombstone": (Tombstone("vm-1", 1), done(2), here("running"), None),
    "a tombstone for what is not here": (Tombstone("vm-1", 2), None, None, "settle"),
    "a tombstone that was carried out": (Tombstone("vm-1", 2), done(2, gone=True), None, None),
    "an old order for what was destroyed": (vm(generation=2), done(2, gone=True), None, None),
    "a new order for what was destroyed": (vm(generation=3), done(2, gone=True), None, "start"),
    "it comes": (vm(part="incoming"), None, None, "prepare"),
    "it comes back": (vm(generation=5, part="incoming"), done(), here("moved"), "prepare"),
    "it is awaited": (vm(part="incoming"), done(), here("ready"), None),
    "it comes although a copy runs here": (vm(part="incoming"), None, here("running"), "refuse"),
    "it comes although a copy lies here": (vm(part="incoming"), None, here("stopped"), "refuse"),
    "it is awaited and shall run": (vm(generation=2), done(), here("ready"), "land"),
    "it is awaited and shall lie": (
        vm(generation=2, power="stopped"),
        done(),
        here("ready"),
        "land",
    ),
    "it goes": (vm(generation=2, part="outgoing"), done(), here("running"), "send"),
    "it goes while it lies": (vm(generation=2, part="outgoing"), done(), here("stopped"), "send"),
    "it is gone": (vm(generation=2, part="outgoing"), done(2), here("moved", 2), None),
    "it goes and never was here": (vm(part="outgoing"), None, None, "settle"),
    "it goes and is lost": (
        vm(generation=2, part="outgoing"),
        done(amounts={"cpu_milli": 1}),
        None,
        "refuse",
    ),
    "what is gone does not run again by itself": (vm(), done(), here("moved"), None),
    "a move is taken back": (vm(generation=2), done(), here("moved"), "start"),
    "it shall stand still": (vm(generation=2, power="paused"), done(), here("running"), "pause"),
    "it shall go on": (vm(generation=2), done(), here("paused"), "resume"),
    "it stands still as ordered": (vm(power="paused"), done(), here("paused"), None),
    "it shall stand still and lies": (vm(power="paused"), done(), here("stopped"), "start"),
    "it shall lie and stands still": (vm(power="stopped"), done(), here("paused"), "stop"),
    "all was sent": (vm(generation=2, part="incoming", sent=True), done(), here("ready"), "land"),
    "all was sent and is lost": (
        vm(generation=2, part="incoming", sent=True),
        done(),
        here("lost"),
        "refuse",
    ),
    "all was sent and nothing is here": (vm(part="incoming", sent=True), None, None, "refuse"),
    "what waited died": (vm(part="incoming"), done(), here("lost"), "prepare"),
    "what waited for this move died": (
        vm(generation=3, part="incoming", move=MoveInfo(begun=2)),
        done(),
        here("lost", 2),
        "refuse",
    ),
    "what waited for an earlier move died": (
        vm(generation=5, part="incoming", move=MoveInfo(begun=5)),
        done(),
        here("lost", 2),
        "prepare",
    ),
    "it has arrived": (vm(part="incoming"), done(), here("running", arrived=True), None),
    "it has arrived and crashed": (
        vm(part="incoming", sent=True),
        done(),
        here("stopped", arrived=True),
        None,
    ),
    "it has arrived and this is its home": (
        vm(generation=2),
        done(),
        here("running", arrived=True),
        "land",
    ),
    "it is withdrawn": (vm(generation=2, part="withdrawn"), done(), here("ready"), "withdraw"),
    "what is lost is withdrawn": (
        vm(generation=2, part="withdrawn"),
        done(),
        here("lost"),
        "withdraw",
    ),
    "what has arrived is not withdrawn": (
        vm(generation=2, part="withdrawn"),
        done(),
        here("running", arrived=True),
        "settle",
    ),
    "nothing is left to withdraw": (vm(generation=2, part="withdrawn"), done(), None, "settle"),
    "it is being sent": (vm(part="outgoing"), done(), here("sending"), "send"),
    "it is at the switch-over": (vm(part="outgoing"), done(), here("switching"), "send"),
    "it is being sent and shall stay": (
        vm(generation=2, part="returning"),
        done(),
        here("sending"),
        "recall",
    ),
    "it is being sent and this is its home": (vm(generation=2), done(), here("sending"), "recall"),
    "it shall stay and is at the switch-over": (
        vm(generation=2, part="returning"),
        done(),
        here("switching"),
        "settle",
    ),
    "it shall stay and has left": (
        vm(generation=2, part="returning"),
        done(),
        here("moved"),
        "settle",
    ),
    "it shall stay and did": (
        vm(generation=2, part="returning"),
        done(),
        here("running"),
        "settle",
    ),
    "the switch-over is taken back": (vm(generation=2), done(), here("switching"), "start"),
    "a move is taken back and it shall lie": (
        vm(generation=2, power="stopped"),
        done(),
        here("moved"),
        "stop",
    ),
    "what is lost shall lie": (
        vm(generation=2, power="stopped"),
        done(),
        here("lost"),
        "settle",
    ),
    "nobody can tell its state": (vm(), done(), here("unknown"), "refuse"),
    "a tombstone for what nobody can read": (
        Tombstone("vm-1", 2),
        done(),
        here("unknown"),
        "destroy",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_next_step_when(case) -> None:
    order, record, local, expected = case
    assert kind(order, record, local) == expected


def elsewhere(**changes: object) -> DesiredVM:
    return vm(restart="elsewhere", **changes)


RUNS = here("running", restart="elsewhere")
LIES = here("stopped", restart="elsewhere", reason="fenced")

LEASES = {
    "over, and it runs": (elsewhere(), RUNS, Leased.OVER, "stop"),
    "over, and it boots": (elsewhere(), replace(RUNS, state="starting"), Leased.OVER, "stop"),
    "over, and it runs on no list": (None, RUNS, Leased.OVER, "stop"),
    "over, and the list is older": (elsewhere(generation=0), RUNS, Leased.OVER, "stop"),
    "over, and it lies": (elsewhere(), LIES, Leased.OVER, "wait"),
    "over, and it is to stay here": (vm(), here("running"), Leased.OVER, None),
    "over, and it is to stay here from now on": (vm(generation=2), RUNS, Leased.OVER, "stop"),
    "over, and it lies and is to stay here from now on": (
        vm(generation=2),
        LIES,
        Leased.OVER,
        "wait",
    ),
    "held, and it lies and is to stay here from now on": (
        vm(generation=2),
        LIES,
        Leased.HELD,
        "wait",
    ),
    "confirmed, and it lies and is to stay here from now on": (
        vm(generation=2),
        LIES,
        Leased.CONFIRMED,
        "protect",
    ),
    "held, and it runs": (elsewhere(), RUNS, Leased.HELD, None),
    "held, and it lies": (elsewhere(), LIES, Leased.HELD, "wait"),
    "held, and it waits to land": (
        elsewhere(generation=2),
        replace(RUNS, state="ready"),
        Leased.HELD,
        "wait",
    ),
    "held, and a restart is asked for": (
        elsewhere(generation=2, restarts=1),
        RUNS,
        Leased.HELD,
        "wait",
    ),
    "held, and it shall be stopped": (
        elsewhere(generation=2, power="stopped"),
        RUNS,
        Leased.HELD,
        "stop",
    ),
    "over, and it waits to receive": (
        elsewhere(part="incoming"),
        replace(RUNS, state="ready"),
        Leased.OVER,
        "stop",
    ),
    "over, and it is at the switch-over": (
        elsewhere(part="outgoing"),
        replace(RUNS, state="switching"),
        Leased.OVER,
        "stop",
    ),
    "held, and it comes": (elsewhere(part="incoming"), None, Leased.HELD, "wait"),
    "confirmed, and it comes": (elsewhere(part="incoming"), None, Leased.CONFIRMED, "prepare"),
    "confirmed, and it lies": (elsewhere(), LIES, Leased.CONFIRMED, "start"),
}


@pytest.mark.parametrize("case", LEASES.values(), ids=LEASES)
def test_the_next_step_of_a_vm_that_may_run_elsewhere_when_the_lease_is(case) -> None:
    order, local, leased, expected = case
    assert kind(order, done(), local, leased) == expected


@pytest.mark.parametrize("power", ["running", "stopped"])
def test_a_vm_that_could_run_elsewhere_and_is_not_here_waits_to_stay_here(power: str) -> None:
    order = vm(generation=2, power=power)
    told = done(order=order_text(elsewhere()))
    assert kind(order, told, None, Leased.HELD) == "wait"
    assert kind(order, told, None) == ("start" if power == "running" else "settle")
    assert kind(order, done(order=order_text(vm())), None, Leased.HELD) != "wait"
