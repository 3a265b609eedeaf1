"""What every agent promises its control plane, whichever process or model it is.

An `AgentRig` has a model control plane with two hosts, `a` and `b`, whose agents are under test;
`pass_by` lets them hear, act and speak. Only the conversation is looked at.
"""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec.structs import replace

from roost.testing.control import ModelControl
from roost.testing.orders import listing, vm
from roost.wire.agentlink import (
    PROTOCOL,
    ConsoleRequest,
    CopyInfo,
    Delta,
    LedgerPoint,
    Refused,
    SeenVM,
    Tombstone,
)


class AgentRig(Protocol):
    """Two agents and their control plane."""

    control: ModelControl

    async def pass_by(self, seconds: float) -> None:
        """Let time pass, with all that the agents do in it."""

    async def reconnect(self, host: str) -> None:
        """Lose a host's connection and let it come back."""

    async def restart(self, host: str) -> None:
        """Kill a host's agent and start it again; its VMs stay."""

    def cut(self, host: str) -> None:
        """Cut a host off for good."""

    def runs(self, host: str, vm_id: str) -> bool:
        """Say whether a VM's guest executes on a host."""


def seen(rig: AgentRig, vm_id: str) -> tuple[str, int] | None:
    """Return what was last reported of a VM."""
    found = rig.control.seen.get(vm_id)
    return (found.seen, found.generation) if found is not None else None


async def it_says_hello_with_what_it_has(rig: AgentRig) -> None:
    """Hello names host, protocol and digest, numbers connections, and comes again with them."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1"), host="a")
    await rig.pass_by(10)
    await rig.reconnect("a")
    await rig.pass_by(5)
    first, *_, last = [hello for hello in rig.control.hellos if hello.host == "a"]
    assert (first.protocol, first.digest, first.conversation) == (PROTOCOL, "", 1)
    assert last.digest == rig.control.host("a").desired.digest
    assert (last.instance, last.conversation) == (first.instance, 2)
    assert [(each.id, each.seen) for each in last.vms] == [("vm-1", "running")]


async def a_list_is_carried_out_and_reported(rig: AgentRig) -> None:
    """Running, stopped and paused come true at the order's generation."""
    await rig.pass_by(1)
    orders = [vm("vm-1", 3), vm("vm-2", 4, power="stopped"), vm("vm-3", 5)]
    rig.control.order(*orders, host="a")
    await rig.pass_by(20)
    assert [seen(rig, f"vm-{n}") for n in (1, 2, 3)] == [
        ("running", 3), ("stopped", 4), ("running", 5)
    ]  # fmt: skip
    paused = replace(orders[2], generation=6, power="paused")
    rig.control.order(orders[0], orders[1], paused, host="a")
    await rig.pass_by(20)
    assert seen(rig, "vm-3") == ("paused", 6)
    assert not rig.runs("a", "vm-3")


async def a_first_report_is_full_and_later_ones_are_news(rig: AgentRig) -> None:
    """Every connection begins with all there is; then only what changed is said."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1"), vm("vm-2"), host="a")
    await rig.pass_by(20)
    assert rig.control.reports[0].full
    before = len(rig.control.reports)
    rig.control.order(vm("vm-1"), vm("vm-2", 2, power="stopped"), host="a")
    await rig.pass_by(20)
    told = {each.id for report in rig.control.reports[before:] for each in report.vms}
    assert told == {"vm-2"}


async def a_delta_is_applied_only_to_its_list(rig: AgentRig) -> None:
    """One for another list is not taken; the next heartbeat brings the whole list."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1"), host="a")
    await rig.pass_by(10)
    after = listing(vm("vm-1"), vm("vm-2"))
    sent = rig.control.lists_sent
    rig.control.change(
        Delta(rig.control.host("a").desired.digest, after.digest, [vm("vm-2")]), *after.vms,
        host="a",
    )  # fmt: skip
    await rig.pass_by(10)
    assert (seen(rig, "vm-2"), rig.control.lists_sent) == (("running", 1), sent)
    further = listing(*after.vms, vm("vm-3"))
    rig.control.change(Delta("f" * 16, further.digest, [vm("vm-3")]), *further.vms, host="a")
    await rig.pass_by(10)
    assert seen(rig, "vm-3") == ("running", 1)
    assert rig.control.lists_sent > sent


async def what_is_on_no_list_is_held(rig: AgentRig) -> None:
    """It runs on, and is told as held."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1"), host="a")
    await rig.pass_by(10)
    rig.control.order(host="a")
    await rig.pass_by(10)
    assert rig.runs("a", "vm-1")
    assert [(held.id, held.generation) for held in rig.control.reports[-1].held] == [("vm-1", 1)]


async def only_a_new_tombstone_destroys(rig: AgentRig) -> None:
    """An older one does nothing; what went by one does not come back by an older order."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1", 5), host="a")
    await rig.pass_by(10)
    rig.control.order(Tombstone("vm-1", 4), host="a")
    await rig.pass_by(10)
    assert rig.runs("a", "vm-1")
    rig.control.order(Tombstone("vm-1", 6), host="a")
    await rig.pass_by(10)
    assert (seen(rig, "vm-1"), rig.runs("a", "vm-1")) == (("absent", 6), False)
    rig.control.order(vm("vm-1", 5), host="a")
    await rig.pass_by(10)
    assert not rig.runs("a", "vm-1")
    rig.control.order(vm("vm-1", 7), host="a")
    await rig.pass_by(10)
    assert rig.runs("a", "vm-1")


