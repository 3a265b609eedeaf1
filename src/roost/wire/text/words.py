r"""Text cut into words that remember where they were typed.

A word ends at white space. Double quotes keep white space (and `#`) inside a word. A backslash
takes the next character's meaning away: `\,` is a comma and no separator, `\ ` a space; `\n`,
`\r` and `\t` are the usual characters and `\e` is the empty text. `#` at the start of a word begins
a comment. What a word means is not known here.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from roost.base.errors import FleetFileError, InvalidRequest

T = TypeVar("T")

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "e": ""}
_MASK = "\0"
_WORD = re.compile(r"\S+")
_SPECIAL = frozenset('\\",=:#*[]')


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, counted from one."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text that knows its columns and which of its characters are only themselves.

    `masked` is the text with every escaped character blanked out, so separators are looked for in
    it. `columns` has one entry more than there are characters: the end. Without a place (an option
    of a command, say) a mistake is an `InvalidRequest` instead of a `FleetFileError`.
    """

    chars: str | tuple[str, ...]
    masked: str
    columns: Sequence[int]
    place: Place | None = None

    @property
    def text(self) -> str:
        """Return the plain text."""
        return self.chars if isinstance(self.chars, str) else "".join(self.chars)

    def __bool__(self) -> bool:
        return bool(self.masked)

    def __getitem__(self, part: slice) -> "Piece":
        start, stop, _ = part.indices(len(self.masked))
        return Piece(
            self.chars[start:stop],
            self.masked[start:stop],
            self.columns[start : max(start, stop) + 1],
            self.place,
        )

    def error(self, message: str, hint: str | None = None) -> InvalidRequest:
        """Return the exception that points at this piece."""
        if self.place is None:
            return InvalidRequest(message, hint=hint)
        return FleetFileError(
            message, file=self.place.file, line=self.place.line, column=self.columns[0], hint=hint
        )

    def convert(self, read: Callable[[str, str], T], what: str) -> T:
        """Return `read(text, what)`; what it refuses is an error at this piece."""
        try:
            return read(self.text, what)
        except InvalidRequest as error:
            raise self.error(error.message, error.hint) from error

    def partition(self, separator: str) -> "tuple[Piece, Piece | None]":
        """Split at the first separator; the second part is None without one."""
        at = self.masked.find(separator)
        return (self, None) if at < 0 else (self[:at], self[at + 1 :])

    def rpartition(self, separator: str) -> "tuple[Piece, Piece | None]":
        """Split at the last separator; the second part is None without one."""
        at = self.masked.rfind(separator)
        return (self, None) if at < 0 else (self[:at], self[at + 1 :])

    def split(self, separator: str) -> "list[Piece]":
        """Split at every separator."""
        pieces, rest = [], self
        while True:
            first, more = rest.partition(separator)
            pieces.append(first)
            if more is None:
                return pieces
            rest = more

    def strip(self) -> "Piece":
        """Drop white space at both ends, unless it was escaped."""
        start = len(self.masked) - len(self.masked.lstrip())
        return self[start : max(start, len(self.masked.rstrip()))]

    def fields(self, most: int = -1) -> "list[Piece]":
        """Split at white space into at most so many pieces."""
        pieces: list[Piece] = []
        rest = self.strip()
        while rest:
            match = _WORD.match(rest.masked)
            end = match.end() if match and len(pieces) + 1 != most else len(rest.masked)
            pieces.append(rest[:end])
            rest = rest[end:].strip()
        return pieces

    def items(self, what: str) -> "list[Piece]":
        """Split a comma separated list; an item that is missing is an error."""
        items = [item.strip() for item in self.split(",")]
        for item in items:
            if not item:
                raise item.error(f"{what} has an empty item", "Maybe a comma too many?")
        return items


def literal(text: str, place: Place | None = None, column: int = 1) -> Piece:
    """Return text whose backslashes are read but whose quotes and spaces are ordinary."""
    if "\\" not in text:
        return Piece(text, text, range(column, column + len(text) + 1), place)
    [piece] = _scan(text, place, column, quotes=False)
    return piece


def cut(line: str, place: Place | None = None) -> list[Piece]:
    """Return the words of a line, without its comment."""
    if '"' in line or "\\" in line:
        return list(_scan(line, place, 1, quotes=True))
    words = []
    for match in _WORD.finditer(line):
        word = match[0]
        if word.startswith("#"):
            break
        words.append(Piece(word, word, range(match.start() + 1, match.end() + 2), place))
    return words


def _scan(line: str, place: Place | None, column: int, *, quotes: bool) -> Iterator[Piece]:
    """Yield the words of a line that has quotes or backslashes."""
    chars: list[str] = []
    masked: list[str] = []
    columns: list[int] = []
    opened: int | None = None  # where the open quote began
    begun = not quotes  # a pair of quotes with nothing inside is a word too
    at = 0

    def word(end: int) -> Piece:
        piece = Piece(tuple(chars), "".join(masked), (*columns, column + end), place)
        for part in (chars, masked, columns):
            part.clear()
        return piece

    def wrong(where: int, message: str) -> InvalidRequest:
        return Piece("", "", (column + where,), place).error(message)

    while at < len(line):
        char, start = line[at], at
        at += 1
        if char == "\\":
            if at == len(line):
                raise wrong(start, "a backslash ends the line")
            char = line[at]
            at += 1
            if char not in _ESCAPES and char.isascii() and char.isalnum():
                raise wrong(start, rf"unknown escape '\{char}'")
            chars.append(_ESCAPES.get(char, char))
            masked.append(_MASK)
        elif quotes and char == '"':
            opened = start if opened is None else None
            begun = True
            continue
        elif quotes and opened is None and char.isspace():
            if begun:
                yield word(start)
            begun = False
            continue
        elif quotes and opened is None and char == "#" and not begun:
            break
        else:
            chars.append(char)
            masked.append(char)
        columns.append(column + start)
        begun = True
    if opened is not None:
        raise wrong(opened, "a quote is never closed")
    if begun:
        yield word(len(line))


def escape(text: str) -> str:
    """Write text so that reading it as one item gives it back."""
    if not text:
        return "\\e"
    back = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(
        back.get(char) or (f"\\{char}" if char in _SPECIAL or char.isspace() else char)
        for char in text
    )


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a hint with the known word that is closest, or with all of them."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    if close:
        return f"Maybe {by_lower[close[0]]!r}?"
    return f"Maybe one of {', '.join(by_lower.values())}."


def choose(piece: Piece, what: str, known: Mapping[str, T]) -> T:
    """Return what this word stands for, or refuse with the closest word that is known."""
    try:
        return known[piece.text]
    except KeyError:
        raise piece.error(f"unknown {what} {piece.text!r}", suggest(piece.text, known)) from None
