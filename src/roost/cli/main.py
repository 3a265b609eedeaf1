"""The command `roost`: every command in one literal list, and errors to exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from roost import __version__
from roost.base.errors import InvalidRequest
from roost.cli.capacity import capacity
from roost.cli.demo import demo
from roost.cli.explain import explain
from roost.cli.info import info
from roost.cli.place import place
from roost.cli.replay import replay
from roost.cli.screen import Output, show, show_error
from roost.cli.strategies import strategies

COMMANDS = (place, explain, capacity, info, strategies, replay, demo)

app = typer.Typer(
    name="roost",
    help="roost finds every VM its place, and says why.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in COMMANDS:
    app.command(_command.__name__)(_command)


def _print_version(asked: bool) -> None:
    if asked:
        show(f"roost {__version__}")
        raise typer.Exit


@app.callback()
def _roost(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that stand before the command."""


def wants_json(arguments: Sequence[str]) -> bool:
    """Say whether JSON was asked for, even in a command line that cannot be read."""
    joined = " ".join(arguments).replace("--output", "-o").replace("=", " ")
    return any(form in f"{joined} " for form in ("-o json ", "-ojson "))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        # Bare `roost` is a question, not a mistake.
        asked = list(arguments) or ["--help"]
        code = app(args=asked, prog_name="roost", standalone_mode=False)
    except typer.TyperException as error:
        output = Output.JSON if wants_json(arguments) else Output.TABLE
        show_error(
            InvalidRequest(error.format_message(), hint="Maybe roost --help tells more."), output
        )
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else 0


def main() -> None:
    """Run the command line of this process."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has seen enough (| head); Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)


if __name__ == "__main__":
    main()
