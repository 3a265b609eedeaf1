"""VMs that are pods as tables and sentences for a terminal. Nothing is computed here."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from roost.cli.show.listings import age
from roost.cli.show.tables import table
from roost.kube.base.objects import Object
from roost.kube.vms.spec import from_object, group_text

if TYPE_CHECKING:
    from roost.kube.vms.assignments import Statistics
    from roost.kube.vms.compliance import Violation

_STYLES = {"Running": "green", "Failed": "bold red"}
#: Characters of a reason in a list; `show` has all of it.
_REMARK = 70


def _phase(item: Object) -> Text:
    word = (item.get("status") or {}).get("phase") or "Pending"
    return Text(word, style=_STYLES.get(word, "yellow"))


def vms(items: Sequence[Object], *, with_namespace: bool = False) -> Table:
    """Return a list of VMs."""
    space = ["namespace"] if with_namespace else []
    right = ("cpu", "memory", "cpu used", "memory used", "age")
    columns = ("vm", "phase", "node", "cpu", "memory", "cpu used", "memory used", "age", "why")
    listed = table(*space, *columns, right=right)
    now = datetime.now(UTC)
    for item in sorted(items, key=lambda each: _place(each)):
        metadata, spec, status = item["metadata"], item["spec"], item.get("status") or {}
        reason = status.get("reason") or ""
        listed.add_row(
            *([metadata["namespace"]] if with_namespace else []),
            Text(metadata["name"]),
            _phase(item),
            status.get("nodeName") or "-",
            str(spec["resources"]["cpu"]),
            str(spec["resources"]["memory"]),
            spec["utilization"]["cpu"],
            spec["utilization"]["memory"],
            age(metadata["creationTimestamp"], now),
            Text(reason if len(reason) <= _REMARK else reason[: _REMARK - 1] + "…"),
        )
    return listed


def _place(item: Object) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def vm(item: Object) -> list[RenderableType]:
    """Return all there is to say of one VM."""
    asked, status = from_object(item), item.get("status") or {}
    facts = Table.grid(padding=(0, 2))
    facts.add_row("phase", _phase(item))
    facts.add_row("node", status.get("nodeName") or "-")
    facts.add_row("pod", status.get("podName") or "-")
    if status.get("reason"):
        facts.add_row("why", Text(status["reason"]))
    resources, used = item["spec"]["resources"], item["spec"]["utilization"]
    facts.add_row("asked for", f"{resources['cpu']} cores, {resources['memory']} memory")
    facts.add_row("uses", f"{used['cpu']} of its cores, {used['memory']} of its memory")
    facts.add_row("writes memory", f"{asked.dirty_rate_mbps:g} Mbit/s")
    if asked.zones:
        facts.add_row("zones", ", ".join(asked.zones))
    for key, value in asked.node_labels.items():
        facts.add_row("node label", f"{key}={value}")
    for group in asked.groups:
        facts.add_row("group", group_text(group))
    if asked.node:
        facts.add_row("forced onto", asked.node)
    if status.get("evacuationNodeName"):
        cause = (status.get("evacuation") or {}).get("cause") or "unknown"
        facts.add_row("leaves", f"{status['evacuationNodeName']} ({cause})")
    if status.get("coolDownUntil"):
        facts.add_row("not moved until", status["coolDownUntil"])
    head = Text.assemble((f"{item['metadata']['namespace']}/{item['metadata']['name']}", "bold"))
    parts: list[RenderableType] = [head, facts]
    if moves := _moves(status):
        parts += [Text(""), migrations(moves)]
    return parts


def _moves(status: Object) -> list[Object]:
    """Return the migrations of a VM, the last one as it is now."""
    by_number = {each.get("number"): each for each in status.get("migrations") or ()}
    if last := status.get("migration"):
        by_number[last.get("number")] = last
    return [by_number[number] for number in sorted(by_number, key=lambda each: each or 0)]


def migrations(moves: Sequence[Object]) -> Table:
    """Return migrations, from where to where and what came of each."""
    listed = table("migration", "phase", "from", "wanted", "to", "began", "why")
    for each in moves:
        phase = each.get("phase") or ""
        listed.add_row(
            str(each.get("number", "")),
            Text(phase, style={"Succeeded": "green", "Failed": "red"}.get(phase, "yellow")),
            each.get("sourceNode") or "-",
            each.get("wantedNode") or "-",
            each.get("targetNode") or "-",
            each.get("startedAt") or "-",
            Text(each.get("reason") or ""),
        )
    return listed


def violations(found: "Sequence[Violation]") -> Table:
    """Return rules that do not hold."""
    listed = table("vm", "node", "rule", "", "what is wrong")
    for each in found:
        style = "bold red" if each.hard else "yellow"
        kind = Text("hard" if each.hard else "soft", style=style)
        listed.add_row(f"{each.namespace}/{each.vm}", each.node, each.rule, kind, Text(each.wrong))
    return listed


def statistics(found: "Statistics") -> list[RenderableType]:
    """Return how many VMs are where, and why each waits that does."""
    parts: list[RenderableType] = [
        Text(
            f"{len(found.scheduled)} scheduled, {len(found.pending)} pending, "
            f"{len(found.missing)} missing"
        )
    ]
    if found.pending:
        listed = table("pending", "why")
        for each in found.pending:
            listed.add_row(each.vm, Text(each.reason or "the scheduler has not tried yet"))
        parts += [Text(""), listed]
    if found.missing:
        parts.append(Text(f"without a pod: {', '.join(found.missing)}"))
    return parts
