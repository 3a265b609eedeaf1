"""Errors of ours as message and exit code, in the output that was asked for."""

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from roost.app.settings import variable
from roost.base.errors import NoFit, RoostError, Unauthorized
from roost.cli.show.screen import Output, show_error, styled

if TYPE_CHECKING:
    from rich.console import RenderableType


def reports_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn an error of ours into its message and exit code, in the output that was asked for."""

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        try:
            command(**values)
        except RoostError as error:
            output = values.get("output") or _set_output()
            show_error(_hinted(error), output, *_reasons(error))
            raise typer.Exit(error.exit_code) from None

    return wrapper


def _set_output() -> Output:
    # Reading the settings may be what failed, so only the variable is looked at.
    given = os.environ.get(variable("output"), "")
    return Output(given) if given in tuple(Output) else Output.TABLE


def _hinted(error: RoostError) -> RoostError:
    if isinstance(error, Unauthorized) and error.hint is None:
        error.hint = (
            "Maybe set ROOST_TOKEN, or ROOST_CONTEXT to the context file that `roost serve` wrote."
        )
    return error


def _reasons(error: RoostError) -> "list[RenderableType]":
    """Return why no host fits, or where a rule has its mistake, when that is the error."""
    if isinstance(picture := error.details.get("picture"), str):
        return [styled(picture)]
    rejection = error.details.get("rejection")
    if not isinstance(error, NoFit) or not isinstance(rejection, Mapping):
        return []
    from roost.cli.show import batches, tables
    from roost.cli.show.remedies import Live

    return [*tables.why_not(rejection, Live()), *batches.why_not(error.details.get("together"))]
