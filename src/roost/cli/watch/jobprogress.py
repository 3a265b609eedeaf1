"""`roost job wait`: stay until an array has ended, with a bar of how far it has come."""

import threading
import time
from typing import TYPE_CHECKING

from roost.base.errors import Unavailable
from roost.cli.show.screen import console
from roost.cli.words.session import Session

if TYPE_CHECKING:
    from roost.wire.jobs import ArrayDetail

#: How long one question waits; a bar moves at least so often.
_ASK_S = 1.0


def pause(seconds: float = 0.5) -> None:
    """Wait a moment before the server is asked again."""
    threading.Event().wait(seconds)


def wait_for_array(session: Session, own: "ArrayDetail", most_s: float | None) -> "ArrayDetail":
    """Return an array when it has ended; raise when time is up before that."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    until = None if most_s is None else time.monotonic() + most_s
    screen = console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[cost]}"),
        console=screen,
        disable=not screen.is_terminal,
        transient=True,
    ) as progress:
        line = progress.add_task(own.name or own.id, total=own.size, cost="")
        while own.finished_at is None:
            left = _ASK_S if until is None else min(_ASK_S, until - time.monotonic())
            if left <= 0:
                raise Unavailable(
                    f"{own.id} is still {own.state} after {most_s:g} s",
                    hint=f"Maybe ask why: roost job explain {own.id}.",
                    job=own.id,
                )
            own = session.client.get_array(own.id, wait_s=max(0.05, left))
            counts = own.jobs
            done = counts.completed + counts.failed + counts.cancelled + counts.lost
            so_far = f"{own.cost_micro / 1e6:.4f} spent" if own.cost_micro else ""
            progress.update(line, completed=done, cost=so_far)
    return own
