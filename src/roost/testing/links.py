"""Connections in memory between a whole agent and a control plane, real or model.

`MemoryTransport` is the agent's way out. What the agent sends arrives at once; what the plane sends
waits until the agent receives it. A cut loses what was under way and lets no new link be made.
"""

import asyncio

from roost.hostkit.talk.link import Link, LinkLost
from roost.parts.access import Principal
from roost.testing.agent import ControlPlane, PlaneSession


class MemoryLink:
    """The agent's end of a link in memory."""

    def __init__(self) -> None:
        self.session: PlaneSession | None = None
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = False

    async def send(self, data: bytes) -> None:
        """Let the plane take a message."""
        if self._closed or self.session is None:
            raise LinkLost("closed")
        self.session.received(data)

    async def receive(self) -> bytes | str:
        """Return the plane's next message; what came before the end is still read."""
        data = await self._inbox.get()
        if data is None:
            self._inbox.put_nowait(None)
            raise LinkLost("closed")
        return data

    async def close(self) -> None:
        """End the connection."""
        self.cut()

    def deliver(self, data: bytes) -> None:
        """Queue a message of the plane."""
        if not self._closed:
            self._inbox.put_nowait(data)

    def cut(self) -> None:
        """Lose the connection, on both sides."""
        if not self._closed:
            self._closed = True
            self._inbox.put_nowait(None)
            if self.session is not None:
                self.session.closed()


class PlaneEnd:
    """The plane's end of a memory link."""

    peer = "memory"

    def __init__(self, link: MemoryLink) -> None:
        self._link = link

    def send(self, data: bytes) -> None:
        """Queue a message at the agent."""
        self._link.deliver(data)

    def close(self, code: int, reason: str) -> None:
        """End the connection; what was sent before is still read."""
        self._link.cut()


class MemoryTransport:
    """Connects the agent of a host to a control plane. `up` False: cut off."""

    def __init__(self, plane: ControlPlane, host: str) -> None:
        self.up = True
        self.plane, self.host = plane, host
        self.credentials: list[str] = []
        self._link: MemoryLink | None = None

    async def connect(self, server: str, credential: str) -> Link:
        """Make a link."""
        if not self.up:
            raise LinkLost("no way there")
        self.credentials.append(credential)
        link = self._link = MemoryLink()
        who = Principal(f"agent/{self.host}", "agent", None, self.host)
        link.session = self.plane.agents.connect(PlaneEnd(link), who)
        return link

    def cut(self) -> None:
        """Lose the link and let no new one be made."""
        self.up = False
        if self._link is not None:
            self._link.cut()
