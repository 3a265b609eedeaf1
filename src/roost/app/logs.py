"""Logs: one line per event, text for people or JSON for machines.

Two lines are written for every VM that is placed, thousands a second at times, so the formatters
are our own and the parts of a record that nobody reads are not collected.
"""

import logging
import sys
import time
import traceback
from typing import TextIO

import msgspec

_encode = msgspec.json.Encoder().encode


class _Stamped(logging.Formatter):
    """Knows the time of a record; the second is written out once."""

    def __init__(self) -> None:
        super().__init__()
        self._second = -1
        self._text = ""

    def stamp(self, created: float) -> str:
        """Return the time in UTC with milliseconds."""
        second = int(created)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._text}.{int((created - second) * 1000):03d}Z"


class TextFormatter(_Stamped):
    """time [LEVEL] message, for each line of a message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines, and the trace of an error below them."""
        head = f"{self.stamp(record.created)} [{record.levelname}] "
        text = head + record.getMessage().replace("\n", f"\n{head}")
        return text + "\n" + _trace(record) if record.exc_info else text


class JSONFormatter(_Stamped):
    """One JSON object for each line of a message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the objects, one a line."""
        entry = {
            "time": self.stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if record.exc_info:
            entry["trace"] = _trace(record)
        lines = record.getMessage().split("\n")
        return "\n".join(_encode({**entry, "message": line}).decode() for line in lines)


def _trace(record: logging.LogRecord) -> str:
    return "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""


def set_up_logs(form: str = "text", level: str = "info", stream: TextIO | None = None) -> None:
    """Send everything that roost logs to a stream, in one form."""
    # What these collect for every record stands in neither form.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("roost").setLevel(level.upper())
