"""Tables of a list in the order that was asked for, with or without headers."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roost.base.errors import InvalidRequest
from roost.cli.show.columns import Listing, natural


def arranged(shown: RenderableType, listing: Listing) -> RenderableType | None:
    """Return what is shown of a list; without headers, its rows alone."""
    if isinstance(shown, Group):
        parts = [arranged(each, listing) for each in shown.renderables]
        return Group(*(each for each in parts if each is not None))
    if isinstance(shown, Table):
        if listing.sort:
            _sort(shown, listing.sort)
        shown.show_header = listing.headers
        return shown
    return shown if listing.headers else None


def _sort(table: Table, by: str) -> None:
    """Put the rows of a table in the order of one column; `-NAME` is the other way round."""
    name, back = by.removeprefix("-").lower(), by.startswith("-")
    heads = [_plain(column.header).lower() for column in table.columns]
    if name not in heads:
        known = ", ".join(each for each in heads if each)
        raise InvalidRequest(f"no column {name!r} to sort by", hint=f"Maybe one of {known}.")
    cells = [_plain(cell) for cell in table.columns[heads.index(name)]._cells]
    order = sorted(range(len(cells)), key=lambda at: natural(cells[at]), reverse=back)
    for column in table.columns:
        column._cells = [column._cells[at] for at in order]
    table.rows = [table.rows[at] for at in order]


def _plain(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
