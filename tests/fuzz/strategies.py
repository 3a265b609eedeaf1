"""Hypothesis strategies for messages of the agents' protocol, drawn by their types."""

from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

from tests.fuzz.messages import MESSAGES, ODD

#: Any value of JSON, odd ones among them.
JUNK = st.recursive(
    st.sampled_from(ODD)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def _of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type; one in ten is something else."""
    return st.integers(0, 9).flatmap(lambda n: JUNK if n == 0 else _valid(kind))


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
    return JUNK


def _struct(kind: inspect.StructType) -> st.SearchStrategy[dict[str, Any]]:
    tag = {kind.tag_field: st.just(kind.tag)} if kind.tag_field else {}
    needed = {each.encode_name: _of(each.type) for each in kind.fields if each.required}
    other = {
        each.encode_name: st.deferred(lambda each=each: _of(each.type))
        for each in kind.fields
        if not each.required
    }
    return st.fixed_dictionaries({**tag, **needed}, optional=other)


#: A message of either direction; parts of it may be something else.
SAID = st.sampled_from(MESSAGES).flatmap(lambda kind: _valid(inspect.type_info(kind)))
