"""What outlives an agent: whole, private where it must be, and never empty because it is broken."""

import asyncio
import os
import stat
from pathlib import Path
from random import Random

import msgspec
import pytest

from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import FolderVMs
from roost.agent.fencing.lease import Lease
from roost.agent.reconciler import Reconciler, ReconcilerSettings
from roost.agent.store import FolderStore, HostLimits, Record
from roost.base.clock import RealClock
from roost.base.errors import Conflict
from roost.hostkit.failures import DriverError
from roost.hostkit.files import file_name, id_of, put_aside, write_whole
from roost.testing.orders import listing, vm


@pytest.fixture
def store(tmp_path: Path):
    found = FolderStore(tmp_path, boot="this")
    found.open()
    yield found
    found.close()


def test_lists_and_records_come_back_as_they_were(store: FolderStore) -> None:
    record = Record("vm-1", "web", 4, 2, {"cpu_milli": 1000})
    asyncio.run(store.save_record(record))
    asyncio.run(store.save_desired(listing(vm("vm-1"))))
    again = FolderStore(store.folder, boot="this")
    assert again.records() == [record]
    assert again.desired() == listing(vm("vm-1"))
    asyncio.run(store.forget_record("vm-1"))
    assert again.records() == []


def test_limits_come_back_as_they_were_and_broken_ones_are_none(store: FolderStore) -> None:
    assert store.limits() is None
    limits = HostLimits({"memory": 1 << 30}, {"cpu": 2500})
    store.save_limits(limits)
    assert FolderStore(store.folder, boot="another").limits() == limits
    (store.folder / "limits.json").write_bytes(b'{"reserve":')
    assert store.limits() is None


def test_a_list_that_another_release_wrote_is_obeyed_and_asked_for_again(
    store: FolderStore,
) -> None:
    asyncio.run(store.save_desired(listing(vm("vm-1"))))
    path = store.folder / "desired.json"
    written = msgspec.json.decode(path.read_bytes())
    assert written.pop("form")
    for other in ({}, {"form": "of another release"}):
        path.write_bytes(msgspec.json.encode(written | other))
        found = store.desired()
        assert found is not None
        assert found.vms == listing(vm("vm-1")).vms
        assert found.digest == ""


def test_a_folder_belongs_to_one_agent(store: FolderStore) -> None:
    with pytest.raises(Conflict, match="another agent"):
        FolderStore(store.folder, boot="this").open()


def test_the_credential_is_for_its_owner_alone(store: FolderStore) -> None:
    assert store.credential() is None
    store.save_credential("secret")
    mode = (store.folder / "credential").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert store.credential() == "secret"


@pytest.mark.parametrize("keep", [0, 1, 30], ids=["empty", "one byte", "truncated"])
def test_a_broken_list_is_put_aside_and_is_no_list(store: FolderStore, keep: int) -> None:
    asyncio.run(store.save_desired(listing(vm("vm-1"))))
    path = store.folder / "desired.json"
    os.truncate(path, keep)
    assert store.desired() is None
    assert (store.folder / "desired.json.broken-1").stat().st_size == keep
    assert not path.exists()


def test_one_broken_record_costs_one_record(store: FolderStore) -> None:
    for name in ("a", "b"):
        asyncio.run(store.save_record(Record(name, generation=1)))
    (store.folder / "records" / "a.json").write_text("{")
    assert [record.id for record in store.records()] == ["b"]
    assert (store.folder / "records" / "a.json.broken-1").exists()


def test_a_host_whose_list_is_broken_keeps_its_vms_and_asks_for_a_list(store: FolderStore) -> None:
    (store.folder / "desired.json").write_text("{")
    clock = RealClock()
    vms = FolderVMs(store.folder / "vms")
    driver = VirtualDriver(VirtualSettings(), clock=clock, vms=vms)

    async def story() -> None:
        await vms.change("vm-1", lambda _: LocalVM("vm-1", "web", "running"))
        await store.save_record(Record("vm-1", "web", 3))
        reconciler = Reconciler(
            ReconcilerSettings(),
            driver=driver,
            store=store,
            lease=Lease(),
            clock=clock,
            random=Random(1),
        )
        reconciler.open()
        await reconciler.observe()
        assert reconciler.digest == ""
        assert reconciler.held() == []
        assert [(each.id, each.seen) for each in reconciler.seen().values()] == [
            ("vm-1", "running")
        ]
        await reconciler.close()

    asyncio.run(story())


def test_a_lease_of_an_earlier_boot_is_none(store: FolderStore) -> None:
    store.save_lease(123.5)
    assert store.lease() == 123.5
    assert FolderStore(store.folder, boot="next").lease() is None
    store.save_lease(None)
    assert store.lease() == 0.0


def test_a_broken_vm_file_is_a_vm_in_an_unknown_state(tmp_path: Path) -> None:
    async def story() -> None:
        vms = FolderVMs(tmp_path)
        await vms.change("vm/1", lambda _: LocalVM("vm/1", "web", "running"))
        (tmp_path / file_name("vm/1")).write_text('{"id": ')
        [found] = await vms.all()
        assert (found.id, found.state) == ("vm/1", "unknown")

    asyncio.run(story())


def test_a_change_that_is_refused_leaves_the_file_alone(tmp_path: Path) -> None:
    def refuse(vm: LocalVM | None) -> LocalVM | None:
        raise DriverError("permanent", "no", "no")

    async def story() -> None:
        vms = FolderVMs(tmp_path)
        await vms.change("vm-1", lambda _: LocalVM("vm-1", "web", "running"))
        with pytest.raises(DriverError):
            await vms.change("vm-1", refuse)
        assert await vms.get("vm-1") == LocalVM("vm-1", "web", "running")

    asyncio.run(story())


@pytest.mark.parametrize("vm_id", ["vm-1", "..", ".", "a/b", "../../etc/passwd", "é", "x" * 200])
def test_no_id_leads_out_of_its_folder(tmp_path: Path, vm_id: str) -> None:
    path = tmp_path / file_name(vm_id)
    assert path.resolve().parent == tmp_path.resolve()
    write_whole(path, msgspec.json.encode(vm_id))
    assert len(vm_id) > 100 or id_of(path) == vm_id


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")
    with pytest.raises(OSError, match="too long"):
        write_whole(tmp_path / ("x" * 300), b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


def test_broken_files_are_kept_under_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for text in ("one", "two"):
        path.write_text(text)
        put_aside(path)
    assert (tmp_path / "a.broken-1").read_text() == "one"
    assert (tmp_path / "a.broken-2").read_text() == "two"
