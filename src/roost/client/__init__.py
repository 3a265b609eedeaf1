"""The Python client of the HTTP API: `Client`, and `AsyncClient` with the same methods.

    with Client("http://127.0.0.1:7070", token) as roost:
        vm = roost.create_vm(CreateVM(name="web-1", demand=DemandBody(cpu=2, memory="4GiB")))

`routes` describes every route once, as a `Call` that knows its path, body and reply; `methods`
makes them methods of both clients; `conversation` says when a call may be sent again; the clients
only carry bytes. Bodies are those of `roost.wire.bodies`, errors those of `roost.base.errors`.
Nothing here loads NumPy or the engine; the clients, and httpx with them, are imported when they are
first named, for a server needs only the context.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from roost.client.context import Context, read_context, write_context
from roost.client.conversation import Patience

if TYPE_CHECKING:
    from roost.client.asynchronous import AsyncClient
    from roost.client.synchronous import Client

__all__ = ["AsyncClient", "Client", "Context", "Patience", "read_context", "write_context"]


def __getattr__(name: str) -> Any:
    """Import a client when it is first named."""
    if name in ("AsyncClient", "Client"):
        _load_httpx()
    if name == "Client":
        from roost.client.synchronous import Client

        return Client
    if name == "AsyncClient":
        from roost.client.asynchronous import AsyncClient

        return AsyncClient
    raise AttributeError(f"module 'roost.client' has no attribute {name!r}")


def _load_httpx() -> None:
    """Import httpx without its own command line, for which it loads click, rich and pygments.

    It does without that where they are not installed; a tenth of a command's imports are theirs.
    """
    part = "httpx._main"
    if "httpx" in sys.modules:
        return
    sys.modules[part] = None  # type: ignore[assignment]
    try:
        import_module("httpx")
    finally:
        del sys.modules[part]
