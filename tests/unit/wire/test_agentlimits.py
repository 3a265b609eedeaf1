"""Every field of every message of an agent has a bound: at it a value is taken, beyond it refused.

The messages' types are walked, not listed: a field that is added without a bound fails here.
"""

from typing import get_args

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
from tests.unit.wire.bounds import changed, fields_of, valid

MESSAGES = get_args(FromAgent)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_a_field_is_taken_at_its_bound_and_refused_beyond_it(message: type) -> None:
    kind = inspect.type_info(message)
    assert isinstance(kind, inspect.StructType)
    whole = valid(kind)
    decode_from_agent(msgspec.json.encode(whole))
    for path, at, beyond in fields_of(kind):
        for value in at:
            decode_from_agent(msgspec.json.encode(changed(whole, path, value)))
        for value in beyond:
            with pytest.raises(msgspec.DecodeError):
                decode_from_agent(msgspec.json.encode(changed(whole, path, value)))


def test_a_field_without_a_bound_is_found() -> None:
    class Unbounded(msgspec.Struct):
        number: int

    kind = inspect.type_info(Unbounded)
    assert isinstance(kind, inspect.StructType)
    with pytest.raises(AssertionError, match="number has no least value"):
        list(fields_of(kind))


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
