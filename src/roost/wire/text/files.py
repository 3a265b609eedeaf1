"""A fleet from any kind of file: `.fleet`, Ganeti's `.data`, or `.csv`, told by its ending."""

from pathlib import Path
from typing import TextIO

from roost.base.errors import InvalidRequest
from roost.model.description import FleetDescription
from roost.wire.text import fleetfile, ganeti, hostcsv


def load_fleet(
    path: str, *, stdin: TextIO | None = None, vms: Path | str | None = None
) -> FleetDescription:
    """Read a fleet; "-" reads the fleet format from `stdin`; `vms` goes with a CSV of hosts."""
    if path == "-" and stdin is not None:
        return fleetfile.parse(stdin.read(), "<stdin>")
    ending = Path(path).suffix.lower()
    if vms is not None and ending != ".csv":
        raise InvalidRequest(f"a file of VMs goes with a .csv file of hosts, not with {path!r}")
    if ending == ".csv":
        return hostcsv.load(path, vms)
    return ganeti.load(path) if ending == ".data" else fleetfile.load(path)
