"""The server around the application: uvicorn with uvloop and httptools, told to say and do no more.

It binds its socket itself (an address in use is an error of roost, not an exit), tells streams to
end before it waits for connections, and knows when it is up and under which address.
"""

import asyncio
import socket
from pathlib import Path
from typing import Any

import uvicorn

from roost.api.app import App
from roost.api.fast.agentsocket import agent_protocol
from roost.api.fast.connections import Connections
from roost.api.fast.handshakes import Handshakes
from roost.api.fast.httpprotocol import http_protocol
from roost.base.errors import Unavailable
from roost.parts.serving import ServedPlane

#: Seconds that requests under way get to finish at shutdown.
GRACE_S = 10
#: Connections that may wait to be accepted: agents come back all at once.
BACKLOG = 4096


class Server(uvicorn.Server):
    """A uvicorn server that tells when it is up."""

    def __init__(self, config: uvicorn.Config, app: App, watch: Connections) -> None:
        super().__init__(config)
        self._app = app
        self.watch = watch
        self._shaking: Handshakes | None = None  # with TLS
        self._listening: list[socket.socket] = []  # its sockets
        self._up = asyncio.Event()
        self.port = config.port

    @property
    def url(self) -> str:
        """Return where it is reached; only right once it is up."""
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"{'https' if self.config.is_ssl else 'http'}://{host}:{self.port}"

    async def wait_up(self) -> None:
        """Wait until it accepts connections."""
        await self._up.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the socket and start to accept."""
        sockets = sockets or [bind(self.config.host, self.config.port)]
        self.port = sockets[0].getsockname()[1]
        secure = self.config.ssl
        await super().startup(sockets=sockets if secure is None else [])
        if secure is not None:
            # uvicorn would leave handshakes to asyncio, which bounds neither their number nor much
            # of their time.
            self._listening = sockets
            state = self.server_state
            self._shaking = Handshakes(
                secure, self.watch, self._secured, lambda: len(state.connections)
            )
            self._shaking.start(sockets, self.config.backlog)
        self.watch.start()
        self._up.set()

    def _secured(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the event streams, then the server."""
        self._app.stopping.set()
        if self._shaking is not None:
            await self._shaking.stop()
            for listening in self._listening:
                listening.close()
        await super().shutdown(sockets=sockets)
        self.watch.stop()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror or error}", host=host, port=port
        ) from error
    bound.setblocking(False)
    return bound


def build_server(
    app: App,
    plane: ServedPlane,
    host: str,
    port: int,
    *,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    behind_proxy: bool = False,
    backlog: int = BACKLOG,
) -> Server:
    """Make the server; `await server.serve()` runs it until `server.should_exit` is set."""
    # Behind a proxy all come from its address.
    watch = Connections(app.limits, by_address=not behind_proxy)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http=http_protocol(app.lane, watch),
        ws=agent_protocol(plane, app.gate),
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=behind_proxy,
        backlog=backlog,
        timeout_keep_alive=app.limits.idle_s,  # type: ignore[arg-type]
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )
    return Server(config, app, watch)
