"""Encryption of moves: QEMU's x509 credentials for the stream and for the copying of disks.

The folder holds ca-cert.pem, server-cert.pem, server-key.pem, client-cert.pem and client-key.pem.
Both ends show a certificate of that authority, and the target's must name the address it is reached
at. A host that has such a folder never moves a VM without encryption.
"""

from contextlib import suppress
from pathlib import Path
from typing import Literal

from roost.agent.drivers.qemu.monitor import REFUSED, Monitor
from roost.hostkit.failures import DriverError

#: How an endpoint says that it is encrypted.
X509 = "x509"

End = Literal["server", "client"]

_FILES = ("ca-cert.pem", "server-cert.pem", "server-key.pem", "client-cert.pem", "client-key.pem")


def credentials(folder: Path, end: End) -> dict[str, object]:
    """Return the description of the credentials of one end; its id is their name in QEMU."""
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        text = f"{folder} lacks {', '.join(missing)} for encrypted moves"
        raise DriverError("permanent", "no_certificate", text)
    return {
        "qom-type": "tls-creds-x509",
        "id": f"move-{end}",
        "endpoint": end,
        "dir": str(folder.absolute()),
        "verify-peer": True,
    }


async def add_credentials(monitor: Monitor, folder: Path | None, end: End) -> str:
    """Give a QEMU its credentials, read anew, and return their name; empty without a folder."""
    if folder is None:
        return ""
    description = credentials(folder, end)
    with suppress(DriverError):
        await monitor.execute("object-del", {"id": description["id"]})
    try:
        await monitor.execute("object-add", description)
    except DriverError as error:
        if error.code != REFUSED:
            raise
        raise DriverError("permanent", "no_certificate", error.message) from error
    return str(description["id"])


def check(endpoint: dict[str, str], folder: Path | None) -> None:
    """Raise `tls_differs` unless both ends encrypt, or both do not."""
    asked, able = endpoint.get("tls", "") == X509, folder is not None
    if asked != able:
        text = f"the target {'encrypts' if asked else 'does not encrypt'} moves, and this host "
        text += "does" if able else "does not"
        raise DriverError("permanent", "tls_differs", f"{text}. Maybe give both certificates")