async def a_restart_is_carried_out_once(rig: AgentRig) -> None:
    """The number of restarts is told with the VM."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1"), host="a")
    await rig.pass_by(10)
    rig.control.order(vm("vm-1", 2, restarts=1), host="a")
    await rig.pass_by(10)
    found = rig.control.seen["vm-1"]
    assert (found.seen, found.generation, found.restarts) == ("running", 2, 1)


async def a_killed_agent_knows_what_it_did(rig: AgentRig) -> None:
    """Its VMs run on, and generations do not go back."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1", 4), Tombstone("vm-2", 9), host="a")
    await rig.pass_by(10)
    await rig.restart("a")
    rig.control.order(vm("vm-1", 3, power="stopped"), vm("vm-2", 8), host="a")
    await rig.pass_by(20)
    assert rig.runs("a", "vm-1")
    assert not rig.runs("a", "vm-2")


async def a_move_passes_its_phases(rig: AgentRig) -> None:
    """ready, moved, arrived: then it runs at the target, and the source's remains are gone."""
    await rig.pass_by(1)
    said = said_of(rig, "vm-1")
    rig.control.create(vm("vm-1"), "a")
    await rig.pass_by(10)
    rig.control.migrate("vm-1", "b")
    await rig.pass_by(60)
    assert rig.control.moved == 1
    assert (rig.runs("a", "vm-1"), rig.runs("b", "vm-1")) == (False, True)
    words = [each.seen for each in said]
    assert [word for word in words if word in ("ready", "moved", "arrived")] == sorted(
        {"ready", "moved", "arrived"}, key=("ready", "moved", "arrived").index
    )
    assert "vm-1" not in rig.control.host("a").orders


async def a_move_that_is_taken_back_stays(rig: AgentRig) -> None:
    """The target forgets its copy; the source runs it at a new generation."""
    await rig.pass_by(1)
    order = vm("vm-1")
    rig.control.order(order, host="a")
    await rig.pass_by(10)
    rig.control.order(replace(order, generation=2, part="incoming"), host="b")
    await rig.pass_by(10)
    assert seen(rig, "vm-1") == ("ready", 2)
    rig.control.order(replace(order, generation=3, part="withdrawn"), host="b")
    rig.control.order(replace(order, generation=3), host="a")
    await rig.pass_by(10)
    assert (rig.runs("a", "vm-1"), rig.runs("b", "vm-1")) == (True, False)


async def what_was_lost_on_its_way_is_said_for_good(rig: AgentRig) -> None:
    """A target that is told that all was sent, and has nothing, says so."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1", 3, part="incoming", sent=True), host="b")
    await rig.pass_by(10)
    found = rig.control.seen["vm-1"]
    assert (found.seen, found.generation) == ("failed", 3)
    assert (found.code, found.failure) == ("incoming_lost", "permanent")


async def a_vm_that_may_run_elsewhere_waits_for_a_confirmed_lease(rig: AgentRig) -> None:
    """It asks for the list again after the renewal, by an empty digest; only then does it start."""
    rig.control.renews = False
    await rig.pass_by(1)
    rig.control.order(vm("vm-1", restart="elsewhere"), vm("vm-2"), host="a")
    await rig.pass_by(10)
    assert (rig.runs("a", "vm-1"), rig.runs("a", "vm-2")) == (False, True)
    assert rig.control.seen["vm-1"].code == "no_lease"
    rig.control.renews = True
    await rig.pass_by(20)
    assert rig.runs("a", "vm-1")
    assert "" in [beat.digest for beat in rig.control.beats[1:]]


async def a_list_that_does_not_confirm_starts_nothing_that_may_run_elsewhere(rig: AgentRig) -> None:
    """It starts with the first list that does."""
    unsure = listing(vm("vm-1", restart="elsewhere"), vm("vm-2"))
    point = LedgerPoint(4, "tx-4")
    rig.control.host("a").desired = replace(unsure, confirms=False, point=point)
    await rig.pass_by(20)
    assert (rig.runs("a", "vm-1"), rig.runs("a", "vm-2")) == (False, True)
    rig.control.host("a").desired = replace(unsure, confirms=True, point=point)
    await rig.pass_by(20)
    assert rig.runs("a", "vm-1")
    await rig.reconnect("a")
    await rig.pass_by(5)
    assert [hello for hello in rig.control.hellos if hello.host == "a"][-1].heard == point


async def a_list_that_does_not_confirm_loosens_nothing(rig: AgentRig) -> None:
    """What was stopped with the lease is not started because an unsure list says it stays here."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1", restart="elsewhere"), host="a")
    await rig.pass_by(20)
    assert rig.runs("a", "vm-1")
    rig.control.renews = False
    await rig.pass_by(60)
    assert not rig.runs("a", "vm-1")
    unsure = replace(listing(vm("vm-1", 2)), confirms=False, point=LedgerPoint(4, "tx-4"))
    rig.control.host("a").desired = unsure
    rig.control.renews = True
    await rig.reconnect("a")
    await rig.pass_by(30)
    assert not rig.runs("a", "vm-1")
    rig.control.host("a").desired = replace(unsure, confirms=True)
    await rig.pass_by(30)
    assert rig.runs("a", "vm-1")


