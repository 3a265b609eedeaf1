"""A connection of an agent that may say anything: bytes in, and all that was sent to it."""

import json
from typing import Any

import msgspec

from roost.control.agents.sessions import Session
from roost.parts.access import Principal
from tests.integration.control.rig import Rig


class RawLink:
    """A connection whose agent says whatever bytes it is told to."""

    peer = "raw"

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None

    def send(self, data: bytes) -> None:
        self.heard.append(json.loads(data))

    def close(self, code: int, reason: str) -> None:
        self.closed = self.closed or (code, reason)


def connect(rig: Rig, host: str) -> tuple[RawLink, Session]:
    link = RawLink()
    who = Principal(f"agent/{host}", "agent", None, host)
    return link, rig.plane.agents.connect(link, who)


def hello(host: str, found: Any, **rest: Any) -> bytes:
    said = {"type": "hello", "protocol": 1, "host": host, "instance": "i", "version": "0"}
    return msgspec.json.encode(said | {"inventory": found} | rest)
