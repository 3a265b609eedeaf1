"""The door that evictions of VMs come to: an HTTPS server that the API server asks before it acts.

    POST /validate   AdmissionReview in and out: `admission` judges, this marks the VM
    GET  /health     whether it is up

Everything that is judged is read anew: evictions are rare, and a verdict on an old copy could lose
a VM. The API server refuses evictions of VMs while this is away (failurePolicy Fail): a VM then
stays where it is, whoever evicts tries again, and no memory is lost. What the controller has let
go of is not asked about at all, so VMs can be deleted meanwhile.
"""

import asyncio
import base64
import contextlib
import logging
import ssl
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
from aiohttp import web

from roost.base.clock import Clock, RealClock
from roost.base.errors import Conflict, NotFound, RoostError, Unavailable
from roost.kube.base.client import (
    NAMESPACES,
    NODES,
    PODS,
    VMS,
    WEBHOOKS,
    AlreadyExists,
    Kube,
    Resource,
)
from roost.kube.base.moments import moment_ms
from roost.kube.base.names import FINALIZER, GROUP, POD_PREFIX, VMS_NAMESPACE_LABEL
from roost.kube.base.objects import Object
from roost.kube.base.pki import Authority, Pair
from roost.kube.moving.admission import Asked, Known, Verdict, answer, judge, read_review
from roost.kube.moving.marking import mark
from roost.kube.vms.launchers import is_going, owner_of

log = logging.getLogger("roost.kube")

CONFIGURATION = "roost-evictions"
PATH, HEALTH_PATH = "/validate", "/health"
#: Seconds after which the API server takes no answer for one, and after which we give up first.
TIMEOUT_S, _OURS_S = 10, 8.0
_TRIES = 5
#: Kubernetes itself puts it on every namespace, with the namespace's name.
_NAMED_LABEL = "kubernetes.io/metadata.name"


class Service(NamedTuple):
    """A Service of the cluster through which the API server reaches us, instead of an address."""

    namespace: str
    name: str
    port: int = 443

    @property
    def host(self) -> str:
        """Return the name that our certificate has to carry."""
        return f"{self.name}.{self.namespace}.svc"


