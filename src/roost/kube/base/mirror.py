"""A local copy of objects that live in a cluster, kept up by list and watch.

Whoever waits for something waits for a change of a mirror, never for time to pass. A watch that
ends goes on from the last version; one whose version is too old (410) begins with a new list, and
the difference is told as the events that were missed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from roost.base.backoff import BackOff
from roost.base.clock import Clock, RealClock
from roost.base.errors import RoostError, Unavailable
from roost.kube.base.client import Kube, Resource
from roost.kube.base.failures import Gone
from roost.kube.base.objects import Key, Object, key_of, version_of

#: Called with the object as it was and as it is; None where there was or is none.
Heard = Callable[[Object | None, Object | None], None]
T = TypeVar("T")

log = logging.getLogger("roost.kube")

_WAITS = BackOff(0.1, 5.0)
_WATCH_S = 60


class Mirror:
    """All objects of one resource, or those of a namespace or with some labels."""

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        clock: Clock | None = None,
        watch_s: int = _WATCH_S,
    ) -> None:
        self.resource = resource
        self.objects: dict[Key, Object] = {}
        self.lists = 0  # whole lists asked for so far
        self.trouble: RoostError | None = None  # why it is behind, while it is
        #: Called when that changes: with the mirror, which tells how it is now.
        self.troubled: Callable[[Mirror], None] | None = None
        self._kube, self._namespace, self._labels = kube, namespace, labels
        self._clock = clock or RealClock()
        self._watch_s = watch_s
        self._version = ""
        self._listed = ""  # the version of the last list
        self._heard: list[Heard] = []
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # Using it

    def __iter__(self) -> Iterator[Object]:
        return iter(self.objects.values())

    def __len__(self) -> int:
        return len(self.objects)

    def get(self, name: str, namespace: str = "") -> Object | None:
        """Return one object as last heard of."""
        return self.objects.get((namespace, name))

    def listen(self, heard: Heard) -> None:
        """Call this at every change, in order; objects that are there already are told first."""
        self._heard.append(heard)
        for item in list(self.objects.values()):
            heard(None, item)

    def forget(self, heard: Heard) -> None:
        """Remove a listener; an unknown one is no error."""
        if heard in self._heard:
            self._heard.remove(heard)

    async def until(self, found: Callable[[], T | None], limit_s: float, what: str = "") -> T:
        """Return what a question gives once it gives something; asked at every change."""
        deadline = self._clock.monotonic() + limit_s
        while True:
            changed = self._changed
            if (answer := found()) is not None and answer is not False:
                return answer
            left = deadline - self._clock.monotonic()
            try:
                async with asyncio.timeout(max(left, 0.0)):
                    await changed.wait()
            except TimeoutError:
                if (answer := found()) is not None and answer is not False:
                    return answer
                raise Unavailable(
                    f"{what or self.resource.kind} did not come within {limit_s:g} s"
                ) from self.trouble

    async def catch_up(self, limit_s: float) -> None:
        """Return when everything that was written before this call has been heard of.

        A watch tells of a write some time after its writer has its answer: who has written, or has
        had something written, and then asks the mirror whether all is done, asks too early.
        """
        listed = await self._kube.list(self.resource, self._namespace, labels=self._labels)
        there = {key_of(item): version_of(item) for item in listed.items}

        def heard() -> bool:
            if self._version and int(self._version) >= int(listed.version):
                return True
            # Of a quiet resource no later version is told: its objects have to do.
            mine = {key: version_of(item) for key, item in self.objects.items()}
            return mine.keys() == there.keys() and all(mine[key] >= there[key] for key in there)

        await self.until(heard, limit_s, f"the news of {self.resource.plural}")

    # Keeping it

    async def start(self) -> "Mirror":
        """Begin, and return when the first list is here; fails when that cannot be had."""
        await self._list()
        self._task = asyncio.create_task(self._keep(), name=f"mirror {self.resource.plural}")
        return self

    async def stop(self) -> None:
        """Stop the list and watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _keep(self) -> None:
        failures = 0
        while True:
            try:
                await self._follow()
                self._well()
                failures = 0
            except Gone:
                # A server that has just started may call even its own answer too old for a while.
                if self._version == self._listed:
                    await self._clock.sleep(_WAITS.first_s)
                self._version = ""
            except RoostError as error:
                await self._behind(error, failures)
                failures += 1
            except Exception as error:  # a service: it must go on, and its trouble be seen
                log.exception("mirror of %s: our bug", self.resource.plural)
                self._version = ""  # what was missed is in the next list
                told = Unavailable(f"{self.resource.plural} cannot be followed: {error!r}")
                await self._behind(told, failures)
                failures += 1

    async def _behind(self, error: RoostError, failures: int) -> None:
        """Tell why the mirror is behind, and pause after so many failures before this one."""
        self._be(error)
        self._wake()
        await self._clock.sleep(_WAITS.jittered_s(failures, self._kube.random))

    async def _follow(self) -> None:
        if not self._version:
            await self._list()
        asked = self._kube.watch(
            self.resource, self._version, self._namespace, labels=self._labels,
            seconds=self._watch_s, opened=self._well,
        )  # fmt: skip
        async for event in asked:
            self._well()
            item = event.object
            self._version = item["metadata"]["resourceVersion"]
            if event.type == "BOOKMARK":
                continue
            key = key_of(item)
            before = self.objects.get(key)
            if event.type == "DELETED":
                self.objects.pop(key, None)
                # The last state comes along: a finalizer's work may be told by it.
                self._tell(item if before is None else before, None)
            else:
                self.objects[key] = item
                self._tell(before, item)

    def _well(self) -> None:
        # Not only by the next event: a quiet resource may have none for a minute.
        self._be(None)

    def _be(self, trouble: RoostError | None) -> None:
        before, self.trouble = self.trouble, trouble
        if self.troubled is not None and _message(before) != _message(trouble):
            self.troubled(self)

    async def _list(self) -> None:
        listed = await self._kube.list(self.resource, self._namespace, labels=self._labels)
        self.lists += 1
        fresh = {key_of(item): item for item in listed.items}
        gone = [(key, item) for key, item in self.objects.items() if key not in fresh]
        before, self.objects = self.objects, fresh
        for _, item in gone:
            self._tell(item, None)
        for key, item in fresh.items():
            old = before.get(key)
            if old is not None and old["metadata"]["uid"] != item["metadata"]["uid"]:
                self._tell(old, None)  # it went, and another came under its name
                old = None
            if old is None or version_of(old) != version_of(item):
                self._tell(old, item)
        self._version = self._listed = listed.version
        self._wake()

    def _tell(self, before: Object | None, after: Object | None) -> None:
        for heard in list(self._heard):
            try:
                heard(before, after)
            except Exception:  # one listener's bug must not keep the news from the others
                log.exception("a listener to %s: our bug", self.resource.plural)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _message(trouble: RoostError | None) -> str:
    return trouble.message if trouble is not None else ""
