"""Reservations as tables for a terminal."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roost.base.units import format_bytes, format_cpu
from roost.cli.show import listings, tables
from roost.model.resources import WHOLE_DEVICE
from roost.wire.reservations import (
    CalendarBody,
    CalendarLine,
    ReservationBody,
    ReservationDetail,
    UnitBody,
)

_STYLES = {"live": "green", "unhonoured": "bold red", "ended": "dim"}
#: Windows that a terminal is shown.
_MOST_SHOWN = 20


def amounts(cpu_milli: int, memory_bytes: int, disk_bytes: int) -> str:
    """Return what one unit keeps."""
    words = [f"{format_cpu(cpu_milli)} cpu", format_bytes(memory_bytes)]
    if disk_bytes:
        words.append(f"{format_bytes(disk_bytes)} disk")
    return ", ".join(words)


def _beside(of: ReservationBody) -> list[str]:
    """Return what one unit keeps beside its amounts."""
    words = []
    if of.gpu is not None:
        model = " or ".join(of.gpu.models) or "GPU"
        share = "" if of.gpu.share_milli == WHOLE_DEVICE else f" at {of.gpu.share_milli}/1000"
        memory = f" of {format_bytes(of.gpu.memory_bytes)}" if of.gpu.memory_bytes else ""
        words.append(f"{of.gpu.count} x {model}{memory}{share}")
    words += [f"{amount} {name}" for name, amount in sorted(of.extended.items())]
    if of.numa != "any":
        words.append("in one NUMA cell" if of.numa == "one" else "over two NUMA cells")
    return words


def _each(of: ReservationBody) -> str:
    each = ", ".join([amounts(of.cpu_milli, of.memory_bytes, of.disk_bytes), *_beside(of)])
    return each if of.units == 1 else f"{of.units} x ({each})"


def _times(of: ReservationBody) -> str:
    if of.recurrence:
        return f"{of.recurrence} from {of.start}, {of.lasts_s} s each"
    return f"{of.start} to {of.end}" if of.end else f"from {of.start}"


def listed(found: Sequence[ReservationBody]) -> RenderableType:
    """Return reservations, one line each."""
    made = tables.table("reservation", "for", "keeps", "when", "VMs", "state", right=("VMs",))
    for each in found:
        made.add_row(
            Text(each.name, style="bold"),
            Text(f"{each.owner_kind} {each.owner}"),
            Text(_each(each)),
            Text(_times(each)),
            str(each.drawn),
            Text(each.state, style=_STYLES.get(each.state, "")),
        )
    return made


def detail(found: ReservationDetail) -> RenderableType:
    """Return one reservation, where it is and when."""
    pairs: list[tuple[str, RenderableType]] = [
        ("reservation", Text(found.name, style="bold")),
        ("state", Text(found.state, style=_STYLES.get(found.state, ""))),
        ("for", Text(f"{found.owner_kind} {found.owner}")),
        ("keeps", Text(_each(found))),
        ("when", Text(_times(found))),
    ]
    if found.unhonoured:
        pairs.append(("not honoured", Text(found.unhonoured, style="bold red")))
    homes = Counter(_home(unit) for unit in found.placed)
    on = ", ".join(f"{host} x {n}" if n > 1 else host for host, n in sorted(homes.items()))
    pairs.append(("on", Text(on or "no host")))
    pairs.append(("VMs", Text(str(found.drawn))))
    if found.description:
        pairs.append(("description", Text(found.description)))
    parts: list[RenderableType] = [listings.lines(pairs)]
    if len(found.windows) > 1:
        made = tables.table("live from", "to")
        for window in found.windows[:_MOST_SHOWN]:
            made.add_row(Text(window.start), Text(window.end or "not known yet"))
        parts += [Text(""), made]
        more = len(found.windows) - _MOST_SHOWN
        if more > 0:
            parts.append(Text(f"and {more} more"))
    return Group(*parts)


def _home(unit: UnitBody) -> str:
    """Return where a unit is: its host, and which devices and cells of it."""
    if unit.host is None:
        return "no host"
    parts = [f"GPU {', '.join(map(str, unit.devices))}"] if unit.devices else []
    parts += [f"cell {', '.join(map(str, unit.cells))}"] if unit.cells else []
    return f"{unit.host} ({'; '.join(parts)})" if parts else unit.host


def _in_all(line: CalendarLine) -> str:
    words = [amounts(line.cpu_milli, line.memory_bytes, line.disk_bytes)]
    words += [f"{line.gpus} GPU"] if line.gpus else []
    return ", ".join(words + [f"{amount} {name}" for name, amount in sorted(line.extended.items())])


def calendar(found: CalendarBody) -> RenderableType:
    """Return windows in the order of time."""
    if not found.lines:
        return Text("nothing is reserved")
    made = tables.table("from", "to", "reservation", "for", "keeps in all", "on")
    for line in found.lines:
        made.add_row(
            Text(line.start),
            Text(line.end or "-"),
            Text(line.reservation, style="bold"),
            Text(f"{line.owner_kind} {line.owner}"),
            Text(_in_all(line)),
            Text(", ".join(line.hosts) + (f" and {line.more_hosts} more" * bool(line.more_hosts))),
        )
    return Group(made, Text("and more; narrow it down by --end or --host")) if found.more else made
