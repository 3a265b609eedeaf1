"""Each finding is answered by a test that exists; so is each promise of the security reference."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs/reference"
FINDINGS = {f"A{n}" for n in range(1, 10)} | {f"D{n}" for n in range(1, 14)}
#: Those of a new user count too, but for some that are declined.
OF_A_NEW_USER = {f"N{n}" for n in range(1, 31)}
_DECLINED = re.compile(r"^\| (?P<finding>N\d+) [^|]+\| [^|]{20,} \|$", re.MULTILINE)
_ROW = re.compile(r"^\| (?P<finding>[^|]+) \|[^|]+\| (?P<tests>[^|]+) \|$", re.MULTILINE)
_NAME = re.compile(r"`(test_\w+)`")
_DEFINED = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


@cache
def names_of_tests() -> frozenset[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return frozenset(name for path in files for name in _DEFINED.findall(path.read_text()))


def unanswered(text: str, there: frozenset[str]) -> list[str]:
    """Return what is wrong with a table of findings."""
    wrong, seen = [], set()
    for row in _ROW.finditer(text):
        finding, names = row["finding"], _NAME.findall(row["tests"])
        if finding in ("finding", "---"):
            continue
        seen.add(finding.split()[0])
        if not names:
            wrong.append(f"{finding} names no test")
        wrong += [f"{finding}: there is no {name}" for name in names if name not in there]
    return [*wrong, *(f"{each} has no row" for each in sorted(FINDINGS - seen))]


def test_every_finding_is_answered_by_a_test_that_exists() -> None:
    assert unanswered((DOCS / "findings.md").read_text(), names_of_tests()) == []


def test_every_finding_of_a_new_user_has_a_test_or_is_declined_with_a_reason() -> None:
    text = (DOCS / "findings.md").read_text()
    declined = {row["finding"] for row in _DECLINED.finditer(text)}
    answered = {row["finding"].split()[0] for row in _ROW.finditer(text)}
    assert declined & answered == set()
    assert OF_A_NEW_USER - declined - answered == set()


def test_a_finding_without_a_row_or_a_test_is_noticed() -> None:
    text, there = (DOCS / "findings.md").read_text(), names_of_tests()
    without = "\n".join(line for line in text.splitlines() if not line.startswith("| D7 "))
    assert unanswered(without, there) == ["D7 has no row"]
    gone = there - {"test_an_empty_cell_is_read_back"}
    assert unanswered(text, gone) == [
        "A8 an empty NUMA cell is lost: there is no test_an_empty_cell_is_read_back"
    ]


@pytest.mark.parametrize("name", ["security.md", "findings.md"])
def test_every_test_that_a_reference_names_exists(name: str) -> None:
    named, there = set(_NAME.findall((DOCS / name).read_text())), names_of_tests()
    assert named
    assert named - there == set()
