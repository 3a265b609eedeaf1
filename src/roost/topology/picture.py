"""A network as a picture: a tree of text for a terminal, and layers of boxes as SVG.

Both begin at the node with the most links that is no host; links that close a circle are drawn as
they are in the SVG, and named below the tree in text.
"""

from collections import deque
from html import escape

from roost.topology.network import Link, Network

_BOX_W, _BOX_H, _GAP_X, _GAP_Y = 96, 26, 14, 70
#: Children of one node that a tree of text shows.
_MOST_SHOWN = 12


def root_of(network: Network) -> str | None:
    """Return the node that a picture begins at."""
    degree: dict[str, int] = {}
    for link in network.links:
        degree[link.a] = degree.get(link.a, 0) + 1
        degree[link.b] = degree.get(link.b, 0) + 1
    routers = sorted(n.id for n in network.nodes if n.kind == "router")
    others = sorted(n.id for n in network.nodes if n.kind == "switch")
    pool = routers or others or sorted(n.id for n in network.nodes)
    return max(pool, key=lambda each: (degree.get(each, 0), each), default=None)


def tree_of(network: Network) -> tuple[dict[str, list[tuple[str, Link]]], list[Link]]:
    """Return the children of every node, breadth first, and the links that are in no tree."""
    beside: dict[str, list[tuple[str, Link]]] = {}
    for link in network.links:
        beside.setdefault(link.a, []).append((link.b, link))
        beside.setdefault(link.b, []).append((link.a, link))
    children: dict[str, list[tuple[str, Link]]] = {}
    seen: set[str] = set()
    used: set[Link] = set()
    begin = root_of(network)
    for first in [*([begin] if begin else []), *(n.id for n in network.nodes)]:
        if first in seen:
            continue
        seen.add(first)
        waiting = deque([first])
        while waiting:
            node = waiting.popleft()
            for other, link in sorted(beside.get(node, []), key=lambda each: each[0]):
                if other not in seen:
                    seen.add(other)
                    used.add(link)
                    children.setdefault(node, []).append((other, link))
                    waiting.append(other)
    return children, [link for link in network.links if link not in used]


def as_text(network: Network) -> str:
    """Return the network as a tree of text."""
    children, extra = tree_of(network)
    below = {other for each in children.values() for other, _ in each}
    lines: list[str] = []
    for top in (n.id for n in network.nodes if n.id not in below):
        lines.append(top)
        lines += _branch(children, top, "")
    lines += [f"also: {link.a} - {link.b}  {_words(link)}" for link in extra]
    return "\n".join(lines)


def _branch(children: dict[str, list[tuple[str, Link]]], node: str, indent: str) -> list[str]:
    own, lines = children.get(node, []), []
    shown = own[:_MOST_SHOWN]
    for index, (other, link) in enumerate(shown):
        last = index == len(shown) - 1 and len(own) <= _MOST_SHOWN
        lines.append(f"{indent}{'└── ' if last else '├── '}{other}  {_words(link)}")
        lines += _branch(children, other, indent + ("    " if last else "│   "))
    if len(own) > _MOST_SHOWN:
        lines.append(f"{indent}└── ... and {len(own) - _MOST_SHOWN} more")
    return lines


def _words(link: Link) -> str:
    taken = f", {100 * link.utilisation:.0f}% taken" if link.utilisation else ""
    return f"{link.bandwidth_mbit:g} Mbit/s, {link.latency_ms:g} ms{taken}"


def as_svg(network: Network) -> str:
    """Return the network as an SVG picture, its nodes in layers."""
    children, _ = tree_of(network)
    below = {other for each in children.values() for other, _ in each}
    layers: list[list[str]] = []
    level = [n.id for n in network.nodes if n.id not in below]
    while level:
        layers.append(level)
        level = [other for node in level for other, _ in children.get(node, [])]
    widest = max((len(layer) for layer in layers), default=1)
    width = widest * (_BOX_W + _GAP_X) + _GAP_X
    height = len(layers) * (_BOX_H + _GAP_Y) + _GAP_X
    kinds = {node.id: node.kind for node in network.nodes}
    at: dict[str, tuple[float, float]] = {}
    for depth, layer in enumerate(layers):
        step = width / (len(layer) + 1)
        for index, node in enumerate(layer):
            at[node] = step * (index + 1), _GAP_X + depth * (_BOX_H + _GAP_Y)
    parts = [_line(link, at) for link in network.links]
    parts += [_box(node, kinds[node], *at[node]) for node in at]
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"font-family='sans-serif' font-size='11'>{''.join(parts)}</svg>\n"
    )


def _line(link: Link, at: dict[str, tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = at[link.a], at[link.b]
    colour = f"hsl({round(120 * (1 - link.utilisation))},70%,40%)"
    thick = 1 + min(5.0, link.bandwidth_mbit / 20_000)
    middle = _BOX_H / 2
    return (
        f"<line x1='{x1:.0f}' y1='{y1 + middle:.0f}' x2='{x2:.0f}' y2='{y2 + middle:.0f}' "
        f"stroke='{colour}' stroke-width='{thick:.1f}'><title>{escape(link.a)} - "
        f"{escape(link.b)}: {_words(link)}</title></line>"
    )


def _box(node: str, kind: str, x: float, y: float) -> str:
    fill = {"host": "#e3f2fd", "switch": "#fff3e0", "router": "#f3e5f5"}[kind]
    short = node if len(node) <= 15 else node[:14] + "…"
    return (
        f"<rect x='{x - _BOX_W / 2:.0f}' y='{y:.0f}' width='{_BOX_W}' height='{_BOX_H}' rx='4' "
        f"fill='{fill}' stroke='#546e7a'><title>{escape(node)}</title></rect>"
        f"<text x='{x:.0f}' y='{y + 17:.0f}' text-anchor='middle'>{escape(short)}</text>"
    )
