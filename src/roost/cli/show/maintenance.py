"""Groups of hosts for maintenance, as a terminal is shown them."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roost.base.units import format_bytes
from roost.cli.show import tables
from roost.cli.show.plans import seconds
from roost.wire.bodies import HostBody
from roost.wire.plans import MaintenanceBody


def groups(found: MaintenanceBody) -> RenderableType:
    """Return the groups in their order, and the hosts that are left out, with why."""
    made = tables.table("group", "hosts", "moves", "sent", "ETA", right=("group", "moves", "sent"))
    for number, each in enumerate(found.groups, 1):
        made.add_row(
            str(number),
            Text(", ".join(each.hosts), style="bold"),
            str(each.moves),
            format_bytes(each.sent_bytes),
            seconds(each.eta_s),
        )
    left = [
        Text(f"{each.host} is left out: {_why(blocker.name, blocker.why)}", style="bold red")
        for each in found.left
        for blocker in each.blocked
    ]
    if not found.groups and not left:
        return Text("there is no host to roll over")
    return Group(made, *left) if found.groups else Group(*left)


def closed(found: Sequence[tuple[HostBody, str]], way_back: Sequence[str]) -> RenderableType:
    """Return the hosts that runs have closed, by whom, and what to do about those left behind."""
    if not found:
        return Text("no host is closed by a maintenance run")
    made = tables.table("host", "state", "VMs", "closed by", right=("VMs",))
    for host, by in found:
        made.add_row(Text(host.name, style="bold"), host.admin, str(host.vms), Text(by))
    return Group(made, *(Text(line) for line in way_back))


def _why(vm: str, why: str) -> str:
    return f"{vm} cannot leave: {why}" if vm else why
