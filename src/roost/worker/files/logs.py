"""Logs on their way to the control plane: what an attempt has written, cut into pieces.

Offsets count what is kept on this machine. A piece that was taken is never sent again by the same
worker; one that starts anew asks from the beginning, and the control plane says how far it is.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from roost.wire.workerlink import MOST_CHUNK, LogChunk, LogOffset
from roost.worker.run.plan import STREAMS, Ended


@dataclass(slots=True)
class AttemptLogs:
    """How far the logs of one attempt were sent."""

    attempt: str
    folder: Path
    offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))
    closed: set[str] = field(default_factory=set)  # sent to the end, or nobody wants more
    is_whole: bool = False  # the attempt has ended: nothing is written any more
    dropped: dict[str, int] = field(default_factory=dict)  # bytes beyond the limit

    def end(self, ended: Ended | None) -> None:
        """Note that the attempt has ended; streams that have nothing left to send are closed."""
        self.is_whole = True
        self.dropped = ended.dropped if ended is not None else {}
        self.pieces(1)

    def pieces(self, most_bytes: int) -> list[LogChunk]:
        """Return what is there to send, at most so much; the last piece of a stream says so."""
        found: list[LogChunk] = []
        for stream in STREAMS:
            if stream in self.closed or most_bytes <= 0:
                continue
            offset, most = self.offsets[stream], min(MOST_CHUNK, most_bytes)
            data = _read_at(f"{self.folder}/{stream}", offset, most + 1)
            end = self.is_whole and len(data) <= most
            data = data[:most]
            dropped = self.dropped.get(stream, 0) if end else 0
            if data or dropped or (end and offset):
                piece = LogChunk(
                    attempt=self.attempt,
                    stream="stdout" if stream == "stdout" else "stderr",
                    offset=offset,
                    data=data,
                    end=end,
                    dropped=dropped,
                )
                found.append(piece)
                most_bytes -= len(data)
            elif end:
                self.closed.add(stream)  # it is empty: there is nothing to say
        return found

    def taken(self, pieces: Iterable[LogChunk]) -> None:
        """Note that the control plane took pieces."""
        for piece in pieces:
            if piece.attempt == self.attempt:
                self.offsets[piece.stream] = max(
                    self.offsets[piece.stream], piece.offset + len(piece.data)
                )
                if piece.end:
                    self.closed.add(piece.stream)

    def moved(self, kept: LogOffset) -> None:
        """Note how far the control plane has a stream."""
        if kept.attempt == self.attempt and kept.stream in self.offsets:
            self.offsets[kept.stream] = kept.offset
            if kept.enough:
                self.closed.add(kept.stream)

    @property
    def is_done(self) -> bool:
        """Say whether nothing is left to send."""
        return len(self.closed) == len(STREAMS)


def _read_at(path: str, offset: int, most: int) -> bytes:
    """Return bytes of a file; it is not there before the job has written something."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(file, most, offset)
    finally:
        os.close(file)
