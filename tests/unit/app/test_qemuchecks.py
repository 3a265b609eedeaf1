"""What a QEMU agent is refused for before it joins."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("qemu.qmp")

from roost.app.agents import check
from roost.app.options import AgentOptions, QemuOptions
from roost.app.qemuchecks import TLS_FILES, check_qemu, check_tls
from roost.base.errors import InvalidRequest

HOST = "10.0.0.7"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH, with programs of QEMU's names."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("qemu-system-x86_64", "qemu-img"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def refusal(qemu: QemuOptions) -> str:
    with pytest.raises(InvalidRequest) as caught:
        check_qemu(qemu)
    assert caught.value.exit_code == 2
    return f"{caught.value.message} {caught.value.hint or ''}".strip()


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates made as docs/how-to/run-real-vms.md makes them."""
    if shutil.which("openssl") is None:
        pytest.skip("install openssl: apt-get install openssl")
    folder = tmp_path_factory.mktemp("tls")
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = (folder / "ca-key.pem", folder / "ca-cert.pem")
    openssl(*new, "-subj", "/CN=moves", "-keyout", str(authority[0]), "-out", str(authority[1]))
    for end in ("server", "client"):
        openssl(
            *new, "-CA", str(authority[1]), "-CAkey", str(authority[0]), "-subj", f"/CN={HOST}",
            "-addext", f"subjectAltName=IP:{HOST}", "-addext", f"extendedKeyUsage={end}Auth",
            "-keyout", str(folder / f"{end}-key.pem"), "-out", str(folder / f"{end}-cert.pem"),
        )  # fmt: skip
    return folder


def test_programs_that_are_there_are_accepted(programs: Path) -> None:
    check_qemu(QemuOptions(accel="tcg"))


@pytest.mark.parametrize("missing", ["qemu-system-x86_64", "qemu-img"])
def test_a_missing_qemu_is_named_with_the_install_line(programs: Path, missing: str) -> None:
    (programs / missing).unlink()
    told = refusal(QemuOptions(accel="tcg"))
    assert told.startswith(f"QEMU is not installed: there is no '{missing}'")
    assert "make parts" in told
    assert "apt-get install" in told


def test_another_qemu_is_looked_for_by_its_path(programs: Path) -> None:
    told = refusal(QemuOptions(accel="tcg", binary="/opt/qemu/bin/qemu"))
    assert "there is no '/opt/qemu/bin/qemu'" in told


def test_kvm_that_was_demanded_and_is_missing_is_refused(programs: Path) -> None:
    with pytest.raises(InvalidRequest, match="--accel kvm: KVM is demanded but there is no"):
        check_qemu(QemuOptions(accel="kvm"), kvm=programs / "kvm")
    check_qemu(QemuOptions(accel="auto"), kvm=programs / "kvm")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shared_disks": "missing"}, "--shared-disks: there is no folder"),
        ({"migrate_address": "unix:/nowhere/moves"}, "--migrate-address: there is no folder"),
        ({"default_kernel": "vmlinuz"}, "--default-kernel: cannot read"),
        ({"default_image": "programs"}, "Is a directory"),
        ({"migrate_tls": "tls"}, "/tls/ca-cert.pem': No such file or directory"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_files_that_are_missing_are_named(
    programs: Path, tmp_path: Path, options: dict[str, str], says: str
) -> None:
    paths = {
        name: value if name == "migrate_address" else tmp_path / value
        for name, value in options.items()
    }
    assert says in refusal(QemuOptions(accel="tcg", **paths))  # type: ignore[arg-type]


def test_a_folder_whose_path_is_too_long_for_sockets_is_refused(
    programs: Path, tmp_path: Path
) -> None:
    folder = tmp_path / ("long" * 25)
    folder.mkdir()
    told = refusal(QemuOptions(accel="tcg", migrate_address=f"unix:{folder}"))
    assert "more than 85 bytes, too many for sockets" in told


def test_a_prefix_that_could_allow_nothing_is_refused(programs: Path) -> None:
    told = refusal(QemuOptions(accel="tcg", image_from=("https://me@images.example/",)))
    assert told.startswith("--image-from: 'https://me@images.example/' has more than")


def test_good_certificates_are_accepted(certificates: Path) -> None:
    check_tls(certificates)


@pytest.mark.parametrize("name", TLS_FILES)
def test_each_missing_certificate_is_named(certificates: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "tls"
    shutil.copytree(certificates, folder)
    (folder / name).unlink()
    with pytest.raises(InvalidRequest, match=f"--migrate-tls: cannot read .*{name}"):
        check_tls(folder)


def test_a_key_of_another_certificate_is_refused(certificates: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    shutil.copytree(certificates, folder)
    shutil.copy(folder / "client-key.pem", folder / "server-key.pem")
    with pytest.raises(InvalidRequest, match=r"server-cert\.pem and its key cannot be used"):
        check_tls(folder)


def test_a_certificate_that_is_nonsense_is_refused(certificates: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    shutil.copytree(certificates, folder)
    (folder / "ca-cert.pem").write_text("nonsense")
    with pytest.raises(InvalidRequest, match="cannot be used"):
        check_tls(folder)


def options(tmp_path: Path, **more: object) -> AgentOptions:
    return AgentOptions(name="h", servers=("http://s",), data=tmp_path, **more)  # type: ignore[arg-type]


def test_several_real_hosts_in_one_process_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="only virtual hosts can be several"):
        check(options(tmp_path, driver="qemu", count=2))


def test_an_unknown_driver_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="known drivers: virtual, qemu"):
        check(options(tmp_path, driver="xen"))
