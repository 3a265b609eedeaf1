"""Asks a plane for everything that users can read: at rest every question has an answer."""

import msgspec

from roost.base.errors import RoostError
from roost.control.plane import Plane
from roost.sim.actors.operators import ADMIN
from roost.sim.laws.books import Broken
from roost.wire.groups import ListGroups
from roost.wire.queries import HostQuery, VMQuery

_PAGE = 1000
_encode = msgspec.json.Encoder().encode


async def read_everything(plane: Plane) -> None:
    """List and get all VMs, hosts, groups and projects; raises Broken when one has no answer."""
    asked = "VMs"
    try:
        after: str | None = ""
        while after is not None:
            asked = f"VMs after {after!r}"
            page = await plane.vms.list(VMQuery(limit=_PAGE, after=after), ADMIN)
            for vm in page.vms:
                asked = f"VM {vm.name}"
                _encode(await plane.vms.get(vm.id, None, ADMIN))
            after = page.next
        asked = "hosts"
        for host in (await plane.hosts.list(HostQuery(limit=_PAGE))).hosts:
            asked = f"host {host.name}"
            _encode(await plane.hosts.get(host.name))
        asked = "groups"
        for group in (await plane.groups.list(ListGroups(limit=_PAGE), ADMIN)).groups:
            asked = f"group {group.name}"
            _encode(await plane.groups.get(group.name, group.project, ADMIN))
        asked = "projects"
        _encode(await plane.projects.list(ADMIN))
    except (RoostError, msgspec.MsgspecError, ValueError, LookupError) as error:
        raise Broken(f"asked for {asked}, it says {type(error).__name__}: {error}") from error
