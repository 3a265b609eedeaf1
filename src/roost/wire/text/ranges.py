"""Names that stand for many: "h[1-3]" is h1, h2, h3; "a,b[01-10,20]" is a and eleven more."""

import itertools
import math
import re
from collections.abc import Iterator

from roost.wire.text.words import Piece

#: More names than this in one statement is taken for a slip of the finger.
MOST_NAMES = 1_000_000

_SPAN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")


def expand(pattern: Piece) -> list[str]:
    """Return every name that a pattern stands for, in the order in which it was typed."""
    names: list[str] = []
    for alternative in _alternatives(pattern):
        parts = _parts(alternative)
        if len(names) + math.prod(map(len, parts)) > MOST_NAMES:
            raise pattern.error(f"{pattern.text!r} stands for more than {MOST_NAMES} names")
        names += ["".join(name) for name in itertools.product(*parts)]
    return names


def _alternatives(pattern: Piece) -> Iterator[Piece]:
    """Yield what lies between the commas that are not in brackets."""
    start, inside = 0, False
    for at, char in enumerate(pattern.masked):
        inside = char == "[" or (inside and char != "]")
        if char == "," and not inside:
            yield pattern[start:at]
            start = at + 1
    yield pattern[start:]


def _parts(name: Piece) -> list[list[str]]:
    """Return the stretches of a name, each with what it may be."""
    if not name:
        raise name.error("a name is missing", "Maybe a comma too many?")
    parts: list[list[str]] = []
    rest = name
    while True:
        before, opened = rest.partition("[")
        stray = before.masked.find("]")
        if stray >= 0:
            raise before[stray:].error("']' without '['")
        parts.append([before.text])
        if opened is None:
            return parts
        inside, after = opened.partition("]")
        if after is None:
            raise opened.error("a range is never closed", "Maybe h[1-20]?")
        parts.append([number for span in inside.split(",") for number in _numbers(span)])
        rest = after


def _numbers(span: Piece) -> list[str]:
    match = _SPAN.match(span.text)
    if match is None:
        raise span.error(f"bad range {span.text!r}", "Maybe h[1-20], h[01-20] or h[1-3,7]?")
    first, last = match[1], match[2] or match[1]
    if int(first) > int(last):
        raise span.error(f"range {span.text!r} ends before it begins", f"Maybe [{last}-{first}]?")
    if int(last) - int(first) >= MOST_NAMES:
        raise span.error(f"range {span.text!r} stands for more than {MOST_NAMES} names")
    # A leading zero asks for padding: h[01-20] begins with h01.
    width = len(first) if first.startswith("0") and len(first) > 1 else 1
    return [str(number).zfill(width) for number in range(int(first), int(last) + 1)]
