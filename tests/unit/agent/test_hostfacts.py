"""What a host says it has: fake trees of every kind, broken ones, and this machine."""

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.agent.capacity import capacity_of
from roost.agent.machine.hostfacts import Given, HostReader, allocated_in, read_inventory
from roost.agent.machine.pressure import UseReader, read_pressure
from roost.base.units import GIB, MIB
from roost.wire.agentlink import AmountInfo, CellInfo, DeviceInfo, Inventory
from roost.wire.translate import host_spec
from tests.turns import draws_in_turn
from tests.unit.agent.fakehost import FakeHost

A100, NIC = "10de:20b5", "8086:1572"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "root")


def read(host: FakeHost, **more: object) -> Inventory:
    return HostReader(host.root.parent, root=host.root, **more).read()  # type: ignore[arg-type]


# What is there


def test_one_socket_is_one_cell_and_a_share_of_the_memory_is_kept(host: FakeHost) -> None:
    found = read(host)
    assert found.cpu_milli == AmountInfo(4000)
    assert found.memory_bytes == AmountInfo(16 * GIB, reserve=GIB)
    assert found.cells == [CellInfo(4000, 16 * GIB)]
    assert found.labels == {"cpu-model": "Xeon 9000 @ 2.0GHz"}
    assert found.capabilities == ["cpu:aes", "cpu:avx", "cpu:avx2", "cpu:vmx"]
    assert (found.driver, found.virtual, found.devices) == ("qemu", False, [])


def test_a_large_host_keeps_a_twentieth_of_its_memory(tmp_path: Path) -> None:
    assert read(FakeHost(tmp_path / "root", gib=400)).memory_bytes.reserve == 20 * GIB


