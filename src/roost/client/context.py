"""Which server, and as whom: the context file, the environment, options.

The file is JSON: {"server": "http://127.0.0.1:7070", "token": "...", "ca_file": "..."}. It is
looked for at $ROOST_CONTEXT, else as .roost/context.json in the current folder or a parent of it,
else as ~/.config/roost/context.json. ROOST_SERVER and ROOST_TOKEN win over the file, and options
over both. A token that was meant for one server is never sent to another.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from roost.base.errors import InvalidRequest, NotFound
from roost.base.private import open_beside

DEFAULT_SERVER = "http://127.0.0.1:7070"
CONTEXT, SERVER, TOKEN, CA_FILE = "ROOST_CONTEXT", "ROOST_SERVER", "ROOST_TOKEN", "ROOST_CA_FILE"
_IN_FOLDER = Path(".roost") / "context.json"
_IN_HOME = Path(".config") / "roost" / "context.json"


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A server and the token for it."""

    server: str = DEFAULT_SERVER
    token: str | None = None
    ca_file: str | None = None  # certificates to trust, when the server's is signed by nobody


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
) -> Context:
    """Return the context that options, environment and file give together."""
    path = context_file(environment, folder)
    filed = load_context(path) if path is not None else Context()
    server = server or environment.get(SERVER) or filed.server
    same = server.rstrip("/") == filed.server.rstrip("/")
    return Context(
        server=server,
        token=token or environment.get(TOKEN) or (filed.token if same else None),
        ca_file=environment.get(CA_FILE) or (filed.ca_file if same else None),
    )


def load_context(path: Path) -> Context:
    """Read a context file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Context)
    except OSError as error:
        raise NotFound(f"cannot read {str(path)!r}: {error.strerror}", file=str(path)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"{path}: {error}",
            hint='Maybe {"server": "http://127.0.0.1:7070", "token": "..."}?',
            file=str(path),
        ) from error


def write_context(path: Path, context: Context) -> None:
    """Write a context file that only its owner reads, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside, file = open_beside(path)
    with file:
        file.write(msgspec.json.format(msgspec.json.encode(context), indent=2) + b"\n")
    beside.replace(path)
