"""`roost kube vm migrate` and `roost kube vm migrations`: moving VMs that are pods."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import InvalidRequest, Unavailable
from roost.cli.kube.cluster import ContextOption, KubeconfigOption, NamespaceOption, ask_cluster
from roost.cli.show.screen import note, show, show_document, show_text
from roost.cli.words.options import OutputOption, reports_errors

if TYPE_CHECKING:
    from rich.table import Table

    from roost.kube.base.client import Kube
    from roost.kube.base.objects import Object

#: A copy may take five minutes, and others may come first.
_WAIT_S = 1800.0


@reports_errors
def migrate(
    name: Annotated[str, typer.Argument(metavar="VM", help="Name of the VM.")],
    wanted: Annotated[
        str,
        typer.Option(
            metavar="NODE",
            help="Where you would like it. It is kept beside the scheduler's choice.",
        ),
    ] = "",
    force_node: Annotated[
        str,
        typer.Option(metavar="NODE", help="Put it there by name: the scheduler is not asked."),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has moved.")] = False,
    wait_s: Annotated[
        float, typer.Option(min=1, metavar="S", help="How long to wait at most.")
    ] = _WAIT_S,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Move a VM to another node; the cluster's scheduler decides which.

    A cool-down does not hold it back, disruption budgets do. Exit code 5 when it was waited for
    and did not move.
    """
    if wanted and force_node:
        raise InvalidRequest(
            "--wanted and --force-node exclude each other", hint="Maybe one of the two."
        )

    async def work(kube: "Kube") -> "tuple[Object, Object | None]":
        from roost.base.clock import RealClock
        from roost.kube.moving.marking import ask_to_move, follow

        vm = await ask_to_move(kube, name, namespace, RealClock(), wanted=wanted, forced=force_node)
        return vm, await follow(kube, vm, wait_s, _progress()) if wait else None

    vm, migration = ask_cluster(kubeconfig, context, work)
    source = vm["status"]["nodeName"]
    if output is not None:
        asked = {"sourceNode": source, "wantedNode": wanted or None, "phase": "Requested"}
        found = _document(vm, migration or asked)
        show_document(found, output)
    elif migration is None:
        show_text(f"{name} is to leave {source}; `roost kube vm migrations {name}` tells the rest")
    else:
        from roost.kube.moving.migrationrecord import sentence

        if migration["phase"] == "Succeeded":
            show_text(f"{name} {sentence(migration)}")
    if migration is not None and migration["phase"] != "Succeeded":
        if output is not None:
            raise typer.Exit(Unavailable.exit_code)
        raise Unavailable(
            f"{name} is still on {source}: {migration.get('reason', 'no reason is known')}",
            migration=migration,
        )


@reports_errors
def migrations(
    name: Annotated[
        str | None, typer.Argument(metavar="[VM]", help="One VM's; all of them else.")
    ] = None,
    namespace: NamespaceOption = "default",
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="VMs of all namespaces.")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """List migrations: from where to where, what was wanted, how they went."""

    async def work(kube: "Kube") -> "list[Object]":
        from roost.kube.base.client import VMS

        if name is not None:
            return [await kube.get(VMS, name, namespace)]
        return (await kube.list(VMS, None if all_namespaces else namespace)).items

    items = ask_cluster(kubeconfig, context, work)
    found = [_document(vm, each) for vm in items for each in _moves(vm)]
    found.sort(key=lambda each: str(each.get("startedAt") or "~"))
    if output is not None:
        show_document({"migrations": found}, output)
        return
    if not found:
        show_text("no migrations")
        return
    show(_table(found, with_namespace=all_namespaces))


def _progress() -> Callable[["Object"], None]:
    """Return what writes a line whenever a migration goes a step on."""
    last = [""]

    def tell(migration: "Object") -> None:
        line = _step(migration)
        if line != last[0]:
            last[0] = line
            note(line)

    return tell


def _step(migration: "Object") -> str:
    target = migration.get("targetNode")
    match migration.get("phase"):
        case "Waiting":
            return f"waiting: {migration.get('reason') or 'for a slot'}"
        case "Scheduling":
            return f"asking the scheduler for another node than {migration.get('sourceNode')}"
        case "Copying":
            share, rounds = float(migration.get("progress") or 0.0), migration.get("rounds") or 1
            return f"copying to {target}: {share:.0%}, round {rounds}"
        case "Handover":
            return f"handing over to {target}"
    return str(migration.get("phase", "")).lower()


def _moves(vm: "Object") -> "list[Object]":
    status = vm.get("status") or {}
    by_number = {each.get("number"): each for each in status.get("migrations") or ()}
    if (last := status.get("migration")) and last.get("number"):
        by_number[last["number"]] = last
    return [by_number[number] for number in sorted(by_number)]


def _document(vm: "Object", migration: "Object") -> "Object":
    metadata = vm["metadata"]
    return {"namespace": metadata["namespace"], "vm": metadata["name"], **migration}


def _table(found: "list[Object]", *, with_namespace: bool) -> "Table":
    from rich.text import Text

    from roost.base.units import format_bytes
    from roost.cli.show.tables import table

    space = ["namespace"] if with_namespace else []
    listed = table(
        *space, "vm", "no", "cause", "phase", "from", "wanted", "to", "copied", "rounds",
        "copy", "downtime", "why", right=("no", "copied", "rounds", "copy", "downtime"),
    )  # fmt: skip
    styles = {"Succeeded": "green", "Failed": "red"}
    for each in found:
        phase, copied = each.get("phase") or "", each.get("copiedBytes")
        wanted = f"{each['forcedNode']} (forced)" if each.get("forcedNode") else ""
        listed.add_row(
            *([each["namespace"]] if with_namespace else []),
            each["vm"],
            str(each["number"]),
            each.get("cause") or "",
            Text(phase, style=styles.get(phase, "yellow")),
            each.get("sourceNode") or "",
            wanted or each.get("wantedNode") or "-",
            each.get("targetNode") or "-",
            format_bytes(copied) if copied else "-",
            str(each.get("rounds") or "-"),
            f"{each['copySeconds']:.1f} s" if each.get("copySeconds") else "-",
            f"{each['downtimeMs']:.0f} ms" if each.get("downtimeMs") else "-",
            Text(each.get("reason") or ""),
        )
    return listed
