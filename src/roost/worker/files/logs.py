"""Logs on their way to the control plane: what an attempt has written, cut into pieces.

Offsets count what is kept on this machine. A piece that was taken is never sent again by the same
worker; one that starts anew asks from the beginning, and the control plane says how far it is.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from roost.wire.workerlink import MOST_CHUNK, LogChunk, LogOffset
from roost.worker.run.plan import STREAMS, read_ended


@dataclass(slots=True)
class AttemptLogs:
    """How far the logs of one attempt were sent."""

    attempt: str
    folder: Path
    offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))
    closed: set[str] = field(default_factory=set)  # sent to the end, or nobody wants more

    def pieces(self, most_bytes: int) -> list[LogChunk]:
        """Return what is there to send, at most so much; the last piece of a stream says so."""
        found: list[LogChunk] = []
        ended = None
        for stream in STREAMS:
            if stream in self.closed or most_bytes <= 0:
                continue
            ended = ended or read_ended(self.folder)  # before the file: nothing comes after it
            offset, data = self.offsets[stream], b""
            try:
                with (self.folder / stream).open("rb") as file:
                    file.seek(offset)
                    data = file.read(min(MOST_CHUNK, most_bytes) + 1)
            except FileNotFoundError:
                pass
            more = len(data) > min(MOST_CHUNK, most_bytes)
            data = data[: min(MOST_CHUNK, most_bytes)]
            end = ended is not None and not more
            dropped = ended.dropped.get(stream, 0) if ended is not None and end else 0
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
