"""The parts of a local control plane: what each is told, by flags and by files in its folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct, field

from roost.base.errors import NotFound
from roost.kube.base.pki import Authority, signing_key
from roost.kube.cluster.nodes import NodePool, kwok_stages
from roost.kube.cluster.processes import Process

LOOPBACK = "127.0.0.1"
ETCD, API, SCHEDULER, CONTROLLERS, KWOK = (
    "etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok"
)  # fmt: skip
PARTS = (ETCD, API, SCHEDULER, CONTROLLERS, KWOK)
#: Controllers that matter to pods, nodes and budgets; the others only cost.
_CONTROLLERS = (
    "disruption-controller", "garbage-collector-controller", "namespace-controller",
    "node-lifecycle-controller", "pod-garbage-collector-controller",
    "serviceaccount-controller", "taint-eviction-controller",
)  # fmt: skip
#: Requests a second that our own parts may make; the usual limits are for shared clusters.
_QPS = 5000


class Setup(Struct, kw_only=True):
    """What a cluster is made of."""

    pools: tuple[NodePool, ...] = (NodePool(),)
    parts: tuple[str, ...] = PARTS
    scheduler: dict[str, Any] = field(default_factory=dict)  # over KubeSchedulerConfiguration
    fsync: bool = False  # True: survives a power cut, as a cluster that matters must
    api_flags: tuple[str, ...] = ()


class State(Struct, kw_only=True):
    """The local cluster as cluster.json describes it."""

    version: str
    server: str
    ports: dict[str, int]
    setup: Setup
    processes: dict[str, Process] = {}


def kubeconfig_of(folder: Path) -> Path:
    """Return where the admin's kubeconfig of a cluster is."""
    return folder / "kubeconfig"


def flags(part: str, folder: Path, state: State) -> list[str]:
    """Return what a part is started with."""
    pki = folder / "pki"
    etcd, port = f"https://{LOOPBACK}:{state.ports[ETCD]}", state.ports.get(part, 0)
    peer = f"http://{LOOPBACK}:{state.ports['etcd-peer']}"
    config = str(kubeconfig_of(folder))
    serving = [
        f"--tls-cert-file={pki / 'server.crt'}", f"--tls-private-key-file={pki / 'server.key'}"
    ]  # fmt: skip
    match part:
        case "etcd":
            return [
                f"--data-dir={folder / 'etcd'}", "--name=roost",
                f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=roost={peer}", "--client-cert-auth",
                f"--trusted-ca-file={pki / 'ca.crt'}", f"--cert-file={pki / 'etcd.crt'}",
                f"--key-file={pki / 'etcd.key'}", "--log-level=warn",
                "--auto-compaction-retention=5m", "--quota-backend-bytes=4294967296",
                *([] if state.setup.fsync else ["--unsafe-no-fsync"]),
            ]  # fmt: skip
        case "kube-apiserver":
            return [
                f"--etcd-servers={etcd}", f"--etcd-cafile={pki / 'ca.crt'}",
                f"--etcd-certfile={pki / 'etcd-client.crt'}",
                f"--etcd-keyfile={pki / 'etcd-client.key'}",
                f"--bind-address={LOOPBACK}", f"--secure-port={port}",
                f"--advertise-address={LOOPBACK}", f"--tls-cert-file={pki / 'server.crt'}",
                f"--tls-private-key-file={pki / 'server.key'}",
                f"--client-ca-file={pki / 'ca.crt'}", "--authorization-mode=RBAC",
                f"--service-account-key-file={pki / 'tokens.key'}",
                f"--service-account-signing-key-file={pki / 'tokens.key'}",
                f"--service-account-issuer={state.server}",
                "--service-cluster-ip-range=10.0.0.0/16", "--endpoint-reconciler-type=none",
                # Pods of fake nodes need no tokens, and fake nodes are ready at once.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                "--enable-priority-and-fairness=false", "--max-requests-inflight=4000",
                "--max-mutating-requests-inflight=4000", "--profiling=false",
                *state.setup.api_flags,
            ]  # fmt: skip
        case "kube-scheduler":
            return [
                f"--config={folder / 'scheduler.yaml'}", f"--secure-port={port}",
                f"--bind-address={LOOPBACK}", f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}", *serving,
            ]  # fmt: skip
        case "kube-controller-manager":
            return [
                f"--kubeconfig={config}", f"--secure-port={port}",
                f"--bind-address={LOOPBACK}", f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}", *serving,
                f"--controllers={','.join(_CONTROLLERS)}", "--leader-elect=false",
                f"--kube-api-qps={_QPS}", f"--kube-api-burst={_QPS}",
            ]  # fmt: skip
        case "kwok":
            return [
                f"--kubeconfig={config}", f"--config={folder / 'kwok.yaml'}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-label-selector=type=kwok",
                "--node-lease-duration-seconds=40", f"--server-address={LOOPBACK}:{port}",
            ]  # fmt: skip
    raise NotFound(f"there is no part {part!r}; parts are {', '.join(PARTS)}")


def write_files(folder: Path, state: State) -> None:
    """Write certificates and configuration of all parts."""
    pki = folder / "pki"
    authority = Authority("roost local cluster")
    (pki / "ca.crt").write_bytes(authority.certificate)
    (pki / "ca.key").touch(mode=0o600)
    (pki / "ca.key").write_bytes(authority.key)
    (pki / "tokens.key").touch(mode=0o600)
    (pki / "tokens.key").write_bytes(signing_key())
    here = (LOOPBACK, "localhost")
    authority.peer("etcd", here).write(pki, "etcd")
    authority.client("kube-apiserver").write(pki, "etcd-client")
    service = ("10.0.0.1", "kubernetes", "kubernetes.default.svc")
    authority.server("kube-apiserver", (*here, *service)).write(pki, "server")
    write_kubeconfig(kubeconfig_of(folder), pki, state.server, "admin", ("system:masters",))
    write_scheduler_configuration(folder, state)
    stages = "---\n".join(yaml.safe_dump(stage) for stage in kwok_stages())
    (folder / "kwok.yaml").write_text(stages)


def write_kubeconfig(
    path: Path,
    pki: Path,
    server: str,
    user: str,
    groups: Sequence[str] = (),
    *,
    expired: bool = False,
) -> Path:
    """Write the kubeconfig of a user in some groups, signed by the authority in a folder."""
    authority = Authority("roost local cluster", key=(pki / "ca.key").read_bytes())
    pair = authority.client(user, groups, expired=expired)
    certificate, key = pair.write(path.parent, f".{path.name}-{user}")
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "roost",
                "cluster": {
                    "server": server,
                    "certificate-authority": str(pki / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {"client-certificate": str(certificate), "client-key": str(key)},
            }
        ],
        "contexts": [{"name": "roost", "context": {"cluster": "roost", "user": user}}],
        "current-context": "roost",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def write_scheduler_configuration(folder: Path, state: State) -> None:
    """Write what the scheduler reads when it starts."""
    kubeconfig = str(kubeconfig_of(folder))
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": _QPS, "burst": _QPS},
        "leaderElection": {"leaderElect": False},
    } | state.setup.scheduler
    (folder / "scheduler.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
