"""Hypothesis writes messages of agents by their types, bends them, and shrinks what breaks a law.

Beside `messages.py`, which is faster and remembers nothing: this one says the smallest message.
"""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.wire.agentlink import decode_to_agent, encode, take_from_agent
from tests.fuzz.strategies import JUNK, SAID


@settings(max_examples=300, deadline=None)
@given(SAID)
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
@given(st.binary(max_size=200) | JUNK.map(lambda said: json.dumps(said).encode()))
def test_what_is_no_message_is_refused(data: bytes) -> None:
    """No bytes and no value are one by chance: a message is an object that names its kind."""
    for decode in (take_from_agent, decode_to_agent):
        with pytest.raises(msgspec.DecodeError):
            decode(data)
