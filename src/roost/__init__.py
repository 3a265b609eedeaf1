"""roost finds every VM its place: a VM scheduler and control plane.

    with roost.Client("http://127.0.0.1:7070", token) as client:
        client.get_vm("web-1")

Importing this package stays quick: nothing heavy (httpx, NumPy, Numba, OR-Tools) is loaded until a
module that needs it is imported, and the clients when they are first named.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roost.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a client when it is first named."""
    if name not in ("AsyncClient", "Client"):
        raise AttributeError(f"module 'roost' has no attribute {name!r}")
    from roost import client

    return getattr(client, name)
