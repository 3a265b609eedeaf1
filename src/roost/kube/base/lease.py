"""One controller at a time, by a Lease object that its holder keeps renewing.

A lease is taken over when it has not changed for as long as it says it is good for, measured here
and not by comparing clocks. Its holder gives up earlier than that, so that two never write at
once; and every write of the lease says which version it was made for.
"""

import asyncio
import logging
import math
import os
import secrets
import socket

from msgspec import Struct

from roost.base.clock import Clock, RealClock
from roost.base.errors import Conflict, NotFound, RoostError, Unavailable
from roost.kube.base.client import LEASES, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.base.moments import moment_text
from roost.kube.base.names import MANAGER
from roost.kube.base.objects import Object

log = logging.getLogger("roost.kube")

#: Where all leases are: one in a namespace that is being deleted would go before its VMs have.
HOME = "default"
_LABEL = "app.kubernetes.io/managed-by"


def lease_name(namespace: str | None) -> str:
    """Return what the lease of a controller of one namespace, or of all, is called."""
    return f"roost-controller-{namespace}" if namespace else "roost-controller"


class LeaseSettings(Struct, kw_only=True, frozen=True):
    """How long a silent holder is waited for.

    A holder that hears nothing has three tries before it gives up, and it gives up before another
    may take over:

        0    4        7 8       11 12      15 16              24   24ths of the duration
        |----|= try ==|-|= try ==|-|= try ==|-| stops acting   | another begins
    """

    duration_s: float = 15.0

    @property
    def renew_s(self) -> float:
        """Return how often the holder renews it."""
        return self.duration_s / 6

    @property
    def try_s(self) -> float:
        """Return how long one renewal may take."""
        return self.duration_s / 8

    @property
    def pause_s(self) -> float:
        """Return how long after a failed renewal the next begins."""
        return self.duration_s / 24

    @property
    def give_up_s(self) -> float:
        """Return after how long without success the holder stops."""
        return self.duration_s * 2 / 3


class LeaseLost(Unavailable):
    """Another holds it, or it could not be renewed in time."""

    code = "lease_lost"


