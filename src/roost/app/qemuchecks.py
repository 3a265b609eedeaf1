"""What is refused about a QEMU agent before its host joins.

Programs, folders and certificates that are missing or cannot be used are named in one sentence.
"""

import logging
import os
import pwd
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

from roost.agent.drivers.qemu.command import choose_accel
from roost.app.options import QemuOptions
from roost.base.errors import InvalidRequest
from roost.hostkit.failures import DriverError
from roost.hostkit.images.imageurls import checked_prefix

log = logging.getLogger("roost.agent")

INSTALL = "Maybe: make parts, or apt-get install --no-install-recommends qemu-system-x86 qemu-utils"
#: Paths of sockets have at most 107 bytes, of which the driver's own names take 22.
MOST_SOCKET_FOLDER = 85
#: What QEMU looks for in a folder of certificates, to receive and to send VMs.
TLS_FILES = (
    "ca-cert.pem",
    "server-cert.pem",
    "server-key.pem",
    "client-cert.pem",
    "client-key.pem",
)


def check_qemu(qemu: QemuOptions, *, kvm: Path = Path("/dev/kvm")) -> None:
    """Refuse what could not work on this machine."""
    for program in (qemu.binary, "qemu-img"):
        if shutil.which(program) is None:
            raise InvalidRequest(f"QEMU is not installed: there is no {program!r}", hint=INSTALL)
    if qemu.count_flows and shutil.which("nft") is None:
        raise InvalidRequest(
            "--count-flows: there is no 'nft'",
            hint="Maybe: make parts, or apt-get install --no-install-recommends nftables",
        )
    try:
        choose_accel(qemu.accel, kvm)
    except DriverError as error:
        raise InvalidRequest(f"--accel {qemu.accel}: {error.message}") from error
    _check_user(qemu.run_as)
    if qemu.shared_disks is not None:
        _check_folder(qemu.shared_disks, "--shared-disks")
    if qemu.migrate_address.startswith("unix:"):
        _check_sockets(Path(qemu.migrate_address.removeprefix("unix:")))
    for prefix in qemu.image_from:
        try:
            checked_prefix(prefix)
        except ValueError as error:
            raise InvalidRequest(f"--image-from: {error}") from error
    for option, path in _default_files(qemu):
        _check_file(path, option)
    if qemu.migrate_tls is not None:
        check_tls(qemu.migrate_tls)


def _check_user(user: str) -> None:
    if not user:
        if os.geteuid() == 0:
            log.warning("QEMU runs as root; give it a user of its own: --qemu-user")
        return
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise InvalidRequest(
            f"--qemu-user: there is no user {user!r}",
            hint=f"Maybe: useradd --system --no-create-home {user}",
        ) from None
    if entry.pw_uid == 0:
        raise InvalidRequest(f"--qemu-user: {user!r} is root, who may do everything")
    if os.geteuid() != 0:
        raise InvalidRequest("--qemu-user: only an agent that runs as root can change its user")


def check_tls(folder: Path) -> None:
    """Refuse a folder in which a certificate or a key is missing, or does not fit."""
    for name in TLS_FILES:
        _check_file(folder / name, "--migrate-tls")
    for end in ("server", "client"):
        certificate, key = folder / f"{end}-cert.pem", folder / f"{end}-key.pem"
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(folder / "ca-cert.pem")
            context.load_cert_chain(certificate, key)
        except (ssl.SSLError, OSError) as error:
            raise InvalidRequest(
                f"--migrate-tls: {certificate} and its key cannot be used: {error}"
            ) from error


def _default_files(qemu: QemuOptions) -> Iterator[tuple[str, Path]]:
    for option, path in (
        ("--default-image", qemu.default_image),
        ("--default-kernel", qemu.default_kernel),
        ("--default-initrd", qemu.default_initrd),
    ):
        if path is not None:
            yield option, path


def _check_sockets(folder: Path) -> None:
    _check_folder(folder, "--migrate-address")
    if len(os.fsencode(folder)) > MOST_SOCKET_FOLDER:
        raise InvalidRequest(
            f"--migrate-address: the path of {str(folder)!r} has more than {MOST_SOCKET_FOLDER} "
            "bytes, too many for sockets"
        )


def _check_folder(folder: Path, option: str) -> None:
    if not folder.is_dir():
        raise InvalidRequest(f"{option}: there is no folder {str(folder)!r}")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise InvalidRequest(f"{option}: this user may not write in {str(folder)!r}")


def _check_file(path: Path, option: str) -> None:
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise InvalidRequest(f"{option}: cannot read {str(path)!r}: {error.strerror}") from error
