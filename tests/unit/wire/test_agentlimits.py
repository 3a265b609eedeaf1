"""Every field of every message of an agent has a bound: at it a value is taken, beyond it refused.

The messages' types are walked, not listed: a field that is added without a bound fails here.
"""

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from roost.wire.agentlimits import MOST_TEXT, clipped
from roost.wire.agentlink import (
    CopyInfo,
    FromAgent,
    Present,
    Report,
    SeenVM,
    decode_from_agent,
    encode,
    take_from_agent,
)

MESSAGES = get_args(FromAgent)

Path = tuple[str | int, ...]
#: Where in the one valid message, what is at its bound, what is beyond it.
Case = tuple[Path, list[Any], list[Any]]


def _fields(kind: inspect.StructType, path: Path) -> Iterator[Case]:
    for field in kind.fields:
        yield from _cases(field.type, (*path, field.encode_name))


def _cases(kind: inspect.Type, path: Path) -> Iterator[Case]:
    """Yield what is at and beyond the bounds of everything in a type."""
    name = ".".join(map(str, path))
    match kind:
        case inspect.UnionType():
            for each in kind.types:
                if not isinstance(each, inspect.NoneType):
                    yield from _cases(each, path)
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
        case inspect.ListType():
            assert kind.max_length is not None, f"{name} has no longest list"
            one, most = valid(kind.item_type), kind.max_length
            yield path, [[], [one] * most], [[one] * (most + 1)]
            yield from _cases(kind.item_type, (*path, 0))
        case inspect.DictType():
            assert kind.max_length is not None, f"{name} has no most entries"
            one, most = valid(kind.value_type), kind.max_length
            entries = {f"k{at}": one for at in range(most + 1)}
            full = {f"k{at}": one for at in range(most)}
            yield path, [{}, full], [entries]
            for _, at, beyond in _cases(kind.key_type, path):
                yield path, [{k: one} for k in at], [{k: one} for k in beyond]
            yield from _cases(kind.value_type, (*path, "k0"))
        case inspect.StructType():
            yield from _fields(kind, path)
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
        case inspect.ListType():
            return [valid(kind.item_type)]
        case inspect.DictType():
            return {"k0": valid(kind.value_type)}
        case inspect.StructType():
            found = {field.encode_name: valid(field.type) for field in kind.fields}
            return found | ({kind.tag_field: kind.tag} if kind.tag_field else {})
    raise AssertionError(f"nothing valid is known of {kind}")


def _with(message: Any, path: Path, value: Any) -> Any:
    """Return a copy of a message in which one value is another."""
    if not path:
        return value
    copy = dict(message) if isinstance(message, dict) else list(message)
    copy[path[0]] = _with(copy[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_a_field_is_taken_at_its_bound_and_refused_beyond_it(message: type) -> None:
    kind = inspect.type_info(message)
    assert isinstance(kind, inspect.StructType)
    whole = valid(kind)
    decode_from_agent(msgspec.json.encode(whole))
    for path, at, beyond in _fields(kind, ()):
        for value in at:
            decode_from_agent(msgspec.json.encode(_with(whole, path, value)))
        for value in beyond:
            with pytest.raises(msgspec.DecodeError):
                decode_from_agent(msgspec.json.encode(_with(whole, path, value)))


def test_a_field_without_a_bound_is_found() -> None:
    class Unbounded(msgspec.Struct):
        number: int

    kind = inspect.type_info(Unbounded)
    assert isinstance(kind, inspect.StructType)
    with pytest.raises(AssertionError, match="number has no least value"):
        list(_fields(kind, ()))


def test_one_bad_entry_of_a_list_is_left_out_and_the_rest_is_taken() -> None:
    good = [SeenVM("a", 1, "running"), SeenVM("c", 3, "stopped")]
    bad = {"id": "b", "generation": 2**70, "seen": "running"}
    said = msgspec.to_builtins(Report(good, full=True))
    said["vms"].insert(1, bad)
    taken = take_from_agent(msgspec.json.encode(said))
    assert taken.message == Report(good, full=True)
    assert taken.left_out == 1
    assert "vms" in taken.why


def test_a_copy_that_cannot_be_read_is_unclear_and_without_a_name_it_is_counted() -> None:
    good = CopyInfo("a", 1, "running")
    said = msgspec.to_builtins(Present("d", [good]))
    said["copies"] += [{"id": "b", "generation": 2**70, "is": "running"}, {"id": "x\ny"}]
    taken = take_from_agent(msgspec.json.encode(said))
    assert taken.message == Present("d", [good, CopyInfo("b", 0, "unclear")])
    assert (taken.left_out, taken.nameless) == (2, 0)  # no VM can be named as the last one
    said["copies"] += [{"generation": 1, "is": "running"}, 7, {"id": 3}]
    assert take_from_agent(msgspec.json.encode(said)).nameless == 3


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"null",
        b'"hello"',
        b"{}",
        b'{"type":["report"]}',
        b'{"type":"report","vms":{}}',
        b'{"type":"report","full":3}',
        b'{"type":"heartbeat","number":1,"digest":"\xff"}',
        b'{"type":"report","vms":' + b"[" * 100_000,
        b'{"type":"report","vms":[' + b"{}," * 16_384 + b"{}]}",
        b'{"type":"samples","samples":null}',
    ],
)
def test_what_is_no_message_is_an_error_of_decoding_and_nothing_else(data: bytes) -> None:
    for decode in (take_from_agent, decode_from_agent):
        with pytest.raises(msgspec.DecodeError):
            decode(data)


def test_words_of_a_driver_are_cut_to_what_the_protocol_takes() -> None:
    long = SeenVM("a", 1, "failed", "start_failed", clipped("x" * 2 * MOST_TEXT))
    assert decode_from_agent(encode(Report([long]))) == Report([long])
    assert long.message.endswith(" [...]")
    assert clipped("short") == "short"
