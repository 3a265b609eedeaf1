"""`roost kube exporter`: options in, `roost.kube.metering.app` serves."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import InvalidRequest, Unavailable
from roost.cli.kube.cluster import (
    ContextOption,
    KubeconfigOption,
    chosen_kubeconfig,
    with_extra,
)
from roost.cli.running.serve import LogFormat, LogFormatOption, LogLevel, LogLevelOption
from roost.cli.show.screen import note, show_line, show_text
from roost.cli.words.options import OutputOption, reports_errors

if TYPE_CHECKING:
    from roost.kube.base.client import Kube
    from roost.kube.metering.exporter import Exporter
    from roost.kube.metering.ownfleet import OwnFleet

#: How long a cluster is waited for before the exporter falls back.
_PATIENCE_S = 3.0


@reports_errors
def exporter(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any.")
    ] = "127.0.0.1:9105",
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Read the pods of this namespace only, and load scenarios there.",
        ),
    ] = None,
    all_namespaces: Annotated[
        bool,
        typer.Option(
            "--all-namespaces",
            "-A",
            help="Read all pods (the default without -n); scenarios still go to -n.",
        ),
    ] = False,
    avoid_pressure: Annotated[
        float | None,
        typer.Option(
            metavar="0..1",
            help="Put a soft taint on nodes under more pressure than this; the scheduler then "
            "prefers others. It goes at 0.7 times as much, and when the exporter ends.",
        ),
    ] = None,
    own_fleet: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Show this fleet file instead of a cluster."),
    ] = None,
    require_kubernetes: Annotated[
        bool,
        typer.Option("--require-kubernetes", help="Fail when no cluster can be reached."),
    ] = False,
    allow_changes: Annotated[
        bool,
        typer.Option(
            "--allow-changes",
            help="Take scenarios and feedback also when other machines can reach it.",
        ),
    ] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    output: OutputOption = None,
) -> None:
    """Serve what nodes and VMs use, as Prometheus reads it.

    GET /metrics, /health, /nodes/NAME and /scenario; POST /refresh, /scenario and /feedback. When
    no cluster can be reached it shows a fleet of roost's own, and says so in all of them.
    """  # fmt: skip
    with_extra()
    from roost.app.logs import set_up_logs
    from roost.kube.metering.app import serving

    host, port = _address(listen)
    if avoid_pressure is not None and not 0.0 < avoid_pressure < 1.0:
        raise InvalidRequest(
            f"--avoid-pressure {avoid_pressure:g} is not between 0 and 1",
            hint="Maybe 0.5; a node that is just full is at 0.8.",
        )
    if own_fleet is not None and (require_kubernetes or avoid_pressure is not None):
        raise InvalidRequest("--own-fleet has no Kubernetes to require and no nodes to taint")
    set_up_logs(log_format.value, log_level.value)

    async def body() -> None:
        stop = asyncio.Event()
        for sign in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(sign, stop.set)
        async with _source(own_fleet, kubeconfig, context, required=require_kubernetes) as (
            kube,
            fleet,
        ):
            made = _exporter(kube, fleet, namespace, all_namespaces, avoid_pressure)
            changes = allow_changes or _is_loopback(host)
            async with serving(made, host, port, changes=changes) as running:
                told = {"url": running.url, "source": made.source.name, "changes": changes}
                if output is not None:
                    show_line(told)
                else:
                    show_text(f"metrics of {made.source.name} at {running.url}/metrics")
                sys.stdout.flush()
                waiting = asyncio.create_task(stop.wait())
                await asyncio.wait((waiting, running.serving), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(body())


def _exporter(
    kube: "Kube | None",
    fleet: "OwnFleet | None",
    namespace: str | None,
    all_namespaces: bool,
    avoid_pressure: float | None,
) -> "Exporter":
    from roost.kube.metering.exporter import Exporter

    return Exporter(
        kube,
        None if all_namespaces else namespace,
        home=namespace,
        avoid_pressure=avoid_pressure,
        own_fleet=fleet,
    )


@asynccontextmanager
async def _source(
    own_fleet: str | None, kubeconfig: Path | None, context: str | None, *, required: bool
) -> "AsyncIterator[tuple[Kube | None, OwnFleet | None]]":
    """Give a session with the cluster that is meant, or a fleet of roost's own."""
    from roost.kube.base.client import Kube

    if own_fleet is not None:
        yield None, _fleet(own_fleet, f"--own-fleet {own_fleet} was given")
        return
    try:
        kube = await Kube.open(
            chosen_kubeconfig(kubeconfig, context), context=context, patience_s=_PATIENCE_S
        )
    except Unavailable as error:
        if required:
            raise
        yield None, _fleet(None, error.message)
        return
    async with kube:
        try:
            await kube.call("GET", "/version")
        except Unavailable as error:
            if required:
                raise
            logging.getLogger("roost.kube.metering.exporter").warning("%s", error.message)
            yield None, _fleet(None, error.message)
            return
        yield kube, None


def _fleet(path: str | None, why: str) -> "OwnFleet":
    from roost.app.kernels import announce_compiling
    from roost.kube.metering.ownfleet import OwnFleet
    from roost.wire.text.files import load_fleet

    announce_compiling(note)
    return OwnFleet(load_fleet(path, stdin=sys.stdin) if path is not None else None, why=why)


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidRequest(
            f"cannot listen on {listen!r}", hint="Maybe 127.0.0.1:9105 or [::1]:9105."
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
