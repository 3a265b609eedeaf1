"""A plan as one HTML file: the loads of hosts before and after, its waves on a timeline, its moves.

Nothing is fetched: styles and pictures are in the file. Everything that users typed is escaped.
"""

from collections.abc import Sequence
from html import escape

from roost.base.units import format_bytes
from roost.cli.show.plans import not_converging, seconds, sending, window
from roost.wire.plans import HostLoadBody, PlanDetail, PlanMoveBody

_CELL, _ROW, _WIDTH, _LABEL = 26, 18, 900, 190
_COLOURS = {"done": "#2e7d32", "failed": "#c62828", "running": "#0277bd", "dropped": "#9e9e9e"}
_STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 960px; color: #222; }
table { border-collapse: collapse; width: 100%; } td, th { padding: 2px 8px; text-align: left; }
tr:nth-child(even) { background: #f5f5f5; } h1 { font-size: 1.5em; } h2 { font-size: 1.1em; }
.blocked { color: #c62828; } svg text { font: 11px system-ui, sans-serif; }
"""


def report(plan: PlanDetail) -> str:
    """Return the report of a plan as HTML."""
    state = f"{plan.state}: {plan.why}" if plan.why else plan.state
    rows = [
        ("State", state),
        ("Moves", f"{plan.done} of {plan.moves} made, {plan.failed} failed, {plan.waves} waves"),
        ("Predicted", f"{seconds(plan.eta_s)}, {format_bytes(plan.sent_bytes)} sent, "
                      f"{plan.stand_still_s:.1f} s of stand-still in all"),
        ("Spread of loads", f"{plan.before.spread:.3f} before, {plan.after.spread:.3f} after"),
        ("Hosts in use", f"{plan.before.in_use} before, {plan.after.in_use} after"),
        ("Created", f"{plan.created_at} by {plan.created_by}"),
    ]  # fmt: skip
    rows += [("Window", window(each)) for each in plan.windows]
    if words := not_converging(plan):
        rows.append(("Converging", words))
    if plan.accuracy is not None:
        rows.append(("Accuracy", f"moves took {plan.accuracy:.2f} of what was predicted"))
    facts = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows)
    title = escape(f"Plan {plan.id or '(dry run)'}: {plan.goal}")
    parts = [
        f"<h1>{title}</h1><table>{facts}</table>",
        "<h2>Loads of hosts, before and after</h2>",
        heat_map(plan.hosts),
        "<h2>Waves</h2>",
        timeline(plan.listed),
        "<h2>Moves</h2>",
        _moves(plan.listed),
    ]
    if plan.blocked:
        told = "".join(
            f"<li class='blocked'>{escape(each.name)} cannot leave: {escape(each.why)}</li>"
            for each in plan.blocked
        )
        parts.append(f"<h2>What cannot move</h2><ul>{told}</ul>")
    if plan.vetoed:
        told = "".join(f"<li>{escape(e.name)}: {escape(e.why)}</li>" for e in plan.vetoed)
        parts.append(f"<h2>Moves that guards vetoed</h2><ul>{told}</ul>")
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def picture(plan: PlanDetail) -> str:
    """Return the loads of hosts before and after, and the waves, as one SVG picture."""
    hosts, waves = heat_map(plan.hosts), timeline(plan.listed)
    text = "font: 11px system-ui, sans-serif"
    above, below = 18, 18 + _height(hosts) + 22
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' "
        f"height='{below + _height(waves)}' style='background: #fff; {text}'>"
        f"<text x='0' y='12'>hosts: loads before (above) and after, from green to red; "
        f"spread {plan.before.spread:.3f} before, {plan.after.spread:.3f} after</text>"
        f"<g transform='translate(0,{above})'>{hosts}</g>"
        f"<text x='0' y='{below - 8}'>moves in waves, over {seconds(plan.eta_s)}</text>"
        f"<g transform='translate(0,{below})'>{waves}</g></svg>\n"
    )


def _height(svg: str) -> int:
    """Return how high a picture is, as it says itself."""
    return int(svg.partition("height='")[2].partition("'")[0])


def heat_map(hosts: Sequence[HostLoadBody]) -> str:
    """Return two rows of squares for every line of hosts: before above, after below."""
    across = max(1, _WIDTH // _CELL)
    lines = max(1, -(-len(hosts) // across))
    height = lines * (2 * _CELL + 8)
    cells = []
    for index, each in enumerate(hosts):
        x, line = index % across * _CELL, index // across * (2 * _CELL + 8)
        for y, load, when in ((0, each.before, "before"), (_CELL, each.after, "after")):
            tip = escape(f"{each.host} {when}: {100 * load:.0f}%")
            cells.append(
                f"<rect x='{x}' y='{line + y}' width='{_CELL - 2}' height='{_CELL - 2}' "
                f"fill='{_heat(load)}'><title>{tip}</title></rect>"
            )
    return f"<svg width='{_WIDTH}' height='{height}'>{''.join(cells)}</svg>"


def _heat(load: float) -> str:
    """Return a colour from green over yellow to red."""
    hue = round(120 * (1 - min(1.0, max(0.0, load))))
    return f"hsl({hue},70%,55%)"


def timeline(moves: Sequence[PlanMoveBody]) -> str:
    """Return a bar for every move: waves one after the other, as long as predicted."""
    shown = [each for each in moves if each.state != "dropped"]
    begins: dict[int, float] = {}
    at = 0.0
    for wave in sorted({each.wave for each in shown}):
        begins[wave] = at
        at += max(each.predicted.total_s for each in shown if each.wave == wave)
    scale = (_WIDTH - _LABEL) / at if at else 0.0
    bars = []
    for index, each in enumerate(shown):
        y, x = index * _ROW, _LABEL + begins[each.wave] * scale
        width = max(2.0, each.predicted.total_s * scale)
        name = escape(f"{each.name}: {each.source} → {each.target}")
        tip = escape(f"wave {each.wave}, {seconds(each.predicted.total_s)}, {each.state}")
        colour = _COLOURS.get(each.state, "#78909c")
        bars.append(
            f"<text x='0' y='{y + 12}'>{name}</text><rect x='{x:.1f}' y='{y + 2}' "
            f"width='{width:.1f}' height='{_ROW - 5}' fill='{colour}'><title>{tip}</title></rect>"
        )
    return f"<svg width='{_WIDTH}' height='{max(1, len(shown)) * _ROW}'>{''.join(bars)}</svg>"


def _moves(moves: Sequence[PlanMoveBody]) -> str:
    head = "".join(
        f"<th>{word}</th>"
        for word in ("wave", "VM", "from", "to", "state", "predicted", "memory", "took", "sent",
                     "why")
    )  # fmt: skip
    rows = []
    for each in moves:
        took = "" if each.actual is None else seconds(each.actual.total_s)
        sent = format_bytes(each.predicted.sent_bytes or 0)
        values = (
            str(each.wave), each.name, each.source, each.target, each.state,
            seconds(each.predicted.total_s), sending(each), took, sent, each.why,
        )  # fmt: skip
        rows.append(f"<tr>{''.join(f'<td>{escape(value)}</td>' for value in values)}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"
