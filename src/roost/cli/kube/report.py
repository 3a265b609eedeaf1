"""What came of a scenario on Kubernetes, as tables and sentences. Nothing is computed here."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from roost.base.units import format_bytes
from roost.cli.show.tables import table

if TYPE_CHECKING:
    from roost.kube.scenarios.reports import Move, NodeState, Place, Report

#: Rows of a table before it says how many more there are.
SOME_ROWS = 25


def report(found: "Report") -> RenderableType:
    """Return all of a report."""
    parts: list[RenderableType] = [
        Text(f"{found.scenario}: {found.about}", style="bold"),
        Text(
            f"Kubernetes {found.version.removeprefix('v')}, seed {found.seed}; "
            f"{len(found.vms)} VMs on {len(found.nodes)} nodes, the scheduler had answered after "
            f"{found.placed_s:.1f} s; played {found.seconds:.1f} s"
        ),
        Text(""),
        nodes(found.nodes, found.vms),
    ]
    if found.pending:
        parts += [Text(""), pending(found.pending)]
    if found.moves:
        parts += [Text(""), moves(found.moves)]
    parts += [Text(""), *map(Text, sentences(found)), Text("")]
    parts += [_judgement(each.expected, each.found, each.met) for each in found.judgements]
    parts += [Text(f"note: {note}", style="yellow") for note in found.notes]
    return Group(*parts)


def nodes(states: "Sequence[NodeState]", places: "Sequence[Place]") -> RenderableType:
    """Return every node, how full and busy it is, and who is on it."""
    zones = any(state.zone for state in states)
    numbers = ("VMs", "cpu asked", "used", "memory asked", "used ")
    made = table("node", *(["zone"] if zones else []), *numbers, "who", right=numbers)
    for state in states:
        here = [_moved(place) for place in places if place.node == state.name]
        made.add_row(
            Text(state.name),
            *([state.zone] if zones else []),
            str(state.vms),
            f"{state.cpu_asked:.0%}",
            _share(state.cpu),
            f"{state.memory_asked:.0%}",
            _share(state.memory),
            Text(", ".join(here)),
        )
    return made


def pending(places: "Sequence[Place]") -> RenderableType:
    """Return the VMs that wait, and why."""
    made = table("waits", "the scheduler says")
    for place in places[:SOME_ROWS]:
        made.add_row(Text(place.vm), Text(place.reason or "nothing yet", style="dim"))
    return _with_more(made, len(places))


def moves(found: "Sequence[Move]") -> RenderableType:
    """Return the table of migrations."""
    numbers = ("at", "took", "rounds", "copied", "downtime")
    made = table("at", "VM", "because of", "from", "wanted", "to", *numbers[1:], right=numbers)
    for move in found[:SOME_ROWS]:
        to = Text(move.actual, style="yellow" if move.elsewhere else "")
        if move.phase == "Failed":
            to = Text("stayed", style="red")
        made.add_row(
            f"{move.started_s:.1f} s",
            Text(move.vm),
            Text(move.cause),
            Text(move.source),
            Text(move.wanted or "anywhere", style="" if move.wanted else "dim"),
            to,
            f"{move.seconds:.1f} s",
            str(move.rounds),
            format_bytes(move.copied_bytes),
            f"{move.downtime_ms:.0f} ms",
        )
    failed = [Text(f"{move.vm} stayed: {move.reason}", style="red")
              for move in found if move.phase == "Failed"]  # fmt: skip
    return Group(_with_more(made, len(found)), *failed[:SOME_ROWS])


def sentences(found: "Report") -> list[str]:
    """Return how even it became, and what became of evictions."""
    before, after = found.spread_before, found.spread
    told = [
        f"CPU in use over the nodes: mean {before.cpu_mean:.0%} -> {after.cpu_mean:.0%}, deviation "
        f"{before.cpu_deviation:.1%} -> {after.cpu_deviation:.1%}, highest less lowest "
        f"{before.cpu_range:.0%} -> {after.cpu_range:.0%}",
        f"memory in use: deviation {before.memory_deviation:.1%} -> {after.memory_deviation:.1%}; "
        f"VMs on a node: deviation {before.vms_deviation:.1f} -> {after.vms_deviation:.1f}",
        "not even at the end"
        if found.time_to_balance_s is None
        else f"even since {found.time_to_balance_s:.1f} s",
    ]
    evictions = found.evictions
    if evictions.asked:
        by = f" ({found.descheduler_rounds} rounds of the descheduler)"
        told.append(
            f"evictions asked for: {evictions.asked}{by if found.descheduler_rounds else ''}; "
            f"{evictions.converted} became migrations, {evictions.refused} refused, "
            f"{evictions.repeated} of VMs that were moving already"
        )
    if found.moves:
        elsewhere = sum(move.elsewhere for move in found.moves)
        told.append(
            f"moves: {len(found.succeeded)}, {elsewhere} of them elsewhere than wanted; "
            f"{len(found.aborted)} given up"
        )
        soonest = min((each.away_s for each in found.returns), default=None)
        told.append(
            "no VM came back to a node that it had left"
            if soonest is None
            else f"{len(found.returns)} came back to a node that they had left, the soonest "
            f"after {soonest:.1f} s"
        )
    return told


def _judgement(expected: str, found: str, met: bool) -> Text:
    sign = ("yes ", "bold green") if met else ("NO  ", "bold red")
    return Text.assemble(sign, expected, (f"  ({found})", "dim"))


def _moved(place: "Place") -> str:
    return f"{place.vm} (from {place.first})" if place.moves and place.first else place.vm


def _share(share: float) -> Text:
    style = "red" if share > 0.9 else "yellow" if share > 0.75 else "green"
    return Text(f"{share:.0%}", style=style)


def _with_more(made: RenderableType, rows: int) -> RenderableType:
    if rows <= SOME_ROWS:
        return made
    return Group(made, Text(f"... and {rows - SOME_ROWS} more; -o json has all", style="dim"))
