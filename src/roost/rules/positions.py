"""Where things stand in the text of a rule, and how a place is shown."""

from typing import NamedTuple

#: Characters of the rule that a picture shows at most, so that an error stays an answer.
PICTURE_WIDTH = 72


class Span(NamedTuple):
    """Where a node stands: line and column from 1, and the half-open range of characters."""

    line: int
    column: int
    start: int
    end: int


NOWHERE = Span(1, 1, 0, 0)


def span_of(text: str, start: int, end: int) -> Span:
    """Return the span of a range of characters."""
    return Span(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start), start, end)


def picture(text: str, span: Span) -> str:
    """Return the line of the rule that the span begins in, with carets under the span."""
    begin = text.rfind("\n", 0, span.start) + 1
    stop = text.find("\n", span.start)
    stop = len(text) if stop < 0 else stop
    first = max(begin, min(span.start - PICTURE_WIDTH // 2, stop - PICTURE_WIDTH))
    last = min(stop, first + PICTURE_WIDTH)
    carets = max(1, min(span.end, last) - span.start)
    line = "".join(c if c.isprintable() else " " for c in text[first:last])
    return f"{line}\n{' ' * (span.start - first)}{'^' * carets}"
