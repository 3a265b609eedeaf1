"""The bytes of an image from where they are: a web server or a file of this host.

Every address is checked against what the operator allows, those of redirects too. A source tells
where its bytes begin, since a pull that broke off goes on where it was if the server can, and how
long the whole is, if it says so; nothing that it says is believed.
"""

import os
import re
import ssl
from asyncio import get_running_loop
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

from roost.base.clock import Clock
from roost.hostkit.failures import DriverError
from roost.hostkit.images.imageurls import checked_web, opened_file, refused, scheme_of, shown

PIECE = 2**20

_GATHER_S = 1.0
_MOST_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_TRY_AGAIN = (408, 425, 429)
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")


@dataclass(frozen=True, slots=True)
class PullLimits:
    """How long a pull may take."""

    connect_s: float = 10.0
    silence_s: float = 30.0  # without a byte
    whole_s: float = 4 * 3600.0
    slowest_bytes_per_s: int = 16 * 1024  # on average; a server that trickles blocks the others
    at_once: int = 3  # pulls side by side; more wait


@dataclass(frozen=True, slots=True)
class Source:
    """An open source of an image's bytes from `start` on."""

    start: int
    length: int | None  # of the whole image, as the source says
    ends_clearly: bool  # a body that breaks off is told from one that ends
    pieces: AsyncGenerator[bytes, None]


@asynccontextmanager
async def opened(
    url: str,
    start: int,
    *,
    allowed: tuple[str, ...],
    limits: PullLimits,
    context: Callable[[], ssl.SSLContext],
    clock: Clock,
    threads: Executor,
) -> AsyncIterator[Source]:
    """Open a source, at `start` if it can be; raises DriverError, also while it is read."""
    if scheme_of(url) == "file":
        descriptor = await get_running_loop().run_in_executor(threads, opened_file, url, allowed)
        try:
            yield _file_source(descriptor, start, threads)
        finally:
            os.close(descriptor)
        return
    checked = checked_web(url, allowed)
    # In a thread: certificates and what httpx loads with its first client take 90 ms.
    try:
        client = await get_running_loop().run_in_executor(
            threads, lambda: _client(limits, context(), checked.host)
        )
    except OSError as error:
        text = f"the certificates for {shown(url)} cannot be read: {error}"
        raise DriverError("transient", "image_unreachable", text) from error
    try:
        async with client, _answered(client, checked, start, allowed) as response:
            yield _web_source(response, start, clock)
    except httpx.TransportError as error:
        problem = str(error) or type(error).__name__
        text = f"the image at {shown(url)} cannot be had: {problem}"
        raise DriverError("transient", "image_unreachable", text) from error


def _client(limits: PullLimits, context: ssl.SSLContext, host: str) -> httpx.AsyncClient:
    timeout = httpx.Timeout(
        limits.connect_s, read=limits.silence_s, write=limits.connect_s, pool=None
    )
    return httpx.AsyncClient(
        timeout=timeout,
        verify=context,
        trust_env=not _is_loopback(host),  # no proxy between a machine and itself
        headers={"Accept-Encoding": "identity", "User-Agent": "roost-agent"},
    )


@asynccontextmanager
async def _answered(
    client: httpx.AsyncClient, url: httpx.URL, start: int, allowed: tuple[str, ...]
) -> AsyncIterator[httpx.Response]:
    """Request the bytes from `start` on, or all when the server has no such range."""
    for _ in range(_MOST_REDIRECTS + 1):
        headers = {"Range": f"bytes={start}-"} if start else {}
        async with client.stream("GET", url, headers=headers) as response:
            if response.status_code == 416 and start:
                start = 0
            elif response.status_code in _REDIRECTS and "location" in response.headers:
                url = _redirected(url, response.headers["location"], allowed)
            elif response.status_code in (200, 206):
                yield response
                return
            else:
                raise _not_given(url, response)
    raise refused(f"the image at {shown(str(url))} is behind more than {_MOST_REDIRECTS} redirects")


def _redirected(url: httpx.URL, location: str, allowed: tuple[str, ...]) -> httpx.URL:
    try:
        target = str(url.join(location))
    except httpx.InvalidURL as error:
        raise refused(f"{shown(str(url))} redirects to what is no address") from error
    try:
        return checked_web(target, allowed)
    except DriverError as error:
        text = f"{shown(str(url))} redirects to {shown(target)}. {error.message}"
        raise refused(text) from error


def _not_given(url: httpx.URL, response: httpx.Response) -> DriverError:
    status = response.status_code
    text = f"the image at {shown(str(url))} cannot be had: the server answered {status}"
    if status in (404, 410):
        return DriverError("permanent", "image_missing", text)
    if 400 <= status < 500 and status not in _TRY_AGAIN:
        return refused(text)
    return DriverError("transient", "image_unreachable", text)


def _web_source(response: httpx.Response, asked: int, clock: Clock) -> Source:
    begun, length = 0, None
    announced = response.headers.get("content-length", "")
    if response.status_code == 206:
        match = _RANGE.match(response.headers.get("content-range", ""))
        if match is None or int(match[1]) != asked:
            text = f"{shown(str(response.url))} sent another part than the one from byte {asked} on"
            raise DriverError("transient", "image_unreachable", text)
        begun = asked
        length = int(match[3]) if match[3] != "*" else None
    elif announced.isdecimal():
        length = int(announced)
    ends_clearly = "content-length" in response.headers or "transfer-encoding" in response.headers
    return Source(begun, length, ends_clearly, _gathered(response, clock))


async def _gathered(response: httpx.Response, clock: Clock) -> AsyncGenerator[bytes, None]:
    """Join chunks into larger ones, since each costs a change of threads, but not for long.

    What came before a break is handed out too, so that the next pull goes on after it.
    """
    buffer, begun = bytearray(), clock.monotonic()
    try:
        async for piece in response.aiter_raw():
            buffer += piece
            if len(buffer) >= PIECE or clock.monotonic() - begun > _GATHER_S:
                yield bytes(buffer)
                buffer.clear()
                begun = clock.monotonic()
    except httpx.TransportError:
        yield bytes(buffer)
        raise
    yield bytes(buffer)


def _file_source(descriptor: int, start: int, threads: Executor) -> Source:
    size = os.fstat(descriptor).st_size
    begun = start if start <= size else 0
    return Source(begun, size, True, _file_pieces(descriptor, begun, threads))


async def _file_pieces(descriptor: int, at: int, threads: Executor) -> AsyncGenerator[bytes, None]:
    run = get_running_loop().run_in_executor
    try:
        while piece := await run(threads, os.pread, descriptor, PIECE, at):
            at += len(piece)
            yield piece
    except OSError as error:
        text = f"the image's file cannot be read: {error}"
        raise DriverError("transient", "image_unreachable", text) from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
