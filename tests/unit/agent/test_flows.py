"""What VMs send to each other, from the driver to the control plane."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.qemu.taps import tap_names, taps_on
from roost.agent.drivers.virtualflows import VirtualFlows, read_flows
from roost.model.vm import Nic, cards_of, mac_of
from roost.testing.control import ModelControl
from roost.testing.orders import vm
from roost.wire.agentlimits import MOST_FLOWS
from roost.wire.agentlink import (
    FlowInfo,
    NicInfo,
    SampleInfo,
    Samples,
    encode,
    most_sent,
    take_from_agent,
)
from tests.unit.agent.serving import serving
from tests.unit.agent.test_session import make_agent, running

CARD = "52:54:00:0a:0b:0c"


def local(state: str = "running", flows: str = f"vm-2=80,{CARD.upper()}=0.8") -> LocalVM:
    return LocalVM("vm-1", "web", state, flows=flows)  # type: ignore[arg-type]


def test_a_virtual_vm_sends_what_its_label_says_from_the_first_reading_on() -> None:
    counted = VirtualFlows()
    assert counted.read([local()], 100.0) == []
    assert counted.read([local()], 110.0) == [
        FlowInfo("vm-1", mac_of("vm-2", 0), 100_000_000),
        FlowInfo("vm-1", CARD, 1_000_000),
    ]
    assert counted.read([local("paused")], 120.0) == []
    assert counted.read([local()], 130.0) == []  # it begins anew
    assert counted.read([local()], 1e9)[1].sent_bytes == 60_000_000  # ten minutes at most


@pytest.mark.parametrize("text", ["vm-2", "vm-2=", "=3", "vm-2=x", "vm-2=-1", "vm-2=nan", "a=1e9"])
def test_a_label_that_means_nothing_costs_the_vm_its_flows(text: str) -> None:
    with pytest.raises(ValueError, match="is no VM=MBIT"):
        read_flows(text)
    counted = VirtualFlows()
    counted.read([local(flows=text)], 0.0)
    assert counted.read([local(flows=text)], 60.0) == []


def test_only_taps_on_counted_bridges_are_counted() -> None:
    order = vm(nics=[NicInfo(mode="tap", bridge="br0"), NicInfo(), NicInfo("tap", "br1")])
    first, second = tap_names(order)
    assert taps_on(order, ["br0"]) == [first]
    assert taps_on(order, ["br1", "br0"]) == [first, second]
    assert taps_on(order, ["br2"]) == []


def test_a_vm_has_the_addresses_that_its_cards_are_given() -> None:
    nics = (Nic("tap", "br0"), Nic("tap", "br0", mac="52:54:00:AA:BB:CC"))
    assert list(cards_of("vm-1", nics)) == [mac_of("vm-1", 0), "52:54:00:aa:bb:cc"]
    assert list(cards_of("vm-1", ())) == [mac_of("vm-1", 0)]


def test_of_many_flows_those_with_the_most_bytes_are_told() -> None:
    many = [FlowInfo("vm-1", f"c{n}", n) for n in range(2 * MOST_FLOWS)]
    told = most_sent(many)
    assert [each.sent_bytes for each in told] == list(range(2 * MOST_FLOWS - 1, MOST_FLOWS - 1, -1))
    taken = take_from_agent(encode(Samples([], told)))
    assert taken.message == Samples([], told)


def test_too_many_flows_are_refused_and_a_bad_one_is_left_out() -> None:
    flow = {"vm": "vm-1", "card": CARD, "sent_bytes": 5}
    said = {"type": "samples", "samples": [], "flows": [flow] * (MOST_FLOWS + 1)}
    with pytest.raises(msgspec.DecodeError):
        take_from_agent(msgspec.json.encode(said))
    said["flows"] = [flow, {**flow, "sent_bytes": -1}, {**flow, "card": "x" * 18}]
    taken = take_from_agent(msgspec.json.encode(said))
    assert taken.message == Samples([], [FlowInfo("vm-1", CARD, 5)])
    assert taken.left_out == 2


class SamplesBefore(msgspec.Struct, tag="samples"):
    """The message as releases without flows have it."""

    samples: list[SampleInfo]


def test_releases_with_and_without_flows_understand_each_other() -> None:
    reading = SampleInfo("vm-1", 1, 2, 3)
    told = encode(Samples([reading], [FlowInfo("vm-1", CARD, 5)]))
    assert msgspec.json.decode(told, type=SamplesBefore) == SamplesBefore([reading])
    before = msgspec.json.encode(SamplesBefore([reading]))
    assert take_from_agent(before).message == Samples([reading])
    assert encode(Samples([reading])) == before  # and nothing is said where nothing is counted


def test_an_agent_tells_what_its_driver_counts(tmp_path: Path) -> None:
    async def test() -> None:
        control = ModelControl()
        async with serving(control) as server:
            control.order(vm("vm-1", labels={"flows": "vm-2=800"}))
            agent = make_agent(tmp_path, server, flows_s=0.05)
            async with running(agent):
                await control.until(lambda: any(each.flows for each in control.samples))
        told = next(each.flows for each in control.samples if each.flows)
        assert [(each.vm, each.card) for each in told] == [("vm-1", mac_of("vm-2", 0))]
        assert 0 < told[0].sent_bytes < 100_000_000 * 20

    asyncio.run(test())
