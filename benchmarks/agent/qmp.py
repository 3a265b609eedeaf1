"""A blocking QMP conversation with one QEMU: commands, answers, and when its events happened."""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.agent.agents import pass_time
from benchmarks.api.verifying import Wrong

PATIENCE_S = 60.0
_LOOK_S = 0.001


class Conversation:
    """Speaks with the QEMU that listens, or will, in a folder."""

    def __init__(
        self, folder: Path, name: str, check_alive: Callable[[], None] = lambda: None
    ) -> None:
        self._folder = folder
        self._events: list[dict[str, Any]] = []
        self._buffer = b""
        self._socket = _connect(folder, name, check_alive)
        try:
            self._receive()  # the greeting
            self.execute("qmp_capabilities")
        except BaseException:
            self.close()
            raise

    def execute(self, command: str, **arguments: Any) -> Any:
        """Return QEMU's answer; events that come before it are kept."""
        asked: dict[str, Any] = {"execute": command}
        if arguments:
            asked["arguments"] = arguments
        self._socket.sendall(json.dumps(asked).encode() + b"\n")
        while True:
            said = self._receive()
            if "event" in said:
                self._events.append(said)
            elif "return" in said:
                return said["return"]
            else:
                raise Wrong(f"QEMU refuses {command}: {said}")

    def event_s(self, name: str, **data: object) -> float:
        """Return when the last event of this name happened, by QEMU's wall clock; waits for it.

        Events with other `data` are not meant.
        """

        def is_meant(event: dict[str, Any]) -> bool:
            told = event.get("data", {})
            return event["event"] == name and all(told.get(k) == v for k, v in data.items())

        while not (found := [event for event in self._events if is_meant(event)]):
            said = self._receive()
            if "event" in said:
                self._events.append(said)
        at = found[-1]["timestamp"]
        return float(at["seconds"] + at["microseconds"] / 1e6)

    def forget_events(self) -> None:
        """Let `event_s` wait for new ones."""
        self.execute("query-status")
        self._events.clear()

    def close(self) -> None:
        """Hang up; QEMU runs on."""
        self._socket.close()

    def _receive(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            try:
                piece = self._socket.recv(65536)
            except TimeoutError:
                raise Wrong(f"QEMU in {self._folder} says nothing") from None
            if not piece:
                raise Wrong(f"QEMU in {self._folder} hung up")
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        said = json.loads(line)
        assert isinstance(said, dict)
        return said


def _connect(folder: Path, name: str, check_alive: Callable[[], None]) -> socket.socket:
    """Connect as soon as somebody listens."""
    began = time.perf_counter()
    while time.perf_counter() - began < PATIENCE_S:
        check_alive()
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(PATIENCE_S)
        try:
            descriptor = os.open(folder, os.O_PATH)  # the path itself may be too long
            try:
                made.connect(f"/proc/self/fd/{descriptor}/{name}")
            finally:
                os.close(descriptor)
        except OSError:
            made.close()
            pass_time(_LOOK_S)
        else:
            return made
    raise Wrong(f"QEMU does not listen in {folder}")
