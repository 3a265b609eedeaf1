"""Priority classes and preemptions as tables and sentences for a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from roost.cli.show import listings, tables
from roost.wire.bodies import PreemptionBody
from roost.wire.priorities import PreemptionAnswer, PriorityClassBody


def listed(classes: Sequence[PriorityClassBody]) -> RenderableType:
    """Return priority classes, one line each."""
    made = tables.table("class", "value", "displaces", "default", "description", right=("value",))
    for each in classes:
        made.add_row(
            Text(each.name, style="bold"),
            str(each.value),
            Text(_displaces(each)),
            Text("yes" if each.default else ""),
            Text(each.description),
        )
    return made


def detail(found: PriorityClassBody) -> RenderableType:
    """Return one priority class."""
    pairs: list[tuple[str, RenderableType]] = [
        ("class", Text(found.name, style="bold")),
        ("value", Text(str(found.value))),
        ("displaces", Text(_displaces(found))),
        ("default", Text("yes" if found.default else "no")),
    ]
    if found.description:
        pairs.append(("description", Text(found.description)))
    pairs.append(("changed", Text(f"{found.changed_at} by {found.changed_by}")))
    return listings.lines(pairs)


def _displaces(found: PriorityClassBody) -> str:
    return "lower ones" if found.preempts == "lower" else "nobody"


def answer(found: PreemptionAnswer, vm: str = "") -> RenderableType:
    """Return who makes room for a VM, or why nobody does; it is named if it is one of several."""
    if found.preemption is None:
        return Text(f"{f'{vm}: ' if vm else ''}nobody makes room: {found.why}")
    return Group(*tables.preemption(found.preemption))


def under_way(found: Sequence[PreemptionBody]) -> RenderableType:
    """Return preemptions, one after the other."""
    if not found:
        return Text("no room is being made for anybody")
    return Group(*(part for each in found for part in tables.preemption(each)))
