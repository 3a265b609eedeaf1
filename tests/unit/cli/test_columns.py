"""Long lists as plain columns: aligned, sorted, cut at the edge, quick."""

import time

import pytest

from roost.base.errors import InvalidRequest
from roost.cli.show.columns import Cell, Column, Listing, lines, ordered

COLUMNS = (
    Column("name"),
    Column("cpu", right=True),
    Column("labels", wide=True),
    Column("state", style=lambda text: "green" if text == "running" else ""),
)


def row(name: str, cpu: int, state: str = "running") -> list[Cell]:
    """Return the cells of one thing."""
    return [(name, name), (cpu, f"{cpu} m"), ("", "a=b"), (state, state)]


def test_columns_are_aligned_and_wide_ones_left_out() -> None:
    rows = [row("web-1", 500), row("db", 12000)]
    assert list(lines(COLUMNS, rows, Listing())) == [
        "NAME       CPU  STATE",
        "web-1    500 m  running",
        "db     12000 m  running",
    ]
    [wide, *_] = lines(COLUMNS, rows, Listing(wide=True))
    assert wide.split() == ["NAME", "CPU", "LABELS", "STATE"]


def test_without_headers_there_are_only_rows() -> None:
    assert list(lines(COLUMNS, [row("a", 1)], Listing(headers=False))) == ["a  1 m  running"]


def test_names_with_numbers_and_amounts_are_sorted_as_people_count() -> None:
    rows = [row("hv-10", 900), row("hv-2", 12000)]
    by_name = ordered(COLUMNS, rows, Listing(sort="name"))
    assert [cells[0][1] for cells in by_name] == ["hv-2", "hv-10"]
    by_cpu = ordered(COLUMNS, rows, Listing(sort="-cpu"))
    assert [cells[0][1] for cells in by_cpu] == ["hv-2", "hv-10"]


def test_a_column_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidRequest, match="no column 'ram'") as refused:
        ordered(COLUMNS, [row("a", 1)], Listing(sort="ram"))
    assert refused.value.hint == "Maybe one of name, cpu, labels, state."


def test_on_a_terminal_lines_are_cut_and_coloured() -> None:
    [_, line] = lines(COLUMNS, [row("a", 1)], Listing(), colour=True, edge=13)
    assert line == "a     1 m  \x1b[32mru\x1b[0m"


def test_ten_thousand_rows_take_a_fraction_of_a_second() -> None:
    rows = [row(f"vm-{number}", number) for number in range(10_000)]
    begun = time.process_time()
    assert len(list(lines(COLUMNS, rows, Listing()))) == 10_001
    assert time.process_time() - begun < 1.0
