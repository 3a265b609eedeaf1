"""The report on a fleet as a person reads it in a terminal: what to do first, then the rest."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roost.base.timestamps import timestamp
from roost.base.units import MIB
from roost.cli.show import sentences
from roost.cli.show.tables import labelled, table
from roost.wire.reports import FleetReport, HourBody, OversizedVM, PeakGroupBody

_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
#: Shares of use from which on a cell has a colour.
_HEAT = ((0.85, "white on red"), (0.65, "black on dark_orange"), (0.4, "black on yellow"),
         (0.15, "black on green"), (0.0, "white on blue"))  # fmt: skip
_SOME = 10


def report(found: FleetReport) -> RenderableType:
    """Return a report; long lists are cut at ten, `-o json` has more."""
    saving = found.saving
    parts: list[RenderableType] = [
        Text.assemble(
            (f"{found.vms} VMs on {found.hosts} hosts", "bold"),
            f", the week before {timestamp(found.origin_ms)[:16]}Z",
        ),
        labelled("classes", ", ".join(f"{n} {kind}" for kind, n in found.classes.items()) or "-"),
        labelled(
            "sizes",
            f"{saving.vms} VMs ask for {amount('cpu', saving.cpu_milli)} and "
            f"{amount('memory', saving.memory_bytes)} more than they use",
        ),
    ]
    if found.unread_hosts:
        parts.append(labelled("unread", f"{found.unread_hosts} hosts sent nothing in that week"))
    parts += [Text(""), *heat(found.hours), Text("")]
    parts += _shortages(found)
    parts += _levels(found)
    parts += _sizes("asks for too much", found.oversized, found.oversized_count)
    parts += _sizes("asks for too little", found.undersized, found.undersized_count)
    parts += _zombies(found)
    parts += _groups(found)
    return Group(*parts)


def amount(resource: str, number: float) -> str:
    """Return an amount that nobody knows to the byte."""
    if resource in ("disk io", "network"):
        return f"{sentences.amount('memory', int(number))}/s"
    unit = MIB if resource == "memory" else 1
    return sentences.amount(resource, -(-int(number) // unit) * unit)


def when(at_ms: int) -> str:
    """Return a moment to the minute."""
    return timestamp(at_ms)[:16].replace("T", " ") + "Z"


def advice(each: OversizedVM) -> str:
    """Return advice on one size in words."""
    word = "less" if each.saving > 0 else "more"
    return f"{amount(each.resource, abs(each.saving))} {word}; short {each.risk:.1%} of the time"


def members(group: PeakGroupBody, most: int = 6) -> str:
    """Return the first names of a group, and how many more there are."""
    names = ", ".join(vm.name for vm in group.vms[:most])
    return names + (f" and {group.count - most} more" if group.count > most else "")


def heat(hours: Sequence[HourBody]) -> list[RenderableType]:
    """Return the cpu of a week, a line for each day (UTC)."""
    days: dict[int, dict[int, float | None]] = {}
    for hour in hours:
        days.setdefault(hour.at_ms // _DAY_MS, {})[hour.at_ms % _DAY_MS // _HOUR_MS] = hour.cpu
    head = Text("cpu used of all hosts, %    " + " ".join(f"{h:02}" for h in range(24)), "dim")
    lines: list[RenderableType] = [head]
    for day, by_hour in sorted(days.items()):
        line = Text(f"{timestamp(day * _DAY_MS)[:10]:<28}")
        for at in range(24):
            share = by_hour.get(at)
            if share is None:
                line.append(" · ", "dim")
            else:
                style = next(style for least, style in _HEAT if share >= least)
                line.append(f"{min(99, round(100 * share)):2} ", style)
        lines.append(line)
    return lines


def _shortages(found: FleetReport) -> list[RenderableType]:
    if not found.shortages:
        return [labelled("short", "no host within a week, as far as it is foreseen")]
    listed = table("host", "short of", "may be from", "likely from", "up to", "of", right=("of",))
    for each in found.shortages[:_SOME]:
        listed.add_row(
            each.host,
            each.resource,
            when(each.first_ms),
            "not likely" if each.likely_ms is None else when(each.likely_ms),
            amount(each.resource, each.most),
            amount(each.resource, each.total),
        )
    return [Text("Hosts that will be short", style="bold"), listed, Text("")]


def _levels(found: FleetReport) -> list[RenderableType]:
    if not found.levels:
        return []
    listed = table("host", "cpu promised", "safe", "chance of being short")
    for each in found.levels[:_SOME]:
        listed.add_row(
            each.host,
            f"{each.promised:.2f} x",
            Text(f"{each.safe:.2f} x", "red" if each.promised > each.safe else "green"),
            f"at most {each.bound:.1%} of the time",
        )
    return [Text("How much cpu may be promised", style="bold"), listed, Text("")]


def _sizes(title: str, vms: Sequence[OversizedVM], count: int) -> list[RenderableType]:
    if not vms:
        return []
    listed = table("VM", "project", "host", "", "asks", "would do", "advice", right=("asks",))
    for each in vms[:_SOME]:
        listed.add_row(
            each.name, each.project, each.host, each.resource,
            amount(each.resource, each.asked), amount(each.resource, each.advised), advice(each),
        )  # fmt: skip
    return [Text(f"Who {title} ({count})", style="bold"), listed, Text("")]


def _zombies(found: FleetReport) -> list[RenderableType]:
    if not found.zombies:
        return []
    listed = table("VM", "project", "host", "holds", "evidence")
    for each in found.zombies[:_SOME]:
        listed.add_row(
            each.name, each.project, each.host,
            f"{amount('cpu', each.cpu_milli)}, {amount('memory', each.memory_bytes)}",
            f"{each.days_seen:.0f} days, cpu below {each.cpu_p99_share:.1%}, "
            f"{each.network_p99_bytes:.0f} bytes/s at most",
        )  # fmt: skip
    title = f"Zombies: is anybody in need of them? ({found.zombie_count})"
    return [Text(title, style="bold"), listed, Text("")]


def _groups(found: FleetReport) -> list[RenderableType]:
    if not found.groups:
        return []
    listed = table("VMs", "peak", "alike", "hosts", "who", right=("VMs", "hosts"))
    for each in found.groups[:_SOME]:
        listed.add_row(
            str(each.count), f"{each.peak_hour:02}:00Z", f"{each.correlation:.2f}",
            str(each.hosts), members(each),
        )  # fmt: skip
    return [Text(f"Who peaks together ({found.group_count})", style="bold"), listed]
