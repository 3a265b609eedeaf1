"""A measurement of the network as it happens: how many pairs are measured, until it is over."""

from typing import TYPE_CHECKING

from roost.base.clock import RealClock
from roost.cli.show.screen import console, note

if TYPE_CHECKING:
    from roost.cli.words.session import Session
    from roost.wire.topology import MeasurementBody

#: How often it is looked at.
_LOOK_S = 0.5


def watch_measurement(session: "Session", found: "MeasurementBody") -> "MeasurementBody":
    """Return a measurement when it is over; an interrupt ends it with what was found so far."""
    import asyncio

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    target = console(stderr=True)
    said = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), said)
    bar = Progress(*columns, console=target, transient=True, disable=not target.is_terminal)
    if not target.is_terminal:
        note(f"{len(found.pairs)} pairs are measured, {found.method}")
    try:
        with bar:
            task = bar.add_task("", total=len(found.pairs))
            while found.state == "running":
                asyncio.run(RealClock().sleep(_LOOK_S))
                found = session.client.topology_measurement(found.id)
                under_way = [f"{p.source} - {p.dest}" for p in found.pairs if p.state == "running"]
                bar.update(task, completed=found.done, description=", ".join(under_way))
    except KeyboardInterrupt:
        found = session.client.cancel_topology_measurement(found.id)
    return found
