"""docs/origins.md says only what is so: names resolve, commands and tests exist."""

import ast
import importlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

ROOT = Path(__file__).parents[3]
TITLES = (
    "VM Scheduler Service",
    "Scheduler Integration Summary",
    "Virtual machine scheduler (VMS)",
    "Resource-Aware Scheduler Enhancement Plan",
)
HEADER = ["line asked", "name here", "command", "test"]
NOTHING = "—"
NAME = re.compile(r"roost(\.\w+)+(:\w+(\.\w+)*)?")


@dataclass(frozen=True)
class Row:
    title: str
    line: int
    cells: tuple[str, ...]

    @property
    def asked(self) -> str:
        return self.cells[0]

    @property
    def not_yet(self) -> bool:
        return "not yet" in self.cells[1]

    def quoted(self, column: str) -> list[str]:
        return re.findall(r"`([^`]+)`", self.cells[HEADER.index(column)])


def parse(text: str) -> list[Row]:
    rows, title = [], ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("## "):
            title = line.removeprefix("## ").strip()
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if cells != HEADER and not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                rows.append(Row(title, number, tuple(cells)))
    return rows


def resolves(name: str) -> bool:
    """Tell whether `package.module` or `package.module:attribute.attribute` exists."""
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    for part in path.split(".") if path else []:
        fields = getattr(found, "__dataclass_fields__", {})
        if not hasattr(found, part) and part not in fields:
            return False
        found = getattr(found, part, None)
    return True


@cache
def functions(path: Path) -> frozenset[str]:
    """Name the tests of a file as pytest does: `test_x` or `TestY::test_x`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{part.name}" for part in node.body if hasattr(part, "name")}
    return frozenset(names)


@cache
def make_targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z][a-z-]*):", text, flags=re.MULTILINE))


def command_exists(command: str) -> bool:
    program, *words = command.split()
    if program == "make":
        return bool(words) and words[0] in make_targets()
    group: Any = typer.main.get_command(importlib.import_module("roost.cli.main").app)
    for word in words:
        commands = getattr(group, "commands", None)
        if commands is None:
            break
        if word not in commands:
            return False
        group = commands[word]
    return bool(words)


def problems(row: Row) -> list[str]:
    """List what is untrue about one row; an empty list means it stands."""
    if len(row.cells) != len(HEADER) or not all(row.cells):
        return [f"needs {len(HEADER)} non-empty cells, has {row.cells}"]
    if row.not_yet:
        claimed = [cell for cell in row.cells[2:] if cell != NOTHING] + row.quoted("name here")
        return [f"says not yet but claims {cell}" for cell in claimed]

    names, commands, tests = (row.quoted(column) for column in HEADER[1:])
    found = [f"no module or attribute `{n}`" for n in names if not is_true_name(n)]
    found += [f"no command `{c}`" for c in commands if not is_true_command(c)]
    found += [f"no test `{t}`" for t in tests if not is_true_test(t)]
    if not names:
        found.append("names nothing: give a module, or say not yet")
    if not tests:
        found.append("names no test")
    if not commands and row.cells[2] != NOTHING:
        found.append(f"the command {row.cells[2]!r} is neither quoted nor {NOTHING}")
    return found


def is_true_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None and resolves(name)


def is_true_command(command: str) -> bool:
    return command.startswith(("roost ", "make ")) and command_exists(command)


def is_true_test(test: str) -> bool:
    file, _, function = test.partition("::")
    path = ROOT / file
    if not (file.startswith("tests/") and path.is_file()):
        return False
    return not function or function in functions(path)


ROWS = parse((ROOT / "docs" / "origins.md").read_text(encoding="utf-8"))


def test_all_four_documents_have_rows() -> None:
    assert {row.title for row in ROWS} == set(TITLES)


def test_no_line_of_a_document_is_listed_twice() -> None:
    asked = [(row.title, row.asked) for row in ROWS]
    assert sorted(set(asked)) == sorted(asked)


@pytest.mark.parametrize("title", TITLES)
def test_every_row_is_true(title: str) -> None:
    untrue = [
        f"docs/origins.md:{row.line} {row.asked}: {problem}"
        for row in ROWS
        if row.title == title
        for problem in problems(row)
    ]
    assert not untrue, "\n".join(untrue)


GOOD = (
    "asked",
    "`roost.base.errors`",
    "`make test`",
    "`tests/unit/docs/test_origins.py::test_every_row_is_true`",
)


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(GOOD, id="built"),
        pytest.param((*GOOD[:2], "—", GOOD[3]), id="library only"),
        pytest.param(("asked", "not yet (ledger: claim)", "—", "—"), id="not yet"),
    ],
)
def test_an_honest_row_stands(cells: tuple[str, ...]) -> None:
    assert problems(Row(TITLES[0], 1, cells)) == []


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param(GOOD[:3], id="three cells"),
        pytest.param(("", *GOOD[1:]), id="empty cell"),
        pytest.param((GOOD[0], "`roost.no_such_module`", *GOOD[2:]), id="unknown module"),
        pytest.param((GOOD[0], "`roost.base.errors:Nothing`", *GOOD[2:]), id="unknown attribute"),
        pytest.param((GOOD[0], "`errors`", *GOOD[2:]), id="name outside roost"),
        pytest.param((GOOD[0], "errors", *GOOD[2:]), id="name not quoted"),
        pytest.param((*GOOD[:2], "`make nothing`", GOOD[3]), id="unknown target"),
        pytest.param((*GOOD[:2], "`roost nothing`", GOOD[3]), id="unknown command"),
        pytest.param((*GOOD[:2], "`ls`", GOOD[3]), id="foreign command"),
        pytest.param((*GOOD[:2], "make test", GOOD[3]), id="command not quoted"),
        pytest.param((*GOOD[:3], "`tests/unit/docs/test_nothing.py`"), id="unknown file"),
        pytest.param((*GOOD[:3], "`tests/unit/docs/test_origins.py::test_no`"), id="unknown test"),
        pytest.param((*GOOD[:3], "—"), id="built without a test"),
        pytest.param(("asked", "not yet", "`make test`", "—"), id="not yet with a command"),
        pytest.param(("asked", "not yet", "—", GOOD[3]), id="not yet with a test"),
        pytest.param(("asked", "not yet `roost.base.errors`", "—", "—"), id="not yet with a name"),
    ],
)
def test_an_untrue_row_is_caught(cells: tuple[str, ...]) -> None:
    assert problems(Row(TITLES[0], 1, cells)) != []


def test_a_short_row_is_read_as_a_row() -> None:
    table = "## A\n| line asked | name here | command | test |\n| --- | --- | --- | --- |\n| x |\n"
    assert parse(table) == [Row("A", 4, ("x",))]
