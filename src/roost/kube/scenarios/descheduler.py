"""The real descheduler beside a cluster: it looks where nodes are hot, and evicts from there.

Its policy is LowNodeUtilization with thresholds that are deviations from the mean of all nodes, on
a query to Prometheus or on what pods ask for. Evictions of launcher pods are answered by roost's
webhook with "in background", which the descheduler knows and counts against its limits.
"""

import asyncio
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from msgspec import Struct

from roost.base.clock import Clock
from roost.base.errors import Unavailable
from roost.kube.base.client import SECRETS, Kube
from roost.kube.base.names import APP, APP_LABEL
from roost.kube.base.objects import Object
from roost.kube.cluster import processes
from roost.kube.cluster.tools import tool
from roost.kube.script.descheduling import Descheduling

TOKEN_SECRET = "roost-prometheus"
#: Where the descheduler looks for an authority of Prometheus's, whether it needs one or not.
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
#: How a node's use is asked for; each sample must carry the node's name as `instance`.
QUERIES = {
    "cpu": "node_cpu_usage_ratio",
    "memory": "node_memory_usage_ratio",
    "cpu-pressure": "node_cpu_pressure_psi",
    "memory-pressure": "node_memory_pressure_psi",
}


def promql(wanted: Descheduling) -> str:
    """Return the query for how much each node is used."""
    if wanted.query:
        return wanted.query
    series = QUERIES[wanted.metric]
    if wanted.smooth:
        series = f"avg_over_time({series}[{max(round(wanted.smooth * 1000), 1000)}ms])"
    return f'clamp(label_replace({series}, "instance", "$1", "node", "(.+)"), 0, 1)'


def policy(
    wanted: Descheduling,
    *,
    namespace: str,
    nodes: str,
    prometheus_url: str = "",
) -> Object:
    """Return the descheduler's policy: for the launcher pods of a namespace on some nodes."""
    utilization: Object = {
        "useDeviationThresholds": True,
        "evictionLimits": {"node": wanted.per_node},
    }
    found: Object = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "nodeSelector": nodes,
        "maxNoOfPodsToEvictPerNode": wanted.per_node,
        "maxNoOfPodsToEvictTotal": wanted.total,
    }
    resources = ["cpu", "memory"]
    if wanted.source == "prometheus":
        resources = ["MetricResource"]
        utilization["metricsUtilization"] = {
            "source": "Prometheus",
            "prometheus": {"query": promql(wanted)},
        }
        secret = {"namespace": namespace, "name": TOKEN_SECRET}
        provider = {"url": prometheus_url, "authToken": {"secretReference": secret}}
        found["metricsProviders"] = [{"source": "Prometheus", "prometheus": provider}]
    utilization["thresholds"] = dict.fromkeys(resources, wanted.under)
    utilization["targetThresholds"] = dict.fromkeys(resources, wanted.over)
    evictor: Object = {
        "labelSelector": {"matchLabels": {APP_LABEL: APP}},
        "namespaceLabelSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]},
        "noEvictionPolicy": "Mandatory",
        # A pod that a migration made excludes the node that it came from: asked whether it would
        # fit elsewhere, it would hardly ever. Where the VM may go is the scheduler's to say.
        "nodeFit": False,
    }
    found["profiles"] = [
        {
            "name": "roost",
            "pluginConfig": [
                {"name": "DefaultEvictor", "args": evictor},
                {"name": "LowNodeUtilization", "args": utilization},
            ],
            "plugins": {"balance": {"enabled": ["LowNodeUtilization"]}},
        }
    ]
    return found


class Told(Struct):
    """What the descheduler wrote that it did."""

    rounds: int = 0
    background: int = 0  # evictions that became migrations
    refused: int = 0  # by a budget, a cool-down or a limit of the server
    limited: int = 0  # by its own limits
    failed_rounds: int = 0


class Descheduler:
    """A descheduler process that runs."""

    def __init__(self, process: processes.Process) -> None:
        self.process = process

    def told(self) -> Told:
        """Return what it did so far, by its log."""
        try:
            text = Path(self.process.log).read_text(errors="replace")
        except OSError:
            text = ""
        return read_log(text)


_LINES = {
    "rounds": re.compile(r'"Number of evictions/requests"'),
    "background": re.compile(r'"Eviction in background assumed"'),
    "refused": re.compile(r'"Error evicting pod" err="error when evicting pod \(ignoring\)'),
    "limited": re.compile(r'"Error evicting pod" err="maximum number of evicted pods'),
    "failed_rounds": re.compile(r"extension point failed with error"),
}


