"""`roost kube controller`: options in, `roost.kube.control` runs until it is interrupted."""

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.cli.kube.cluster import ContextOption, KubeconfigOption, ask_cluster
from roost.cli.running.serve import LogFormat, LogFormatOption, LogLevel, LogLevelOption
from roost.cli.words.asking import read_labels
from roost.cli.words.options import reports_errors

if TYPE_CHECKING:
    from roost.kube.base.client import Kube
    from roost.kube.control import ControllerSettings
    from roost.kube.moving.webhook import Service, Webhook

log = logging.getLogger("roost.kube")

_PODS, _MOVES, _HOOK = "Pods", "Migrations", "Evictions"


@reports_errors
def controller(
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="Keep the VMs of this one only."),
    ] = None,
    all_namespaces: Annotated[
        bool,
        typer.Option("--all-namespaces", "-A", help="Keep those of all (the default)."),
    ] = False,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Nodes that VMs may stand on (default: type=kwok, fake ones; '' for any).",
            rich_help_panel=_PODS,
        ),
    ] = None,
    scheduler: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Scheduler of the pods (else the usual).", rich_help_panel=_PODS
        ),
    ] = "",
    migrate: Annotated[
        bool,
        typer.Option(
            "--migrate/--no-migrate", help="Move VMs that are to leave.", rich_help_panel=_MOVES
        ),
    ] = True,
    at_once: Annotated[
        int, typer.Option(min=1, help="Migrations at once.", rich_help_panel=_MOVES)
    ] = 5,
    per_node: Annotated[
        int, typer.Option(min=1, help="Migrations that leave one node.", rich_help_panel=_MOVES)
    ] = 2,
    bandwidth_mbps: Annotated[
        float,
        typer.Option(
            min=1, metavar="MBPS", help="Network of each node for them.", rich_help_panel=_MOVES
        ),
    ] = 10_000.0,
    cool_down_s: Annotated[
        float,
        typer.Option(
            min=0, metavar="S", help="Rest after a move, doubling.", rich_help_panel=_MOVES
        ),
    ] = 900.0,
    webhook: Annotated[
        bool,
        typer.Option(
            "--webhook/--no-webhook",
            help="Turn evictions of VMs into migrations.",
            rich_help_panel=_HOOK,
        ),
    ] = True,
    webhook_host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Where the API server reaches us.", rich_help_panel=_HOOK
        ),
    ] = "127.0.0.1",
    webhook_port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port of it; 0 takes any.", rich_help_panel=_HOOK),
    ] = 0,
    webhook_service: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE/NAME[:PORT]",
            help="Service through which the API server reaches us, in the cluster itself.",
            rich_help_panel=_HOOK,
        ),
    ] = None,
    webhook_keep: Annotated[
        bool,
        typer.Option(
            "--webhook-keep/--no-webhook-keep",
            help="While no controller runs, refuse evictions of VMs (else they lose their memory).",
            rich_help_panel=_HOOK,
        ),
    ] = True,
    lease_s: Annotated[
        float, typer.Option(min=1, metavar="S", help="Silence after which another takes over.")
    ] = 15.0,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Keep a pod for every VM, and move VMs instead of evicting them; until interrupted.

    Several may run: one acts, the others wait for its lease.
    """
    if namespace is not None and all_namespaces:
        raise InvalidRequest("--namespace and --all-namespaces exclude each other")
    service = _service(webhook_service) if webhook_service else None
    selector = read_labels(list(filter(None, node_selector or [])), "--node-selector")
    from roost.app.logs import set_up_logs

    set_up_logs(log_format.value, log_level.value)

    async def work(kube: "Kube") -> None:
        from roost.kube.base.lease import LeaseSettings
        from roost.kube.control import ControllerSettings
        from roost.kube.moving.cooldown import CoolDown
        from roost.kube.moving.migrating import MigrationSettings
        from roost.kube.moving.webhook import Webhook
        from roost.kube.vms.launchers import LauncherSettings
        from roost.kube.vms.launching import LaunchSettings

        launcher = LauncherSettings(scheduler=scheduler)
        if node_selector is not None:
            launcher = LauncherSettings(scheduler=scheduler, node_selector=selector)
        settings = ControllerSettings(
            launch=LaunchSettings(launcher=launcher),
            migration=MigrationSettings(
                at_once=at_once,
                per_node=per_node,
                nic_mbps=bandwidth_mbps,
                cool_down=CoolDown(base_s=cool_down_s),
            ),
            migrate=migrate,
            lease=LeaseSettings(duration_s=lease_s),
        )
        door = None
        if webhook and migrate:
            door = Webhook(
                kube,
                host=webhook_host,
                port=webhook_port,
                namespace=namespace,
                service=service,
                keep=webhook_keep,
            )
        await _run(kube, namespace, settings, door)

    ask_cluster(kubeconfig, context, work)


async def _run(
    kube: "Kube",
    namespace: str | None,
    settings: "ControllerSettings",
    door: "Webhook | None",
) -> None:
    from roost.kube.control import Controller

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    running = Controller(kube, namespace, settings=settings, beside=[door] if door else [])
    log.info("controller for %s", kube.server)
    await running.start()
    try:
        await stop.wait()
    finally:
        log.info("stopping")
        await running.stop()


def _service(text: str) -> "Service":
    from roost.kube.moving.webhook import Service

    namespace, slash, rest = text.partition("/")
    name, colon, port = rest.partition(":")
    if not (namespace and slash and name) or (colon and not port.isdigit()):
        raise InvalidRequest(
            f"--webhook-service {text!r} is not NAMESPACE/NAME[:PORT]",
            hint="Maybe roost/controller:443?",
        )
    return Service(namespace, name, int(port) if colon else 443)
