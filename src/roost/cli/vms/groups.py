"""`roost group`: groups of VMs, their rules and their members."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest
from roost.cli.watch.lists import lists
from roost.cli.words.completing import complete_groups, complete_projects
from roost.cli.words.each import delete_each
from roost.cli.words.loading import new_group
from roost.cli.words.making import KeyOption
from roost.cli.words.nouns import ListedProject, SomeVMsArgument, WatchOption
from roost.cli.words.options import OWN_PROJECT
from roost.cli.words.selecting import SelectorOption, named_vms
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.client import AsyncClient
    from roost.wire.groups import GroupDetail, GroupPage, GroupSummary, MemberBody

#: How many members or groups a command asks for at once.
_PAGE = 1000

GroupArgument = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", help="Name or id of the group.", autocompletion=complete_groups
    ),
]
GroupsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="GROUP...", help="Names or ids of groups.", autocompletion=complete_groups
    ),
]
RuleArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RULE [SCOPE] [soft] [max-skew=N] [weight=N]",
        help="affinity, anti-affinity or spread; by host (default), rack or zone; hard unless "
        "soft.",
    ),
]
OwnerOption = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        help="Project of the group and its VMs; else ROOST_PROJECT, else the context's, else your "
        "own.",
        autocompletion=complete_projects,
    ),
    OWN_PROJECT,
]


@lists
def list_(
    session: Session,
    project: ListedProject = None,
    rule: Annotated[
        str | None, typer.Option(metavar="RULE", help="Only with this rule (spread ...).")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many (default: all).")
    ] = None,
    watch: WatchOption = False,
) -> None:
    """List groups."""
    from roost.cli.show import groups
    from roost.cli.watch.following import look
    from roost.wire.groups import GroupPage

    async def fetch(client: "AsyncClient") -> "GroupPage":
        found: list[GroupSummary] = []
        after: str | None = None
        while True:
            wanted = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = await client.list_groups(project=project, rule=rule, limit=wanted, after=after)
            found += page.groups
            after = page.next
            if after is None or len(found) == limit:
                return GroupPage(groups=found, next=after)

    look(session, fetch, lambda page: groups.listed(page.groups), watch)


@asks_server
def show_(
    session: Session, group: GroupArgument, project: OwnerOption = None, watch: WatchOption = False
) -> None:
    """Show a group: its rule, whether that holds now, and its members with their hosts."""
    from roost.cli.show import groups
    from roost.cli.watch.following import look

    async def fetch(client: "AsyncClient") -> "GroupDetail":
        found: list[MemberBody] = []
        after: str | None = None
        while True:
            page = await client.get_group(group, project=project, limit=_PAGE, after=after)
            found += page.vms
            after = page.next
            if after is None:
                page.vms = found
                return page

    look(session, fetch, groups.detail, watch)


@asks_server
def create(
    session: Session,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the new group.")],
    rule: RuleArgument,
    project: OwnerOption = None,
    key: KeyOption = None,
) -> None:
    """Create a group without members; VMs join it by name when they are created, or by add."""
    from roost.wire.groups import CreateGroup

    body = CreateGroup(name=group, project=project or "", **_rule(group, rule))
    _show(session, session.client.create_group(body, key=key))


@asks_server
def set_(
    session: Session, group: GroupArgument, rule: RuleArgument, project: OwnerOption = None
) -> None:
    """Replace a group's rule; a hard one must hold for the members where they are now."""
    from roost.wire.groups import SetGroupRule

    body = SetGroupRule(**_rule(group, rule))
    _show(session, session.client.set_group_rule(group, body, project=project))


@asks_server
def budget(
    session: Session,
    group: GroupArgument,
    at_most: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="So many members at most.")
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Such a share of them: 0.2 or 20%; rounded up."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove the budget.")] = False,
    project: OwnerOption = None,
) -> None:
    """Set how many members may be moved, stopped for others or unknown at once."""
    from roost.wire.groups import SetBudget

    if sum([at_most is not None, share is not None, none]) != 1:
        raise InvalidRequest("give one of --at-most, --share and --none")
    body = SetBudget(at_most=at_most, share=None if share is None else read_share(share))
    _show(session, session.client.set_group_budget(group, body, project=project))


def read_share(text: str) -> float:
    """Return a share that was typed as a fraction or in percent."""
    percent = text.endswith("%")
    try:
        found = float(text.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise InvalidRequest(
            f"{text!r} is no share", hint="Maybe 0.2 or 20%: from 0 to 1, or to 100%."
        )
    return found


@asks_server
def add(
    session: Session,
    group: GroupArgument,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: OwnerOption = None,
) -> None:
    """Make VMs members of a group; refused if one breaks its hard rule where it is now.

    All of them become members, or none.
    """
    chosen = named_vms(session, vm, selector, project)
    _show(session, session.client.add_to_group(group, chosen, project=project))


@asks_server
def remove(
    session: Session,
    group: GroupArgument,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: OwnerOption = None,
) -> None:
    """Let VMs leave a group."""
    chosen = named_vms(session, vm, selector, project)
    _show(session, session.client.remove_from_group(group, chosen, project=project))


@asks_server
def delete(
    session: Session,
    group: GroupsArgument,
    project: OwnerOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if one has members: they leave it.")
    ] = False,
) -> None:
    """Delete groups; their VMs stay."""
    act = partial(session.client.delete_group, project=project, force=force)
    delete_each(session, "group", group, act)


def _rule(group: str, words: list[str]) -> dict[str, Any]:
    """Return the fields of a rule in the words that `roost vm create --group` takes too."""
    from roost.wire.text.requestwords import read_group
    from roost.wire.text.words import cut, escape

    found = read_group(cut(" ".join([escape(group), *words])))
    return {
        "rule": found.rule.label,
        "scope": found.scope.label,
        "hard": found.hard,
        "max_skew": found.max_skew,
        "weight": found.weight,
    }


def _show(session: Session, found: "GroupDetail") -> None:
    from roost.cli.show import groups

    session.show(found, groups.detail(found))


group = new_group(
    "group",
    "Groups of VMs: their rules and members.",
    {
        "list": list_,
        "show": show_,
        "create": create,
        "set": set_,
        "budget": budget,
        "add": add,
        "remove": remove,
        "delete": delete,
    },
)
