"""Plans as tables and pictures for a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roost.base.units import format_bytes
from roost.cli.show import listings, tables
from roost.wire.plans import (
    BlockerBody,
    ContinuousBody,
    FleetRecommendation,
    HostLoadBody,
    PictureBody,
    PlanBody,
    PlanDetail,
    PlanMoveBody,
    PlanWindowBody,
)

_STYLES = {
    "running": "bold cyan", "done": "green", "failed": "bold red", "paused": "yellow",
    "cancelled": "dim", "dropped": "dim",
}  # fmt: skip
#: Moves, blockers and hosts that a terminal is shown.
_MOST_SHOWN = 40
#: What is done about a VM that writes faster than it can be sent.
_NOT_CONVERGING = {
    "auto_converge": "slowed down", "post_copy": "post-copy", "refuse": "refused",
}  # fmt: skip
#: Width of a bar of load.
_BAR = 20


def listed(found: Sequence[PlanBody]) -> RenderableType:
    """Return plans, one line each."""
    columns = ("plan", "goal", "state", "moves", "wave", "ETA", "created")
    made = tables.table(*columns, right=("moves",))
    for each in found:
        made.add_row(
            Text(each.id, style="bold"),
            Text(each.goal),
            Text(each.state, style=_STYLES.get(each.state, "")),
            f"{each.done}/{each.moves}",
            f"{each.wave}/{each.waves}",
            seconds(each.eta_s),
            Text(f"{each.created_at} by {each.created_by}"),
        )
    return made


def detail(found: PlanDetail) -> RenderableType:
    """Return one plan: what it does, its moves, and what stands in its way."""
    state = f"{found.state}: {found.why}" if found.why else found.state
    pairs: list[tuple[str, RenderableType]] = [
        ("plan", Text(found.id or "(dry run: nothing is kept)", style="bold")),
        ("goal", Text(found.goal)),
        ("state", Text(state, style=_STYLES.get(found.state, ""))),
        ("moves", Text(_progress(found))),
        (
            "costs",
            Text(
                f"about {seconds(found.eta_s)}, {format_bytes(found.sent_bytes)} sent, "
                f"{found.stand_still_s:.1f} s of stand-still in all"
            ),
        ),
        *([("converging", Text(words))] if (words := not_converging(found)) else ()),
        ("before", Text(_picture(found.before))),
        ("after", Text(_picture(found.after))),
    ]
    if found.held:
        stays = ", until it is resumed or cancelled" if found.state == "paused" else ""
        words = f"room for {found.held} moves is held on their targets{stays}"
        pairs.append(("held", Text(words)))
    if found.actual is not None:
        pairs.append(("measured", Text(_picture(found.actual))))
    if found.accuracy is not None:
        pairs.append(("accuracy", Text(f"moves took {found.accuracy:.2f} of what was predicted")))
    if found.start and not found.windows:
        until = f" until {found.end}" if found.end else ""
        pairs.append(("window", Text(f"from {found.start}{until}")))
    pairs += [("window", Text(window(each))) for each in found.windows]
    parts: list[RenderableType] = [listings.lines(pairs)]
    if found.listed:
        parts.append(_moves(found))
    parts += [
        Text(
            f"group {each.group} moves together ({', '.join(each.vms)}): about "
            f"{seconds(each.total_s)}, {format_bytes(each.sent_bytes)} sent, "
            f"{each.stand_still_s:.1f} s of stand-still"
        )
        for each in found.together
    ]
    if found.blocked:
        stay = "1 VM" if len(found.blocked) == 1 else f"{len(found.blocked)} VMs"
        parts.append(Text(f"{stay} cannot move:", style="bold"))
        parts += _blockers(found.blocked)
    if found.vetoed:
        count = len(found.vetoed) + found.more_vetoes
        parts.append(Text(f"{count} moves were vetoed:", style="bold"))
        parts += _blockers(found.vetoed[:5])
    if found.hosts:
        parts.append(loads(found.hosts))
    return Group(*parts)


def not_converging(found: PlanDetail) -> str:
    """Return how many moves are not foreseen to converge, and what is done then; empty if none."""
    count = sum(each.predicted.then in _NOT_CONVERGING for each in found.listed)
    if not count:
        return ""
    does = _NOT_CONVERGING.get(found.not_converging, found.not_converging)
    return f"{count} VMs write faster than they can be sent: {does}"


def sending(found: PlanMoveBody) -> str:
    """Return what is foreseen of the sending of a VM's memory."""
    cost = found.predicted
    sure = "" if cost.convergence is None else f"{100 * cost.convergence:.0f}% sure"
    if cost.then == "converges":
        return f"converges, {sure}" if sure else "converges"
    return _NOT_CONVERGING.get(cost.then, cost.then)


