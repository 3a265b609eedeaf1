"""How mistakes in rules are told: line, column, a picture with a caret, and a suggestion.

The one place where a position becomes a `RuleError`; parsing, checking and the JSON tree call it.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from roost.base.errors import RuleError
from roost.rules.positions import Span, picture


def mistake(text: str, span: Span, message: str, *, maybe: str) -> RuleError:
    """Build the error of one mistake; `maybe` is the suggestion, without its "Maybe".

    Every mistake has one: who reads a refusal is told what to write instead.
    """
    return RuleError(
        message,
        line=span.line,
        column=span.column,
        picture=picture(text, span),
        hint=f"Maybe {maybe}",
    )


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, or None."""
    found = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return found[0] if found else None
