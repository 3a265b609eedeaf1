"""The report on a fleet as one HTML file: no script, no link, nothing to be fetched."""

from collections.abc import Iterable, Sequence
from html import escape

from roost.cli.show.drawing import svg
from roost.cli.show.fleetreports import advice, amount, members, when
from roost.wire.reports import FleetReport, OversizedVM

_STYLE = """
body { font: 14px/1.45 sans-serif; margin: 2em auto; max-width: 1080px; color: #222; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3em .8em .3em 0; border-bottom: 1px solid #e3e3e3; }
th { color: #666; font-weight: normal; } .bad { color: #b00020; } .good { color: #1b7f3b; }
p.note { color: #666; } svg { max-width: 100%; height: auto; }
.cards { display: flex; gap: 1em; flex-wrap: wrap; } .card { background: #f5f6f8; padding: .8em 1.2em; }
.card b { display: block; font-size: 1.3em; }
"""  # noqa: E501


def page(found: FleetReport) -> str:
    """Return the whole page."""
    saving = found.saving
    cards = (
        (str(found.vms), f"VMs on {found.hosts} hosts"),
        (amount("cpu", saving.cpu_milli), "asked for and not used"),
        (amount("memory", saving.memory_bytes), f"so too, by {saving.vms} VMs in all"),
        (str(found.zombie_count), "VMs that nobody seems to need"),
        (str(len({each.host for each in found.shortages})), "hosts may be short within a week"),
    )
    shown = "".join(f'<div class="card"><b>{escape(b)}</b>{escape(t)}</div>' for b, t in cards)
    parts = [
        f"<h1>Fleet report</h1><p class=note>The week before {when(found.origin_ms)}.</p>",
        f'<div class="cards">{shown}</div>',
        "<h2>Busy hours</h2>",
        svg.heat_map(found.hours, "cpu"),
        svg.heat_map(found.hours, "memory"),
        *_shortages(found),
        *_levels(found),
        *_sizes("Asks for too much", found.oversized, found.oversized_count),
        *_sizes("Asks for too little", found.undersized, found.undersized_count),
        *_zombies(found),
        *_groups(found),
        "<p class=note>Advice on sizes: what 99 of 100 busy moments needed, and a fifth on top. "
        "Upper bounds are passed one time in ten if VMs go on as they did; they know nothing of "
        "what never happened.</p>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Fleet report</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], note: str) -> list[str]:
    listed = [
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in map(escape, row)) + "</tr>" for row in rows
    ]
    if not listed:
        return [f"<h2>{escape(title)}</h2><p class=note>{escape(note)}</p>"]
    heads = "".join(f"<th>{escape(each)}</th>" for each in head)
    return [f"<h2>{escape(title)}</h2><table><tr>{heads}</tr>{''.join(listed)}</table>"]


def _shortages(found: FleetReport) -> list[str]:
    rows = (
        (
            each.host, each.resource, when(each.first_ms),
            "not likely" if each.likely_ms is None else when(each.likely_ms),
            amount(each.resource, each.most), amount(each.resource, each.total),
        )
        for each in found.shortages
    )  # fmt: skip
    head = ("host", "short of", "may be from", "likely from", "up to", "of")
    return _table("Hosts that will be short", head, rows, "None within a week, as far as foreseen.")


def _levels(found: FleetReport) -> list[str]:
    rows = (
        (
            each.host, f"{each.promised:.2f} x", f"{each.safe:.2f} x",
            "too much" if each.promised > each.safe else "room for more",
            f"{each.bound:.1%}",
        )
        for each in found.levels
    )  # fmt: skip
    head = ("host", "cpu promised", "safe", "", "short at most")
    return _table("How much cpu may be promised", head, rows, "Too little was read to say.")


def _sizes(title: str, vms: Sequence[OversizedVM], count: int) -> list[str]:
    rows = (
        (
            each.name, each.project, each.host, each.resource,
            amount(each.resource, each.asked), amount(each.resource, each.advised), advice(each),
        )
        for each in vms
    )  # fmt: skip
    head = ("VM", "project", "host", "", "asks", "would do", "advice")
    return _table(f"{title} ({count})", head, rows, "Nobody.")


def _zombies(found: FleetReport) -> list[str]:
    rows = (
        (
            each.name, each.project, each.host,
            f"{amount('cpu', each.cpu_milli)}, {amount('memory', each.memory_bytes)}",
            f"{each.days_seen:.0f} days, cpu below {each.cpu_p99_share:.1%}, "
            f"{each.network_p99_bytes:.0f} bytes/s at most",
        )
        for each in found.zombies
    )  # fmt: skip
    head = ("VM", "project", "host", "holds", "evidence")
    return _table(f"Zombies ({found.zombie_count})", head, rows, "None.")


def _groups(found: FleetReport) -> list[str]:
    rows = (
        (
            str(each.count), f"{each.peak_hour:02}:00Z", f"{each.correlation:.2f}",
            str(each.hosts), members(each, 12),
        )
        for each in found.groups
    )  # fmt: skip
    head = ("VMs", "peak", "alike", "hosts", "who")
    return _table(f"Who peaks together ({found.group_count})", head, rows, "Nobody.")
