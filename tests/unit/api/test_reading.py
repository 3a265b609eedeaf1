"""Reading requests without a server."""

import asyncio
import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from roost.api.errors import Malformed, status_of
from roost.api.reading import (
    QueryReader,
    RequestDecoder,
    idempotency_key,
    path_names,
    read_body,
    refuse_key_twice,
)
from roost.base.errors import InvalidRequest, NotFound, TooLarge
from roost.wire.bodies import CreateVM, ResizeVM
from roost.wire.queries import ExplainVM, ListEvents, ListVMs
from tests.turns import draws_in_turn


class Body(Struct, forbid_unknown_fields=True):
    """A body for these tests."""

    text: str = ""
    numbers: list[int] = []


@pytest.mark.parametrize(
    ("raw", "status", "words"),
    [
        (b"", 400, "needs a body"),
        (b"{", 400, "not JSON"),
        (b'{"text": 1', 400, "not JSON"),
        (b"\xff", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b'{"text": 1}', 422, "at $.text: Expected `str`, got `int`"),
        (b'{"numbers": [1, "2"]}', 422, "at $.numbers[1]"),
        (b'{"other": 1}', 422, "`other`"),
        (b'{"text": "a\\u0000b"}', 422, "NUL"),
        (b'{"text": "a", "text": "b"}', 400, "the key 'text' twice"),
        (b'{"text": "a:b", "\\u0074ext": "c"}', 400, "the key 'text' twice"),
        (b'{"numbers": [1], "text": ":", "numbers": []}', 400, "the key 'numbers' twice"),
        (b'{"numbers": [1], "text": "\\u003a", "numbers": []}', 400, "the key 'numbers' twice"),
        (b'{"numbers": [1], "text": "\\u003A", "numbers": []}', 400, "the key 'numbers' twice"),
    ],
)
def test_a_wrong_body_is_refused(raw: bytes, status: int, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        RequestDecoder(Body).decode(raw)
    assert status_of(caught.value) == status
    assert words in caught.value.message


@pytest.mark.parametrize("text", ["a:b", r"{\"text\": 1, \"text\": 2}", r"\u003a:", "::"])
def test_a_colon_in_a_text_is_no_second_key(text: str) -> None:
    raw = f'{{"text": "{text}", "numbers": [1]}}'.encode()
    assert RequestDecoder(Body).decode(raw).numbers == [1]


def _escaped(text: str, choices: list[int]) -> str:
    """Write a text, each character as it is or as one of its two escapes."""
    forms = (
        lambda code: json.dumps(chr(code), ensure_ascii=False)[1:-1],
        lambda code: f"\\u{code:04x}",
        lambda code: f"\\u{code:04X}",
    )
    kinds = zip(text, itertools.cycle(choices), strict=False)
    return '"' + "".join(forms[kind](ord(each)) for each, kind in kinds) + '"'


_TEXTS = st.builds(
    _escaped,
    st.text(st.sampled_from('ab:{"\\0é'), max_size=4),
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
)
_KEYS = st.builds(_escaped, st.sampled_from("ab:"), st.lists(st.integers(0, 2), min_size=1))


def _objects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Write objects, of which many have a key twice."""
    pairs = st.lists(st.tuples(_KEYS, inner), max_size=3)
    return pairs.map(lambda found: "{" + ", ".join(f"{key}:{each}" for key, each in found) + "}")


_BODIES = st.recursive(
    _TEXTS | st.sampled_from(["1", "null", "[]"]),
    lambda inner: _objects(inner) | st.lists(inner, max_size=3).map(lambda x: f"[{','.join(x)}]"),
    max_leaves=12,
)


@draws_in_turn(400)
@given(_BODIES)
def test_a_body_is_refused_if_and_only_if_it_has_a_key_twice(body: str) -> None:
    found: list[bool] = []

    def compare(pairs: list[tuple[str, Any]]) -> None:
        found.append(len(pairs) != len({key for key, _ in pairs}))

    json.loads(body, object_pairs_hook=compare)
    if any(found):
        with pytest.raises(Malformed, match="twice"):
            refuse_key_twice(body.encode())
    else:
        refuse_key_twice(body.encode())


def test_an_escaped_backslash_is_not_the_character_nul() -> None:
    assert RequestDecoder(Body).decode(b'{"text": "\\\\u0000"}').text == "\\u0000"


def test_a_name_does_not_end_with_a_line_break() -> None:
    with pytest.raises(InvalidRequest):
        RequestDecoder(CreateVM).decode(b'{"name": "a\\n", "demand": {"cpu": 1, "memory": 1}}')


def test_what_is_left_out_is_not_null() -> None:
    assert RequestDecoder(ResizeVM).decode(b'{"cpu": "250m"}').cpu == "250m"
    with pytest.raises(InvalidRequest):
        RequestDecoder(ResizeVM).decode(b'{"cpu": null}')


@pytest.mark.parametrize(
    "raw",
    [
        b"limit=0",
        b"limit=1001",
        b"limit=",
        b"limit=ten",
        b"limit=1&limit=2",
        b"state=sleeping",
        b"state=",
        b"state=null",
        b"limit=null",
        b"label=novalue",
        b"label=%3Dv",
        b"project=a/b",
        b"project=a%0A",
        b"after=%00",
        b"name=%ff",
        b"\xff=1",
        b"other=1",
    ],
)
def test_a_wrong_query_is_refused(raw: bytes) -> None:
    with pytest.raises(Malformed):
        QueryReader(ListVMs).read(raw)


def test_a_query_is_read() -> None:
    query = QueryReader(ListVMs).read(b"label=a=1&label=b=&state=running&limit=7")
    assert (query.label, query.state, query.limit) == (["a=1", "b="], "running", 7)
    assert QueryReader(ExplainVM).read(b"host=a&host=b").host == ["a", "b"]
    assert QueryReader(ListEvents).read(b"").since == 0


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "é", "a" * 64, "a\0"])
def test_what_can_be_no_name_is_not_found(name: str) -> None:
    with pytest.raises(NotFound):
        path_names({"vm": name})


@pytest.mark.parametrize("key", [b"", b"a b", b"a" * 256, b"\xe9", b"a\n"])
def test_a_wrong_key_is_refused(key: bytes) -> None:
    with pytest.raises(Malformed):
        idempotency_key(key)


def test_a_right_key_is_read() -> None:
    assert idempotency_key(b"a" * 255) == "a" * 255
    assert idempotency_key(None) is None


def body_of(chunks: list[bytes], length: bytes | None, most: int, *, cut: bool = False) -> bytes:
    """Read a body that comes in chunks."""
    messages: list[Mapping[str, Any]] = [
        {"type": "http.request", "body": chunk, "more_body": cut or at + 1 < len(chunks)}
        for at, chunk in enumerate(chunks)
    ]
    messages.append({"type": "http.disconnect"})
    coming = iter(messages)

    async def receive() -> Mapping[str, Any]:
        return next(coming)

    return asyncio.run(read_body(length, receive, most))


def test_a_body_is_read_to_its_end() -> None:
    assert body_of([b"ab"], b"2", 2) == b"ab"
    assert body_of([b"ab", b"", b"cd"], None, 4) == b"abcd"


@pytest.mark.parametrize(
    ("chunks", "length"), [([b"abc"], b"3"), ([b"abc"], None), ([b"ab", b"c"], None), ([], b"9")]
)
def test_a_body_that_is_too_large_is_refused(chunks: list[bytes], length: bytes | None) -> None:
    with pytest.raises(TooLarge):
        body_of(chunks, length, 2)


def test_a_body_that_breaks_off_is_refused() -> None:
    with pytest.raises(Malformed):
        body_of([b"ab"], b"4", 10, cut=True)
