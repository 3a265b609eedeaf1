"""The head of `control` and the architecture say what there is: rooms, and the edges of moves."""

import re
import tomllib
from pathlib import Path

from roost import control
from roost.control.moves.machine import OUTCOMES, TABLE, DestroyCopies

_TOP = Path(__file__).resolve().parents[3]
_ARCHITECTURE = (_TOP / "docs" / "architecture.md").read_text()


def in_contract() -> list[str]:
    """Return the rooms of control in the order that import-linter holds; it wants all of them."""
    settings = tomllib.loads((_TOP / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    [found] = (each["layers"] for each in contracts if each.get("id") == "control-rooms")
    return list(found)


def test_the_head_of_control_names_its_rooms_in_their_order() -> None:
    assert control.__doc__ is not None
    assert re.findall(r"^(\w+)  +\S", control.__doc__, re.MULTILINE) == in_contract()


def test_the_architecture_names_the_rooms_of_control_in_their_order() -> None:
    table = _ARCHITECTURE.partition("| `control/` |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)(?:/|\.py)` \|", table, re.MULTILINE) == in_contract()


def edges_of_table() -> set[tuple[str, str]]:
    """Return from where to where a VM goes by the table of moves, deletions excepted."""
    found = set()
    for (_, phase), effects in TABLE.items():
        state = phase or "here"
        for kind in effects:
            if kind in OUTCOMES and kind is not DestroyCopies:
                outcome = OUTCOMES[kind]
                home = {"source": "here", "target": "there", None: "elsewhere"}[outcome.home]
                before, state = state, outcome.phase or home
                found.add((before, state))
    return found


def test_the_diagram_of_moves_has_the_edges_of_the_table() -> None:
    diagram = _ARCHITECTURE.partition("stateDiagram-v2\n")[2].partition("```")[0]
    edges = set(re.findall(r"^ +(\w+) --> (\w+):", diagram, re.MULTILINE))
    assert edges == edges_of_table()