async def what_may_run_elsewhere_has_stopped_when_lease_and_guard_are_over(rig: AgentRig) -> None:
    """What stays home runs on without a control plane."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1", restart="elsewhere"), vm("vm-2"), host="a")
    await rig.pass_by(20)
    assert rig.runs("a", "vm-1")
    rig.cut("a")
    guard_s = rig.control.host("a").guard_stop_s
    assert guard_s is not None
    await rig.pass_by(rig.control.welcome.lease_s + guard_s + 0.5)
    assert (rig.runs("a", "vm-1"), rig.runs("a", "vm-2")) == (False, True)


async def a_fenced_host_stops_at_once_what_may_run_elsewhere(rig: AgentRig) -> None:
    """A refusal that says so is enough."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1", restart="elsewhere"), vm("vm-2"), host="a")
    await rig.pass_by(20)
    rig.control.renews = False
    rig.control.refuse(Refused("fenced", "you were cut off", fenced=True), "a")
    await rig.pass_by(1)
    assert (rig.runs("a", "vm-1"), rig.runs("a", "vm-2")) == (False, True)


async def a_roll_call_is_answered_with_every_copy_and_memory(rig: AgentRig) -> None:
    """Also of what is on no list, and of what is gone."""
    await rig.pass_by(1)
    orders = vm("vm-1"), vm("vm-2"), vm("vm-3", power="stopped")
    rig.control.order(*orders, host="a")
    await rig.pass_by(10)
    rig.control.order(orders[0], Tombstone("vm-2", 6), orders[2], host="a")
    await rig.pass_by(10)
    rig.control.order(host="a")
    await rig.pass_by(5)
    rig.control.call_roll("a")
    await rig.pass_by(2)
    [present] = rig.control.presents
    assert present.digest == rig.control.host("a").desired.digest
    assert present.copies == [
        CopyInfo("vm-1", 1, "running", restart="here"),
        CopyInfo("vm-2", 6, "gone"),
        CopyInfo("vm-3", 1, "stopped", restart="here"),
    ]


async def a_console_is_read_or_refused(rig: AgentRig) -> None:
    """An answer bears the question's number; of a VM that is not here it says so."""
    await rig.pass_by(1)
    rig.control.order(vm("vm-1"), host="a")
    await rig.pass_by(10)
    rig.control.ask_console(ConsoleRequest(7, "vm-1"), "a")
    rig.control.ask_console(ConsoleRequest(8, "vm-9"), "a")
    await rig.pass_by(2)
    here, missing = sorted(rig.control.replies, key=lambda reply: reply.number)
    assert (here.number, here.code, here.start) == (7, "", 0)
    assert (missing.number, missing.code) == (8, "not_here")


def said_of(rig: AgentRig, vm_id: str) -> list[SeenVM]:
    """Return a list that fills with what is reported of a VM."""
    found: list[SeenVM] = []

    class Noting(dict[str, SeenVM]):
        def update(self, *given: Any, **named: Any) -> None:
            for other in given:
                for key, each in other.items():
                    if key == vm_id and (not found or found[-1].seen != each.seen):
                        found.append(each)
            super().update(*given, **named)

    rig.control.seen = Noting()
    return found


LAWS: list[Callable[[AgentRig], Any]] = [
    it_says_hello_with_what_it_has,
    a_list_is_carried_out_and_reported,
    a_first_report_is_full_and_later_ones_are_news,
    a_delta_is_applied_only_to_its_list,
    what_is_on_no_list_is_held,
    only_a_new_tombstone_destroys,
    a_restart_is_carried_out_once,
    a_killed_agent_knows_what_it_did,
    a_move_passes_its_phases,
    a_move_that_is_taken_back_stays,
    what_was_lost_on_its_way_is_said_for_good,
    a_vm_that_may_run_elsewhere_waits_for_a_confirmed_lease,
    a_list_that_does_not_confirm_starts_nothing_that_may_run_elsewhere,
    a_list_that_does_not_confirm_loosens_nothing,
    what_may_run_elsewhere_has_stopped_when_lease_and_guard_are_over,
    a_fenced_host_stops_at_once_what_may_run_elsewhere,
    a_roll_call_is_answered_with_every_copy_and_memory,
    a_console_is_read_or_refused,
]
