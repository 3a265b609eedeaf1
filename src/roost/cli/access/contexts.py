"""`roost context`: which control planes this user knows, as whom, and which one commands ask.

Works on the context file alone; no server is asked. Tokens are never shown.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.cli.show.reporting import reports_errors
from roost.cli.show.screen import Output, show, show_document
from roost.cli.words.completing import complete_contexts, complete_projects
from roost.cli.words.loading import new_group
from roost.cli.words.opening import chosen_output
from roost.cli.words.options import OutputOption

if TYPE_CHECKING:
    from roost.client.context import Context, Contexts

_MOST_TOKEN = 16_384
NewName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the new context.")]
NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=complete_contexts),
]


@reports_errors
def list_(output: OutputOption = None) -> None:
    """List contexts; the current one, which commands go by, is marked."""
    from roost.cli.show import tables

    form = chosen_output(output)
    _, known = _load()
    if form is Output.NAME:
        for name in sorted(known.contexts):
            show(Text(name))
        return
    if form.plain is not Output.TABLE:
        listed = [_document(name, each, known) for name, each in sorted(known.contexts.items())]
        show_document({"current": known.current, "contexts": listed}, form)
        return
    if not known.contexts:
        show(Text("no contexts; `roost context add NAME --server URL` makes one"))
        return
    made = tables.table("", "context", "servers", "project", "token")
    for name, each in sorted(known.contexts.items()):
        made.add_row(
            "*" if name == known.current else "",
            name,
            ", ".join(each.servers),
            each.project or "",
            "yes" if each.token else "no",
        )
    show(made)


@reports_errors
def show_(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of the context (default: the current one).",
            autocompletion=complete_contexts,
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Show a context and the file it is in, without its token."""
    form = chosen_output(output)
    path, known = _load()
    chosen = name or known.current
    if chosen is None:
        raise NotFound("no context is current", hint="Maybe roost context use NAME.")
    found = _document(chosen, known.named(chosen), known) | {"file": str(path)}
    if form.plain is not Output.TABLE:
        show_document(found, form)
        return
    for key, value in found.items():
        said = ", ".join(value) if isinstance(value, list) else _word(value)
        show(Text(f"{key + ':':<10} {said}".rstrip()))


@reports_errors
def use(name: NameArgument) -> None:
    """Make a context the one that commands go by."""
    from roost.client.context import Contexts, write_contexts

    path, known = _load()
    chosen = known.named(name)
    if known.current != name:
        write_contexts(path, Contexts(current=name, contexts=known.contexts))
    show(Text(f"{name}: commands ask {' or '.join(chosen.servers)} ({path})"))
    for variable in ("ROOST_SERVER", "ROOST_TOKEN", "ROOST_PROJECT"):
        if os.environ.get(variable):
            show(Text(f"{variable} is set and wins over it", style="yellow"))


@reports_errors
def add(
    name: NewName,
    server: Annotated[
        list[str],
        typer.Option(
            metavar="URL",
            help="Address of a server; repeatable, or with commas: the next is asked when one is "
            "away.",
        ),
    ],
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN", help="Token; better --token-file, which no list of processes shows."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File that holds the token; - is standard input."),
    ] = None,
    ca_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificates to trust, kept by its absolute path."),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Project of commands that name none.",
            autocompletion=complete_projects,
        ),
    ] = None,
    use_it: Annotated[
        bool, typer.Option("--use", help="Make it the current one (the first one always is).")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put it in the place of one of this name.")
    ] = False,
) -> None:
    """Add a context: the servers of a control plane, and as whom to come."""
    import msgspec

    from roost.client.carrying import checked_server, checked_token
    from roost.client.context import Context, ContextName, split_servers, write_contexts

    try:
        msgspec.convert(name, ContextName)
    except msgspec.ValidationError as error:
        raise InvalidRequest(
            f"{name!r} is no name of a context",
            hint="Maybe letters, digits, dots, hyphens and underscores, 63 at most.",
        ) from error
    if token is not None and token_file is not None:
        raise InvalidRequest("--token and --token-file: which of them?")
    if ca_file is not None and not ca_file.is_file():
        raise NotFound(f"no file {str(ca_file)!r}", file=str(ca_file))
    servers = [checked_server(each) for text in server for each in split_servers(text)]
    path, known = _load()
    if name in known.contexts and not replace:
        raise Conflict(
            f"there is a context {name!r} already",
            hint="Maybe --replace, or another name.",
            context=name,
        )
    made = Context(
        server=servers[0],
        others=tuple(servers[1:]),
        token=checked_token(token if token_file is None else _read_token(token_file)),
        ca_file=None if ca_file is None else str(ca_file),
        project=project,
    )
    changed = known.put(name, made, use=use_it)
    write_contexts(path, changed)
    current = ", which is the current one" if changed.current == name else ""
    show(Text(f"added {name}: {' or '.join(made.servers)} ({path}){current}"))


@reports_errors
def remove(name: NameArgument) -> None:
    """Forget a context and its token; the token itself stays good until it is revoked."""
    from roost.client.context import write_contexts

    path, known = _load()
    changed = known.without(name)
    write_contexts(path, changed)
    left = "" if changed.current is not None else "; none is current: roost context use NAME"
    show(Text(f"removed {name} ({path}){left}"))


def _load() -> "tuple[Path, Contexts]":
    from roost.client.context import Contexts, context_target, load_contexts

    path = context_target(os.environ, Path.cwd())
    return path, load_contexts(path) if path.is_file() else Contexts()


def _read_token(path: Path) -> str:
    try:
        text = sys.stdin.read(_MOST_TOKEN) if str(path) == "-" else path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"cannot read a token from {str(path)!r}: {error}") from error
    if not text.strip() or len(text) >= _MOST_TOKEN:
        raise InvalidRequest(f"{str(path)!r} holds no token")
    return text.strip()


def _document(name: str, context: "Context", known: "Contexts") -> dict[str, Any]:
    return {
        "name": name,
        "current": name == known.current,
        "servers": list(context.servers),
        "project": context.project,
        "token": context.token is not None,
        "ca_file": context.ca_file,
    }


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


context = new_group(
    "context",
    "Which control planes commands ask, and as whom.",
    {"list": list_, "show": show_, "use": use, "add": add, "remove": remove},
)
