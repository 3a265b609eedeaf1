"""The command line of a QEMU: what an order becomes, and what no order can smuggle in."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from roost.agent.drivers.qemu.cells import nodes_of
from roost.agent.drivers.qemu.command import DEVICES, Files, choose_accel, command, shape_of
from roost.agent.drivers.qemu.manifest import Shape
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.hostkit.failures import DriverError
from roost.model.vm import mac_of
from roost.testing.orders import vm
from roost.wire.agentlink import BootInfo, NicInfo

SETTINGS = QemuSettings(Path("/data"), accel="tcg")
MIB = 1 << 20


def argv_of(order=None, files=None, *, settings=SETTINGS, **changes) -> list[str]:
    order = order or vm(memory_bytes=128 * MIB)
    given = {"shape": shape_of(order), "accel": "tcg", **changes}
    return command(order, files or Files(), settings, **given)


def after(argv: list[str], option: str) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv) if word == option]


def devices(argv: list[str]) -> dict[str, dict]:
    return {each["id"]: each for each in map(json.loads, after(argv, "-device"))}


def nodes(argv: list[str]) -> dict[str, dict]:
    return {each["node-name"]: each for each in map(json.loads, after(argv, "-blockdev"))}


def test_a_vm_never_executes_by_itself_and_stays_after_its_power_off() -> None:
    argv = argv_of()
    assert {"-S", "-no-shutdown", "-nodefaults"} <= set(argv)
    assert after(argv, "-machine") == ["pc,suppress-vmdesc=on,memory-backend=pc.ram"]
    assert after(argv, "-incoming") == []
    assert after(argv_of(incoming=True), "-incoming") == ["defer"]


def test_translated_code_of_an_emulated_guest_is_bounded() -> None:
    assert after(argv_of(), "-accel") == ["tcg,tb-size=128"]
    assert after(argv_of(accel="kvm"), "-accel") == ["kvm"]


def test_a_vm_has_the_machine_and_the_devices_that_it_was_booted_with() -> None:
    old, new = argv_of(), argv_of(shape=Shape(1, 4, 128 * MIB, "pc-i440fx-7.2", DEVICES))
    assert after(new, "-machine") == ["pc-i440fx-7.2,suppress-vmdesc=on,memory-backend=pc.ram"]
    assert devices(new).keys() - devices(old).keys() == {"panic0", "watchdog0"}
    assert after(new, "-action") == ["panic=pause,watchdog=reset"]


@pytest.mark.parametrize(
    ("cpu_milli", "vcpus", "most"), [(1, 1, 4), (1000, 1, 4), (1001, 2, 4), (3500, 4, 8)]
)
def test_part_of_a_processor_is_a_whole_vcpu(cpu_milli: int, vcpus: int, most: int) -> None:
    shape = shape_of(vm(cpu_milli=cpu_milli, memory_bytes=100 * MIB + 1))
    assert shape == Shape(vcpus, most, 101 * MIB)
    argv = argv_of(shape=shape)
    assert after(argv, "-smp") == [f"cpus={vcpus},maxcpus={most}"]
    assert after(argv, "-m") == ["101M"]


def test_devices_keep_their_places_whatever_else_there_is() -> None:
    little = devices(argv_of())
    files = Files(disk=Path("disk.qcow2"), seed=Path("seed.iso"), devices=("0000:01:00.0",))
    much = devices(argv_of(vm(nics=[NicInfo(), NicInfo()]), files))
    assert little.items() <= much.items()
    assert len({each["addr"] for each in much.values()}) == len(much)
    assert much["host0"]["host"] == "0000:01:00.0"


def test_a_disk_opens_what_was_resolved_and_never_what_an_image_names() -> None:
    files = Files(disk=Path("disk.qcow2"), backing=Path("/images/a,b"), backing_format="qcow2")
    disk = nodes(argv_of(files=files))["disk0"]
    assert disk["backing"]["file"]["filename"] == "/images/a,b"
    assert disk["backing"]["read-only"]
    assert disk["backing"]["backing"] is None
    alone = nodes(argv_of(files=Files(disk=Path("disk.qcow2"))))["disk0"]
    assert alone["backing"] is None


def test_names_with_commas_add_no_options() -> None:
    argv = argv_of(vm("a,b", name="x,process=y"))
    assert after(argv, "-name") == ["guest=x,,process=y,process=roost:a%2Cb.vm"]
    assert after(argv, "-smbios") == ["type=1,manufacturer=roost,serial=a,,b"]


def test_ports_are_forwarded_on_loopback_only() -> None:
    argv = argv_of(vm(nics=[NicInfo(forward=["tcp:8080:80"])]))
    (netdev,) = map(json.loads, after(argv, "-netdev"))
    assert netdev["hostfwd"] == [{"str": "tcp:127.0.0.1:8080-:80"}]


def test_a_vm_without_cards_gets_one_with_an_address_of_its_own() -> None:
    nic = devices(argv_of())["nic0"]
    assert nic["mac"] == mac_of("vm-1", 0)
    assert nic["mac"].startswith("52:54:00:")
    assert mac_of("vm-1", 1) != mac_of("vm-1", 0) != mac_of("vm-2", 0)
    assert devices(argv_of(vm(nics=[NicInfo(mac="52:54:00:00:00:01")])))["nic0"]["mac"] == (
        "52:54:00:00:00:01"
    )


def test_a_tap_is_opened_without_scripts() -> None:
    argv = argv_of(vm(nics=[NicInfo(mode="tap", bridge="br0")]), Files(taps=("rt1",)))
    (netdev,) = map(json.loads, after(argv, "-netdev"))
    assert netdev == {
        "type": "tap",
        "id": "net0",
        "ifname": "rt1",
        "script": "no",
        "downscript": "no",
    }


def test_a_kernel_boots_with_its_words_or_talks_to_the_serial_port() -> None:
    files = Files(kernel=Path("/k"), initrd=Path("/i"))
    order = vm(boot=BootInfo(cmdline="quiet"))
    assert after(argv_of(order, files), "-append") == ["quiet"]
    assert after(argv_of(replace(order, boot=None), files), "-append") == ["console=ttyS0"]
    assert "-kernel" not in argv_of()


def test_the_processor_is_the_hosts_under_kvm_unless_one_is_named() -> None:
    assert after(argv_of(accel="kvm"), "-cpu") == ["host"]
    assert after(argv_of(), "-cpu") == ["qemu64"]
    named = QemuSettings(Path("/data"), cpu_model="Nehalem")
    assert after(argv_of(settings=named, accel="kvm"), "-cpu") == ["Nehalem"]


def test_kvm_is_used_when_it_can_be_and_missed_only_when_demanded(tmp_path: Path) -> None:
    device = tmp_path / "kvm"
    assert choose_accel("auto", device) == "tcg"
    with pytest.raises(DriverError, match="there is no") as raised:
        choose_accel("kvm", device)
    assert (raised.value.failure, raised.value.code) == ("permanent", "no_kvm")
    device.touch()
    assert choose_accel("auto", device) == "kvm"
    assert choose_accel("tcg", device) == "tcg"


def test_memory_is_bound_to_the_cells_of_the_order_and_keeps_its_name() -> None:
    def memory(**changes) -> dict:
        objects = map(json.loads, after(argv_of(files=Files(**changes)), "-object"))
        return next(each for each in objects if each["id"] == "pc.ram")

    assert "host-nodes" not in memory()
    assert memory(nodes=(0, 2)) == {**memory(), "host-nodes": [0, 2], "policy": "bind"}
    order = vm(cells=[1, 0])
    assert nodes_of(order, [0, 2]) == (0, 2)
    assert nodes_of(order, [0]) == ()
    with pytest.raises(DriverError, match="has 2"):
        nodes_of(vm(cells=[5]), [0, 2])
