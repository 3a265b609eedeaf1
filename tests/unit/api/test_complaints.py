"""What a decoder complains about is said in words: which values there are, what a name is."""

import pytest

from roost.api.errors import Malformed
from roost.api.reading import QueryReader, RequestDecoder
from roost.base.errors import InvalidRequest
from roost.wire.bodies import CreateVM, SetLabels
from roost.wire.queries import ListVMs


def refused(kind: type, raw: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as found:
        RequestDecoder(kind).decode(raw)
    return found.value


def test_a_name_is_described_and_not_its_pattern() -> None:
    raw = b'{"name": "bad name!", "demand": {"cpu": 1, "memory": "1GiB"}}'
    error = refused(CreateVM, raw)
    assert "letters and digits" in error.message
    assert "regex" not in error.message


def test_a_wrong_word_is_told_the_right_ones_and_the_nearest() -> None:
    raw = b'{"name": "web", "demand": {"cpu": 1, "memory": "1GiB"}, "on_no_fit": "que"}'
    error = refused(CreateVM, raw)
    assert "'que' is none of fail, preempt, queue" in error.message
    assert error.hint == "Maybe 'queue'?"


def test_a_wrong_word_deep_within_is_found_too() -> None:
    raw = (
        b'{"name": "web", "demand": {"cpu": 1, "memory": "1GiB"},'
        b' "groups": [{"name": "g", "rule": "spred"}]}'
    )
    assert "is none of affinity, anti-affinity, spread" in refused(CreateVM, raw).message


def test_the_states_of_a_query_are_named() -> None:
    with pytest.raises(Malformed) as found:
        QueryReader(ListVMs).read(b"state=runing")
    assert "running" in found.value.message
    assert found.value.hint == "Maybe 'running'?"


@pytest.mark.parametrize("key", ["bad key", "a,b", "!a", ""], ids=["space", "comma", "not", "none"])
def test_a_label_that_no_selector_could_name_is_refused(key: str) -> None:
    error = refused(SetLabels, f'{{"labels": {{"{key}": "1"}}}}'.encode())
    assert "the key of a label" in error.message
