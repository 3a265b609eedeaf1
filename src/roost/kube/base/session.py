"""The connection to one API server: TLS, proxy and tokens as a kubeconfig says.

The session of kubernetes_asyncio looks for proxies and passwords in the environment at every
request, in a thread: three times the CPU of the request itself. Ours looks once.
"""

import asyncio
import ssl
import urllib.request
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace
from kubernetes_asyncio.client import Configuration

from roost.kube.base.names import MANAGER

#: Bytes read ahead: events of a watch are long.
_READ_AHEAD = 2**20


class Session:
    """Sends requests to one server."""

    def __init__(self, configuration: Configuration, connections: int) -> None:
        self.server = str(configuration.host)
        self._configuration = configuration
        self._always: dict[str, Any] = {}
        if proxy := configuration.proxy or _usual_proxy(self.server):
            self._always["proxy"] = proxy
        if configuration.tls_server_name:
            self._always["server_hostname"] = configuration.tls_server_name
        connector = _Connector(limit=connections, ssl=_trust(configuration))
        self._http = aiohttp.ClientSession(connector=connector, read_bufsize=_READ_AHEAD)

    async def close(self) -> None:
        """Close all connections of the session."""
        await self._http.close()

    async def send(
        self, method: str, path: str, headers: dict[str, str], **more: Any
    ) -> aiohttp.ClientResponse:
        """Send one request and return the answer, of which only the head is here yet."""
        headers = {"Accept": "application/json", "User-Agent": MANAGER} | headers
        # Also renews a token that an exec plugin gave and that has run out.
        if token := await self._configuration.get_api_key_with_prefix("BearerToken"):
            headers["Authorization"] = token
        return await self._http.request(
            method, f"{self.server}{path}", headers=headers, **self._always, **more
        )


class _Connector(aiohttp.TCPConnector):
    """Ends every connection that it has opened, also those that are being closed in peace.

    A request that is given up half way has its TLS connection closed with a farewell, for whose
    answer nobody waits: a command would end before it comes, with the connection open.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._opened: WeakSet[asyncio.Transport] = WeakSet()

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        made = await super()._create_connection(req, traces, timeout)
        if isinstance(made.transport, asyncio.Transport):
            self._opened.add(made.transport)
        return made

    async def close(self, *, abort_ssl: bool = False) -> None:
        await super().close(abort_ssl=abort_ssl)
        for transport in self._opened:
            transport.abort()
        await asyncio.sleep(0)  # sockets are closed in the next round of the loop


def _trust(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _usual_proxy(server: str) -> str | None:
    """Return the proxy that the environment names for a server."""
    at = urlsplit(server)
    if urllib.request.proxy_bypass(at.hostname or ""):
        return None
    return urllib.request.getproxies().get(at.scheme)
