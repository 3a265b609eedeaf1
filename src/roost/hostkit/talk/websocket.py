"""The real transport: one WebSocket to a control-plane process."""

import ssl
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from roost.hostkit.talk.link import Link, LinkLost
from roost.wire.agentlink import MOST_BYTES

PATH = "/api/v1/agents/connect"

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


class WebSocketLink:
    """One WebSocket. Implements `Link`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, data: bytes) -> None:
        """Send one message as text, which every tool can show."""
        try:
            await self._socket.send(data, text=True)
        except (WebSocketException, OSError) as error:
            raise LinkLost(str(error)) from error

    async def receive(self) -> bytes | str:
        """Return the next message."""
        try:
            return await self._socket.recv(decode=False)
        except (WebSocketException, OSError) as error:
            raise LinkLost(str(error)) from error

    async def close(self) -> None:
        """Close the WebSocket connection."""
        await self._socket.close()


class WebSocketTransport:
    """Connects over WebSocket. Implements `Transport`."""

    def __init__(self, *, open_timeout_s: float = 10.0, ca_file: str | None = None) -> None:
        self._open_timeout_s = open_timeout_s
        self._ca_file = ca_file  # certificates to trust beside the machine's own

    async def connect(self, server: str, credential: str) -> Link:
        """Connect to one server, given as http(s)://host:port."""
        try:
            socket = await connect(
                link_url(server),
                additional_headers={"Authorization": f"Bearer {credential}"},
                compression=None,
                max_size=MOST_BYTES,
                open_timeout=self._open_timeout_s,
                close_timeout=1.0,
                ping_interval=None,  # heartbeats do the same, and are counted
                proxy=None,
                ssl=trust(link_url(server), self._ca_file),
            )
        except InvalidURI as error:
            raise LinkLost(f"{server} is not an address of a server") from error
        except (InvalidHandshake, WebSocketException, OSError, TimeoutError) as error:
            raise LinkLost(f"cannot connect to {server}: {error}") from error
        return WebSocketLink(socket)


def link_url(server: str) -> str:
    """Return the address of the agent link of a server."""
    parts = urlsplit(server)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise LinkLost(f"{server} is not an address of a server; http://host:port is")
    return urlunsplit((scheme, parts.netloc, parts.path.rstrip("/") + PATH, "", ""))


def trust(url: str, ca_file: str | None) -> ssl.SSLContext | None:
    """Return what a server's certificate must be signed by; None where there is none."""
    return (
        ssl.create_default_context(cafile=ca_file) if url.startswith(("wss:", "https:")) else None
    )
