"""`roost agent`: what its options mean, and what is refused in one sentence."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from roost.app import agents
from roost.app.options import AgentOptions, QemuOptions
from roost.base.units import GIB, MIB
from roost.cli.main import app


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[AgentOptions]:
    """Catch what the command would run."""
    for name in ("ROOST_SERVER", "ROOST_TOKEN", "ROOST_CONTEXT", "ROOST_JOIN_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    found: list[AgentOptions] = []
    monkeypatch.setattr(agents, "run_agents", found.append)
    return found


def roost_agent(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["agent", "--name", "h1", *arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.stderr.replace("│", " ").split())


def test_a_qemu_agent_without_further_options_has_the_defaults(told: list[AgentOptions]) -> None:
    roost_agent("--driver", "qemu")
    [options] = told
    assert (options.driver, options.qemu) == ("qemu", QemuOptions())
    assert (options.reserve_memory_bytes, options.stop_grace_s) == (None, 30.0)


def test_flows_are_counted_only_on_bridges_that_vms_may_be_on(told: list[AgentOptions]) -> None:
    said = roost_agent("--driver", "qemu", "--bridge", "br0", "--count-flows", "br1", code=2)
    assert "no VM may be on that bridge" in said
    assert "--count-flows is an option of --driver qemu" in roost_agent(
        "--count-flows", "b", code=2
    )
    assert not told


def test_every_option_of_qemu_arrives(told: list[AgentOptions], tmp_path: Path) -> None:
    roost_agent(
        "--driver", "qemu", "--accel", "tcg", "--qemu", "/opt/qemu", "--cpu-model", "EPYC",
        "--pci", "8086:15AB", "--shared-disks", "shared", "--image-from", "https://a.example/",
        "--image-from", "file:///srv/", "--image-cache", "5GiB", "--default-image", "i.qcow2",
        "--default-kernel", "/boot/k", "--default-initrd", "/boot/i", "--default-cmdline", "quiet",
        "--migrate-address", "10.0.0.7", "--migrate-ports", "49152-49215", "--migrate-tls", "/tls",
        "--migrate-bandwidth", "100MiB", "--migrate-limit", "60", "--stop-grace", "5",
        "--cpu", "2", "--memory", "4GiB", "--disk", "20GiB", "--reserve-memory", "512MiB",
        "--bridge", "br0", "--bridge", "br1", "--count-flows", "br1",
    )  # fmt: skip
    [options] = told
    assert options.qemu == QemuOptions(
        bridges=("br0", "br1"),
        count_flows=("br1",),
        accel="tcg",
        binary="/opt/qemu",
        cpu_model="EPYC",
        pci=("8086:15ab",),
        shared_disks=tmp_path / "shared",
        image_from=("https://a.example/", "file:///srv/"),
        image_cache_bytes=5 * GIB,
        default_image=tmp_path / "i.qcow2",
        default_kernel=Path("/boot/k"),
        default_initrd=Path("/boot/i"),
        default_cmdline="quiet",
        migrate_address="10.0.0.7",
        migrate_ports=(49152, 49215),
        migrate_tls=Path("/tls"),
        migrate_bandwidth_bytes=100 * MIB,
        migrate_limit_s=60.0,
    )
    assert (options.cpu_milli, options.memory_bytes) == (2000, 4 * GIB)
    assert (options.reserve_memory_bytes, options.stop_grace_s) == (512 * MIB, 5.0)


@pytest.mark.parametrize("address", ["h2.example", "10.0.0.7", "fd00::7", "unix:/run/moves"])
def test_addresses_of_moves(told: list[AgentOptions], address: str) -> None:
    roost_agent("--driver", "qemu", "--migrate-address", address)
    assert told[0].qemu.migrate_address == address


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--accel", "hvf"), "Invalid value for '--accel'"),
        (("--driver", "xen"), "Invalid value for '--driver'"),
        (("--migrate-ports", "5000"), "--migrate-ports '5000' is not A-B"),
        (("--migrate-ports", "9-5"), "the lower first"),
        (("--migrate-ports", "0-70000"), "is not a range of ports from 1 to 65535"),
        (("--migrate-ports", "a-b"), "--migrate-ports 'a-b' is not A-B"),
        (("--migrate-address", "unix:moves"), "does not name a folder by its whole path"),
        (("--migrate-address", "0.0.0.0"), "not an address that other hosts can reach"),
        (("--migrate-address", "h2:4444"), "Maybe without a port"),
        (("--migrate-address", "a b"), "is neither a host nor unix:DIR"),
        (("--image-from", "images/"), "does not begin with https://, http:// or file:///"),
        (("--image-from", "file://images"), "does not begin with https://, http:// or file:///"),
        (("--image-from", "file:///srv/../etc/"), "has a part '..'"),
        (("--image-cache", "20"), "has no unit"),
        (("--migrate-bandwidth", "1Gbit"), "unknown unit 'Gbit'"),
        (("--migrate-limit", "0"), "Invalid value for '--migrate-limit'"),
        (("--migrate-limit", "nan"), "--migrate-limit"),
        (("--migrate-limit", "inf"), "--migrate-limit inf is not a number of seconds"),
        (("--stop-grace", "inf"), "--stop-grace inf is not a number of seconds"),
        (("--default-initrd", "/i"), "--default-initrd needs --default-kernel"),
        (("--default-cmdline", "quiet"), "--default-cmdline needs --default-kernel"),
        (("--pci", "eth0"), "--pci 'eth0' is not VENDOR:DEVICE"),
        (("--qemu", " "), "--qemu is empty"),
        (("--gpu", "A100:1"), "--gpu is for virtual hosts"),
    ],
)
def test_wrong_words_are_refused(
    told: list[AgentOptions], arguments: tuple[str, ...], says: str
) -> None:
    assert says in roost_agent("--driver", "qemu", *arguments, code=2)
    assert told == []


@pytest.mark.parametrize(
    "arguments", [("--accel", "tcg"), ("--migrate-ports", "1-2"), ("--default-image", "x")]
)
def test_options_of_qemu_are_refused_for_a_virtual_host(
    told: list[AgentOptions], arguments: tuple[str, str]
) -> None:
    assert f"{arguments[0]} is an option of --driver qemu" in roost_agent(*arguments, code=2)
