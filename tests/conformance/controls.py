"""What every control plane promises the agents that connect to it.

A `ControlRig` has the plane and one model agent on a host, `a`, of which the test says what it
does; `settle` lets both speak until nothing is left to say. Only the conversation is looked at.
"""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec.structs import replace

from roost.testing.agent import ModelAgent
from roost.wire.agentlink import (
    PROTOCOL,
    ConsoleRequest,
    Delta,
    Desired,
    Heartbeat,
    Refused,
    Renewed,
    Welcome,
    encode,
)


class ControlRig(Protocol):
    """A control plane and an agent that is not connected yet."""

    plane: Any
    agent: ModelAgent

    async def settle(self) -> None:
        """Let everybody speak and listen until nothing is left to say."""

    async def create(self, name: str, **given: Any) -> str:
        """Let a VM be wanted on the host; return its id."""

    async def stop(self, vm_id: str) -> None:
        """Let a VM be stopped."""

    async def delete(self, vm_id: str) -> None:
        """Let a VM be deleted."""

    async def fence(self) -> None:
        """Count the host, which is silent, as dead."""

    async def console(self, vm_id: str) -> str:
        """Return what is on a VM's console."""

    def listed(self) -> str:
        """Return the digest of the host's list."""

    async def observed(self, vm_id: str) -> tuple[str, int] | None:
        """Return what the plane knows of a VM: state and generation."""


def new(rig: ControlRig, kind: type, since: int = 0) -> list[Any]:
    """Return the messages of a kind that came since."""
    return [message for message in rig.agent.heard[since:] if isinstance(message, kind)]


async def a_hello_is_welcomed_with_the_list(rig: ControlRig) -> None:
    """Welcome comes first, with times that make sense; then the list, which is its digest's."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    first = rig.agent.heard[0]
    assert isinstance(first, Welcome)
    assert 0 < first.heartbeat_s < first.lease_s
    assert rig.agent.digest == rig.listed() != ""


async def a_known_list_is_not_sent_again(rig: ControlRig) -> None:
    """Neither at a hello nor at a heartbeat that names its digest."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    await rig.create("web")
    await rig.settle()
    before = len(rig.agent.heard)
    rig.agent.connect(rig.plane)
    await rig.settle()
    rig.agent.heartbeat()
    await rig.settle()
    assert len(new(rig, Welcome, before)) == 1
    assert new(rig, Desired, before) == []
    assert new(rig, Renewed, before) != []


async def a_change_is_a_delta_of_the_list_before(rig: ControlRig) -> None:
    """It begins at the digest that the agent has and ends at the new one."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    base, before = rig.agent.digest, len(rig.agent.heard)
    vm_id = await rig.create("web")
    await rig.settle()
    delta = new(rig, Delta, before)[0]
    assert (delta.base, delta.digest) == (base, rig.listed())
    assert [vm.id for vm in delta.vms] == [vm_id]
    assert rig.agent.digest == rig.listed()
    generation = rig.agent.vms[vm_id].generation
    await rig.stop(vm_id)
    await rig.settle()
    order = rig.agent.vms[vm_id]
    assert (order.power, order.generation > generation) == ("stopped", True)


async def another_digest_gets_the_whole_list(rig: ControlRig) -> None:
    """By a heartbeat, also by an empty one; and such a list confirms."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    await rig.create("web")
    await rig.settle()
    for wrong in ("f" * 16, ""):
        before = len(rig.agent.heard)
        rig.agent.number += 1
        beat = Heartbeat(rig.agent.number, wrong, rig.agent.guard_stop_s)
        rig.agent.outbox.append(encode(beat))
        await rig.settle()
        [desired] = new(rig, Desired, before)
        assert (desired.digest, desired.confirms) == (rig.listed(), True)


async def a_heartbeat_is_renewed_by_its_number(rig: ControlRig) -> None:
    """Each one, or a newer one in its stead."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    rig.agent.heartbeat()
    await rig.settle()
    assert new(rig, Renewed)[-1].number == rig.agent.number
    assert rig.agent.leased


async def what_is_reported_is_known(rig: ControlRig) -> None:
    """And an older word does not undo a newer one."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    vm_id = await rig.create("web")
    await rig.settle()
    generation = rig.agent.vms[vm_id].generation
    assert await rig.observed(vm_id) == ("running", generation)
    await rig.stop(vm_id)
    await rig.settle()
    assert await rig.observed(vm_id) == ("stopped", rig.agent.vms[vm_id].generation)


