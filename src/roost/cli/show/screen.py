"""Where a command writes: answers to standard output, notes and errors to standard error, files."""

import json
import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from roost.base.errors import InvalidRequest, RoostError


class Output(StrEnum):
    """The form in which an answer is written: table, JSON or YAML.

    `wide` is a table with more columns, `name` only names; a `Session` knows them as such.
    """

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    WIDE = "wide"
    NAME = "name"

    @property
    def plain(self) -> "Output":
        """Return the form without regard to columns: table, JSON or YAML."""
        return Output.TABLE if self in (Output.WIDE, Output.NAME) else self


#: Without a terminal rich would cut tables at 80 columns; a file or a pipe has no such edge.
WIDE = 120


def console(*, stderr: bool = False) -> Console:
    """Return the console that a command writes to."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=WIDE)


def show(*renderables: RenderableType) -> None:
    """Write tables and text to standard output."""
    target = console()
    for renderable in renderables:
        target.print(renderable)


def show_text(text: str) -> None:
    """Write text to standard output as it is, without folding it."""
    console().out(text, highlight=False)


#: Sequences that steer a terminal (CSI, OSC and the like), and other control characters.
_STEERING = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


def show_raw(text: str, *, whole: bool) -> None:
    """Write what a guest wrote, byte for byte; a terminal is not steered by it.

    After the `whole` of it a terminal's own prompt begins on a line of its own.
    """
    if sys.stdout.isatty():
        text = _STEERING.sub("", text)
        text += "\n" if whole and text and not text.endswith("\n") else ""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode(errors="replace"))
    sys.stdout.buffer.flush()


def show_json(document: Mapping[str, object]) -> None:
    """Write one JSON document to standard output."""
    show_text(json.dumps(document, indent=2, ensure_ascii=False))


def show_document(document: Mapping[str, object], output: Output) -> None:
    """Write one document to standard output, as JSON or YAML."""
    if output is Output.YAML:
        import yaml  # a tenth of the time of a short command, and seldom asked for

        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip("\n")
        show_text(f"---\n{text}")
    else:
        show_json(document)


def show_line(document: Mapping[str, object]) -> None:
    """Write one document as one line of JSON, for a reader that takes them as they come."""
    show_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")))


def write(path: Path, text: str) -> None:
    """Write a file that was asked for, and say so."""
    try:
        path.write_text(text)
    except OSError as error:
        raise InvalidRequest(f"cannot write {str(path)!r}: {error.strerror}") from error
    note(f"wrote {path}")


def note(text: str) -> None:
    """Write a line to standard error."""
    console(stderr=True).print(Text(text, style="dim"))


def show_error(error: RoostError, output: Output, *more: RenderableType) -> None:
    """Write an error: the one shape on standard output, or a few lines on standard error."""
    if output.plain is not Output.TABLE:
        show_document(error.as_json(), output)
        return
    target = console(stderr=True)
    target.print(Text.assemble(("error: ", "bold red"), error.message), soft_wrap=True)
    for renderable in more:
        target.print(renderable)
    if error.hint:
        target.print(Text(error.hint, style="yellow"), soft_wrap=True)
