"""Regular expressions of rules: RE2's, which search in time proportional to the text.

The one place that imports RE2. A rule keeps its compiled patterns (`Condition.patterns`); one that
is put together while a rule is evaluated is compiled each time.
"""

from typing import Any

import re2

from roost.rules.values import Unanswerable

#: Characters of one regular expression.
MAX_PATTERN = 1_000


def compile_pattern(text: str) -> Any:
    """Compile a regular expression of RE2, which searches in linear time."""
    if len(text) > MAX_PATTERN:
        raise Unanswerable(
            f"the pattern has {len(text)} characters; at most {MAX_PATTERN} are compiled"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        word = error.args[0] if error.args else error
        said = word.decode(errors="replace") if isinstance(word, bytes) else str(word)
        raise Unanswerable(f"the pattern is not one of RE2: {said}") from None


def matches(text: str, pattern: str) -> bool:
    """Say whether a pattern is found in a text."""
    return compile_pattern(pattern).search(text) is not None