def window(found: PlanWindowBody) -> str:
    """Return a window in one line."""
    return f"{found.start} to {found.end}, quality {found.quality:.2f}: {found.reason}"


def recommendations(found: Sequence[FleetRecommendation]) -> RenderableType:
    """Return what is wrong with a fleet, the most urgent first."""
    if not found:
        return Text("nothing is wrong that a plan could mend", style="green")
    parts: list[RenderableType] = []
    for each in found:
        moves = "1 move" if each.moves == 1 else f"{each.moves} moves"
        waves = "1 wave" if each.waves == 1 else f"{each.waves} waves"
        words = f"{moves} in {waves}, about {seconds(each.eta_s)}, "
        parts += [
            Text.assemble((each.goal, "bold"), f": {each.what}"),
            Text(f"  {words}{format_bytes(each.sent_bytes)} sent: {each.command}", style="dim"),
            *_blockers(each.blocked[:5]),
        ]
    return Group(*parts)


def loads(hosts: Sequence[HostLoadBody]) -> RenderableType:
    """Return the loads of hosts before and after, as bars; those that change the most first."""
    shown = sorted(hosts, key=lambda each: (-abs(each.after - each.before), each.host))
    made = tables.table("host", "before", "after")
    for each in shown[:_MOST_SHOWN]:
        made.add_row(Text(each.host), _bar(each.before), _bar(each.after))
    return made


def _bar(load: float) -> Text:
    filled = min(_BAR, round(load * _BAR))
    style = "red" if load > 0.85 else "yellow" if load > 0.6 else "green"
    return Text.assemble(
        ("█" * filled, style), ("░" * (_BAR - filled), "dim"), f" {100 * load:3.0f}%"
    )


def _progress(found: PlanBody) -> str:
    words = [f"{found.done} of {found.moves} made"]
    if found.failed:
        words.append(f"{found.failed} failed")
    words.append(f"wave {found.wave} of {found.waves}")
    if found.replans:
        words.append(f"planned anew {found.replans} times")
    return ", ".join(words)


def _picture(found: PictureBody) -> str:
    watts = "" if found.watts is None else f", {found.watts:,.0f} W"
    return (
        f"spread {found.spread:.3f}, mean load {100 * found.mean:.0f}%, "
        f"fullest {100 * found.fullest:.0f}%, {found.in_use} hosts in use{watts}"
    )


def _moves(found: PlanDetail) -> RenderableType:
    made = tables.table(
        "wave", "VM", "from", "to", "state", "predicted", "took", "why", right=("wave",)
    )
    for each in found.listed[:_MOST_SHOWN]:
        took = "" if each.actual is None else seconds(each.actual.total_s)
        made.add_row(
            str(each.wave),
            Text(each.name, style="bold"),
            Text(each.source),
            Text(each.target),
            Text(each.state, style=_STYLES.get(each.state, "")),
            _foreseen(each),
            took,
            Text(each.why),
        )
    if (more := len(found.listed) - _MOST_SHOWN) > 0:
        made.add_row("", Text(f"... and {more} more"), "", "", "", "", "", "")
    return made


def _foreseen(found: PlanMoveBody) -> str:
    took = seconds(found.predicted.total_s)
    return took if found.predicted.then in ("", "converges") else f"{took}, {sending(found)}"


def _blockers(found: Sequence[BlockerBody]) -> list[RenderableType]:
    return [Text(f"  {each.name} cannot leave: {each.why}") for each in found[:_MOST_SHOWN]]


def seconds(value: float) -> str:
    """Return a length of time for people."""
    if value < 60:
        return f"{value:.1f} s"
    if value < 3600:
        return f"{value / 60:.1f} min"
    return f"{value / 3600:.1f} h"


def continuous(found: ContinuousBody) -> RenderableType:
    """Return what continuous mode may do, what it said, and its last plans."""
    if found.mode == "off":
        return Text("continuous mode is off: `roost serve --continuous recommend` switches it on")
    lines = [
        Text(f"{found.mode}: {', '.join(found.goals)}, every {seconds(found.every_s)}"),
        Text(
            f"at most {found.most} moves in a plan, {found.vm_day} of a VM and {found.day} in all "
            "in a day"
        ),
    ]
    if found.looked_at is not None:
        lines.append(Text(f"{found.looked_at}: {found.said}"))
    elif not found.looks_here:
        lines.append(Text("another process looks, or none has yet", style="dim"))
    return Group(*lines, listed(found.plans)) if found.plans else Group(*lines)
