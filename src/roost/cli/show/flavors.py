"""Flavors as tables for a terminal."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from roost.base.units import format_bytes, format_cpu
from roost.cli.show import listings, tables
from roost.wire.flavors import FlavorBody


def listed(flavors: Sequence[FlavorBody]) -> RenderableType:
    """Return flavors, one line each."""
    if not flavors:
        return Text("no flavors", style="dim")
    made = tables.table(
        "flavor", "cpu", "memory", "disk", "gpu", "description", right=("cpu", "memory", "disk")
    )
    for each in flavors:
        made.add_row(Text(each.name, style="bold"), *_amounts(each), Text(each.description))
    return made


def detail(found: FlavorBody) -> RenderableType:
    """Return one flavor."""
    cpu, memory, disk, gpu = _amounts(found)
    pairs: list[tuple[str, RenderableType]] = [
        ("flavor", Text(found.name, style="bold")),
        ("cpu", Text(cpu)),
        ("memory", Text(memory)),
        ("disk", Text(disk)),
    ]
    if found.gpu:
        pairs.append(("gpu", Text(gpu)))
    pairs += [(name, Text(str(amount))) for name, amount in sorted(found.demand.extended.items())]
    if found.demand.numa != "any":
        pairs.append(("numa", Text(found.demand.numa)))
    if found.description:
        pairs.append(("description", Text(found.description)))
    pairs.append(("changed", Text(f"{found.changed_at} by {found.changed_by}")))
    return listings.lines(pairs)


def _amounts(each: FlavorBody) -> tuple[str, str, str, str]:
    gpu = str(each.gpu) if each.gpu else ""
    if not isinstance(each.demand.gpu, int):
        gpu = " ".join([gpu, *each.demand.gpu.models])
        if each.demand.gpu.share_milli != 1000:
            gpu += f", {each.demand.gpu.share_milli} thousandths of each"
    disk = format_bytes(each.disk_bytes) if each.disk_bytes else "-"
    return format_cpu(each.cpu_milli), format_bytes(each.memory_bytes), disk, gpu
