"""Asking an API server: plain JSON objects in and out, over a session from a kubeconfig.

kubernetes_asyncio reads the kubeconfig (contexts, certificates, tokens, exec plugins). Its
generated models are left out: turning every pod of a watch into one costs more than all that roost
does with it (ADR-0019).
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, NamedTuple, Self

import aiohttp
import msgspec
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config
from yaml import YAMLError

from roost.base.backoff import BackOff
from roost.base.clock import Clock, RealClock
from roost.base.errors import InvalidRequest, RoostError, Unavailable
from roost.kube.base.failures import AlreadyExists, Gone, TooManyRequests, refused, unreachable
from roost.kube.base.names import GROUP, VERSION
from roost.kube.base.objects import Object
from roost.kube.base.session import Session

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"

#: Objects in one answer of a list.
_PAGE = 1000
#: One request, from the first byte sent to the last byte read.
REQUEST_S = 30.0
#: How long a server that is away is waited for before a request fails.
PATIENCE_S = 20.0
_WAITS = BackOff(0.1, 2.0)


class Resource(NamedTuple):
    """One kind of object and where it is found."""

    prefix: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return what objects of the kind have as apiVersion."""
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")

    def path(self, namespace: str | None = None, name: str | None = None, part: str = "") -> str:
        """Return the path of all of them, those of a namespace, or one (or a part of one)."""
        words = [self.prefix]
        if namespace is not None and self.namespaced:
            words += ["namespaces", namespace]
        words += [self.plural, *([name] if name else []), *([part] if part else [])]
        return "/".join(words)


