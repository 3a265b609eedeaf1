"""The images of a host: fetched when a VM needs them, verified, and kept while there is room.

A driver asks for an image by its digest and gets the path of a read-only file whose bytes have that
digest. One pull of a digest serves all who ask for it, and goes on when one who asked gives up: the
next try finds more of it here. Files are `imagestore`, sources `pulling`, addresses `imageurls`.
"""

import asyncio
import errno
import re
import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from roost.base.clock import Clock
from roost.base.units import GIB
from roost.hostkit.failures import DriverError
from roost.hostkit.images.imagestore import ImageStore, Part
from roost.hostkit.images.imageurls import DEFAULT_ALLOWED, checked_prefix, refused, shown
from roost.hostkit.images.pulling import PullLimits, Source, opened
from roost.wire.agentlink import ImageInfo

P = ParamSpec("P")
T = TypeVar("T")

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
_FULL = (errno.ENOSPC, errno.EDQUOT)
#: Threads beside those that pull.
_MORE_THREADS = 2


@dataclass(frozen=True)
class _Job:
    url: str
    task: "asyncio.Task[Path]"


class Images:
    """Fetches images and keeps them by digest, used from one event loop.

    `allowed` are the beginnings of addresses that images may come from; `size_limit` is in bytes,
    of one image and of all that no VM is pinned to.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        size_limit: int = 100 * GIB,
        allowed: Iterable[str] = DEFAULT_ALLOWED,
        limits: PullLimits | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._allowed = tuple(checked_prefix(prefix) for prefix in allowed)
        self._limits = limits or PullLimits()
        self._context = cache(partial(ssl.create_default_context, cafile=ca_file))
        self._store = ImageStore(folder, size_limit, clock.wall_ms)
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        self._pulls = asyncio.Semaphore(self._limits.at_once)
        # Of our own: hashing large images must not keep others from their small files.
        threads = self._limits.at_once + _MORE_THREADS
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="images")

    async def fetch(self, image: ImageInfo, vm_id: str = "") -> Path:
        """Return the file of an image, pulled if it is not here; with `vm_id` it is pinned first.

        Without a pin it may be removed as soon as another image needs the room.
        """
        digest = _checked_digest(image.digest)
        if vm_id:
            await self._run(self._store.pin, digest, vm_id)
        while True:
            job = self._jobs.get(digest) or self._begun(digest, image.url)
            try:
                return await asyncio.shield(job.task)
            except DriverError:
                if job.url == image.url:
                    raise
                # Another asked first, from elsewhere, and failed: now it is our turn.
            except asyncio.CancelledError:
                if job.task.cancelled():
                    text = f"fetching {image.digest} was interrupted"
                    raise DriverError("transient", "interrupted", text) from None
                raise

    async def pin(self, digest: str, vm_id: str) -> None:
        """Keep an image as long as this VM is here; survives the agent."""
        await self._run(self._store.pin, _checked_digest(digest), vm_id)

    async def unpin(self, vm_id: str) -> None:
        """Unpin all images of a destroyed VM."""
        await self._run(self._store.unpin, vm_id)

    async def retain(self, vm_ids: Iterable[str]) -> None:
        """Unpin the images of all VMs but these, which are all that are here."""
        await self._run(self._store.retain, list(vm_ids))

    async def used_bytes(self) -> int:
        """Return how much the files of the store take."""
        return await self._run(self._store.used_bytes)

    async def close(self) -> None:
        """Cancel pulls; partial files are kept."""
        tasks = [job.task for job in self._jobs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False)

    # One fetch

    def _begun(self, digest: str, url: str) -> _Job:
        job = _Job(url, asyncio.get_running_loop().create_task(self._fetch(digest, url)))
        self._jobs[digest] = job
        self._store.busy.add(digest)

        def ended(task: "asyncio.Task[Path]") -> None:
            del self._jobs[digest]
            self._store.busy.discard(digest)
            if not task.cancelled():
                task.exception()  # looked at, since perhaps nobody waits any more

        job.task.add_done_callback(ended)
        return job

    async def _fetch(self, digest: str, url: str) -> Path:
        found = await self._run(self._store.find, digest)
        if found is not None:
            return found
        if not url:
            text = f"sha256:{digest} is not on this host, and nothing says where it is"
            raise DriverError("permanent", "image_missing", text)
        async with self._pulls:
            return await self._pull(digest, url)

    async def _pull(self, digest: str, url: str) -> Path:
        opening = asyncio.ensure_future(self._run(self._store.begin, digest))
        try:
            part = await asyncio.shield(opening)
        except asyncio.CancelledError:
            (await opening).leave()
            raise
        keep = True
        try:
            while part.digest != digest:
                resumed, source = await self._filled(part, digest, url)
                if part.digest != digest and not resumed:
                    raise _corrupt(digest, part, url, source)
                if part.digest != digest:
                    await self._run(part.restart)  # what was here before may have been wrong
            await self._run(self._store.make_room, digest, 0)
            return await self._run(self._store.accept, digest, part)
        except DriverError as error:
            keep = error.code == "image_unreachable"
            raise
        finally:
            # Not interrupted: a thread may still write, and closing waits for it.
            await asyncio.shield(self._run(part.leave if keep else part.drop))

    async def _filled(self, part: Part, digest: str, url: str) -> tuple[bool, Source]:
        """Read a source to its end; returns whether it went on after what was here before."""
        limit = self._store.size_limit
        async with opened(
            url,
            part.size,
            allowed=self._allowed,
            limits=self._limits,
            context=self._context,
            clock=self._clock,
            threads=self._threads,
        ) as source:
            if source.start != part.size:
                await self._run(part.restart)
            resumed = part.size > 0
            if source.length is not None:
                if source.length > limit:
                    raise _too_large(url, f"{source.length} bytes", limit)
                await self._run(self._store.make_room, digest, source.length - part.size)
            pace = _Pace(self._limits, self._clock.monotonic())
            async with aclosing(source.pieces) as pieces:
                async for piece in pieces:
                    if part.size + len(piece) > limit:
                        raise _too_large(url, "more", limit)
                    await self._run(part.write, piece)
                    pace.check(len(piece), self._clock.monotonic(), url)
        if source.length is not None and part.size < source.length:
            text = f"{shown(url)} ended after {part.size} of {source.length} bytes"
            raise DriverError("transient", "image_unreachable", text)
        return resumed, source

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run file work in a thread; a full disk is an error of its own."""
        loop = asyncio.get_running_loop()
        work = partial(function, *args, **kwargs)
        try:
            return await loop.run_in_executor(self._threads, work)
        except OSError as error:
            code = "disk_full" if error.errno in _FULL else "image_store_failed"
            text = f"the image store cannot go on: {error}"
            raise DriverError("transient", code, text) from error


