"""One controller at a time, by a Lease object that its holder keeps renewing.

A lease is taken over when it has not changed for as long as it says it is good for, measured here
and not by comparing clocks. Its holder gives up earlier than that, so that two never write at
once; and every write of the lease says which version it was made for.
"""

import asyncio
import logging
import os
import secrets
import socket

from msgspec import Struct

from roost.base.clock import Clock, RealClock
from roost.base.errors import Conflict, NotFound, RoostError, Unavailable
from roost.kube.client import LEASES, Kube, Object
from roost.kube.mirror import Mirror
from roost.kube.moments import moment_text
from roost.kube.names import MANAGER

log = logging.getLogger("roost.kube")

_LABEL = "app.kubernetes.io/managed-by"


class LeaseSettings(Struct, kw_only=True, frozen=True):
    """How long a silent holder is waited for, and what the object is called."""

    duration_s: float = 15.0
    name: str = "roost-controller"

    @property
    def renew_s(self) -> float:
        """Return how often the holder renews it."""
        return self.duration_s / 5

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
    """A lease in one namespace, as seen by one who wants it."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        settings: LeaseSettings | None = None,
        *,
        identity: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.identity = identity or new_identity()
        self.namespace = namespace
        self.settings = settings or LeaseSettings()
        self._kube, self._clock = kube, clock or RealClock()
        self._mirror = Mirror(kube, LEASES, namespace, labels=f"{_LABEL}={MANAGER}", clock=clock)
        self._held: Object | None = None

    async def start(self) -> None:
        """Begin to watch who holds it."""
        await self._mirror.start()

    async def stop(self) -> None:
        """Give it back, so that the next need not wait, and watch no more."""
        await self._mirror.stop()
        held, self._held = self._held, None
        if held is not None:
            held["spec"]["holderIdentity"] = ""
            try:
                await self._put(held)
            except RoostError as error:
                log.warning("the lease was not given back: %s", error.message)

    @property
    def holder(self) -> str:
        """Return who holds it, as last heard of."""
        found = self._mirror.get(self.settings.name, self.namespace)
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
                await self._mirror.until(
                    lambda version=version: _version(self._seen()) != version,  # type: ignore[misc]
                    float(good_for or self.settings.duration_s),
                )
            except Unavailable:
                if seen is not None and await self._take(seen):
                    return

    async def hold(self) -> None:
        """Renew it again and again; raises LeaseLost when that cannot go on."""
        renewed = self._clock.monotonic()
        while True:
            await self._clock.sleep(self.settings.renew_s)
            try:
                async with asyncio.timeout(self.settings.renew_s):
                    await self._renew()
                renewed = self._clock.monotonic()
            except (RoostError, TimeoutError) as error:
                silent_s = self._clock.monotonic() - renewed
                lost = isinstance(error, LeaseLost)
                if lost or silent_s + 2 * self.settings.renew_s > self.settings.give_up_s:
                    self._held = None
                    raise LeaseLost(
                        f"lease {self._where} was not renewed for {silent_s:.1f} s: {error}"
                    ) from error

    async def _renew(self) -> None:
        try:
            self._held = await self._put(self._body(self._held))
        except Conflict:
            # Perhaps by ourselves, in an answer that was lost.
            found = await self._kube.get(LEASES, self.settings.name, self.namespace)
            if (holder := found["spec"].get("holderIdentity")) != self.identity:
                raise LeaseLost(f"{holder or 'nobody'} holds it") from None
            self._held = found
        except NotFound:
            raise LeaseLost("it was deleted") from None

    async def _take(self, seen: Object | None) -> bool:
        try:
            if seen is None:
                body = self._body(None)
                self._held = await self._kube.create(LEASES, body, self.namespace)
            else:
                self._held = await self._put(self._body(seen))
        except Unavailable as error:
            log.warning("the lease cannot be had: %s", error.message)
            return False
        except (Conflict, NotFound):
            return False  # somebody was faster; the mirror will tell who
        return True

    async def _put(self, body: Object) -> Object:
        path = LEASES.path(self.namespace, self.settings.name)
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
            "leaseDurationSeconds": max(1, round(self.settings.duration_s)),
            "renewTime": now,
        }
        metadata: Object = {"name": self.settings.name, "labels": {_LABEL: MANAGER}}
        if before is not None:
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata,
            "spec": spec,
        }

    def _seen(self) -> Object | None:
        return self._mirror.get(self.settings.name, self.namespace)

    @property
    def _where(self) -> str:
        return f"{self.namespace}/{self.settings.name}"


def _version(item: Object | None) -> str:
    return str(item["metadata"]["resourceVersion"]) if item is not None else ""
