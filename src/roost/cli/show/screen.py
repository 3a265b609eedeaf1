"""Where a command writes: answers to standard output, notes and errors to standard error, files."""

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from roost.base.errors import InvalidRequest, RoostError
from roost.cli.show.steering import escaped, unsteered

if TYPE_CHECKING:  # a third of the start of a command that draws nothing
    from rich.console import Console, RenderableType
    from rich.text import Text


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


def console(*, stderr: bool = False) -> "Console":
    """Return the console that a command writes to; what others wrote does not steer it."""
    from roost.cli.show.steadyconsole import SteadyConsole

    made = SteadyConsole(stderr=stderr, highlight=False)
    return made if made.is_terminal else SteadyConsole(stderr=stderr, highlight=False, width=WIDE)


def show(*renderables: "RenderableType") -> None:
    """Write tables and text to standard output."""
    target = console()
    for renderable in renderables:
        target.print(renderable)


def styled(text: str, style: str = "") -> "Text":
    """Return text that is shown as it is, in a style of rich's; rich is loaded only then."""
    from rich.text import Text

    return Text(text, style=style)


def show_text(text: str) -> None:
    """Write text to standard output as it is, without folding it."""
    sys.stdout.write(f"{text}\n")


def show_raw(text: str, *, whole: bool) -> None:
    """Write what a guest wrote, byte for byte; a terminal is not steered by it.

    After the `whole` of it a terminal's own prompt begins on a line of its own.
    """
    if sys.stdout.isatty():
        text = unsteered(text)
        text += "\n" if whole and text and not text.endswith("\n") else ""
    _write_bytes(text.encode(errors="replace"))


def show_piece(data: bytes) -> None:
    """Write a piece of what a job wrote, byte for byte; a terminal is not steered by it.

    On a terminal a character that two pieces share is shown as two that are unknown.
    """
    if sys.stdout.isatty():
        data = unsteered(data.decode(errors="replace")).encode()
    _write_bytes(data)


def _write_bytes(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def show_json(document: Mapping[str, object]) -> None:
    """Write one JSON document to standard output."""
    show_text(for_screen(json.dumps(document, indent=2, ensure_ascii=False)))


def for_screen(text: str) -> str:
    """Return JSON as a terminal may have it: control characters above ASCII are escaped, too."""
    return escaped(text) if sys.stdout.isatty() and not text.isascii() else text


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
    show_text(for_screen(json.dumps(document, ensure_ascii=False, separators=(",", ":"))))


def write(path: Path, text: str) -> None:
    """Write a file that was asked for, and say so."""
    try:
        path.write_text(text)
    except OSError as error:
        raise InvalidRequest(f"cannot write {str(path)!r}: {error.strerror}") from error
    note(f"wrote {path}")


def note(text: str) -> None:
    """Write a line to standard error."""
    from rich.text import Text

    console(stderr=True).print(Text(text, style="dim"))


def show_error(error: RoostError, output: Output, *more: "RenderableType") -> None:
    """Write an error: the one shape on standard output, or a few lines on standard error."""
    if output.plain is not Output.TABLE:
        show_document(error.as_json(), output)
        return
    from rich.text import Text

    target = console(stderr=True)
    target.print(Text.assemble(("error: ", "bold red"), error.message), soft_wrap=True)
    for renderable in more:
        target.print(renderable)
    if error.hint:
        target.print(Text(error.hint, style="yellow"), soft_wrap=True)
