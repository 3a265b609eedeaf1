"""Long lists as plain columns: ten thousand rows in a tenth of a second.

Tables that fold, measure and style every cell cost a millisecond a row. A list needs none of that:
widths are taken once, a style is one escape sequence, and a row is one line however wide. On a
terminal rows are cut at its edge, in a pipe they are whole.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from roost.base.errors import InvalidRequest
from roost.cli.show.screen import console
from roost.cli.show.steering import unsteered

#: What a row's cell is sorted by, and what is shown.
Cell = tuple[object, str]

_CODES = {
    "": "",
    "bold": "1",
    "dim": "2",
    "green": "32",
    "yellow": "33",
    "red": "31",
    "bold red": "1;31",
    "cyan": "36",
    "magenta": "35",
}


class Column(NamedTuple):
    """One column: its name, how it is aligned and styled, and whether only `-o wide` has it."""

    name: str
    right: bool = False
    style: Callable[[str], str] | None = None
    wide: bool = False


class Listing(NamedTuple):
    """How a list is to be shown: which columns, in which order, with or without headers."""

    wide: bool = False
    sort: str = ""
    headers: bool = True


def ordered(
    columns: Sequence[Column], rows: Iterable[Sequence[Cell]], listing: Listing
) -> list[Sequence[Cell]]:
    """Return rows in the order that was asked for; `-NAME` is the other way round."""
    found = list(rows)
    if not listing.sort:
        return found
    name, back = listing.sort.removeprefix("-"), listing.sort.startswith("-")
    names = [column.name.lower() for column in columns]
    if name.lower() not in names:
        known = ", ".join(each for each in names if each)
        raise InvalidRequest(f"no column {name!r} to sort by", hint=f"Maybe one of {known}.")
    at = names.index(name.lower())
    if not any(isinstance(row[at][0], str) for row in found):
        return sorted(found, key=lambda row: row[at][0], reverse=back)  # type: ignore[arg-type,return-value]
    return sorted(found, key=lambda row: natural(str(row[at][0])), reverse=back)


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return what sorts hv-2 before hv-10."""
    parts = re.findall(r"\d+|\D+", text)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def lines(
    columns: Sequence[Column],
    rows: Sequence[Sequence[Cell]],
    listing: Listing,
    *,
    colour: bool = False,
    edge: int | None = None,
) -> Iterator[str]:
    """Yield the lines of a list."""
    shown = [at for at, column in enumerate(columns) if listing.wide or not column.wide]
    widths = [
        max([len(row[at][1]) for row in rows] + [len(columns[at].name) if listing.headers else 0])
        for at in shown
    ]
    if listing.headers:
        heads = [columns[at].name.upper() for at in shown]
        line = _line(columns, shown, heads, widths)
        yield f"\x1b[1m{line[:edge]}\x1b[0m" if colour else line[:edge]
    for row in rows:
        texts = [row[at][1] for at in shown]
        line = _line(columns, shown, texts, widths)
        if edge is not None:
            line = line[:edge]
        yield _coloured(line, columns, shown, texts, widths) if colour else line


def _line(
    columns: Sequence[Column], shown: Sequence[int], texts: Sequence[str], widths: Sequence[int]
) -> str:
    padded = [
        text.rjust(width) if columns[at].right else text.ljust(width)
        for at, text, width in zip(shown, texts, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _coloured(
    line: str,
    columns: Sequence[Column],
    shown: Sequence[int],
    texts: Sequence[str],
    widths: Sequence[int],
) -> str:
    """Return a line with the styles of its cells; what is cut off has none."""
    made, start = [], 0
    for at, text, width in zip(shown, texts, widths, strict=True):
        piece = line[start : start + width]
        style = columns[at].style
        code = _CODES.get(style(text), "") if style is not None else ""
        made.append(f"\x1b[{code}m{piece}\x1b[0m" if code and piece else piece)
        made.append(line[start + width : start + width + 2])
        start += width + 2
    return "".join(made).rstrip()


def write_list(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], listing: Listing) -> None:
    """Write a list to standard output."""
    target = console()
    edge = target.width if target.is_terminal else None
    found = [
        [(key, unsteered(text).replace("\r", "")) for key, text in row]
        for row in ordered(columns, rows, listing)
    ]
    colour = target.is_terminal and target.color_system is not None
    sys.stdout.write("\n".join([*lines(columns, found, listing, colour=colour, edge=edge), ""]))
    sys.stdout.flush()
