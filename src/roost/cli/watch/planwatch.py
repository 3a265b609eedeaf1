"""A plan as it happens: how many of its moves are made, until it is over."""

import asyncio
from typing import TYPE_CHECKING

from roost.base.errors import Unavailable
from roost.cli.show.screen import console, note

if TYPE_CHECKING:
    from roost.client import AsyncClient
    from roost.wire.plans import PlanDetail

#: How often the plan is looked at.
_LOOK_S = 1.0
#: Moves under way that are named.
_MOST_NAMED = 3
_OVER = ("done", "failed", "cancelled")


async def watch_plan(client: "AsyncClient", plan: str, timeout_s: float) -> "PlanDetail":
    """Return a plan when it is over; shows a bar on a terminal, else a line for every change."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    target = console(stderr=True)
    said = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), said)
    bar = Progress(*columns, console=target, transient=True, disable=not target.is_terminal)
    last = ""
    try:
        async with asyncio.timeout(timeout_s), client:
            with bar:
                task = bar.add_task(plan, total=None)
                while True:
                    found = await client.get_plan(plan, move_state="running", limit=_MOST_NAMED)
                    line = _line(found)
                    bar.update(task, description=line, completed=found.done, total=found.moves)
                    if line != last and not target.is_terminal:
                        note(line)
                    last = line
                    if found.state in _OVER:
                        return await client.get_plan(plan)
                    await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise Unavailable(
            f"plan {plan!r} is not over after {timeout_s:g} s",
            hint=f"Maybe look at it with `roost plan show {plan}`.",
            plan=plan,
        ) from None


def _line(found: "PlanDetail") -> str:
    moving = [f"{each.name} to {each.target}" for each in found.listed]
    words = [f"{found.state}, wave {found.wave} of {found.waves}, {found.done} of {found.moves}"]
    if moving:
        left = found.moving - len(moving)
        more = f" and {left} more" if left > 0 else ""
        words.append(f"moving {', '.join(moving)}{more}")
    return "; ".join(words)
