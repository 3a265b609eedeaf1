"""The network between hosts as tables for a terminal."""

from rich.console import RenderableType
from rich.text import Text

from roost.cli.show import listings, tables
from roost.wire.topology import PathBody, TopologyBody

#: Links and uplinks that a terminal is shown.
_MOST_SHOWN = 40


def summary(found: TopologyBody) -> RenderableType:
    """Return how large the network is, and what hosts share the most."""
    kinds = [node.type for node in found.nodes]
    known = f"declared, generation {found.generation}"
    if found.source == "labels":
        known = "assumed from zones and racks; nobody has described it (roost topology apply)"
    pairs: list[tuple[str, RenderableType]] = [
        ("topology", Text(known)),
        ("nodes", Text(f"{kinds.count('host')} hosts, {len(kinds) - kinds.count('host')} others")),
        ("links", Text(str(len(found.links)))),
    ]
    if found.traffic:
        pairs.append(("traffic", Text(f"{len(found.traffic)} pairs of VMs")))
    for each in found.uplinks[:5]:
        words = f"{each.source} - {each.dest}: {each.bandwidth:g} Mbit/s for {each.pairs} pairs"
        pairs.append(("shared", Text(words)))
    if found.missing:
        more = "" if len(found.missing) <= 10 else f" and {len(found.missing) - 10} more"
        pairs.append(("not named", Text(", ".join(found.missing[:10]) + more)))
    if found.changed_at:
        pairs.append(("changed", Text(f"{found.changed_at} by {found.changed_by}")))
    return listings.lines(pairs)


def links(found: TopologyBody) -> RenderableType:
    """Return links, one line each."""
    made = tables.table("link", "Mbit/s", "ms", "taken", right=("Mbit/s", "ms", "taken"))
    for each in found.links[:_MOST_SHOWN]:
        made.add_row(
            Text(f"{each.source} - {each.dest}"),
            f"{each.bandwidth:g}",
            f"{each.latency:g}",
            f"{100 * each.utilization:.0f}%",
        )
    if (more := len(found.links) - _MOST_SHOWN) > 0:
        made.add_row(Text(f"... and {more} more"), "", "", "")
    return made


def path(found: PathBody) -> RenderableType:
    """Return a path and what it offers."""
    free = "no link between" if found.free_mbit is None else f"{found.free_mbit:g} Mbit/s left"
    pairs: list[tuple[str, RenderableType]] = [
        ("path", Text(" - ".join(found.nodes))),
        ("hops", Text(str(found.hops))),
        ("latency", Text(f"{found.latency_ms:g} ms")),
        ("bandwidth", Text(free)),
    ]
    if found.narrowest is not None:
        narrow = found.narrowest
        pairs.append(("narrowest", Text(f"{narrow.source} - {narrow.dest}")))
    return listings.lines(pairs)
