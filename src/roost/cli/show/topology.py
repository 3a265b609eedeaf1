"""The network between hosts as tables for a terminal."""

from rich.console import RenderableType
from rich.text import Text

from roost.cli.show import listings, tables
from roost.wire.topology import MeasurementBody, PathBody, TopologyBody, TrafficMatrixBody

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
    if found.traffic or found.learnt_pairs:
        said = f"{len(found.traffic)} pairs of VMs declared, {found.learnt_pairs} learnt"
        pairs.append(("traffic", Text(said)))
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


def traffic(found: TrafficMatrixBody) -> RenderableType:
    """Return pairs that talk, one line each."""
    made = tables.table("pair", "Mbit/s", "said by", "", right=("Mbit/s",))
    for each in found.pairs[:_MOST_SHOWN]:
        note = "" if each.known else "gone" if each.said == "learnt" else "not there yet"
        note = note if each.counts else "what is declared counts"
        made.add_row(Text(f"{each.source} - {each.dest}"), f"{each.rate:.4g}", each.said, note)
    if (more := found.pairs_in_all - _MOST_SHOWN) > 0:
        made.add_row(Text(f"... and {more} more"), "", "", "")
    return made if found.pairs else Text("nobody has said who talks with whom")


def measurement(found: MeasurementBody) -> RenderableType:
    """Return how a measurement went, and what is unknown in what it proposes."""
    failed = sum(pair.state == "failed" for pair in found.pairs)
    pairs: list[tuple[str, RenderableType]] = [
        ("measurement", Text(f"{found.id}, {found.state}")),
        ("pairs", Text(f"{len(found.pairs)}, {found.method}; {failed} failed")),
    ]
    if found.state == "planned":
        pairs.append(("takes", Text(f"{found.most_s:g} s at most")))
    if found.proposal is not None:
        hosts = sum(node.type == "host" for node in found.proposal.nodes)
        words = f"{hosts} hosts, {len(found.proposal.links)} links"
        pairs.append(("proposal", Text(words)))
    if found.islands > 1:
        words = f"{found.islands} parts, between which nothing was measured"
        pairs.append(("islands", Text(words)))
    for title, names in (("inferred", found.inferred), ("left out", found.left_out)):
        if names:
            more = "" if len(names) <= 10 else f" and {len(names) - 10} more"
            pairs.append((title, Text(", ".join(names[:10]) + more)))
    pairs += [("unable", Text(f"{e.host}: {e.why}")) for e in found.unable[:_MOST_SHOWN]]
    return listings.lines(pairs)


def probed(found: MeasurementBody) -> RenderableType:
    """Return what was found between pairs of hosts, beside what the proposal says."""
    titles = ("ms", "median", "Mbit/s", "back", "proposed ms", "Mbit/s ")
    made = tables.table("pair", *titles, "", right=titles)
    for each in found.pairs[:_MOST_SHOWN]:
        figures = (
            each.latency,
            each.median,
            each.out,
            each.back,
            each.proposed_latency,
            each.proposed_bandwidth,
        )
        words = ["?" if figure is None else f"{figure:.4g}" for figure in figures]
        made.add_row(Text(f"{each.source} - {each.dest}"), *words, Text(each.why))
    if (more := len(found.pairs) - _MOST_SHOWN) > 0:
        made.add_row(Text(f"... and {more} more"), *[""] * 7)
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