def read_log(text: str) -> Told:
    """Count what a descheduler's log tells."""
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        for what, words in _LINES.items():
            counts[what] += words.search(line) is not None
    return Told(**counts)


@asynccontextmanager
async def descheduler(
    kube: Kube,
    kubeconfig: Path,
    folder: Path,
    wanted: Descheduling,
    clock: Clock,
    *,
    namespace: str,
    nodes: str,
    prometheus_url: str = "",
) -> AsyncIterator[Descheduler]:
    """Run the descheduler until the block ends."""
    program = tool("descheduler")
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "descheduler.yaml"
    rules = policy(wanted, namespace=namespace, nodes=nodes, prometheus_url=prometheus_url)
    written.write_text(yaml.safe_dump(rules, sort_keys=False))
    if wanted.source == "prometheus":
        # It takes no address without a token; our Prometheus does not look at it.
        secret = {"metadata": {"name": TOKEN_SECRET}, "stringData": {"prometheusAuthToken": "any"}}
        await kube.ensure(SECRETS, secret, namespace)
    command = [
        str(program), f"--client-connection-kubeconfig={kubeconfig}",
        f"--policy-config-file={written}",
        f"--descheduling-interval={round(wanted.every * 1000)}ms",
        "--feature-gates=EvictionsInBackground=true", "--disable-metrics", "--secure-port=0",
        "--leader-elect=false", "--v=3",
    ]  # fmt: skip
    if wanted.source == "prometheus" and not _SERVICE_ACCOUNT.exists():
        command = in_a_pods_place(command, folder)
    log = folder / "descheduler.log"
    process = processes.start("descheduler", command, log, attached=True)
    try:
        await _begun(process, clock)
        yield Descheduler(process)
    finally:
        await asyncio.shield(processes.end([process], clock))


def with_context(kubeconfig: Path, context: str, copy: Path) -> Path:
    """Write a copy of a kubeconfig in which a context is the current one: it knows no other."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["current-context"] = context
    for kind in ("clusters", "users"):
        for named in document.get(kind) or ():
            entry = named.get(kind[:-1]) or {}
            for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
                if entry.get(key):
                    entry[key] = str((kubeconfig.parent / entry[key]).resolve())
    copy.touch(mode=0o600)
    copy.write_text(yaml.safe_dump(document))
    return copy


def in_a_pods_place(command: Sequence[str], folder: Path) -> list[str]:
    """Return the command as run where a pod's service account is.

    The descheduler reads an authority's certificate from there before it asks any Prometheus. It
    sees a /run of its own, in a mount namespace that only it has; the machine's stays as it is.
    """
    for needed in ("unshare", "setpriv"):
        if shutil.which(needed) is None:
            raise Unavailable(
                f"there is no {needed}, which the descheduler's place is made with",
                hint="Maybe `source: requests` in the scenario, which needs no Prometheus.",
            )
    bundle = folder / "authorities.crt"
    if not bundle.exists():
        from roost.kube.base.pki import Authority

        bundle.write_bytes(Authority("nobody").certificate)
    place = shlex.quote(str(_SERVICE_ACCOUNT).replace("/var/run", "/run"))
    held = shlex.quote(str(bundle.resolve()))
    # Read first: the file itself may lie below /run. Entering a user namespace forgets the signal
    # by which a child ends with us, so it is asked for again.
    script = (
        f"authority=$(cat {held}) && mount -t tmpfs tmpfs /run && mkdir -p {place} && "
        f'printf "%s\\n" "$authority" > {place}/ca.crt && '
        f"exec setpriv --pdeathsig TERM {shlex.join(command)}"
    )
    mapped = ["--map-root-user"] if os.getuid() or not _may_mount() else []
    return ["unshare", *mapped, "--mount", "sh", "-c", script]


def _may_mount() -> bool:
    """Say whether this process may mount without a user namespace of its own (CAP_SYS_ADMIN)."""
    held = re.search(r"^CapEff:\s*([0-9a-f]+)", Path("/proc/self/status").read_text(), re.M)
    return held is not None and bool(int(held[1], 16) >> 21 & 1)


async def _begun(process: processes.Process, clock: Clock, limit_s: float = 30.0) -> None:
    """Wait for its first round."""
    deadline = clock.monotonic() + limit_s
    log = Path(process.log)
    while '"Number of evictions/requests"' not in log.read_text(errors="replace"):
        if not process.is_alive:
            raise Unavailable(
                f"the descheduler ended: {processes.tail(process)}",
                hint=f"Maybe {process.log} tells more.",
            )
        if clock.monotonic() > deadline:
            raise Unavailable(
                f"the descheduler made no round within {limit_s:g} s: {processes.tail(process)}"
            )
        await clock.sleep(0.1)