def test_what_emulation_takes_beside_guests_is_kept_for_each_core(host: FakeHost) -> None:
    plain, found = read(host), read(host, beside_bytes=GIB // 8)
    assert plain.cpu_milli.total is not None
    cores = plain.cpu_milli.total // 1000
    assert found.memory_bytes.reserve == plain.memory_bytes.reserve + cores * GIB // 8


def test_a_feature_that_one_processor_lacks_is_not_announced(host: FakeHost) -> None:
    host.cpuinfo(["avx avx2"] * 3 + ["avx"])
    assert read(host).capabilities == ["cpu:avx"]


def test_features_that_guests_do_not_get_are_not_announced(host: FakeHost) -> None:
    assert read(host, features=False).capabilities == []


def test_processors_of_two_kinds_have_no_model(host: FakeHost) -> None:
    host.write("proc/cpuinfo", "model name : A\n\nmodel name : B\n")
    assert read(host).labels == {}


def test_cells_keep_their_places_when_one_has_no_memory(tmp_path: Path) -> None:
    host = FakeHost(tmp_path / "root", cpus="0-7")
    host.node(0, "0-3", 16)
    host.node(1, "4-7", 0)
    host.node(10, "", 64)
    assert read(host).cells == [
        CellInfo(4000, 16 * GIB),
        CellInfo(4000, 0),
        # Processors of its own it has none; what lies there is more than MemTotal says.
        CellInfo(0, 16 * GIB),
    ]
    assert HostReader(tmp_path, root=host.root).cell_numbers() == [0, 1, 10]


def test_only_processors_that_are_online_and_allowed_count(tmp_path: Path) -> None:
    host = FakeHost(tmp_path / "root", cpus="0-2,5")
    host.node(0, "0-3", 8)
    host.node(1, "4-7", 8)
    host.write("proc/self/status", "Cpus_allowed_list:\t1-5\n")
    found = read(host)
    assert found.cpu_milli.total == 3000  # 1, 2 and 5
    assert [cell.cpu_milli for cell in found.cells] == [2000, 1000]


def test_huge_pages_are_not_counted_as_memory_for_vms(host: FakeHost) -> None:
    host.huge_pages("sys/kernel/mm", 1024)
    host.huge_pages("sys/devices/system/node/node0", 1024)
    found = read(host)
    assert found.memory_bytes.total == 14 * GIB
    assert found.cells == [CellInfo(4000, 14 * GIB)]


def test_the_file_system_is_counted_without_what_others_use(host: FakeHost) -> None:
    found = read(host).disk_bytes
    real = os.statvfs(host.root.parent)
    assert found.total == real.f_blocks * real.f_frsize
    assert found.reserve % GIB == 0
    assert found.reserve >= (real.f_blocks - real.f_bavail) * real.f_frsize - GIB


def test_what_vms_take_already_is_not_kept_back_a_second_time(tmp_path: Path) -> None:
    (tmp_path / "vm-1").mkdir()
    with (tmp_path / "vm-1" / "disk.raw").open("wb") as file:
        file.truncate(1 * GIB)
        os.posix_fallocate(file.fileno(), 0, 4 * MIB)
    assert 4 * MIB <= allocated_in(tmp_path) < 5 * MIB


def test_given_amounts_divide_a_machine(tmp_path: Path) -> None:
    host = FakeHost(tmp_path / "root", cpus="0-7", gib=32)
    host.node(0, "0-3", 16)
    host.node(1, "4-7", 16)
    found = read(host, given=Given(2000, 8 * GIB, 100 * GIB))
    assert (found.cpu_milli, found.disk_bytes) == (AmountInfo(2000), AmountInfo(100 * GIB))
    assert found.memory_bytes == AmountInfo(8 * GIB)  # all of it for VMs
    assert found.cells == [CellInfo(1000, 4 * GIB), CellInfo(1000, 4 * GIB)]


# Control groups


@pytest.mark.parametrize(
    ("own", "memory", "cpu", "expected"),
    [
        ("/", "max", "max 100000", (4000, 16 * GIB)),
        ("/", "2147483648", "150000 100000", (1500, 2 * GIB)),
        ("/system.slice/roost.service", "4294967296", "max 100000", (4000, 4 * GIB)),
        ("/user.slice", "max", "50000 100000", (500, 16 * GIB)),
        ("/", "999999999999999", "9900000 100000", (4000, 16 * GIB)),
    ],
    ids=["no limit", "a container", "a service", "half a core", "more than there is"],
)
def test_the_agents_group_lowers_what_there_is(
    host: FakeHost, own: str, memory: str, cpu: str, expected: tuple[int, int]
) -> None:
    host.cgroup_v2(own, memory=memory, cpu=cpu)
    if own != "/":
        (host.root / "sys/fs/cgroup/system.slice").mkdir(exist_ok=True)
    found = read(host)
    assert (found.cpu_milli.total, found.memory_bytes.total) == expected
    assert found.cells[0] == CellInfo(*expected)


def test_groups_of_version_1_count_too_and_so_does_one_above(host: FakeHost) -> None:
    host.cgroup_v1("/batch", memory=3 * GIB, quota=250_000)
    found = read(host)
    assert (found.cpu_milli.total, found.memory_bytes.total) == (2500, 3 * GIB)
    host.write("sys/fs/cgroup/memory/memory.limit_in_bytes", f"{GIB}\n")
    assert read(host).memory_bytes.total == GIB


def test_a_group_that_a_container_shows_as_its_top_is_found(host: FakeHost) -> None:
    host.cgroup_v1("/docker/1", memory=2 * GIB)
    shutil.move(
        host.root / "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes",
        host.root / "sys/fs/cgroup/memory/memory.limit_in_bytes",
    )
    mounts = "31 1 0:27 /docker/1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    host.write("proc/self/mountinfo", mounts)
    assert read(host).memory_bytes.total == 2 * GIB


# Devices


def gpu_host(host: FakeHost) -> FakeHost:
    """A console card, an A100 with its sound device, two functions in one group, a NIC."""
    host.pci("0000:00:02.0", "1a03:2000", "030000", boot_vga="1", group=0)
    host.pci("0000:41:00.0", A100, group=7, sriov_totalvfs="20", sriov_numvfs="0")
    host.pci("0000:41:00.1", "10de:1aef", "040300", group=7)
    host.pci("0000:40:01.0", "1022:1483", "060400", group=7, driver="pcieport")
    host.pci("0000:42:00.0", "10de:1eb8", group=8)
    host.pci("0000:42:00.1", "10de:1eb8", group=8)
    host.pci("0000:61:00.0", NIC, "020000", group=9)
    return host


def test_gpus_that_can_be_given_away_are_listed_by_their_address(host: FakeHost) -> None:
    assert read(gpu_host(host)).devices == [
        DeviceInfo("A100", 80 * GIB, shareable=False, address="0000:41:00.0"),
        DeviceInfo("T4", 16 * GIB, shareable=False, address="0000:42:00.0"),
    ]


def test_other_devices_are_listed_when_asked_for(host: FakeHost) -> None:
    found = read(gpu_host(host), pci=[NIC]).devices
    assert found[-1] == DeviceInfo(NIC, shareable=False, address="0000:61:00.0")


def test_a_gpu_without_a_known_name_is_called_by_its_numbers(host: FakeHost) -> None:
    host.pci("0000:03:00.0", "1002:744c", "030000", boot_vga="0", group=1)
    assert [device.model for device in read(host).devices] == ["1002:744c"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda h: (h.root / "sys/bus/pci/devices/0000:41:00.0/iommu_group").unlink(),
        lambda h: (h.root / "sys/bus/pci/devices/0000:41:00.0/driver").unlink(),
        lambda h: (h.root / "sys/bus/pci/devices/0000:41:00.1/driver").unlink(),
        lambda h: h.write("sys/bus/pci/devices/0000:41:00.0/sriov_numvfs", "4\n"),
        lambda h: h.write("sys/bus/pci/devices/0000:41:00.0/class", "nonsense\n"),
    ],
    ids=["no IOMMU", "no driver", "the group has another driver", "has functions", "broken"],
)
def test_a_gpu_that_no_vm_could_have_is_not_listed(
    host: FakeHost, spoil: Callable[[FakeHost], None]
) -> None:
    spoil(gpu_host(host))
    assert [device.model for device in read(host).devices] == ["T4"]


