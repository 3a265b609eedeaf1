"""Answers as tables and sentences for a terminal. Nothing is computed here.

`live` says that an answer is a server's, whose fixes can be carried out by commands.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roost.cli.show import sentences
from roost.cli.show.remedies import Live, remedy
from roost.model.flow import PlaceRequest
from roost.wire.bodies import (
    AnswerBody,
    CapacityBody,
    ExplanationBody,
    PlacementBody,
    PreemptionBody,
    ReasonBody,
    RejectionBody,
    VerdictBody,
)

if TYPE_CHECKING:
    from roost.placement.strategies import Strategy

#: Rows that a table of placements shows before it says how many more there are.
SOME_ROWS = 20


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table; the columns named in `right` hold numbers."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left")
    return made


def answer(found: AnswerBody, request: PlaceRequest, live: Live | None = None) -> RenderableType:
    """Return one placement or rejection."""
    if isinstance(found, PlacementBody):
        return placement(found)
    return rejection(found, request, live)


def placement(found: PlacementBody) -> RenderableType:
    """Return a placement: the host, how it won, and who came next."""
    parts: list[RenderableType] = [
        Text.assemble(
            (found.vm, "bold"),
            " goes to ",
            (found.host, "bold green"),
            f"  ({found.strategy}, score {sentences.score(found.score)}, lower is better)",
        )
    ]
    if found.devices or found.cells:
        where = [f"GPU {', '.join(map(str, found.devices))}"] if found.devices else []
        where += [f"NUMA cell {', '.join(map(str, found.cells))}"] if found.cells else []
        parts.append(Text(f"on {' and '.join(where)}"))
    if found.breakdown:
        terms = " + ".join(f"{sentences.score(t.value)} {t.name}" for t in found.breakdown)
        parts.append(Text(f"score = {terms}", style="dim"))
    if found.foreseen:
        parts.append(labelled("predicted of it", sentences.foreseen(found.foreseen)))
    if found.relaxed:
        parts.append(Text(f"relaxed, after it had waited: {', '.join(found.relaxed)}"))
    if found.runners_up:
        listed = table("next", "score", "behind by", right=("score", "behind by"))
        for runner in found.runners_up:
            behind = sentences.score(runner.score - found.score)
            listed.add_row(Text(runner.host), sentences.score(runner.score), behind)
        parts += [Text(""), listed]
    if found.confidence is not None:
        parts.append(Text(f"confidence {found.confidence:.2f}", style="dim"))
    return Group(*parts)


def reasons(counts: Sequence[ReasonBody]) -> Table:
    """Return how many hosts each reason refused."""
    listed = table("reason", "", "hosts", "at all", right=("hosts", "at all"))
    for count in counts:
        listed.add_row(
            count.reason,
            Text(sentences.reason(count), style="dim"),
            str(count.first),
            str(count.total),
        )
    return listed


def rejection(
    found: RejectionBody, request: PlaceRequest, live: Live | None = None
) -> RenderableType:
    """Return a rejection: the counts, the nearest miss and the fixes."""
    parts: list[RenderableType] = [
        Text.assemble(
            (found.vm, "bold"),
            (" fits on no host", "bold red"),
            f"  ({sentences.demand(request.demand)}; {found.code})",
        )
    ]
    if not found.hosts:
        parts.append(_nothing_refused(found))
    return Group(*parts, *why_not(found, live))


def why_not(
    found: RejectionBody | Mapping[str, Any], live: Live | None = None
) -> list[RenderableType]:
    """Return the counts of a rejection, its nearest miss and the fixes.

    A rejection comes as it is, or as a document among the details of an error.
    """
    if not isinstance(found, RejectionBody):
        try:
            found = msgspec.convert(found, RejectionBody)
        except msgspec.ValidationError:  # of another version: its message has been said already
            return []
    counts: list[RenderableType] = [Text(""), reasons(found.reasons)] if found.reasons else []
    return [*counts, *misses_and_fixes(found, live)]


def _nothing_refused(found: RejectionBody) -> Text:
    """Return why a VM has no host although no host has refused it: the end of the message."""
    return Text(found.message.rpartition(": ")[2])


def misses_and_fixes(found: RejectionBody, live: Live | None) -> list[RenderableType]:
    """Return what is missing and what would help."""
    parts: list[RenderableType] = []
    if found.larger_than_any_host:
        lacking = "; ".join(map(sentences.have_and_need, found.larger_than_any_host))
        parts.append(labelled("too large", f"the largest host has {lacking}"))
    if found.nearest_miss is not None:
        parts.append(labelled("nearest miss", sentences.nearest_miss(found.nearest_miss)))
    for number, change in enumerate(found.fixes):
        label = "smallest fix" if number == 0 else "or"
        parts.append(labelled(label, sentences.fix(change)))
        if live is not None and (command := remedy(change, live)):
            parts.append(labelled("try", command))
    if found.after_moves is not None:
        parts.append(labelled("or", sentences.after_moves(found.after_moves)))
        parts += [labelled("try", command) for command in found.after_moves.commands]
    parts += [labelled("keeps room", sentences.idle(each)) for each in found.idle]
    if found.preemption is not None:
        parts += [Text(""), *preemption(found.preemption)]
    return [Text(""), *parts] if parts else []


def preemption(found: PreemptionBody) -> list[RenderableType]:
    """Return who makes room for a VM, and where."""
    made = table("VM", "project", "priority", "leaves", "to", "now", right=("priority",))
    for each in found.victims:
        how = "moved" if each.how == "move" else "stopped, waits"
        made.add_row(
            Text(each.name, style="bold"), Text(each.project or "-"), str(each.priority),
            Text(how), Text(each.target or "-"), Text(each.state),
        )  # fmt: skip
    said = f"room for {found.name} (priority {found.priority}) on {found.host}: {found.phase}"
    return [Text(said, style="bold"), made]


def labelled(label: str, text: str) -> Text:
    """Return a line with its label."""
    return Text.assemble((f"{label + ':':<13} ", "bold yellow"), text)


def many(
    answers: Sequence[AnswerBody],
    request: PlaceRequest,
    asked: int,
    how: str,
    live: Live | None = None,
) -> RenderableType:
    """Return the outcome of several equal requests."""
    placed = [found for found in answers if isinstance(found, PlacementBody)]
    style = "bold green" if len(placed) == asked else "bold red"
    parts: list[RenderableType] = [
        Text.assemble((f"{len(placed)} of {asked} placed", style), f"  ({how})"),
    ]
    if placed:
        listed = table("host", "VMs", "", right=("VMs",))
        by_host = Counter(found.host for found in placed)
        for host, count in list(by_host.items())[:SOME_ROWS]:
            names = [found.vm for found in placed if found.host == host]
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            listed.add_row(Text(host), str(count), Text(", ".join(names[:5]) + more, style="dim"))
        parts += [Text(""), listed]
        if len(by_host) > SOME_ROWS:
            parts.append(Text(f"... and {sentences.hosts(len(by_host) - SOME_ROWS)} more"))
    refused = next((found for found in answers if isinstance(found, RejectionBody)), None)
    if refused is not None:
        parts += [Text(""), rejection(refused, request, live)]
    return Group(*parts)


def verdicts(found: Sequence[VerdictBody]) -> Table:
    """Return what some hosts say, one a line."""
    foresees = any(verdict.predicted is not None for verdict in found)
    listed = table(
        "host", "verdict", "score", *(["predicted"] if foresees else []), "reasons",
        "has of needed", right=("score",),
    )  # fmt: skip
    for verdict in found:
        told = sentences.predicted(verdict.predicted) if verdict.predicted is not None else ""
        listed.add_row(
            Text(verdict.host),
            Text("fits", style="green") if verdict.fits else Text("no", style="red"),
            sentences.score(verdict.score) if verdict.fits and verdict.score is not None else "",
            *([told] if foresees else []),
            ", ".join(verdict.reasons),
            Text(
                "; ".join(
                    [
                        *map(sentences.have_and_need, verdict.shortages),
                        *map(sentences.refused_by, verdict.rules),
                    ]
                )
            ),
        )
    return listed


def explanation(
    found: ExplanationBody, request: PlaceRequest, most: int | None, live: Live | None = None
) -> RenderableType:
    """Return an explanation; `most` limits the number of verdicts."""
    parts: list[RenderableType] = [answer(found.answer, request, live)]
    if isinstance(found.answer, PlacementBody):
        parts.append(Text(f"\n{found.fitting} of {sentences.hosts(found.hosts)} fit"))
        parts += (
            [Text("the others:", style="bold"), reasons(found.reasons)] if found.reasons else []
        )
    if found.verdicts:
        parts += [Text(""), verdicts(found.verdicts[:most])]
    if most is not None and most < found.hosts:
        left = sentences.hosts(found.hosts - most)
        parts.append(Text(f"... and {left} more; --all lists them", style="dim"))
    return Group(*parts)


def capacity(
    found: CapacityBody, request: PlaceRequest, live: Live | None = None
) -> RenderableType:
    """Return how many more fit, and what stops the next one."""
    condition = ""
    if found.survive is not None:
        lost = found.survive if found.losses == 1 else f"{found.losses} {found.survive}s"
        condition = f" while the loss of any {lost} could be restarted elsewhere"
    sampled = " (sampled, so at most this)" if found.sampled else ""
    parts: list[RenderableType] = [
        Text.assemble(
            (f"{found.count} more", "bold green"),
            f" of {sentences.demand(request.demand)} fit{condition}{sampled}",
        )
    ]
    if found.blocking:
        parts.append(labelled("blocked by", found.blocking))
    if found.stranded is not None:
        own = found.stranded.vm == request.name
        whose = "one of the new copies" if own else found.stranded.vm
        parts += [labelled("no host for", whose), *why_not(found.stranded, live)]
    if found.refused is not None:
        parts += [Text(""), Text("why not one more:", style="bold")]
        parts += why_not(found.refused, live)[1:] or [_nothing_refused(found.refused)]
    return Group(*parts)


def strategies(listed: "Sequence[Strategy]", default: str) -> RenderableType:
    """Return the strategies with their formulas."""
    made = table("strategy", "chooses", "formula")
    for each in listed:
        name = Text(each.name, style="bold")
        if each.name == default:
            name.append(" (default)", style="green")
        made.add_row(name, each.summary, Text(each.formula, style="dim"))
    legend = "u: committed / capacity; f: what stays free / the reference host; lower scores win"
    return Group(made, Text(legend, style="dim"))


def bar(share: float, width: int = 24) -> Text:
    """Return a share of one as a bar with its percentage."""
    full = round(max(0.0, min(1.0, share)) * width)
    style = "red" if share > 0.9 else "yellow" if share > 0.75 else "green"
    return Text.assemble(("█" * full, style), ("░" * (width - full), "dim"), f" {share:4.0%}")
