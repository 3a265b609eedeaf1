"""Errors as HTTP: every code has a status, and the document of errors knows it."""

import re
from pathlib import Path

import pytest

from roost.api.errors import STATUS, MethodNotAllowed, answer, status_of
from roost.base import errors
from roost.base.errors import NoFit, RoostError
from roost.model.flow import RejectionCode

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def codes() -> set[str]:
    """Return the codes that can leave the server."""
    found, classes = set(), [RoostError]
    while classes:
        kind = classes.pop()
        classes += kind.__subclasses__()
        if kind not in (RoostError, NoFit) and kind.__module__ == errors.__name__:
            found.add(kind.code)
    return found


def test_every_code_has_a_status() -> None:
    rejections = {code.value for code in RejectionCode}
    assert codes() | rejections | {MethodNotAllowed.code} == set(STATUS)


@pytest.mark.parametrize("code", sorted(STATUS))
def test_every_code_is_documented_with_its_status(code: str) -> None:
    text = (REFERENCE / "api.md").read_text()
    (row,) = re.findall(rf"^\| `{code}` \|.*$", text, flags=re.MULTILINE)
    assert str(STATUS[code]) in row


def test_a_code_nobody_knows_is_our_own_mistake() -> None:
    assert status_of(NoFit("made_up", "x", {})) == 500


def test_details_of_any_kind_can_be_written() -> None:
    body = answer(errors.Conflict("x", path=Path("/a"), some={1, 2})).body
    assert b'"path":"/a"' in body
