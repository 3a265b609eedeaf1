"""Commands that ask the server: the options that name it, and the client they get.

`asks_server` gives a command --server, --token and --output and hands it a `Session`. The client
is imported only when a command runs, so that help and completion stay quick.
"""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from roost.cli.show.columns import Listing
from roost.cli.show.reporting import reports_errors
from roost.cli.show.screen import Output, for_screen, show, show_document, show_text
from roost.cli.words.completing import complete_contexts
from roost.cli.words.opening import chosen_output, fleet_file
from roost.cli.words.options import OWN_PROJECT, OutputOption, with_parameters

if TYPE_CHECKING:
    from msgspec import Struct
    from rich.console import RenderableType

    from roost.client import AsyncClient, Client, Context

#: How long a command tries: a server that is restarting is worth a moment, an absent one is not.
_TRIES_S, _REFUSED_S = 10.0, 0.3

ServerOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Address of the server, or of several with commas; else ROOST_SERVER, else the "
        "context.",
        rich_help_panel="Server",
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        help="Token to show it; else ROOST_TOKEN, else the context.",
        rich_help_panel="Server",
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Context to go by; else the current one (`roost context`).",
        rich_help_panel="Server",
        autocompletion=complete_contexts,
    ),
]


@dataclass(slots=True)
class Session:
    """A server that a command talks to, and how it answers the user."""

    form: Output
    server: str | None = None
    token: str | None = None
    named: str | None = None  # the context
    wide: bool = False  # more columns
    names: bool = False  # only names, one a line
    listing: Listing | None = None  # of a command that lists things
    _client: "Client | None" = None

    @property
    def context(self) -> "Context":
        """Return which server is meant, and as whom we come."""
        from roost.client.context import read_context

        return read_context(
            os.environ, Path.cwd(), server=self.server, token=self.token, name=self.named
        )

    @property
    def project(self) -> str | None:
        """Return the project of commands that name none; None leaves it to the server."""
        return self.context.project

    @property
    def client(self) -> "Client":
        """Return the client, connected when it is first used."""
        if self._client is None:
            from roost.client import Client, Patience

            found = self.context
            patience = Patience(_TRIES_S, _REFUSED_S)
            self._client = Client(
                found.server,
                found.token,
                ca_file=found.ca_file,
                others=found.others,
                patience=patience,
            )
        return self._client

    def async_client(self) -> "AsyncClient":
        """Return a client for asyncio, for commands that watch."""
        from roost.client import AsyncClient, Patience

        found = self.context
        patience = Patience(_TRIES_S, _REFUSED_S)
        return AsyncClient(
            found.server,
            found.token,
            ca_file=found.ca_file,
            others=found.others,
            patience=patience,
        )

    def close(self) -> None:
        """Close the client's connections."""
        if self._client is not None:
            self._client.close()

    def show(self, body: "Struct", *renderables: "RenderableType") -> None:
        """Show an answer: as a document, or as these tables."""
        if self.names and isinstance(name := getattr(body, "name", None), str):
            show_text(name)
        elif self.names and (names := _names_in(body)) is not None:
            show_text("\n".join(names))
        elif self.form is Output.TABLE:
            show(*self.arranged(renderables))
        else:
            show_body(body, self.form)

    def arranged(self, renderables: "Sequence[RenderableType]") -> "Sequence[RenderableType]":
        """Return what is shown of a list, in the order that was asked for."""
        if self.listing is None:
            return renderables
        from roost.cli.show.arranging import arranged

        shown = [arranged(each, self.listing) for each in renderables]
        return [each for each in shown if each is not None]


def _names_in(body: "Struct") -> list[str] | None:
    """Return the names of what a page lists; things without one go by their id."""
    for field in body.__struct_fields__:
        found = getattr(body, field)
        if isinstance(found, list) and all(hasattr(each, "__struct_fields__") for each in found):
            names = [getattr(each, "name", None) or getattr(each, "id", None) for each in found]
            return [str(each) for each in names if each is not None]
    return None


def show_body(body: "Struct", form: Output) -> None:
    """Write a body as a document; JSON without a detour, for lists are long."""
    if form is not Output.JSON:
        show_document(document(body), form)
        return
    import msgspec

    # Not by way of the console, which takes seconds for some megabytes.
    text = msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
    sys.stdout.write(for_screen(text) + "\n")
    sys.stdout.flush()


def document(body: Any) -> dict[str, Any]:
    """Return a body as a document."""
    import msgspec

    made: dict[str, Any] = msgspec.to_builtins(body)
    return made


def asks_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a server, handed over as `session: Session`."""
    parameters = inspect.signature(command, eval_str=True).parameters
    owned = [name for name, each in parameters.items() if OWN_PROJECT in get_args(each.annotation)]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        form = chosen_output(values.pop("output"))
        session = Session(
            form.plain, values.pop("server"), values.pop("token"), values.pop("context")
        )
        session.wide, session.names = form is Output.WIDE, form is Output.NAME
        if owned and not _asks_file(values):
            for name in owned:
                if values[name] is None:
                    values[name] = session.project
                values[name] = values[name] or None
        try:
            command(session=session, **values)
        finally:
            session.close()

    options = [
        _option("output", OutputOption),
        _option("server", ServerOption),
        _option("token", TokenOption),
        _option("context", ContextOption),
    ]
    return reports_errors(with_parameters(wrapper, command, last=options, without="session"))


def _asks_file(values: dict[str, Any]) -> bool:
    """Say whether a command asks a fleet file, which knows no context."""
    return "fleet" in values and fleet_file(values["fleet"]) is not None


def _option(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, kind, default=None, annotation=annotation)
