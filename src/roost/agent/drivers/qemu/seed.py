"""The cloud-init seed of a VM: a small ISO 9660 disk labelled `cidata`.

cloud-init in the guest finds it by its label (NoCloud) and reads user-data, meta-data and, when
there is more than one card to bring up, network-config. The same order gives the same bytes on
every host, so that a guest that has moved finds the disk that it knows.
"""

import json
import re
from pathlib import Path

from roost.agent.drivers.qemu.iso9660 import iso_image
from roost.hostkit.files import write_whole
from roost.model.vm import mac_of
from roost.wire.agentlink import DesiredVM

LABEL = "cidata"

#: cloud-init wants the file; without words in it, it warns of a kind that it does not know.
_NOTHING_ASKED = "#cloud-config\n{}\n"
_LONGEST_HOSTNAME = 63
_NOT_IN_HOSTNAMES = re.compile(r"[^A-Za-z0-9.-]+")


def write_seed(path: Path, vm: DesiredVM) -> None:
    """Write the seed of an order. Takes milliseconds of file work: call it in a thread."""
    write_whole(path, iso_image(LABEL, seed_files(vm)))


def seed_files(vm: DesiredVM) -> dict[str, bytes]:
    """Return the files of a seed by name."""
    user_data = vm.boot.user_data if vm.boot is not None else ""
    files = {"user-data": user_data or _NOTHING_ASKED, "meta-data": _meta_data(vm)}
    if len(vm.nics) > 1:
        files["network-config"] = _network_config(vm)
    return {name: text.encode() for name, text in files.items()}


def hostname(name: str) -> str:
    """Return the host name of a guest: its VM's name as far as host names allow it."""
    return _NOT_IN_HOSTNAMES.sub("-", name)[:_LONGEST_HOSTNAME].strip(".-") or "vm"


def _meta_data(vm: DesiredVM) -> str:
    # Strings of JSON are strings of YAML, whatever is in them.
    lines = (
        f"instance-id: {json.dumps(vm.id)}",
        f"local-hostname: {json.dumps(hostname(vm.name))}",
    )
    return "\n".join(lines) + "\n"


def _network_config(vm: DesiredVM) -> str:
    """Ask for DHCP on every card; by itself cloud-init brings up only the first."""
    cards = {
        f"nic{number}": {
            "match": {"macaddress": (nic.mac or mac_of(vm.id, number)).lower()},
            "dhcp4": True,
            "optional": number > 0,
        }
        for number, nic in enumerate(vm.nics)
    }
    return json.dumps({"version": 2, "ethernets": cards}, indent=1) + "\n"