async def a_tombstone_stands_until_the_host_says_absent(rig: ControlRig) -> None:
    """Then the entry goes from the list."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    vm_id = await rig.create("web")
    await rig.settle()
    rig.agent.mute = True
    await rig.delete(vm_id)
    await rig.settle()
    assert set(rig.agent.tombstones) == {vm_id}
    assert rig.agent.tombstones[vm_id].generation > rig.agent.records[vm_id].generation - 1
    rig.agent.mute = False
    await rig.settle()
    assert (rig.agent.vms, rig.agent.tombstones, rig.agent.copies) == ({}, {}, {})
    assert rig.agent.digest == rig.listed()


async def nobody_speaks_for_another_host(rig: ControlRig) -> None:
    """Nor in another protocol: both are refused, and the connection ends."""
    for wrong in ({"host": "b"}, {"protocol": 99}):
        rig.agent.connect(rig.plane)
        rig.agent.outbox = [encode(replace(rig.agent.hello(), **wrong))]
        await rig.settle()
        assert isinstance(rig.agent.heard[-1], Refused)
        assert not rig.agent.connected


async def an_agent_that_also_speaks_a_newer_protocol_is_welcome(rig: ControlRig) -> None:
    """Both go on with the newest that both speak; without any, a sentence says who is older."""
    rig.agent.connect(rig.plane)
    rig.agent.outbox = [encode(replace(rig.agent.hello(), newest=PROTOCOL + 5))]
    await rig.settle()
    assert rig.agent.welcome is not None
    assert rig.agent.welcome.protocol == PROTOCOL
    rig.agent.connect(rig.plane)
    later = {"protocol": PROTOCOL + 1, "newest": PROTOCOL + 2}
    rig.agent.outbox = [encode(replace(rig.agent.hello(), **later))]
    await rig.settle()
    assert rig.agent.refusal is not None
    assert rig.agent.refusal.code == "protocol_unknown"
    assert "the control plane must be upgraded" in rig.agent.refusal.message


async def what_cannot_be_read_ends_the_connection(rig: ControlRig) -> None:
    """With a refusal that says why."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    rig.agent.outbox.append(b'{"type": "nonsense"}')
    await rig.settle()
    assert rig.agent.refusal is not None
    assert (rig.agent.refusal.code, rig.agent.connected) == ("invalid_request", False)


async def who_does_not_say_hello_is_refused(rig: ControlRig) -> None:
    """A heartbeat alone renews nothing."""
    rig.agent.connect(rig.plane)
    rig.agent.outbox = [encode(Heartbeat(1, "", None))]
    await rig.settle()
    assert new(rig, Renewed) == []
    assert rig.agent.refusal is not None
    assert rig.agent.refusal.code == "invalid_request"


async def a_newer_connection_replaces_the_older(rig: ControlRig) -> None:
    """The plane ends the first itself."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    first = rig.agent.link
    assert first is not None
    rig.agent.session = None  # as if nobody had noticed that it is dead
    rig.agent.connect(rig.plane)
    await rig.settle()
    assert first.closing is not None
    assert rig.agent.connected


async def a_fenced_host_is_refused_until_it_shows_that_nothing_runs_astray(
    rig: ControlRig,
) -> None:
    """Its heartbeats are refused as fenced; a hello with nothing that runs astray lets it in."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    vm_id = await rig.create("web", restart="elsewhere")
    await rig.settle()
    assert rig.agent.copies[vm_id].runs
    await rig.fence()
    rig.agent.heartbeat()
    before = len(rig.agent.heard)
    await rig.settle()
    assert new(rig, Renewed, before) == []
    assert rig.agent.refusal is not None
    assert rig.agent.refusal.fenced
    copy = rig.agent.copies.get(vm_id)
    assert copy is None or not copy.runs  # stopped by the guard, or told so by the refusal
    rig.agent.connect(rig.plane)
    await rig.settle()
    assert new(rig, Welcome, before) != []


async def a_console_is_asked_of_the_agent(rig: ControlRig) -> None:
    """The question names the VM, and the answer comes back."""
    rig.agent.connect(rig.plane)
    await rig.settle()
    vm_id = await rig.create("web")
    await rig.settle()
    rig.agent.consoles[vm_id] = "login: "
    assert await rig.console(vm_id) == "login: "
    assert [ask.vm for ask in new(rig, ConsoleRequest)] == [vm_id]


LAWS: list[Callable[[ControlRig], Any]] = [
    a_hello_is_welcomed_with_the_list,
    a_known_list_is_not_sent_again,
    a_change_is_a_delta_of_the_list_before,
    another_digest_gets_the_whole_list,
    a_heartbeat_is_renewed_by_its_number,
    what_is_reported_is_known,
    a_tombstone_stands_until_the_host_says_absent,
    nobody_speaks_for_another_host,
    an_agent_that_also_speaks_a_newer_protocol_is_welcome,
    what_cannot_be_read_ends_the_connection,
    who_does_not_say_hello_is_refused,
    a_newer_connection_replaces_the_older,
    a_fenced_host_is_refused_until_it_shows_that_nothing_runs_astray,
    a_console_is_asked_of_the_agent,
]
