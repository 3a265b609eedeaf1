"""Ranked hosts as tables and sentences for a terminal."""

from rich.console import Group, RenderableType
from rich.text import Text

from roost.cli.show import sentences, tables
from roost.wire.recommendations import RecommendationBody, RecommendationsBody, RuleSaysBody


def ranking(found: RecommendationsBody) -> RenderableType:
    """Return the hosts for a VM, the best first, with what rules say of each."""
    parts: list[RenderableType] = [
        Text.assemble(
            (found.vm, "bold"),
            f"  {found.strategy}, lower scores are better; ",
            f"{found.fitting} of {sentences.hosts(found.hosts)} fit",
        )
    ]
    if found.recommendations:
        made = tables.table("rank", "host", "score", "gain", "why", right=("rank", "score", "gain"))
        for each in found.recommendations:
            made.add_row(
                "" if each.rank is None else str(each.rank),
                Text(f"{each.host} (here)" if each.here else each.host, style="bold"),
                "" if each.score is None else sentences.score(each.score),
                "" if each.gain is None else sentences.score(each.gain),
                Text("; ".join(_why(each))),
            )
        parts += [Text(""), made]
    if found.rejection is not None:
        parts += [Text(""), Text("no other host fits:" if _has_host(found) else "no host fits:")]
        parts += tables.why_not(found.rejection)
    elif found.reasons:
        parts += [Text(""), Text("the others:", style="bold"), tables.reasons(found.reasons)]
    return Group(*parts)


def _has_host(found: RecommendationsBody) -> bool:
    return any(each.here for each in found.recommendations)


def _why(host: RecommendationBody) -> list[str]:
    """Return what makes up a host's score, what it lacks, and what each rule says."""
    said = []
    if host.breakdown:
        said.append(" + ".join(f"{sentences.score(t.value)} {t.name}" for t in host.breakdown))
    said += [sentences.REASONS.get(reason, reason) for reason in host.reasons]
    said += map(sentences.have_and_need, host.shortages)
    return said + [_rule(each) for each in host.rules]


def _rule(says: RuleSaysBody) -> str:
    if says.holds:
        return f"rule {says.rule} holds"
    parts = "; ".join(map(sentences.refused_by, says.parts))
    if says.kind == "hard":
        return f"refused by {parts}"
    return f"{sentences.score(says.charge)} charged by {parts}"
