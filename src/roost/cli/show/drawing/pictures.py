"""A series and its forecast as a picture of characters: the past as a line, what comes as a band.

No more than a terminal needs, so nothing has to be installed for it. A column stands for some steps
of time: of the past it shows their mean, of the time ahead the most likely value and from the
lowest to the highest bound.
"""

from collections.abc import Callable, Sequence

from rich.text import Text

Values = Sequence[float | None]

_PAST, _POINT, _BAND = ("█", "cyan"), ("●", "yellow"), ("░", "magenta")
_NOTHING = (" ", "")


def draw(
    past: Values,
    point: Values,
    low: Values,
    high: Values,
    *,
    width: int,
    height: int = 12,
    label: Callable[[float], str],
) -> list[Text]:
    """Return the lines of a picture; the first and last have a label of their value."""
    steps = len(past) + len(point)
    per_column = max(1, -(-steps // max(1, width)))
    before = [_mean(part) for part in _parts(past, per_column)]
    ahead = [
        (_mean(points), _least(lows), _most(highs))
        for points, lows, highs in zip(
            *(_parts(each, per_column) for each in (point, low, high)), strict=True
        )
    ]
    known = [each for each in (*past, *point, *high) if each is not None]
    top = max(known, default=0.0) or 1.0

    def row_of(value: float) -> int:
        return min(height - 1, int(value / top * height))

    columns = [_past_column(value, row_of, height) for value in before]
    columns += [_ahead_column(*each, row_of, height) for each in ahead]
    names = {height - 1: label(top), 0: label(0.0)}
    wide = max(map(len, names.values()))
    lines = []
    for row in range(height - 1, -1, -1):
        line = Text(f"{names.get(row, ''):>{wide}} ┤", style="dim")
        for column in columns:
            sign, style = column[row]
            line.append(sign, style=style)
        lines.append(line)
    axis = " " * wide + " └" + "─" * len(before) + "┬" + "─" * max(0, len(ahead) - 1)
    return [*lines, Text(axis, style="dim")]


def _past_column(
    value: float | None, row_of: Callable[[float], int], height: int
) -> list[tuple[str, str]]:
    upto = -1 if value is None else row_of(value)
    return [_PAST if row <= upto else _NOTHING for row in range(height)]


def _ahead_column(
    value: float | None,
    low: float | None,
    high: float | None,
    row_of: Callable[[float], int],
    height: int,
) -> list[tuple[str, str]]:
    column = [_NOTHING] * height
    if low is not None and high is not None:
        for row in range(row_of(low), row_of(high) + 1):
            column[row] = _BAND
    if value is not None:
        column[row_of(value)] = _POINT
    return column


def _parts(values: Values, size: int) -> list[Values]:
    return [values[begin : begin + size] for begin in range(0, len(values), size)]


def _mean(values: Values) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) / len(known) if known else None


def _least(values: Values) -> float | None:
    return None if None in values else min(each for each in values if each is not None)


def _most(values: Values) -> float | None:
    return None if None in values else max(each for each in values if each is not None)
