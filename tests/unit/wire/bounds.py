"""The bounds of messages, walked by their types: a field that is added without one is found.

What agents and workers send is walked alike: each field with what it takes at its bound, and with
what must be refused beyond it.
"""

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

Path = tuple[str | int, ...]
#: Where in the one valid message, what is at its bound, what is beyond it.
Case = tuple[Path, list[Any], list[Any]]


def fields_of(kind: inspect.StructType, path: Path = ()) -> Iterator[Case]:
    """Yield what is at and beyond the bounds of each field, and of what it holds."""
    for field in kind.fields:
        yield from cases_of(field.type, (*path, field.encode_name))


def cases_of(kind: inspect.Type, path: Path) -> Iterator[Case]:
    """Yield what is at and beyond the bounds of everything in a type."""
    name = ".".join(map(str, path))
    match kind:
        case inspect.UnionType():
            for each in kind.types:
                if not isinstance(each, inspect.NoneType):
                    yield from cases_of(each, path)
        case inspect.BoolType():
            yield path, [True, False], [2, "true"]
        case inspect.LiteralType():
            yield path, list(kind.values), ["no such word", 1]
        case inspect.IntType():
            assert kind.ge is not None, f"{name} has no least value"
            assert kind.le is not None, f"{name} has no largest value"
            yield path, [kind.ge, kind.le], [kind.ge - 1, kind.le + 1, 2**70]
        case inspect.FloatType():
            assert kind.ge is not None, f"{name} has no least value"
            assert kind.le is not None, f"{name} has no largest value"
            span = kind.le - kind.ge
            yield path, [kind.ge, kind.le], [kind.ge - span / 100, kind.le + span / 100]
        case inspect.StrType():
            assert kind.max_length is not None, f"{name} has no longest text"
            longest = kind.max_length
            yield path, ["x" * longest, "é" * longest], ["x" * (longest + 1)]
            if kind.min_length:
                yield path, ["x" * kind.min_length], [""]
            if kind.pattern is not None:
                yield path, ["a word"], ["a\nb", "line\n", "\x1b[31m", "\x7f"]
        case inspect.BytesType():
            assert kind.max_length is not None, f"{name} has no most bytes"
            most = kind.max_length
            yield path, ["", base64(most)], [base64(most + 1), "no base64"]
        case inspect.ListType():
            assert kind.max_length is not None, f"{name} has no longest list"
            one, most = valid(kind.item_type), kind.max_length
            yield path, [[], [one] * most], [[one] * (most + 1)]
            yield from cases_of(kind.item_type, (*path, 0))
        case inspect.DictType():
            assert kind.max_length is not None, f"{name} has no most entries"
            one, most = valid(kind.value_type), kind.max_length
            entries = {f"k{at}": one for at in range(most + 1)}
            full = {f"k{at}": one for at in range(most)}
            yield path, [{}, full], [entries]
            for _, at, beyond in cases_of(kind.key_type, path):
                yield path, [{k: one} for k in at], [{k: one} for k in beyond]
            yield from cases_of(kind.value_type, (*path, "k0"))
        case inspect.StructType():
            yield from fields_of(kind, path)
        case _:
            raise AssertionError(f"{name} is of a type without a bound: {kind}")


def valid(kind: inspect.Type) -> Any:
    """Return one valid value of a type, as JSON; lists and dictionaries have one entry."""
    match kind:
        case inspect.UnionType():
            return valid(next(t for t in kind.types if not isinstance(t, inspect.NoneType)))
        case inspect.BoolType():
            return True
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.IntType() | inspect.FloatType():
            return 1
        case inspect.StrType():
            return "x"
        case inspect.BytesType():
            return ""
        case inspect.ListType():
            return [valid(kind.item_type)]
        case inspect.DictType():
            return {"k0": valid(kind.value_type)}
        case inspect.StructType():
            found = {field.encode_name: valid(field.type) for field in kind.fields}
            return found | ({kind.tag_field: kind.tag} if kind.tag_field else {})
    raise AssertionError(f"nothing valid is known of {kind}")


def changed(message: Any, path: Path, value: Any) -> Any:
    """Return a copy of a message in which one value is another."""
    if not path:
        return value
    copy = dict(message) if isinstance(message, dict) else list(message)
    copy[path[0]] = changed(copy[path[0]], path[1:], value)
    return copy


def base64(size: int) -> str:
    """Return so many bytes as JSON has them."""
    return b64encode(bytes(size)).decode()