class _Pace:
    """Gives up on a pull that takes too long in all, or is too slow after a while."""

    def __init__(self, limits: PullLimits, begun: float) -> None:
        self._limits = limits
        self._begun = begun
        self._got = 0

    def check(self, more_bytes: int, now: float, url: str) -> None:
        """Check the pull's pace with the bytes that have come."""
        self._got += more_bytes
        limits, took = self._limits, now - self._begun
        is_slow = took > limits.silence_s and self._got < took * limits.slowest_bytes_per_s
        if is_slow or took > limits.whole_s:
            text = f"{shown(url)} is too slow: {self._got} bytes in {took:.0f} s"
            raise DriverError("transient", "image_unreachable", text)


def _checked_digest(digest: str) -> str:
    match = _DIGEST.match(digest)
    if match is None:
        raise refused(f"{digest!r} is no digest. Maybe sha256: and 64 digits of 0-9 and a-f?")
    return match[1]


def _too_large(url: str, size: str, limit: int) -> DriverError:
    text = (
        f"the image at {shown(url)} has {size}, and this host keeps none larger than {limit} bytes"
    )
    return DriverError("permanent", "image_too_large", text)


def _corrupt(digest: str, part: Part, url: str, source: Source) -> DriverError:
    text = f"the {part.size} bytes at {shown(url)} are sha256:{part.digest}, not sha256:{digest}"
    # A server that closes the connection to end a body may as well have broken off.
    return DriverError("permanent" if source.ends_clearly else "transient", "image_corrupt", text)
