"""What the HTTP layer asks of a plane: its routes, who may, whether it is ready, and agents' door.

Attributes are read-only properties, so that a plane may have narrower types than these.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from roost.parts.access import Principal
from roost.parts.routes import Route


class Tokens(Protocol):
    """Authenticates bearer tokens."""

    def principal(self, bearer: str) -> Principal | None:
        """Return the principal of a token if a cache knows it, without asking the ledger."""

    async def check(self, bearer: str) -> Principal:
        """Return the principal that a token authenticates; raises Unauthorized."""


class Link(Protocol):
    """The server's end of one agent's connection."""

    @property
    def peer(self) -> str:
        """Return the peer's address."""

    def send(self, data: bytes) -> None:
        """Send one message, or hand it to the kernel later; never waits."""

    def close(self, code: int, reason: str) -> None:
        """Begin to close the connection; `closed` of the session follows."""


class Session(Protocol):
    """The control plane's end of one agent's connection. All calls must be quick."""

    def received(self, data: bytes) -> None:
        """Handle one message of the agent."""

    def rest_s(self, spent_s: float) -> float:
        """Count time that a message took; return how long nothing more is to be read."""

    def closed(self) -> None:
        """Handle the loss of the connection; called once."""


class Agents(Protocol):
    """Where agents' connections arrive."""

    def connect(self, link: Link, principal: Any) -> Session: ...


class ServedPlane(Protocol):
    """A control plane as the HTTP layer sees it."""

    @property
    def access(self) -> Tokens: ...
    @property
    def agents(self) -> Agents: ...
    @property
    def routes(self) -> Sequence[Route]: ...

    def require_ready(self) -> None:
        """Raise FleetUnavailable while requests cannot be served."""
