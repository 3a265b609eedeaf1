"""VM groups in both clients: their calls and methods. A group is named by its name or id."""

from collections.abc import Sequence

from roost.client.binding import Method
from roost.client.calls import Call, nothing, path, query, reads
from roost.wire import groups as wire

_read_group = reads(wire.GroupDetail)


def list_groups(
    *,
    project: str | None = None,
    name: str | None = None,
    rule: str | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Call[wire.GroupPage]:
    """Return one page of groups."""
    asked = query(project=project, name=name, rule=rule, limit=limit, after=after)
    return Call("GET", path("groups"), reads(wire.GroupPage), asked)


def get_group(
    group: str, *, project: str | None = None, limit: int | None = None, after: str | None = None
) -> Call[wire.GroupDetail]:
    """Return a group with a page of its members, and whether its rule holds now."""
    asked = query(project=project, limit=limit, after=after)
    return Call("GET", path("groups", group), _read_group, asked)


def create_group(group: wire.CreateGroup, *, key: str | None = None) -> Call[wire.GroupDetail]:
    """Create a group without members."""
    return Call("POST", path("groups"), _read_group, body=group, creates=True, key=key)


def set_group_rule(
    group: str, rule: wire.SetGroupRule, *, project: str | None = None
) -> Call[wire.GroupDetail]:
    """Replace a group's rule; a hard one must hold for the members where they are."""
    return Call("PUT", path("groups", group, "rule"), _read_group, query(project=project), rule)


def set_group_budget(
    group: str, budget: wire.SetBudget, *, project: str | None = None
) -> Call[wire.GroupDetail]:
    """Set how many members of a group may be away at once; an empty budget removes it."""
    return Call("PUT", path("groups", group, "budget"), _read_group, query(project=project), budget)


def add_to_group(
    group: str, members: Sequence[str], *, project: str | None = None
) -> Call[wire.GroupDetail]:
    """Make VMs members of a group."""
    body = wire.GroupVMs(vms=list(members))
    return Call("POST", path("groups", group, "add"), _read_group, query(project=project), body)


def remove_from_group(
    group: str, members: Sequence[str], *, project: str | None = None
) -> Call[wire.GroupDetail]:
    """Let VMs leave a group."""
    body = wire.GroupVMs(vms=list(members))
    return Call("POST", path("groups", group, "remove"), _read_group, query(project=project), body)


def delete_group(group: str, *, project: str | None = None, force: bool = False) -> Call[None]:
    """Delete a group; one that has members only by `force`, which lets them leave it."""
    asked = query(project=project, force="true" if force else None)
    return Call("DELETE", path("groups", group), nothing, asked)


class GroupMethods:
    """What clients do with groups."""

    list_groups = Method(list_groups)
    get_group = Method(get_group)
    create_group = Method(create_group)
    set_group_rule = Method(set_group_rule)
    set_group_budget = Method(set_group_budget)
    add_to_group = Method(add_to_group)
    remove_from_group = Method(remove_from_group)
    delete_group = Method(delete_group)
