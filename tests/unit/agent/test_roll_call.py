"""What an agent remembers of a ledger, and what it says when an old one was restored."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from roost.agent.converge import Step
from roost.agent.drivers.base import LocalState, LocalVM
from roost.agent.sightings import copy_info
from roost.agent.store import FolderStore, Record
from roost.testing.control import ModelControl
from roost.testing.orders import listing, vm
from roost.wire.agentlink import CopyInfo, LedgerPoint, Present, Tombstone
from tests.unit.agent.test_reconciler import Host, on
from tests.unit.agent.test_session import connected


def test_a_point_of_the_ledger_outlives_a_killed_agent(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, boot="this")
    assert store.heard() is None
    store.save_heard(LedgerPoint(7, "tx-7"))
    assert FolderStore(tmp_path, boot="next").heard() == LedgerPoint(7, "tx-7")
    (tmp_path / "heard").write_bytes(b"{")
    assert store.heard() is None


def test_the_newest_point_counts_unless_another_server_tells_anew() -> None:
    async def story(host: Host) -> None:
        reconciler = host.reconciler
        reconciler.hear(LedgerPoint(7, "tx-7"), anew=True)
        reconciler.hear(LedgerPoint(6, "tx-6"), anew=False)
        assert host.store.heard() == reconciler.heard == LedgerPoint(7, "tx-7")
        reconciler.hear(LedgerPoint(8, "tx-8"), anew=False)
        reconciler.hear(LedgerPoint(3, "tx-other"), anew=True)
        assert host.store.heard() == reconciler.heard == LedgerPoint(3, "tx-other")

    on(Host, story)


def test_a_list_on_disk_knows_its_point_when_the_power_took_the_rest() -> None:
    async def story(host: Host) -> None:
        await host.store.save_desired(replace(listing(vm()), point=LedgerPoint(9, "tx-9")))
        host.store.save_heard(LedgerPoint(4, "tx-4"))
        host.reborn()
        host.reconciler.open()
        assert host.reconciler.heard == LedgerPoint(9, "tx-9")

    on(Host, story)


STATES: list[tuple[LocalState, str]] = [
    ("starting", "running"),
    ("running", "running"),
    ("paused", "running"),
    ("sending", "leaving"),
    ("switching", "leaving"),
    ("moved", "moved"),
    ("ready", "ready"),
    ("lost", "lost"),
    ("stopped", "stopped"),
    ("unknown", "unclear"),
]


@pytest.mark.parametrize(("state", "said"), STATES)
def test_a_copy_is_told_as_it_is(state: LocalState, said: str) -> None:
    local, record = LocalVM("vm-1", "web", state, generation=5), Record("vm-1", generation=4)
    assert copy_info("vm-1", record, local, None) == CopyInfo("vm-1", 5, said, "here")
    assert copy_info("vm-1", record, local, Step("send")).is_ == "unclear"


def test_every_copy_and_every_memory_is_told_whatever_the_list_says() -> None:
    async def story(host: Host) -> None:
        await host.order(vm("vm-1"), vm("vm-2"), vm("vm-3", power="stopped"))
        await host.order(vm("vm-1"), Tombstone("vm-2", 6), vm("vm-3", power="stopped"))
        await host.order()
        assert host.reconciler.copies() == [
            CopyInfo("vm-1", 1, "running", "here"),
            CopyInfo("vm-2", 6, "gone"),
            CopyInfo("vm-3", 1, "stopped", "here"),
        ]
        [held] = host.reconciler.held()
        assert (held.id, held.generation) == ("vm-1", 1)

    on(Host, story)


def test_an_agent_that_sees_nothing_does_not_answer() -> None:
    async def story(host: Host) -> None:
        host.reconciler.known = False
        assert host.reconciler.copies() is None

    on(Host, story)


def test_a_roll_call_is_answered_on_the_list_that_came_before_it(tmp_path: Path) -> None:
    async def story() -> None:
        control = ModelControl()
        async with connected(tmp_path, control):
            control.order(vm("vm-1"))
            await control.until_seen("vm-1", "running")
            control.call_roll()
            await control.until(lambda: control.presents)
        assert control.presents == [
            Present(control.desired.digest, [CopyInfo("vm-1", 1, "running", "here")])
        ]

    asyncio.run(story())


def test_a_list_that_does_not_confirm_starts_nothing_that_may_run_elsewhere(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        control = ModelControl()
        elsewhere, here = vm("vm-1", restart="elsewhere"), vm("vm-2")
        unsure = replace(listing(elsewhere, here), point=LedgerPoint(4, "tx-4"), confirms=False)
        control.desired = unsure
        async with connected(tmp_path, control):
            await control.until_seen("vm-2", "running")
            await control.until(lambda: control.lists_sent > 4)
            assert control.seen["vm-1"].code == "no_lease"
            control.desired = replace(unsure, confirms=True)
            await control.until_seen("vm-1", "running")
        async with connected(tmp_path, control):
            pass
        assert control.hellos[-1].heard == LedgerPoint(4, "tx-4")

    asyncio.run(story())
