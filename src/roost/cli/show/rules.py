"""Rules about where VMs may be as tables and sentences for a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roost.base.units import format_bytes
from roost.cli.show import listings, sentences, tables
from roost.wire.constraints import (
    ConstraintBody,
    ConstraintDetail,
    ConstraintDryRunBody,
    ViolationBody,
    ViolationsBody,
)

#: Violations that a terminal is shown.
_MOST_SHOWN = 50


def kind(rule: ConstraintBody) -> str:
    """Return whether a rule is hard, or how soft it is."""
    if rule.kind == "hard":
        return "hard"
    ranked = f" priority {rule.priority}" if rule.priority else ""
    return f"soft {rule.weight:g}{ranked}"


def scope(rule: ConstraintBody) -> str:
    """Return which VMs a rule is for."""
    words = [f"project {rule.project}"] if rule.project else []
    words += [f"policy {rule.policy}"] if rule.policy else []
    words += [f"{key}={value}" for key, value in rule.selector.items()]
    words += [rule.vm] if rule.vm else []
    return ", ".join(words) or "all VMs"


def holds(rule: ConstraintBody) -> str:
    """Return whether a rule holds, and what that depends on."""
    if not rule.enabled or rule.when is None:
        return "yes" if rule.enabled else "no"
    since = f" since {rule.switched_at}" if rule.switched_at else ""
    return f"yes, by its condition{since}" if rule.active else f"not now{since}"


def listed(rules: Sequence[ConstraintBody]) -> RenderableType:
    """Return rules, one line each."""
    made = tables.table("rule", "kind", "for", "holds", "condition")
    for rule in rules:
        made.add_row(
            Text(rule.id, style="bold"),
            Text(kind(rule)),
            Text(scope(rule)),
            Text(holds(rule)),
            Text(rule.expression),
        )
    return made


def detail(rule: ConstraintDetail) -> RenderableType:
    """Return one rule and its versions."""
    pairs: list[tuple[str, RenderableType]] = [
        ("rule", Text(rule.id, style="bold")),
        ("kind", Text(kind(rule))),
        ("for", Text(scope(rule))),
        ("condition", Text(rule.expression)),
        ("holds", Text(holds(rule))),
    ]
    if rule.when:
        zone = f" in {rule.time_zone}" if rule.time_zone else ""
        pairs.append(("when", Text(f"{rule.when}{zone}, switched at most every {rule.dwell_s} s")))
    if rule.until:
        pairs.append(("until", Text(rule.until)))
    if rule.relax_after_s:
        pairs.append(("relaxes", Text(f"for a VM that has waited for {rule.relax_after_s} s")))
    if rule.expires_at:
        pairs.append(("expires", Text(rule.expires_at)))
    if rule.description:
        pairs.append(("description", Text(rule.description)))
    pairs.append(("changed", Text(f"{rule.changed_at} by {rule.changed_by}")))
    parts: list[RenderableType] = [listings.lines(pairs)]
    parts += [Text(conflict.says, style="yellow") for conflict in rule.conflicts]
    if len(rule.versions) > 1:
        made = tables.table("version", "changed", "by", "condition", right=("version",))
        for each in rule.versions:
            made.add_row(
                str(each.version),
                Text(each.changed_at),
                Text(each.changed_by),
                Text(each.expression),
            )
        parts += [Text(""), made]
    return Group(*parts)


def dry_run(found: ConstraintDryRunBody) -> RenderableType:
    """Return what a rule would mean: sentences, hosts for each class of VMs, VMs in the way."""
    style = "bold red" if found.locks_out else "yellow" if found.violated else "green"
    parts: list[RenderableType] = [Text(said, style=style) for said in found.says]
    if not found.holds_now:
        parts.append(Text("it would not hold yet: its condition is not true now"))
    made = tables.table("VMs", "such as", "hosts that pass", "asked of hosts", right=("VMs",))
    for each in found.classes:
        made.add_row(
            str(each.vms),
            Text(each.example or "a new VM"),
            f"{each.hosts} of {found.hosts}",
            Text(each.asks),
        )
    parts += [Text(""), made]
    if found.violations:
        parts += [Text(""), violation_table(found.violations, found.violated)]
    return Group(*parts)


def violations(found: ViolationsBody) -> RenderableType:
    """Return the VMs in the wrong place."""
    if not found.total:
        return Text("every VM is where the rules want it", style="green")
    made = violation_table(found.violations, found.total)
    if found.repaired >= found.total:
        return made
    return Group(made, Text(f"repairs looked for in {found.repaired} of {found.total}"))


def violation_table(found: Sequence[ViolationBody], total: int) -> RenderableType:
    """Return VMs in the wrong place, one line each."""
    made = tables.table("VM", "project", "host", "rule", "not true there", "since", "repair")
    shown = found[:_MOST_SHOWN]
    for each in shown:
        made.add_row(
            Text(each.name, style="bold"),
            Text(each.project),
            Text(each.host),
            Text(each.rule),
            Text(each.part),
            Text(each.since or ""),
            Text(_repair(each)),
        )
    if total > len(shown):
        return Group(made, Text(f"and {total - len(shown)} more"))
    return made


def _repair(found: ViolationBody) -> str:
    """Return the cheapest single repair of a violation, or what is in the way."""
    repair = found.repair
    if repair is not None:
        what = "it" if repair.vm == found.vm else repair.name
        size = format_bytes(repair.memory_bytes + repair.disk_bytes)
        return f"{repair.action} {what} to {repair.to} ({size})"
    if found.in_the_way is None:
        return ""
    if (miss := found.in_the_way.nearest_miss) is not None:
        return f"none: {sentences.nearest_miss(miss)}"
    return f"none: {found.in_the_way.message}"