class Webhook:
    """Answers what the API server asks about evictions and deletions of launcher pods."""

    def __init__(
        self,
        kube: Kube,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        namespace: str | None = None,
        service: Service | None = None,
        keep: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.port = port
        self.told: Counter[str] = Counter()  # marked, known, refused, allowed, failed
        self._kube, self._host, self._namespace = kube, host, namespace
        self._service, self._keep = service, keep
        self._clock = clock or RealClock()
        self._authority = Authority("roost webhook")
        self._runner: web.AppRunner | None = None

    @property
    def configuration(self) -> str:
        """Return the name under which it is registered; one namespace's has a name of its own."""
        return f"{CONFIGURATION}-{self._namespace}" if self._namespace else CONFIGURATION

    async def start(self) -> None:
        """Serve, then register; whatever was registered under the name is replaced."""
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_post(PATH, self._validate)
        app.router.add_get(HEALTH_PATH, _health)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=2.0)
        await runner.setup()
        names = [self._service.host] if self._service else []
        pair = self._authority.server("roost webhook", [self._host, *names])
        try:
            site = web.TCPSite(runner, self._host, self.port, ssl_context=_tls(pair))
            await site.start()
            self.port = runner.addresses[0][1]
            await self._register()
        except OSError as error:
            await runner.cleanup()
            raise Unavailable(
                f"cannot listen on {self._host}:{self.port}: {error.strerror or error}",
                hint="Maybe another --webhook-port.",
            ) from error
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Take the registration back, unless it is to be kept or another has taken over; end."""
        try:
            if self._keep:
                log.info("evictions of VMs are refused until a controller runs again")
            else:
                await self._unregister()
        except RoostError as error:
            log.warning("%s stays registered: %s", self.configuration, error.message)
        finally:
            if self._runner is not None:
                await self._runner.cleanup()
                self._runner = None

    async def _register(self) -> None:
        body = configuration(
            self.configuration,
            self._authority.certificate,
            self._service or f"https://{self._host}:{self.port}{PATH}",
            self._namespace,
        )
        try:
            await self._kube.call("POST", WEBHOOKS.path(), body=body)
        except AlreadyExists:
            change = {"webhooks": body["webhooks"]}
            await self._kube.patch(WEBHOOKS, self.configuration, change)

    async def _unregister(self) -> None:
        with contextlib.suppress(NotFound, Conflict):
            found = await self._kube.get(WEBHOOKS, self.configuration)
            ours = base64.b64encode(self._authority.certificate).decode()
            if found["webhooks"][0]["clientConfig"].get("caBundle") == ours:
                version = found["metadata"]["resourceVersion"]
                only = {"preconditions": {"resourceVersion": version}}
                await self._kube.call("DELETE", WEBHOOKS.path(name=self.configuration), body=only)

    # Questions

    async def _validate(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_OURS_S):
                review = msgspec.json.decode(await request.read())
                asked = read_review(review)
                verdict = await self.judge(asked)
        except (msgspec.DecodeError, RoostError, TimeoutError) as error:
            # Not an answer: the API server refuses, and tells this.
            self.told["failed"] += 1
            return web.json_response({"message": str(error) or "timed out"}, status=500)
        body = msgspec.json.encode(answer(asked, verdict))
        return web.Response(body=body, content_type="application/json")

    async def judge(self, asked: Asked) -> Verdict:
        """Judge, and mark the VM when that is the verdict; again when it changes meanwhile."""
        for _ in range(_TRIES):
            known = await self._learn(asked)
            verdict = judge(asked, known)
            if not verdict.mark:
                break
            assert known.pod is not None
            assert known.vm is not None
            with contextlib.suppress(Conflict):
                await self._mark(known.vm, known.pod["spec"]["nodeName"])
                break
        else:
            raise Conflict(f"the VM of pod {asked.pod} changes too fast to mark it")
        self.told[_kind(verdict)] += 1
        return verdict

    async def _learn(self, asked: Asked) -> Known:
        if not asked.action or not asked.pod.startswith(f"{POD_PREFIX}-"):
            return Known(None, None)
        pod = asked.old or await self._get(PODS, asked.pod, asked.namespace)
        owner = owner_of(pod) if pod is not None else None
        if pod is None or owner is None:
            return Known(pod, None)
        node = pod["spec"].get("nodeName") or ""
        vm, space, there = await asyncio.gather(
            self._get(VMS, owner[0], asked.namespace),
            self._get(NAMESPACES, asked.namespace),
            self._get(NODES, node) if node else _nothing(),
        )
        cools_until = ((vm or {}).get("status") or {}).get("coolDownUntil")
        return Known(
            pod,
            vm,
            node_exists=there is not None,
            node_cordoned=bool(((there or {}).get("spec") or {}).get("unschedulable")),
            namespace_goes=space is None or is_going(space),
            cooling_until_s=moment_ms(cools_until) / 1000 if cools_until else None,
            now_s=self._clock.wall_ms() / 1000,
        )

    async def _get(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> Object | None:
        try:
            return await self._kube.get(resource, name, namespace)
        except NotFound:
            return None

    async def _mark(self, vm: Object, node: str) -> None:
        await mark(self._kube, vm, node, cause="eviction", at_ms=self._clock.wall_ms())


def configuration(
    name: str, authority: bytes, where: Service | str, namespace: str | None = None
) -> Object:
    """Return what tells the API server what to ask, whom, and whom to trust."""
    client: Object = {"caBundle": base64.b64encode(authority).decode()}
    if isinstance(where, str):
        client["url"] = where
    else:
        client["service"] = {
            "namespace": where.namespace, "name": where.name, "port": where.port, "path": PATH,
        }  # fmt: skip
    # A namespace of our own needs no mark, and without one nobody's registration for all namespaces
    # is in the way there: one that was kept by a controller that has ended refuses everything.
    labels = {_NAMED_LABEL: namespace} if namespace else {VMS_NAMESPACE_LABEL: "true"}
    deletes = "request.operation == 'DELETE'"
    launcher = f"({deletes} ? oldObject.metadata.name : request.name).startsWith('{POD_PREFIX}-')"
    kept = (
        f"!({deletes}) || (has(oldObject.metadata.finalizers) && "
        f"oldObject.metadata.finalizers.exists(f, f == '{FINALIZER}'))"
    )
    core: Object = {"apiGroups": [""], "apiVersions": ["v1"], "scope": "Namespaced"}
    return {
        "apiVersion": WEBHOOKS.api_version,
        "kind": WEBHOOKS.kind,
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"evictions.{GROUP}",
                "clientConfig": client,
                "rules": [
                    core | {"operations": ["CREATE"], "resources": ["pods/eviction"]},
                    core | {"operations": ["DELETE"], "resources": ["pods"]},
                ],
                "namespaceSelector": {"matchLabels": labels},
                "matchConditions": [
                    {"name": "launcher-pods", "expression": launcher},
                    {"name": "not-let-go", "expression": kept},
                ],
                "failurePolicy": "Fail",
                "sideEffects": "NoneOnDryRun",
                "timeoutSeconds": TIMEOUT_S,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def _kind(verdict: Verdict) -> str:
    if verdict.allowed:
        return "allowed"
    if verdict.mark:
        return "marked"
    return "known" if verdict.message.startswith("Eviction triggered") else "refused"


async def _health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _nothing() -> Object | None:
    return None


def _tls(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as folder:
        context.load_cert_chain(*pair.write(Path(folder), "webhook"))
    return context
