"""The first line of a docstring names the thing and the verb: riddles are found by their words.

A riddle has one or two words ("Forgive."), or a pronoun where its object should be ("Hear it.",
"Return what it does again and again."). Handlers and commands may be short: theirs is the summary
that users read ("List VMs.").
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_SOURCE = Path(__file__).resolve().parents[3] / "src" / "roost"
_FEWEST_WORDS = 3
_SUMMARIES = ("api/", "cli/", "client/")
_CLAUSE = re.compile(r"[.,;:]")
_WORD = re.compile(r"[\w`']+")
#: Words that stand for something that the line does not name.
_PRONOUNS = frozenset(
    _WORD.findall(
        "it itself its them they this that these those one ones everything something anything all "
        "both everybody somebody anybody whoever"
    )
)
#: Words that name nothing either.
_FILLERS = frozenset(
    _WORD.findall(
        "a an the other others another same own such much many more most less few first last next "
        "what who whom how which whether when where why here there again anew now then soon later "
        "once twice so as is are was were be been has have had do does did done may can could must "
        "shall will would down up on off out away back over in into at to for of from by with "
        "without before after until while since and or but not no only also just even each every "
        "some any"
    )
)

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def first_lines(source: str) -> Iterator[tuple[Documented, str]]:
    """Yield every class and function with the first line of its docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Documented) and (text := ast.get_docstring(node)) is not None:
            yield node, text.partition("\n")[0]


def is_short(line: str) -> bool:
    """Say whether a line has fewer than three words."""
    return len(line.split()) < _FEWEST_WORDS


def lacks_object(line: str) -> bool:
    """Say whether a line's first clause has a pronoun, and nothing that it could stand for."""
    words = [word.lower() for word in _WORD.findall(_CLAUSE.split(line)[0])[1:]]
    named = [word for word in words if word not in _PRONOUNS and word not in _FILLERS]
    return not named and not _PRONOUNS.isdisjoint(words)


def riddles(source: str, *, summaries: bool = False) -> list[str]:
    """Return the names of what has a riddle for a docstring."""
    return [
        node.name
        for node, line in first_lines(source)
        if (not summaries and is_short(line))
        or (not isinstance(node, ast.ClassDef) and lacks_object(line))
    ]


def test_the_first_line_of_a_docstring_is_no_riddle() -> None:
    found = {
        f"{name}:{riddle}"
        for path in _SOURCE.rglob("*.py")
        if (name := path.relative_to(_SOURCE).as_posix())
        for riddle in riddles(path.read_text("utf-8"), summaries=name.startswith(_SUMMARIES))
    }
    assert found == set()


@pytest.mark.parametrize(
    "line",
    [
        "Forgive.",
        "Hear it.",
        "Do it; a QEMU that hangs is freed.",
        "Return what it does again and again.",
        "Boot it, or let it go on where it stood.",
        "Return them all; a broken file is a VM, too.",
        "Change one, and tell.",
    ],
)
def test_a_riddle_is_found(line: str) -> None:
    assert riddles(f'def f():\n    """{line}"""\n') == ["f"]


@pytest.mark.parametrize(
    "line",
    [
        "Lift the pause on writing.",
        "Commit; when that fails, ask the database whether it happened all the same.",
        "Converge, report and renew the lease until cancelled.",
        "Return whether it holds a lease.",
    ],
)
def test_a_plain_line_is_no_riddle(line: str) -> None:
    assert riddles(f'def f():\n    """{line}"""\n') == []


def test_a_class_and_a_handler() -> None:
    assert riddles('class VMRow:\n    """One VM."""\n') == ["VMRow"]
    assert riddles('def list_vms():\n    """List VMs."""\n', summaries=True) == []
