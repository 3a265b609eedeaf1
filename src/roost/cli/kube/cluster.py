"""Which cluster a `roost kube` command speaks to."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from roost.base.errors import Unavailable

if TYPE_CHECKING:
    from roost.kube.base.client import Kube

T = TypeVar("T")

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="How to reach the cluster (else KUBECONFIG, else this machine's cluster that is up, "
        "else ~/.kube/config).",
    ),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")
]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of the VMs.")
]


def with_extra() -> None:
    """Say what to install when roost was installed without what Kubernetes needs."""
    from importlib.util import find_spec

    if missing := [name for name in ("kubernetes_asyncio", "cryptography") if not find_spec(name)]:
        raise Unavailable(
            f"not installed: {', '.join(missing)}", hint="Maybe: pip install 'roost[kube]'"
        )


def chosen_kubeconfig(kubeconfig: Path | None, context: str | None) -> Path | None:
    """Return the kubeconfig that is meant; None leaves it to what is usual for Kubernetes."""
    from roost.kube.cluster.local import LocalCluster

    if kubeconfig is not None or context is not None or os.environ.get("KUBECONFIG"):
        return kubeconfig
    local = LocalCluster.named()
    if local.exists and any(each.is_alive for each in local.state.processes.values()):
        return local.kubeconfig
    return None


def ask_cluster(
    kubeconfig: Path | None, context: str | None, work: "Callable[[Kube], Awaitable[T]]"
) -> T:
    """Run some work with a session to the cluster that is meant."""
    with_extra()
    from roost.kube.base.client import Kube

    async def body() -> T:
        chosen = chosen_kubeconfig(kubeconfig, context)
        async with await Kube.open(chosen, context=context) as kube:
            return await work(kube)

    return asyncio.run(body())
