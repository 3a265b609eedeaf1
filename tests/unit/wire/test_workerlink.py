"""The messages between a worker and the control plane: they survive the wire, and are bounded."""

import msgspec
import pytest
from msgspec import inspect

from roost.wire import workerlink as w
from tests.unit.wire.bounds import changed, fields_of, valid


@pytest.mark.parametrize("message", [w.WorkerJoin, w.WorkerPoll, w.WorkerLogs])
def test_a_field_is_taken_at_its_bound_and_refused_beyond_it(message: type) -> None:
    kind = inspect.type_info(message)
    assert isinstance(kind, inspect.StructType)
    decoder = msgspec.json.Decoder(message)
    whole = valid(kind)
    decoder.decode(msgspec.json.encode(whole))
    for path, at, beyond in fields_of(kind):
        for value in at:
            decoder.decode(msgspec.json.encode(changed(whole, path, value)))
        for value in beyond:
            with pytest.raises(msgspec.ValidationError):
                decoder.decode(msgspec.json.encode(changed(whole, path, value)))


def test_a_poll_comes_back_as_it_was_sent() -> None:
    poll = w.WorkerPoll(
        instance="w1",
        sequence=3,
        attempts=[w.AttemptSeen(attempt="job-1:1", state="running")],
        finished=[w.AttemptReport(attempt="job-2:1", outcome="failed", reason="exit_code")],
        logs=[w.LogChunk(attempt="job-1:1", stream="stdout", offset=0, data=b"\x00\xff")],
    )

    assert msgspec.json.decode(msgspec.json.encode(poll), type=w.WorkerPoll) == poll


@pytest.mark.parametrize(
    "field",
    [
        {"attempts": [{"attempt": "j:1", "state": "running"}] * (w.MOST_ATTEMPTS + 1)},
        {"finished": [{"attempt": "x" * 200, "outcome": "failed"}]},
        {"finished": [{"attempt": "j:1", "outcome": "failed", "message": "x" * 5000}]},
        {"finished": [{"attempt": "j:1", "outcome": "failed", "reason": "no such word"}]},
        {"wait_s": 3600},
        {"notice": "panic"},
    ],
    ids=["attempts", "id", "message", "reason", "wait", "notice"],
)
def test_what_is_out_of_bounds_is_refused_where_it_is_decoded(field: dict[str, object]) -> None:
    body = msgspec.json.encode({"instance": "w1", "sequence": 1, **field})

    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=w.WorkerPoll)


def test_a_log_chunk_is_bounded() -> None:
    chunk = {"attempt": "j:1", "stream": "stdout", "offset": 0, "data": "A" * 4 * w.MOST_CHUNK}

    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(chunk), type=w.LogChunk)
