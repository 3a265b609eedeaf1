"""Hypothesis writes messages of agents by their types, bends them, and shrinks what breaks a law.

Beside `messages.py`, which is faster and remembers nothing: this one says the smallest message.
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from roost.wire.agentlink import decode_to_agent, encode, take_from_agent
from tests.fuzz.messages import MESSAGES, ODD

_JUNK = st.recursive(
    st.sampled_from(ODD)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def _of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type; one in ten is something else."""
    return st.integers(0, 9).flatmap(lambda n: _JUNK if n == 0 else _valid(kind))


def _valid(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.UnionType():
            return st.one_of([_of(each) for each in kind.types])
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.IntType():
            return st.integers(int(kind.ge or 0), int(kind.le or 2**62))
        case inspect.FloatType():
            return st.floats(kind.ge or 0.0, kind.le or 1e9, allow_nan=False)
        case inspect.StrType():
            return st.text(min_size=kind.min_length or 0, max_size=min(kind.max_length or 40, 40))
        case inspect.ListType():
            return st.lists(st.deferred(lambda: _of(kind.item_type)), max_size=3)
        case inspect.DictType():
            return st.dictionaries(st.text(max_size=8), _of(kind.value_type), max_size=3)
        case inspect.StructType():
            return _struct(kind)
    return _JUNK


def _struct(kind: inspect.StructType) -> st.SearchStrategy[dict[str, Any]]:
    tag = {kind.tag_field: st.just(kind.tag)} if kind.tag_field else {}
    needed = {each.encode_name: _of(each.type) for each in kind.fields if each.required}
    other = {
        each.encode_name: st.deferred(lambda each=each: _of(each.type))
        for each in kind.fields
        if not each.required
    }
    return st.fixed_dictionaries({**tag, **needed}, optional=other)


_SAID = st.sampled_from(MESSAGES).flatmap(lambda kind: _valid(inspect.type_info(kind)))


@settings(max_examples=300, deadline=None)
@given(_SAID)
def test_a_message_is_read_or_refused(said: Any) -> None:
    data = json.dumps(said).encode("utf-8", "surrogatepass")
    for decode in (lambda raw: take_from_agent(raw).message, decode_to_agent):
        try:
            message = decode(data)
        except msgspec.DecodeError:
            continue
        # What was read is within its bounds: written again, it is read again, and is the same.
        assert decode(encode(message)) == message


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | _JUNK.map(lambda said: json.dumps(said).encode()))
def test_what_is_no_message_is_refused(data: bytes) -> None:
    """No bytes and no value are one by chance: a message is an object that names its kind."""
    for decode in (take_from_agent, decode_to_agent):
        with pytest.raises(msgspec.DecodeError):
            decode(data)
