"""The port between the agent and the network: one ordered, two-way stream of messages."""

from typing import Protocol


class LinkLost(Exception):
    """The connection is gone, or could not be made; try again, here or at another server."""


class Link(Protocol):
    """One open connection to a control plane."""

    async def send(self, data: bytes) -> None:
        """Send one message; raises LinkLost."""

    async def receive(self) -> bytes | str:
        """Return the next message; raises LinkLost."""

    async def close(self) -> None:
        """End the connection; never raises."""


class Transport(Protocol):
    """Opens connections to control planes."""

    async def connect(self, server: str, credential: str) -> Link:
        """Connect to one control-plane process; raises LinkLost within a bounded time."""
