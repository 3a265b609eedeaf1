"""Which servers, as whom and for which project: the context file, the environment, options.

The file is JSON, with one context or with several by their names:

    {"server": "http://127.0.0.1:7070", "token": "...", "ca_file": "/etc/roost/ca.pem"}
    {"current": "prod", "contexts": {"prod": {"server": "https://a:7070",
        "others": ["https://b:7070"], "token": "...", "project": "shop"}, "lab": {...}}}

It is looked for at $ROOST_CONTEXT, else as .roost/context.json in the current folder or a parent of
it, else as ~/.config/roost/context.json. ROOST_SERVER, ROOST_TOKEN and ROOST_PROJECT win over the
file, and options over both. A token that was meant for some servers is never sent to another.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from roost.base.errors import InvalidRequest, NotFound
from roost.base.private import open_beside

DEFAULT_SERVER = "http://127.0.0.1:7070"
CONTEXT, SERVER, TOKEN, CA_FILE = "ROOST_CONTEXT", "ROOST_SERVER", "ROOST_TOKEN", "ROOST_CA_FILE"
PROJECT = "ROOST_PROJECT"
#: The name of the only context of a file that names none.
ONLY = "default"
#: The context of a server that runs on this machine, in a file with several.
LOCAL = "local"
_IN_FOLDER = Path(".roost") / "context.json"
_IN_HOME = Path(".config") / "roost" / "context.json"

ContextName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$(?!\n)")]


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Servers of one control plane, and the token for them."""

    server: str = DEFAULT_SERVER
    others: tuple[str, ...] = ()  # further servers of the same control plane
    token: str | None = None
    ca_file: str | None = None  # certificates to trust, when the server's is signed by nobody
    project: str | None = None  # of commands that name none

    @property
    def servers(self) -> tuple[str, ...]:
        """Return every server, in the order in which they are tried."""
        return (self.server, *self.others)


class Contexts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A context file: contexts by name, and which of them holds."""

    current: str | None = None
    contexts: dict[ContextName, Context] = {}
    single: Context | None = None  # the file has one context, without a name

    def named(self, name: str) -> Context:
        """Return a context, or refuse a name that there is not."""
        if name not in self.contexts:
            close = difflib.get_close_matches(name, self.contexts, n=1)
            hint = f"Maybe {close[0]!r}?" if close else "Maybe `roost context list` tells them."
            raise NotFound(f"no context {name!r}", hint=hint, context=name)
        return self.contexts[name]

    def chosen(self, name: str | None = None) -> Context:
        """Return the context of this name, else the current one, else that of this machine."""
        if name is not None:
            return self.named(name)
        return self.named(self.current) if self.current is not None else Context()

    def put(self, name: str, context: Context, *, use: bool) -> "Contexts":
        """Return the file with a context in it; the first one is the current one."""
        current = name if use or self.current is None else self.current
        return Contexts(current=current, contexts={**self.contexts, name: context})

    def without(self, name: str) -> "Contexts":
        """Return the file without a context; without the current one, none is."""
        self.named(name)
        left = {each: context for each, context in self.contexts.items() if each != name}
        return Contexts(current=None if self.current == name else self.current, contexts=left)


def context_file(environment: Mapping[str, str], folder: Path) -> Path | None:
    """Return the context file that holds in a folder, if there is one."""
    if named := environment.get(CONTEXT):
        path = Path(named)
        if not path.is_file():
            raise NotFound(f"{CONTEXT} names {named!r}, which is not there", file=named)
        return path
    home = environment.get("HOME")
    found = [each / _IN_FOLDER for each in (folder, *folder.parents)]
    found += [Path(home) / _IN_HOME] if home else []
    return next((path for path in found if path.is_file()), None)


def context_target(environment: Mapping[str, str], folder: Path) -> Path:
    """Return where a new context is written: where it would be looked for first."""
    if named := environment.get(CONTEXT):
        return Path(named)
    found = context_file(environment, folder)
    home = Path(environment.get("HOME") or folder)
    return found if found is not None else home / _IN_HOME


def read_context(
    environment: Mapping[str, str],
    folder: Path,
    *,
    server: str | None = None,
    token: str | None = None,
    name: str | None = None,
) -> Context:
    """Return the context that options, environment and file give together.

    `server`, and ROOST_SERVER, may name several with commas between them.
    """
    path = context_file(environment, folder)
    filed = (load_contexts(path) if path is not None else Contexts()).chosen(name)
    # A context that was asked for by name is meant as a whole.
    given = server or (None if name is not None else environment.get(SERVER))
    servers = split_servers(given) if given else filed.servers
    known = {each.rstrip("/") for each in filed.servers}
    same = all(each.rstrip("/") in known for each in servers)
    said = {} if name is not None else environment
    return Context(
        server=servers[0],
        others=servers[1:],
        token=token or said.get(TOKEN) or (filed.token if same else None),
        ca_file=said.get(CA_FILE) or (filed.ca_file if same else None),
        project=environment.get(PROJECT) or (filed.project if same else None),
    )


def split_servers(text: str) -> tuple[str, ...]:
    """Return the servers of a text with commas between them."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise InvalidRequest(f"{text!r} names no server", hint=f"Maybe {DEFAULT_SERVER}?")
    return found


def load_contexts(path: Path) -> Contexts:
    """Read a context file; one with a single context has it by the name `default`."""
    hint = 'Maybe {"server": "http://127.0.0.1:7070", "token": "..."}?'
    try:
        found = msgspec.json.decode(path.read_bytes())
        if isinstance(found, dict) and ("contexts" in found or "current" in found):
            several = msgspec.convert(found, Contexts)
            several.chosen()  # a current one that is not there is a mistake of this file
            return several
        single = msgspec.convert(found, Context)
        return Contexts(current=ONLY, contexts={ONLY: single}, single=single)
    except OSError as error:
        raise NotFound(f"cannot read {str(path)!r}: {error.strerror}", file=str(path)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}: {error}", hint=hint, file=str(path)) from error
    except NotFound as error:
        raise InvalidRequest(f"{path}: {error.message}", hint=error.hint, file=str(path)) from error


def load_context(path: Path) -> Context:
    """Read the context that holds in a file."""
    return load_contexts(path).chosen()


def write_context(path: Path, context: Context) -> None:
    """Write a file with this context alone, that only its owner reads."""
    _write(path, _absolute(context))


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Write a file with several contexts, that only its owner reads."""
    kept = {name: _absolute(each) for name, each in contexts.contexts.items()}
    _write(path, Contexts(current=contexts.current, contexts=kept))


def _absolute(context: Context) -> Context:
    """Return a context whose files are found from every folder."""
    if context.ca_file is None:
        return context
    # Not resolved: a link may be how certificates are renewed.
    path = os.path.abspath(context.ca_file)  # noqa: PTH100 (Path.absolute keeps "..")
    return msgspec.structs.replace(context, ca_file=path)


def _write(path: Path, made: Context | Contexts) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside, file = open_beside(path)
    with file:
        file.write(msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")
    beside.replace(path)
