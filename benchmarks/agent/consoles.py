"""A guest's serial log, followed as it is written: what came, and when it came on this host.

Guests of ours and those driven by hand are watched by this one reader, so that whatever it adds it
adds to both. A guest that moves writes the end of a line on one host and the rest on the other, so
lines are read from both logs put together.
"""

import re
import threading
import time
from bisect import bisect_right
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

from benchmarks.agent.agents import wait_for
from benchmarks.api.verifying import Wrong

_LOOK_S = 0.002
_TICK = re.compile(rb"^TICK (\d+) ", re.MULTILINE)


class Console:
    """Reads a log from a byte on, from when the file appears until it is closed."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self.pieces: list[tuple[float, bytes]] = []  # when it came, by time.perf_counter
        self._start = start
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._reader.join()

    @property
    def text(self) -> bytes:
        """Return all that came."""
        return b"".join(piece for _, piece in list(self.pieces))

    def wait_for(self, word: bytes, within_s: float = 60.0) -> float:
        """Return when a word came, waiting for it."""
        wait_for(f"{word!r} in {self.path}", lambda: word in self.text, within_s, every_s=0.005)
        at, ends = self.text.index(word) + len(word), 0
        for when, piece in self.pieces:
            ends += len(piece)
            if ends >= at:
                return when
        raise AssertionError("it was there")

    def wait_for_ticks(self, count: int, within_s: float = 60.0) -> None:
        """Wait until so many ticks came."""
        what = f"{count} ticks in {self.path}"
        wait_for(what, lambda: len(_TICK.findall(self.text)) >= count, within_s)

    def _read(self) -> None:
        while not self._over.is_set():
            try:
                file = self.path.open("rb", buffering=0)
            except FileNotFoundError:
                self._over.wait(_LOOK_S)
                continue
            with file:
                file.seek(self._start)
                while not self._over.is_set():
                    if piece := file.read(65536):
                        self.pieces.append((time.perf_counter(), piece))
                    else:
                        self._over.wait(_LOOK_S)


def stand_still_s(source: Console, target: Console) -> float:
    """Return how long a moved guest stood still: its silence, less the usual one between ticks.

    Raises Wrong unless every tick over both logs is the one before and 1.
    """
    check_unbroken(source.text + target.text, f"{source.path} and {target.path}")
    began = target.pieces[0][0]
    times = [when for when, _ in source.pieces]
    last = times[bisect_right(times, began) - 1]
    if times[-1] > began:
        raise Wrong(f"{source.path} was written {times[-1] - began:.4f} s after the move")
    return began - last - usual_silence_s(source)


def usual_silence_s(console: Console) -> float:
    """Return the silence between two ticks of a guest that is left alone."""
    times = [when for when, _ in console.pieces]
    gaps = [after - before for before, after in pairwise(times)]
    return median(gaps) if gaps else 0.0


def check_unbroken(text: bytes, where: str) -> None:
    """Raise unless the ticks of a log go on at +1, and there are some."""
    numbers = [int(number) for number in _TICK.findall(text[: text.rfind(b"\n") + 1])]
    if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise Wrong(f"the ticks in {where} are not unbroken: {numbers[:3]} ... {numbers[-3:]}")
