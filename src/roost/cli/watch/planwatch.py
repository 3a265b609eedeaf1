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
                    found = await client.get_plan(plan)
                    line = _line(found)
                    bar.update(task, description=line, completed=found.done, total=found.moves)
                    if line != last and not target.is_terminal:
                        note(line)
                    last = line
                    if found.state in _OVER:
                        return found
                    await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise Unavailable(
            f"plan {plan!r} is not over after {timeout_s:g} s",
            hint=f"Maybe look at it with `roost plan show {plan}`.",
            plan=plan,
        ) from None


def _line(found: "PlanDetail") -> str:
    moving = [f"{each.name} to {each.target}" for each in found.listed if each.state == "running"]
    words = [f"{found.state}, wave {found.wave} of {found.waves}, {found.done} of {found.moves}"]
    if moving:
        more = f" and {len(moving) - 3} more" if len(moving) > 3 else ""
        words.append(f"moving {', '.join(moving[:3])}{more}")
    return "; ".join(words)
