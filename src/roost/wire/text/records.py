"""Decision records as JSON documents: what a decision depended on, and what it was.

The request is one line in the words of a fleet file, so a person can read it. The fleet itself is
not in the record: its digest tells whether the fleet that a replay brings is the same.
"""

import hashlib
import json
from pathlib import Path

import msgspec

from roost.base.errors import Conflict, InvalidRequest
from roost.fleet.fleet import Fleet
from roost.model.flow import Answer
from roost.placement.engine import Engine
from roost.placement.replay import DecisionRecord
from roost.wire.answers import answer_body
from roost.wire.text.fleetfile import dump, read_text
from roost.wire.text.requestwords import parse_line, write_request

VERSION = 1


def fleet_digest(fleet: Fleet) -> str:
    """Return a digest of all that a fleet file can say of a fleet."""
    return hashlib.sha256(dump(fleet.to_description()).encode()).hexdigest()


def answer_bytes(answer: Answer) -> bytes:
    """Return the bytes of an answer, equal if and only if the answers are."""
    return json.dumps(_document(answer), sort_keys=True).encode()


def _document(answer: Answer) -> dict[str, object]:
    made: dict[str, object] = msgspec.to_builtins(answer_body(answer))
    return made


def record_json(decision: DecisionRecord, digest: str, runners_up: int) -> dict[str, object]:
    """Return a decision as a document; `digest` is the fleet's before the decision."""
    return {
        "record": VERSION,
        "snapshot": decision.snapshot,
        "fleet_sha256": digest,
        "request": write_request(decision.request),
        "cursor": decision.cursor,
        "runners_up": runners_up,
        "answer": _document(decision.answer),
    }


def load_record(path: Path | str) -> dict[str, object]:
    """Read a record, or refuse a file that is none."""
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from error
    kinds = {"snapshot": int, "fleet_sha256": str, "request": str, "cursor": int, "runners_up": int}
    if not isinstance(document, dict) or document.get("record") != VERSION:
        raise InvalidRequest(f"{str(path)!r} is no decision record of version {VERSION}")
    for name, kind in kinds.items():
        if not isinstance(document.get(name), kind):
            raise InvalidRequest(f"{str(path)!r}: {name} is missing or of the wrong kind")
    return document


def replay_record(document: dict[str, object], engine: Engine) -> tuple[Answer, bool]:
    """Take a recorded decision again; return the answer and whether it is the recorded one.

    A mix of typical requests is not in the document: it comes from the fleet, as it did then.
    """
    digest = fleet_digest(engine.fleet)
    if digest != document["fleet_sha256"]:
        raise Conflict(
            "the record belongs to another fleet, or this one has changed since",
            recorded=document["fleet_sha256"],
            fleet=digest,
        )
    answer = engine.place(
        parse_line(str(document["request"])),
        runners_up=int(str(document["runners_up"])),
        cursor=int(str(document["cursor"])),
    )
    recorded = json.dumps(document.get("answer"), sort_keys=True).encode()
    return answer, answer_bytes(answer) == recorded
