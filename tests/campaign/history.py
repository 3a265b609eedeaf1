"""What clients asked and what they were told: every single request, with its times.

A request is sent once; a client that repeats itself makes several requests with one key. So each
has one of three answers: `ok`, `refused` (it did nothing, and never will), or `unknown` (nobody
answered, or only to say "not now": it may be done by now, may be done later, or never).
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

Answer = Literal["ok", "refused", "unknown"]


class Request(Struct, omit_defaults=True):
    """One request of a client; times are seconds since the run began."""

    client: int
    what: str  # create, batch, delete, start, stop, resize, migrate, read, list, doctor
    began: float
    ended: float = 0.0
    answer: Answer = "unknown"
    code: str = ""  # of the error
    message: str = ""
    plane: str = ""
    key: str = ""  # of create and batch
    names: list[str] = []  # that were asked for
    project: str = "default"
    group: str = ""  # whose members are kept apart
    cpu_milli: int = 0  # of each VM that was asked for, or the new size
    #: What was told: the ids of names, in their order, empty where one was refused; the ids of a
    #: list; or the findings of the doctor.
    ids: list[str] = []
    atomic: bool = False
    vm: str = ""  # id of the VM that it is about


class History:
    """All requests of a run; many clients write to it."""

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        self.requests: list[Request] = list(requests)
        self._lock = threading.Lock()
        self._began = time.monotonic()

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self._began

    def begin(self, blank: Request, plane: str) -> Request:
        """Note that a request goes out to a control plane."""
        request = msgspec.structs.replace(blank, plane=plane, began=self.now())
        with self._lock:
            self.requests.append(request)
        return request

    def answers(self) -> dict[str, Counter[str]]:
        """Count the answers by what was asked."""
        found: dict[str, Counter[str]] = {}
        for request in self.requests:
            found.setdefault(request.what, Counter())[request.answer] += 1
        return found

    def save(self, path: Path) -> None:
        """Write every request on a line of its own."""
        lines = map(msgspec.json.encode, self.requests)
        path.write_bytes(b"\n".join(lines) + b"\n")


def load_history(path: Path) -> History:
    """Read what `save` wrote."""
    lines = path.read_bytes().splitlines()
    return History(msgspec.json.decode(line, type=Request) for line in lines)
