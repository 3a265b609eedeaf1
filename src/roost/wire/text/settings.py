"""The key=value words of one statement, checked against the words that it knows.

Shared by fleet files, CSV columns and command options, so that a word means the same everywhere.
A word that takes a list may be repeated and goes on; any other may stand once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from roost.wire.text.words import Piece, choose, suggest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words a statement knows; `prefixes` begin words that carry a resource's name."""

    what: str
    single: tuple[str, ...]
    lists: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()

    def check(self, key: Piece) -> None:
        """Refuse a word that this statement does not know."""
        text = key.text
        if text in self.single or text in self.lists:
            return
        if any(text.startswith(prefix) and text != prefix for prefix in self.prefixes):
            return
        known = (*self.single, *self.lists, *(f"{prefix}NAME" for prefix in self.prefixes))
        raise key.error(f"unknown word {text!r} for {self.what}", suggest(text, known))


class Settings:
    """The values of a statement by word, each with the place where it was typed."""

    def __init__(self, owner: Piece, values: Mapping[str, list[tuple[Piece, Piece]]]) -> None:
        self.owner = owner
        self._values = values

    @classmethod
    def read(cls, owner: Piece, words: Iterable[Piece], vocabulary: Vocabulary) -> "Settings":
        """Split words at their "=" and check them."""
        values: dict[str, list[tuple[Piece, Piece]]] = {}
        for word in words:
            key, value = word.partition("=")
            vocabulary.check(key)
            if value is None or not value:
                raise word.error(f"{key.text!r} needs a value", f"Maybe {key.text}=VALUE?")
            same = values.setdefault(key.text, [])
            if same and key.text not in vocabulary.lists:
                raise key.error(f"{key.text!r} is given twice")
            same.append((key, value))
        return cls(owner, values)

    def over(self, defaults: "Settings | None") -> "Settings":
        """Return these settings completed by defaults; a word given here hides the default."""
        if defaults is None:
            return self
        return Settings(self.owner, {**defaults._values, **self._values})

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def value(self, key: str) -> Piece | None:
        """Return the value of a word that may stand once."""
        same = self._values.get(key)
        return same[0][1] if same else None

    def word(self, key: str) -> Piece:
        """Return the word itself, to point at; the statement's name when it was not given."""
        same = self._values.get(key)
        return same[0][0] if same else self.owner

    def values(self, key: str) -> Iterator[Piece]:
        """Yield every value of a word that may be repeated."""
        return (value for _, value in self._values.get(key, ()))

    def text(self, key: str, default: str) -> str:
        """Return the value of a word as text."""
        value = self.value(key)
        return default if value is None else value.text

    def convert(self, key: str, read: Callable[[str, str], T], default: T) -> T:
        """Return a value read by a function of text and word."""
        value = self.value(key)
        return default if value is None else value.convert(read, key)

    def choose(self, key: str, known: Mapping[str, T], default: T) -> T:
        """Return the choice that a word's value stands for."""
        value = self.value(key)
        return default if value is None else choose(value, key, known)

    def items(self, key: str) -> list[Piece]:
        """Return the items of a list word, over all its repetitions."""
        return [item for value in self.values(key) for item in value.items(key)]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the items of a list word as text."""
        return tuple(item.text for item in self.items(key))
