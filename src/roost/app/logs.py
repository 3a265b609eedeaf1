"""Logs: one line per event, text for people or JSON for machines, through structlog's formatter."""

import logging
import sys
from typing import TextIO

import structlog

_LEVELS = ("debug", "info", "warning", "error")


def set_up_logs(form: str = "text", level: str = "info", stream: TextIO | None = None) -> None:
    """Send everything that roost logs to a stream, in one form."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor
    if form == "json":
        renderer = structlog.processors.JSONRenderer()
        shared.append(structlog.processors.format_exc_info)
    else:
        renderer = _text
        shared.append(structlog.processors.format_exc_info)
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("roost").setLevel(level.upper())


def _text(_logger: object, _name: str, event: structlog.typing.EventDict) -> str:
    """Write `time [LEVEL] message key=value`."""
    stamp, level = event.pop("timestamp", ""), str(event.pop("level", "info")).upper()
    event.pop("logger", None)
    message, trace = event.pop("event", ""), event.pop("exception", None)
    rest = "".join(f" {key}={value}" for key, value in event.items())
    line = f"{stamp} [{level}] {message}{rest}"
    return f"{line}\n{trace}" if trace else line
