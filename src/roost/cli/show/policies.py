"""Policies as tables and sentences for a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roost.cli.show import listings, tables
from roost.cli.show.rules import violation_table
from roost.wire.policies import (
    PolicyBody,
    PolicyDetail,
    PolicyDiffBody,
    PolicyDryRunBody,
    PolicyRuleBody,
    SpreadBody,
)

#: Requests that a terminal is shown.
_MOST_SHOWN = 50


def listed(policies: Sequence[PolicyBody]) -> RenderableType:
    """Return policies, one line each."""
    made = tables.table("policy", "version", "strategy", "rules", "default of", "description")
    for each in policies:
        made.add_row(
            Text(each.name, style="bold"),
            str(each.version),
            Text(each.strategy or ""),
            Text(", ".join(rule.name for rule in each.rules)),
            Text(", ".join(each.projects)),
            Text(each.description),
        )
    return made


def detail(policy: PolicyDetail) -> RenderableType:
    """Return one policy, what is to be known of it, and its versions."""
    pairs: list[tuple[str, RenderableType]] = [("policy", Text(policy.name, style="bold"))]
    said: dict[str, str | None] = {
        "description": policy.description,
        "strategy": policy.strategy,
        "weights": _pairs(policy.weights),
        "overcommit": _pairs(policy.overcommit),
        "spread": _spread(policy.spread),
        "preemption": policy.preemption,
        "restart": policy.restart,
        "default of": ", ".join(policy.projects),
        "version": str(policy.version),
        "changed": f"{policy.changed_at} by {policy.changed_by}",
    }
    pairs += [(name, Text(text)) for name, text in said.items() if text]
    parts: list[RenderableType] = [listings.lines(pairs)]
    if policy.rules:
        rules = tables.table("rule", "kind", "condition")
        for rule in policy.rules:
            rules.add_row(
                Text(rule.name, style="bold"), Text(_kind(rule)), Text(str(rule.expression))
            )
        parts += [Text(""), rules]
    for conflict in policy.conflicts:
        parts.append(Text(conflict.says, style="bold red"))
    parts += [Text(note, style="yellow") for note in policy.notes]
    if len(policy.versions) > 1:
        made = tables.table("version", "changed", "by", "rules", right=("version",))
        for each in policy.versions:
            names = ", ".join(rule.name for rule in each.rules)
            made.add_row(
                str(each.version), Text(each.changed_at), Text(each.changed_by), Text(names)
            )
        parts += [Text(""), made]
    return Group(*parts)


def _kind(rule: PolicyRuleBody) -> str:
    if rule.kind == "hard":
        return "hard"
    ranked = f" priority {rule.priority}" if rule.priority else ""
    return f"soft {rule.weight:g}{ranked}"


def _pairs(values: dict[str, int] | dict[str, float] | None) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in (values or {}).items())


def _spread(spread: SpreadBody | None) -> str:
    return "" if spread is None else f"over {spread.scope}s, {spread.kind}"


def diff(found: PolicyDiffBody) -> RenderableType:
    """Return what is different, one line each."""
    if not found.differences:
        return Text(f"{found.before} and {found.after} say the same", style="green")
    made = tables.table("what", found.before, found.after)
    for each in found.differences:
        made.add_row(
            Text(each.field, style="bold"), Text(each.before or ""), Text(each.after or "")
        )
    return made


def dry_run(found: PolicyDryRunBody) -> RenderableType:
    """Return what a policy would do: sentences, requests that differ, VMs in the wrong place."""
    bad = found.conflicts or found.refused
    style = "bold red" if bad else "yellow" if found.elsewhere or found.violated else "green"
    parts: list[RenderableType] = [Text(said, style=style) for said in found.says]
    if found.requests:
        made = tables.table("VM", "project", "now on", "would be on", "why")
        for each in found.requests[:_MOST_SHOWN]:
            made.add_row(
                Text(each.name, style="bold"),
                Text(each.project),
                Text(each.before or "refused"),
                Text(each.after or "refused"),
                Text(each.why),
            )
        parts += [Text(""), made]
        more = found.elsewhere + found.refused + found.admitted - _MOST_SHOWN
        if more > 0:
            parts.append(Text(f"and {more} more"))
    if found.violations:
        parts += [Text(""), violation_table(found.violations, found.violated)]
    return Group(*parts)
