"""Rows of a benchmark: a value, the goal it is held to, and how both are shown.

A row is judged by its goal alone; the aim lies beyond it. `ratio` is the measured time over that
of the plain compiled scan in the same run, so below 1 is faster than the scan.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Result:
    """One row; `goal` and `aim` are in the row's unit, `met` is None where there is no goal.

    A row that could not be measured has the value None, and says why.
    """

    row: str
    value: float | None
    unit: str
    goal: float | None = None
    aim: float | None = None
    met: bool | None = None
    aim_met: bool | None = None
    ratio: float | None = None
    note: str = ""


def at_most(
    row: str,
    value: float,
    unit: str,
    goal: float | None,
    aim: float | None = None,
    *,
    ratio: float | None = None,
    note: str = "",
) -> Result:
    """Build a row whose value should not exceed its goal."""
    met = None if goal is None else value <= goal
    aim_met = None if aim is None else value <= aim
    return Result(row, value, unit, goal, aim, met, aim_met, ratio, note)


def at_least(
    row: str,
    value: float,
    unit: str,
    goal: float | None,
    aim: float | None = None,
    *,
    ratio: float | None = None,
    note: str = "",
) -> Result:
    """Build a row whose value should reach its goal."""
    met = None if goal is None else value >= goal
    aim_met = None if aim is None else value >= aim
    return Result(row, value, unit, goal, aim, met, aim_met, ratio, note)


def skipped(row: str, unit: str, why: str) -> Result:
    """Build a row that this machine cannot measure."""
    return Result(row, None, unit, note=f"skipped: {why}")


def significant(value: float | None) -> str:
    """Write a number with about three significant digits."""
    if value is None:
        return ""
    for bound, decimals in ((100, 0), (10, 1), (0.1, 2)):
        if abs(value) >= bound:
            return f"{value:,.{decimals}f}"
    return f"{value:.2g}"


def verdict(result: Result) -> str:
    """Say in a word what became of the row's goal."""
    if result.met is None:
        return ""
    if not result.met:
        return "[bold red]MISSED[/]"
    return "[green]aim[/]" if result.aim_met else "[green]goal[/]"


def table(title: str, results: Sequence[Result]) -> Table:
    """Lay the rows out for a terminal; ratios are shown where there are any."""
    laid_out = Table(title=title, title_justify="left", pad_edge=False)
    laid_out.add_column("row", overflow="fold")
    with_ratios = any(result.ratio is not None for result in results)
    ratio = ("x plain scan",) if with_ratios else ()
    for column in ("value", "unit", *ratio, "goal", "aim"):
        laid_out.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    laid_out.add_column("met", no_wrap=True)
    laid_out.add_column("note", overflow="fold")
    for result in results:
        laid_out.add_row(
            result.row,
            significant(result.value),
            result.unit,
            *((significant(result.ratio),) if with_ratios else ()),
            significant(result.goal),
            significant(result.aim),
            verdict(result),
            result.note,
        )
    return laid_out


def write_json(path: Path, results: Sequence[Result]) -> None:
    """Write the rows as a JSON list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")
