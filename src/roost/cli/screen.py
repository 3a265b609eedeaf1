"""Where a command writes: answers to standard output, notes and errors to standard error, files."""

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

from roost.base.errors import InvalidRequest, RoostError


class Output(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"


#: Without a terminal rich would cut tables at 80 columns; a file or a pipe has no such edge.
WIDE = 120


def _console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=WIDE)


def show(*renderables: RenderableType) -> None:
    """Write tables and text to standard output."""
    console = _console()
    for renderable in renderables:
        console.print(renderable)


def show_json(document: Mapping[str, object]) -> None:
    """Write one JSON document to standard output."""
    _console().out(json.dumps(document, indent=2, ensure_ascii=False), highlight=False)


def write(path: Path, text: str) -> None:
    """Write a file that was asked for, and say so."""
    try:
        path.write_text(text)
    except OSError as error:
        raise InvalidRequest(f"cannot write {str(path)!r}: {error.strerror}") from error
    note(f"wrote {path}")


def note(text: str) -> None:
    """Write a line to standard error."""
    _console(stderr=True).print(Text(text, style="dim"))


def show_error(error: RoostError, output: Output) -> None:
    """Write an error: the one JSON shape on standard output, or two lines on standard error."""
    if output is Output.JSON:
        show_json(error.as_json())
        return
    console = _console(stderr=True)
    console.print(Text.assemble(("error: ", "bold red"), error.message), soft_wrap=True)
    if error.hint:
        console.print(Text(error.hint, style="yellow"), soft_wrap=True)