def new_identity() -> str:
    """Return a name that no other controller has, and that tells people where it runs."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class Lease:
    """A lease, as seen by one who wants it."""

    def __init__(
        self,
        kube: Kube,
        name: str,
        settings: LeaseSettings | None = None,
        *,
        identity: str = "",
        namespace: str = HOME,
        clock: Clock | None = None,
    ) -> None:
        self.identity = identity or new_identity()
        self.name, self.namespace = name, namespace
        self.settings = settings or LeaseSettings()
        self._kube, self._clock = kube, clock or RealClock()
        self.mirror = Mirror(kube, LEASES, namespace, labels=f"{_LABEL}={MANAGER}", clock=clock)
        self._held: Object | None = None
        self._renewed = 0.0  # monotonic, when the last renewal was sent

    async def start(self) -> None:
        """Begin to watch who holds it."""
        await self.mirror.start()

    async def stop(self) -> None:
        """Give the lease back, so that the next holder need not wait, and watch no more."""
        await self.mirror.stop()
        await self.give_back()

    async def give_back(self) -> None:
        """Give the lease back at once, if it is ours."""
        held, self._held = self._held, None
        if held is None:
            return
        try:
            async with asyncio.timeout(self.settings.give_up_s):
                try:
                    await self._put(_free(held))
                except Conflict:  # perhaps by a renewal that was cut short
                    await self._put(_free(await self._find()))
        except (RoostError, TimeoutError) as error:
            log.warning("lease %s was not given back: %s", self._where, error)

    @property
    def holder(self) -> str:
        """Return who holds it, as last heard of."""
        found = self._seen()
        return str(((found or {}).get("spec") or {}).get("holderIdentity") or "")

    async def acquire(self) -> None:
        """Return when it is ours."""
        told = ""
        while True:
            seen = self._seen()
            if (seen is None or self.holder in ("", self.identity)) and await self._take(seen):
                return
            if (holder := self.holder) and holder != told:
                told = holder
                log.info("waiting: %s works and holds lease %s", holder, self._where)
            version = _version(seen)
            good_for = (seen or {}).get("spec", {}).get("leaseDurationSeconds")
            try:
                await self.mirror.until(
                    lambda version=version: _version(self._seen()) != version,  # type: ignore[misc]
                    float(good_for or self.settings.duration_s),
                )
            except Unavailable:
                if seen is not None and await self._take(seen):
                    return

    @property
    def left_s(self) -> float:
        """Return for how long its holder may act without another renewal."""
        return self._renewed + self.settings.give_up_s - self._clock.monotonic()

    async def hold(self) -> None:
        """Renew the lease again and again; raises LeaseLost when that cannot go on."""
        made = self.settings
        due_s = self._renewed + made.renew_s - self._clock.monotonic()
        while True:
            await self._clock.sleep(max(0.0, min(due_s, self.left_s)))
            try:
                # Not begun when there is no time left: the other may think it is free.
                async with asyncio.timeout(max(0.0, min(made.try_s, self.left_s))):
                    await self._renew()
                due_s = made.renew_s
            except (RoostError, TimeoutError) as error:
                if isinstance(error, LeaseLost) or self.left_s <= made.pause_s:
                    self._held = None
                    silent_s = self._clock.monotonic() - self._renewed
                    why = str(error) or "no answer in time"
                    raise LeaseLost(
                        f"lease {self._where} was not renewed for {silent_s:.1f} s: {why}"
                    ) from error
                due_s = made.pause_s

    async def _renew(self) -> None:
        try:
            try:
                await self._write(self._held)
            except Conflict:
                # Perhaps by ourselves, in an answer that was lost: long ago, so once more.
                await self._write(await self._find())
        except NotFound:
            raise LeaseLost("it was deleted") from None

    async def _find(self) -> Object:
        found = await self._kube.get(LEASES, self.name, self.namespace)
        if (holder := found["spec"].get("holderIdentity")) != self.identity:
            raise LeaseLost(f"{holder or 'nobody'} holds it")
        return found

    async def _take(self, seen: Object | None) -> bool:
        try:
            if seen is None:
                sent = self._clock.monotonic()
                self._held = await self._kube.create(LEASES, self._body(None), self.namespace)
                self._renewed = sent
            else:
                await self._write(seen)
        except Unavailable as error:
            log.warning("the lease cannot be had: %s", error.message)
            return False
        except (Conflict, NotFound):
            return False  # somebody was faster; the mirror will tell who
        return True

    async def _write(self, before: Object | None) -> None:
        # Others count from when they see it, which is never before it was sent.
        sent = self._clock.monotonic()
        self._held = await self._put(self._body(before))
        self._renewed = sent

    async def _put(self, body: Object) -> Object:
        path = LEASES.path(self.namespace, self.name)
        # Not repeated for long: an old answer must not renew it late.
        return await self._kube.call("PUT", path, body=body, patience_s=0.0)

    def _body(self, before: Object | None) -> Object:
        spec = dict((before or {}).get("spec") or {})
        now = moment_text(self._clock.wall_ms(), micro=True)
        if spec.get("holderIdentity") != self.identity:
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + bool(before)
            spec["acquireTime"] = now
        spec |= {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, math.ceil(self.settings.duration_s)),
            "renewTime": now,
        }
        metadata: Object = {"name": self.name, "labels": {_LABEL: MANAGER}}
        if before is not None:
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": spec,
        }

    def _seen(self) -> Object | None:
        return self.mirror.get(self.name, self.namespace)

    @property
    def _where(self) -> str:
        return f"{self.namespace}/{self.name}"


def _free(lease: Object) -> Object:
    return lease | {"spec": lease["spec"] | {"holderIdentity": ""}}


def _version(item: Object | None) -> str:
    return str(item["metadata"]["resourceVersion"]) if item is not None else ""
