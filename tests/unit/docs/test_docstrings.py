"""Docstrings say what a function does: a first line of one or two words is a riddle.

Handlers and commands are left out: theirs is the summary that users read ("List VMs.").
"""

import ast
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[3] / "src" / "roost"
_FEWEST_WORDS = 3
#: Names that say the rest.
_ALLOWED = {
    "ledger/amounts.py:plus",
    "ledger/amounts.py:minus",
    "ledger/checks.py:examine",
    "wire/translate.py:cores",
    "wire/translate.py:size",
}
_SUMMARIES = ("api/", "cli/", "client/")


def short_first_lines(source: str) -> list[str]:
    """Return the public functions of a module whose first line has fewer than three words."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if node.name.startswith("_") or text is None:
            continue
        if len(text.partition("\n")[0].split()) < _FEWEST_WORDS:
            found.append(node.name)
    return found


def test_the_first_line_of_a_public_functions_docstring_has_three_words() -> None:
    short = {
        f"{name}:{function}"
        for path in _SOURCE.rglob("*.py")
        if not (name := path.relative_to(_SOURCE).as_posix()).startswith(_SUMMARIES)
        for function in short_first_lines(path.read_text("utf-8"))
    }

    assert short - _ALLOWED == set()
    assert _ALLOWED - short == set()  # what has been mended leaves the list


def test_a_riddle_is_found() -> None:
    source = (
        'def resume_writing():\n    """Forgive."""\n\n\ndef stop():\n    """End the watch."""\n'
    )

    assert short_first_lines(source) == ["resume_writing"]
