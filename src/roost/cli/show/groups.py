"""Groups of VMs as tables and sentences for a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roost.cli.show import listings, tables
from roost.wire.groups import GroupDetail, GroupSummary


def rule(group: GroupSummary) -> str:
    """Return a rule in the words in which it is given."""
    words = [group.rule, group.scope]
    words += [] if group.hard else ["soft"]
    words += [f"max-skew={group.max_skew}"] if group.rule == "spread" else []
    words += [f"weight={group.weight}"] if not group.hard else []
    return " ".join(words)


def listed(groups: Sequence[GroupSummary]) -> RenderableType:
    """Return groups, one line each."""
    made = tables.table("group", "project", "rule", "members", right=("members",))
    for group in groups:
        made.add_row(
            Text(group.id, style="bold"),
            Text(group.project),
            Text(_said(group)),
            str(group.members),
        )
    return made


def _said(group: GroupSummary) -> str:
    about = ",".join(f"{key}={value}" for key, value in group.selector.items())
    return f"{rule(group)}  (VMs with {about})" if about else rule(group)


def detail(group: GroupDetail) -> RenderableType:
    """Return one group with its members, and whether its rule holds."""
    holds = Text("yes", style="green") if group.holds else Text("no", style="red")
    pairs: list[tuple[str, RenderableType]] = [
        ("group", Text(group.id, style="bold")),
        ("project", Text(group.project)),
        ("rule", Text(_said(group))),
        ("holds now", holds),
        ("members", str(group.members)),
    ]
    if group.budget is not None:
        allowed, away = group.budget.allowed, group.budget.away
        pairs.append(("budget", Text(f"{allowed} may be away at once, {away} are")))
    parts: list[RenderableType] = [listings.lines(pairs)]
    parts += [Text(f"  {said}", style="yellow") for said in group.broken]
    if group.vms:
        made = tables.table("VM", "state", "host", "rack", "zone")
        for vm in group.vms:
            made.add_row(
                Text(vm.name, style="bold"), Text(vm.state), Text(vm.host or "-"),
                Text(vm.rack or "-"), Text(vm.zone or "-"),
            )  # fmt: skip
        parts += [Text(""), made]
    return Group(*parts)