NAMESPACES = Resource("/api/v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("/api/v1", "nodes", "Node", namespaced=False)
PODS = Resource("/api/v1", "pods", "Pod")
EVENTS = Resource("/api/v1", "events", "Event")
SECRETS = Resource("/api/v1", "secrets", "Secret")
LEASES = Resource("/apis/coordination.k8s.io/v1", "leases", "Lease")
BUDGETS = Resource("/apis/policy/v1", "poddisruptionbudgets", "PodDisruptionBudget")
CRDS = Resource(
    "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip
WEBHOOKS = Resource(
    "/apis/admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
VMS = Resource(f"/apis/{GROUP}/{VERSION}", "virtualmachines", "VirtualMachine")


class Listed(NamedTuple):
    """All objects of a question, and the version to watch from."""

    items: list[Object]
    version: str


class Event(NamedTuple):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: Object


async def load_configuration(
    kubeconfig: Path | None = None, context: str | None = None
) -> Configuration:
    """Return how to reach a cluster: the kubeconfig that is named or usual, or the pod's own."""
    configuration = Configuration()
    usual = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    files = str(kubeconfig) if kubeconfig else usual
    if not any(Path(each).is_file() for each in files.split(os.pathsep)):
        if kubeconfig is not None:
            raise InvalidRequest(f"there is no kubeconfig {kubeconfig}")
        try:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        except ConfigException:
            raise Unavailable(
                f"no Kubernetes cluster is known: there is no {files}",
                hint="Maybe `roost kube up` for one on this machine, or --kubeconfig FILE.",
            ) from None
        return configuration
    try:
        await load_kube_config(
            config_file=files, context=context, client_configuration=configuration
        )
    except (ConfigException, OSError, TypeError, YAMLError) as error:
        raise InvalidRequest(f"the kubeconfig {files} cannot be used: {error}") from error
    return configuration


class Kube:
    """A session with one cluster. Use as `async with await Kube.open(...) as kube`."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        patience_s: float = PATIENCE_S,
        connections: int = 100,
    ) -> None:
        #: The chance of all waits of this session, of its mirrors and work queues.
        self.random = random or SystemRandom()
        self.server = str(configuration.host)
        self.patience_s = patience_s
        self._clock = clock or RealClock()
        self._session = Session(configuration, connections)

    @classmethod
    async def open(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Self:
        """Return a session with the cluster of a kubeconfig; nothing is asked yet."""
        configuration = await load_configuration(kubeconfig, context)
        return cls(configuration, clock=clock, patience_s=patience_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the session and its connections."""
        await self._session.close()

    # Objects

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Return one object; NotFound when there is none."""
        return await self.call("GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
    ) -> Listed:
        """Return all objects that match, and the version of that answer."""
        items: list[Object] = []
        query = _selectors(labels, fields) | {"limit": str(_PAGE)}
        while True:
            page = await self.call("GET", resource.path(namespace), query=query)
            for item in page.get("items") or ():
                # Inside a list objects do not say what they are.
                item.setdefault("kind", resource.kind)
                item.setdefault("apiVersion", resource.api_version)
                items.append(item)
            token = page["metadata"].get("continue")
            if not token:
                return Listed(items, page["metadata"]["resourceVersion"])
            query["continue"] = token

    async def create(
        self, resource: Resource, body: Object, namespace: str | None = None
    ) -> Object:
        """Create an object; asked once, so an answer that is lost leaves open whether it is there.

        Whoever may ask again uses `ensure`.
        """
        return await self.call("POST", resource.path(namespace), body=body, patience_s=0.0)

    async def ensure(
        self, resource: Resource, body: Object, namespace: str | None = None
    ) -> Object:
        """Create an object, or return the one that has its name; repeated until answered."""
        try:
            return await self.call("POST", resource.path(namespace), body=body)
        except AlreadyExists:
            return await self.get(resource, body["metadata"]["name"], namespace)

    async def replace(
        self, resource: Resource, body: Object, namespace: str | None = None, part: str = ""
    ) -> Object:
        """Write an object as a whole; Conflict when it has changed since it was read."""
        path = resource.path(namespace, body["metadata"]["name"], part)
        return await self.call("PUT", path, body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        change: Any,
        namespace: str | None = None,
        *,
        part: str = "",
        kind: str = MERGE,
    ) -> Object:
        """Change some fields of an object, or of a part such as `status`."""
        return await self.call(
            "PATCH", resource.path(namespace, name, part), body=change, content_type=kind
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
        propagation: str | None = None,
    ) -> None:
        """Ask that an object goes away; one that is gone, or is another by now, is no error."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        if propagation is not None:
            body["propagationPolicy"] = propagation
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self.call("DELETE", resource.path(namespace, name), body=body)
        except RoostError as error:
            if error.code == "not_found" or (uid is not None and error.code == "conflict"):
                return
            raise

    async def evict(self, name: str, namespace: str) -> None:
        """Ask for a pod's eviction; TooManyRequests when a budget or a webhook says no."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        await self.call("POST", PODS.path(namespace, name, "eviction"), body=body, patience_s=0.0)

    async def watch(
        self,
        resource: Resource,
        since: str,
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        seconds: int = 60,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[Event]:
        """Yield what changes after a version, for so long; Gone when that version is too old.

        The server ends the watch after `seconds`; one that says nothing for longer is taken for
        dead, so a connection that was cut silently is noticed.
        """
        query = _selectors(labels, fields) | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(seconds),
        }
        path = resource.path(namespace)
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=10, sock_read=seconds + max(2.0, seconds / 4)
        )
        try:
            response = await self._send("GET", path, query=query, timeout=timeout)
            try:
                if response.status >= 300:
                    raise refused(response.status, await response.read(), f"watch {path}")
                opened()
                async for line in _lines(response.content):
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise refused(
                            int(status.get("code") or 500),
                            msgspec.json.encode(status),
                            f"watch {path}",
                        )
                    yield Event(event["type"], event["object"])
            finally:
                # A watch has no end to wait for: without this TLS would wait for the other side,
                # longer than a command lives that has just got what it waited for.
                if (connection := response.connection) and connection.transport:
                    connection.transport.abort()
                response.close()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise unreachable(error, self.server) from error

    # Requests

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        patience_s: float | None = None,
    ) -> Object:
        """Send one request and return the answer; a server that is away is asked again."""
        patience_s = self.patience_s if patience_s is None else patience_s
        until = self._clock.monotonic() + patience_s
        attempt = 0
        while True:
            try:
                return await self._once(method, path, body, query, content_type)
            except Unavailable:
                pause = _WAITS.jittered_s(attempt, self.random)
                if self._clock.monotonic() + pause > until:
                    raise
            await self._clock.sleep(pause)
            attempt += 1

    async def _once(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, str] | None,
        content_type: str,
    ) -> Object:
        timeout = aiohttp.ClientTimeout(total=REQUEST_S, sock_connect=10)
        try:
            response = await self._send(
                method, path, body=body, query=query, content_type=content_type, timeout=timeout
            )
            async with response:
                answer = await response.read()
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            raise unreachable(error, self.server) from error
        if status >= 300:
            raise refused(status, answer, f"{method} {path}")
        try:
            decoded = msgspec.json.decode(answer) if answer else {}
        except msgspec.DecodeError:
            decoded = {"text": answer.decode(errors="replace")}
        return decoded if isinstance(decoded, dict) else {"items": decoded}

    async def _send(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        headers: dict[str, str] = {}
        more: dict[str, Any] = {}
        if body is not None:
            headers["Content-Type"] = content_type
            more["data"] = msgspec.json.encode(body)
        return await self._session.send(
            method, path, headers, params=query, timeout=timeout, **more
        )


def _selectors(labels: str | None, fields: str | None) -> dict[str, str]:
    asked = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in asked.items() if value}


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole lines; objects may be longer than the stream's own limit for a line."""
    rest = b""
    async for piece in stream.iter_any():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line:
                yield line


__all__ = [
    "BUDGETS", "CRDS", "EVENTS", "JSON_PATCH", "LEASES", "MERGE", "NAMESPACES", "NODES", "PODS",
    "SECRETS", "VMS", "WEBHOOKS", "AlreadyExists", "Event", "Gone", "Kube", "Listed",
    "Resource", "TooManyRequests", "load_configuration",
]  # fmt: skip
