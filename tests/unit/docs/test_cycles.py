"""Packages of roost import each other in one direction, and none is a list too long to read.

Whatever stands beside each other in a package, modules and sub-packages, has an order: no circle of
imports leads from one back to it, not by an import inside a function either. import-linter holds
the orders that are written down; this holds that there is one everywhere.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import roost

_SOURCE = Path(roost.__file__).parents[1]
MOST_MODULES = 30
#: Packages that have more, and why.
LARGER = {
    "roost.ledger.migrations.versions": "one module for each revision, found by its number alone",
}


def sources() -> dict[str, str]:
    """Return the text of every module by its name; a package has that of its `__init__.py`."""
    found = {}
    for path in sorted((_SOURCE / "roost").rglob("*.py")):
        words = path.relative_to(_SOURCE).with_suffix("").parts
        found[".".join(words[:-1] if words[-1] == "__init__" else words)] = path.read_text()
    return found


@cache
def needed(text: str) -> frozenset[str]:
    """Return what a module imports."""
    return frozenset(imported(ast.parse(text)))


def imported(node: ast.AST) -> Iterator[str]:
    """Yield what is imported when a program runs, not what only a type checker imports."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(child, ast.Import):
            yield from (each.name for each in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{each.name}" for each in child.names)
        yield from imported(child)


def neighbours(modules: Mapping[str, str]) -> dict[str, dict[str, set[str]]]:
    """Return by package which of its modules and sub-packages import which others of them."""
    found: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, text in modules.items():
        for target in needed(text):
            while target and target not in modules:
                target = target.rpartition(".")[0]
            ours, theirs = name.split("."), target.split(".")
            pairs = enumerate(zip(ours, theirs, strict=False))
            same = next((number for number, (a, b) in pairs if a != b), 0)
            if same:
                found[".".join(ours[:same])][ours[same]].add(theirs[same])
    return {package: dict(edges) for package, edges in found.items()}


def circles(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Return a circle of imports for each package in which there is one."""
    found = {}
    for package, edges in neighbours(modules).items():
        try:
            TopologicalSorter(edges).prepare()
        except CycleError as error:
            found[package] = error.args[1]
    return found


def test_no_circle_of_imports_is_in_any_package() -> None:
    assert circles(sources()) == {}


@pytest.mark.parametrize(
    ("module", "line", "package"),
    [
        ("roost.model.flow", "import roost.ledger.store", "roost"),
        ("roost.control.vms.lookup", "from roost.control import plane", "roost.control"),
        ("roost.base.ids", "def late() -> None:\n    from roost.wire import bodies", "roost"),
        ("roost.fleet.layout", "from roost.fleet.fleet import Fleet", "roost.fleet"),
    ],
)
def test_a_planted_circle_is_seen(module: str, line: str, package: str) -> None:
    modules = sources()
    modules[module] += f"\n{line}\n"
    assert package in circles(modules)


def test_what_only_a_type_checker_imports_is_no_circle() -> None:
    modules = sources()
    modules["roost.base.ids"] += "\nif TYPE_CHECKING:\n    from roost.wire import bodies\n"
    assert circles(modules) == {}


def test_no_package_has_more_modules_than_a_reader_can_hold() -> None:
    paths = (_SOURCE / "roost").rglob("*.py")
    counted = Counter(path.parent for path in paths if path.name != "__init__.py")
    larger = {folder for folder, modules in counted.items() if modules > MOST_MODULES}
    named = {".".join(folder.relative_to(_SOURCE).parts) for folder in larger}
    assert named <= LARGER.keys(), "divide it into rooms (docs/adr/0022-rooms.md)"