def test_a_vga_card_that_does_not_say_whose_console_it_shows_is_kept(host: FakeHost) -> None:
    host.pci("0000:03:00.0", "1002:744c", "030000", group=1)
    assert read(host).devices == []


# What cannot be read


@pytest.mark.parametrize(
    ("path", "unknown"),
    [
        ("sys/devices/system/cpu/online", {"cpu_milli"}),
        ("proc/self/status", {"cpu_milli"}),
        ("proc/meminfo", {"memory_bytes"}),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", {"memory_bytes"}),
        ("proc/self/mountinfo", {"cpu_milli", "memory_bytes"}),
        ("proc/self/cgroup", {"cpu_milli", "memory_bytes"}),
        ("sys/fs/cgroup/cpu.max", {"cpu_milli"}),
        ("sys/fs/cgroup/memory.max", {"memory_bytes"}),
        ("proc/cpuinfo", set()),
    ],
)
def test_each_resource_is_unknown_alone(host: FakeHost, path: str, unknown: set[str]) -> None:
    host.cgroup_v2("/")
    (host.root / path).unlink()
    found = read(host)
    names = ("cpu_milli", "memory_bytes", "disk_bytes")
    assert {name for name in names if getattr(found, name).total is None} == unknown


def test_an_unknown_amount_is_logged_once(host: FakeHost, caplog: pytest.LogCaptureFixture) -> None:
    reader = HostReader(host.root, root=host.root)
    (host.root / "proc/meminfo").unlink()
    reader.read()
    reader.read()
    told = "the memory of this host cannot be read and counts as full; give --memory"
    assert [record.getMessage() for record in caplog.records] == [told]


def test_a_folder_that_is_not_there_has_an_unknown_disk(host: FakeHost) -> None:
    found = HostReader(host.root / "nowhere", root=host.root).read()
    assert found.disk_bytes == AmountInfo(None)


def test_an_empty_tree_is_unknown_and_never_zero(tmp_path: Path) -> None:
    found = HostReader(tmp_path, root=tmp_path / "nothing").read()
    assert (found.cpu_milli.total, found.memory_bytes.total) == (None, None)
    assert (found.devices, found.cells, found.capabilities, found.labels) == ([], [], [], {})


def test_given_amounts_need_no_reading(tmp_path: Path) -> None:
    amounts = Given(1000, GIB, GIB)
    found = HostReader(tmp_path / "gone", root=tmp_path / "gone", given=amounts).read()
    totals = (found.cpu_milli.total, found.memory_bytes.total, found.disk_bytes.total)
    assert totals == (1000, GIB, GIB)


def room(found: Inventory) -> dict[str, int]:
    """Return what could be promised of everything; what is unknown can promise nothing."""
    rooms = {
        "cpu": capacity_of(found.cpu_milli) or 0,
        "memory": capacity_of(found.memory_bytes) or 0,
        "devices": len(found.devices),
        "capabilities": len(found.capabilities),
    }
    for at, cell in enumerate(found.cells):
        rooms[f"cell {at} cpu"], rooms[f"cell {at} memory"] = cell.cpu_milli, cell.memory_bytes
    return rooms


def whole_host(root: Path, version: int) -> FakeHost:
    host = gpu_host(FakeHost(root, cpus="0-7", gib=32))
    host.node(0, "0-3", 16)
    host.node(1, "4-7", 16)
    host.huge_pages("sys/kernel/mm", 512)
    host.huge_pages("sys/devices/system/node/node1", 512)
    if version == 1:
        host.cgroup_v1("/roost", memory=24 * GIB, quota=600_000)
    else:
        host.cgroup_v2("/roost", memory=str(24 * GIB), cpu="600000 100000")
    return host


