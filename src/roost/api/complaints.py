"""What a decoder complains about, in words that somebody can act upon.

The decoder knows what it expected and says so in its own language: a regular expression, a value
that is none of those it does not name. Both are looked up in the type that was to be read.
"""

import re
from difflib import get_close_matches
from typing import Any, get_args

from msgspec import inspect

from roost.wire.bodies import Name
from roost.wire.bodies.words import LabelKey

#: What patterns mean; one without words is named as it is.
_MEANING: dict[str, str] = {
    get_args(Name)[1].pattern: "a name: letters and digits, and `.`, `_` and `-` after the first, "
    "63 characters at most",
    get_args(LabelKey)[1].pattern: "the key of a label: no spaces, `=`, `,` or `!`, 1 to 253 "
    "characters",
}
_PATTERN = re.compile(r"^Expected `str` matching regex (?P<pattern>'.*'|\".*\")$", re.DOTALL)
_ENUM = re.compile(r"^Invalid enum value (?P<value>.*)$", re.DOTALL)
_STEP = re.compile(r"\.(?P<field>[A-Za-z_][A-Za-z0-9_]*)|\[(?:\.\.\.|\d+)\]")


def in_words(kind: Any, what: str, where: str) -> tuple[str, str | None]:
    """Return a complaint about a place of a type, and a hint if there is one."""
    if (match := _PATTERN.match(what)) is not None:
        meaning = _MEANING.get(_unquoted(match["pattern"]))
        return (what, None) if meaning is None else (f"this is not {meaning}", None)
    if (match := _ENUM.match(what)) is not None:
        known = sorted(map(str, _choices(_at(inspect.type_info(kind), where))))
        if known:
            given = _unquoted(match["value"])
            close = get_close_matches(given, known, 1)
            hint = f"Maybe {close[0]!r}?" if close else None
            return f"{given!r} is none of {', '.join(known)}", hint
    return what, None


def _unquoted(text: str) -> str:
    return text[1:-1].replace("\\\\", "\\") if text[:1] in "'\"" else text


def _at(info: inspect.Type, where: str) -> list[inspect.Type]:
    """Return what may stand at a place such as `$.nics[...].mode`."""
    found = _alternatives(info)
    for step in _STEP.finditer(where):
        inner: list[inspect.Type] = []
        for each in found:
            if step["field"] is None:
                if isinstance(each, inspect.ListType):
                    inner += _alternatives(each.item_type)
                elif isinstance(each, inspect.DictType):
                    inner += _alternatives(each.value_type)
            elif isinstance(each, inspect.StructType):
                for field in each.fields:
                    if field.encode_name == step["field"]:
                        inner += _alternatives(field.type)
        found = inner
    return found


def _alternatives(info: inspect.Type) -> list[inspect.Type]:
    if isinstance(info, inspect.Metadata):
        return _alternatives(info.type)
    if isinstance(info, inspect.UnionType):
        return [inner for each in info.types for inner in _alternatives(each)]
    return [info]


def _choices(types: list[inspect.Type]) -> list[Any]:
    found: list[Any] = []
    for each in types:
        if isinstance(each, inspect.LiteralType):
            found += each.values
        elif isinstance(each, inspect.EnumType):
            found += [member.value for member in each.cls]
    return found