BROKEN = st.sampled_from(
    [
        None,
        b"",
        b"\n",
        b"nonsense\n",
        b"-7\n",
        b"\xff\xfe\n",
        b"9" * 400,
        b"0x\n",
        b"1-\n",
        "folder",
    ]
)


def spoil(path: Path, how: bytes | str | None) -> None:
    path.unlink()
    if isinstance(how, bytes):
        path.write_bytes(how)
    elif how is not None:
        path.mkdir()


@draws_in_turn(150, deadline=None)
@given(version=st.sampled_from([1, 2]), at=st.integers(0, 1000), how=BROKEN)
def test_no_file_that_is_lost_or_broken_makes_room(
    version: int, at: int, how: bytes | str | None
) -> None:
    with TemporaryDirectory() as folder:
        host = whole_host(Path(folder) / "root", version)
        before = room(read(host, pci=[NIC]))
        assert before["cpu"] == 6000
        assert before["devices"] == 3
        files = list(host.files())
        spoil(files[at % len(files)], how)
        after = room(read(host, pci=[NIC]))
        larger = {name for name, amount in after.items() if amount > before.get(name, 0)}
        assert not larger


@given(at=st.integers(0, 1000), text=st.binary(max_size=60))
@settings(max_examples=80, deadline=None)
def test_no_text_in_any_file_is_too_much_for_the_reader(at: int, text: bytes) -> None:
    with TemporaryDirectory() as folder:
        host = whole_host(Path(folder) / "root", 1 + at % 2)
        host.pressure("cpu", "1.00", "0.00")
        host.stat(1, 2, 3, 4, 5, 6, 7, 8)
        files = list(host.files())
        spoil(files[at % len(files)], text)
        host_spec("h1", read(host, pci=[NIC]))  # what the control plane makes of it
        UseReader(host.root, root=host.root).read(0)


# How busy it is


def test_pressure_is_read_by_name_and_what_is_missing_is_left_out(host: FakeHost) -> None:
    host.pressure("cpu", "2.13", "0.00")
    host.write("proc/pressure/memory", "some avg10=nan avg60=5.00 avg300=0 total=1\n")
    assert read_pressure(host.root) == {
        "psi_cpu_some_avg10": 2.13,
        "psi_cpu_some_avg60": 1.5,
        "psi_cpu_full_avg10": 0.0,
        "psi_memory_some_avg60": 5.0,
    }


def test_a_sample_counts_processor_time_since_the_one_before(host: FakeHost) -> None:
    host.stat(100, 0, 100, 800, 0, 0, 0, 0, 50, 0)
    host.pressure("io", "7.00", "6.00")
    reader = UseReader(host.root, root=host.root)
    host.stat(150, 0, 125, 1100, 25, 0, 0, 0, 90, 0)  # 75 of 400 ticks, on four processors
    found = reader.read(1234)
    assert found is not None
    assert (found.vm, found.at_ms, found.cpu_milli) == ("", 1234, 750)
    assert found.memory_bytes == 8 * GIB
    assert found.disk_bytes > 0
    assert found.more["psi_io_full_avg10"] == 6.0


def test_a_host_that_cannot_be_read_has_no_sample_instead_of_an_idle_one(host: FakeHost) -> None:
    host.stat(100, 0, 100, 800, 0, 0, 0, 0)
    reader = UseReader(host.root, root=host.root)
    assert reader.read(0) is None  # no time has passed
    (host.root / "proc/stat").unlink()
    assert reader.read(0) is None
    host.stat(200, 0, 100, 800, 0, 0, 0, 0)
    assert reader.read(0) is None  # counted from nothing
    host.stat(300, 0, 100, 800, 0, 0, 0, 0)
    assert reader.read(0) is not None


# This machine


def test_this_machine_is_read_whole(tmp_path: Path) -> None:
    found = asyncio.run(read_inventory(tmp_path))
    assert found.cpu_milli.total is not None
    assert 0 < found.cpu_milli.total <= 1000 * len(os.sched_getaffinity(0))
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found.memory_bytes.total is not None
    assert 0 < found.memory_bytes.total <= physical
    assert found.disk_bytes.total is not None
    host_spec("this", found)


def test_this_machine_is_sampled_while_it_works(tmp_path: Path) -> None:
    reader = HostReader(tmp_path)
    for _ in range(50):
        sum(range(200_000))
        if (found := asyncio.run(reader.sample(7))) is not None:
            break
    assert found is not None
    assert found.memory_bytes > 0
