"""`roost kube vm`: VMs that are pods, asked for and seen through the cluster's own API."""

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from roost.base.errors import InvalidRequest, NotFound, Unavailable
from roost.cli.kube import cluster
from roost.cli.kube.cluster import ContextOption, KubeconfigOption, NamespaceOption
from roost.cli.show.screen import note, show, show_document, show_text
from roost.cli.words.loading import Entry, lazy_group, new_app, show_help_when_bare, stand_in
from roost.cli.words.options import OutputOption, reports_errors

if TYPE_CHECKING:
    from roost.kube.base.client import Kube
    from roost.kube.base.objects import Object

T = TypeVar("T")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the VM.")]
AllNamespacesOption = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="VMs of all namespaces.")
]
_PLACE, _USE = "Where it may go", "What it uses of it"
#: A decision takes milliseconds; whoever waits longer waits for a controller.
_WAIT_S = 60.0


@reports_errors
def create(
    name: NameArgument,
    cpu: Annotated[str, typer.Option(metavar="CORES", help="Cores (4, 0.5) or millicores (250m).")],
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory (8GiB).")],
    cpu_utilization: Annotated[
        float, typer.Option(min=0, max=1, help="Share of its cores.", rich_help_panel=_USE)
    ] = 0.5,
    memory_utilization: Annotated[
        float, typer.Option(min=0, max=1, help="Share of its memory.", rich_help_panel=_USE)
    ] = 0.8,
    dirty_rate: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="MBPS",
            help="How fast it writes memory, in Mbit/s.",
            rich_help_panel=_USE,
        ),
    ] = 800.0,
    zone: Annotated[
        list[str] | None,
        typer.Option(metavar="ZONE", help="Zones that will do.", rich_help_panel=_PLACE),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Labels of the node.", rich_help_panel=_PLACE),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="A group and its rule ('web anti-affinity host', 'db spread zone soft').",
            rich_help_panel=_PLACE,
        ),
    ] = None,
    node: Annotated[
        str,
        typer.Option(
            metavar="NODE",
            help="Force it onto this node: the scheduler is not asked.",
            rich_help_panel=_PLACE,
        ),
    ] = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the scheduler has decided.")
    ] = False,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Ask for a VM; the cluster's scheduler chooses its node."""
    from roost.base.units import parse_cpu
    from roost.cli.words.asking import read_labels
    from roost.kube.base.quantities import parse_quantity
    from roost.kube.vms.spec import VM, parse_group

    vm = VM(
        name=name,
        namespace=namespace,
        cpu_milli=parse_cpu(cpu),
        memory_bytes=parse_quantity(memory),
        cpu_utilization=cpu_utilization,
        memory_utilization=memory_utilization,
        dirty_rate_mbps=dirty_rate,
        zones=tuple(zone or ()),
        node_labels=dict(read_labels(label or [], "--label")),
        groups=tuple(map(parse_group, group or ())),
        node=node,
    )

    async def work(kube: "Kube") -> "Object":
        from roost.kube.vms.crd import install_crd, is_installed
        from roost.kube.vms.vmlist import create_vm

        if not await is_installed(kube):
            await install_crd(kube)
        made = await create_vm(kube, vm)
        return await _decided(kube, name, namespace) if wait else made

    _show_one(ask_cluster(kubeconfig, context, work), output)


@reports_errors
def list_vms(
    namespace: NamespaceOption = "default",
    all_namespaces: AllNamespacesOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """List VMs: phase, node, and why one waits."""
    from roost.kube.base.client import VMS

    asked = None if all_namespaces else namespace
    items = ask_cluster(kubeconfig, context, lambda kube: _items(kube, VMS, asked))
    if output is not None:
        show_document({"vms": [_document(item) for item in items]}, output)
        return
    from roost.cli.kube import tables

    show(tables.vms(items, with_namespace=all_namespaces))


@reports_errors
def show_vm(
    name: NameArgument,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Show one VM: where it is and why, its rules, and its migrations."""
    from roost.kube.base.client import VMS

    item = ask_cluster(kubeconfig, context, lambda kube: kube.get(VMS, name, namespace))
    _show_one(item, output)


@reports_errors
def delete(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every VM of the namespace, and pods left behind.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask whether --all is meant.")
    ] = False,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Delete VMs with their pods, and return when they are gone; no controller is needed."""
    if bool(names) == every:
        raise InvalidRequest("name the VMs to delete, or --all", hint="Maybe one of the two.")
    if every and not yes:
        _make_sure(kubeconfig, context, namespace)

    async def work(kube: "Kube") -> list[str]:
        from roost.kube.base.concurrent import each_of
        from roost.kube.vms.vmlist import cleanup_all, delete_vm

        if every:
            return await cleanup_all(kube, namespace)
        asked = list(dict.fromkeys(names or ()))
        found = await each_of(asked, lambda name: delete_vm(kube, name, namespace))
        if missing := [name for name, was in zip(asked, found, strict=True) if not was]:
            raise NotFound(f"no VM {', '.join(missing)} in namespace {namespace}")
        return asked

    gone = ask_cluster(kubeconfig, context, work)
    if output is not None:
        show_document({"deleted": gone}, output)
    else:
        show_text(f"{len(gone)} deleted{': ' if gone else ''}{', '.join(gone)}")


@reports_errors
def sync(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML list of VMs.")],
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Bring about the VMs of a file; those that an earlier file made and this lacks go.

    An entry has name, cpu and memory, and may have count, cpu_utilization, memory_utilization,
    dirty_rate_mbps, running, zones, node_labels, groups ('web anti-affinity host') and node.
    """
    import msgspec

    from roost.kube.vms.vmfile import read_vms

    vms = read_vms(file, namespace)

    async def work(kube: "Kube") -> Any:
        from roost.kube.vms.crd import install_crd, is_installed
        from roost.kube.vms.vmlist import sync as synced

        if not await is_installed(kube):
            await install_crd(kube)
        return await synced(kube, namespace, vms)

    done = ask_cluster(kubeconfig, context, work)
    if output is not None:
        show_document(msgspec.to_builtins(done), output)
        return
    show_text(
        f"{len(done.created)} created, {len(done.updated)} updated, {len(done.deleted)} deleted, "
        f"{done.unchanged} as they were"
    )


@reports_errors
def check(
    namespace: NamespaceOption = "default",
    all_namespaces: AllNamespacesOption = False,
    node_selector: Annotated[
        str,
        typer.Option(metavar="LABELS", help="Nodes that VMs may stand on; '' for all."),
    ] = "type=kwok",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Check whether every VM stands where its rules say; exit code 1 when a hard one does not."""
    import msgspec

    from roost.kube.vms.compliance import placed, violations

    asked = None if all_namespaces else namespace

    async def work(kube: "Kube") -> "tuple[list[Object], dict[str, dict[str, str]]]":
        from roost.kube.base.client import NODES, VMS

        vms = (await kube.list(VMS, asked)).items
        nodes = (await kube.list(NODES, labels=node_selector or None)).items
        return vms, {
            node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes
        }

    items, nodes = ask_cluster(kubeconfig, context, work)
    standing = placed(items)
    found = violations(standing, nodes)
    if output is not None:
        listed = [msgspec.to_builtins(each) for each in found]
        show_document({"checked": len(standing), "violations": listed}, output)
    else:
        from roost.cli.kube import tables

        if found:
            show(tables.violations(found))
        show_text(f"{len(standing)} VMs checked, {len(found)} rules do not hold")
    if any(each.hard for each in found):
        raise typer.Exit(1)


@reports_errors
def stats(
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = None,
) -> None:
    """Count VMs: on a node, waiting (and why), or without a pod."""
    import msgspec

    from roost.kube.vms.assignments import read_statistics

    found = ask_cluster(kubeconfig, context, lambda kube: read_statistics(kube, namespace))
    if output is not None:
        show_document(msgspec.to_builtins(found), output)
        return
    from roost.cli.kube import tables

    show(*tables.statistics(found))


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _make_sure(kubeconfig: Path | None, context: str | None, namespace: str) -> None:
    """Ask whether all VMs of a namespace are to go; without a terminal there is nobody to ask."""
    from roost.kube.base.client import VMS

    if not _has_terminal():
        raise InvalidRequest(
            f"--all deletes every VM of namespace {namespace}, and there is no terminal to ask",
            hint="Maybe --yes, if that is meant.",
        )

    async def work(kube: "Kube") -> tuple[str, int]:
        return kube.server, len(await _items(kube, VMS, namespace))

    server, count = ask_cluster(kubeconfig, context, work)
    question = f"Delete every VM of namespace {namespace} on {server} ({count} now)?"
    # Not on standard output, which is for the answer.
    if not typer.confirm(question, err=True):
        note("nothing is deleted")
        raise typer.Exit(1)


def ask_cluster(
    kubeconfig: Path | None, context: str | None, work: "Callable[[Kube], Awaitable[T]]"
) -> T:
    """Run some work; say so when it fails because the cluster knows nothing of VMs."""

    async def body(kube: "Kube") -> T:
        try:
            return await work(kube)
        except NotFound:
            from roost.kube.vms.crd import is_installed

            if await is_installed(kube):
                raise
            raise NotFound(
                "this cluster does not know what a VirtualMachine is",
                hint="Maybe `roost kube controller` first, which makes it known.",
            ) from None

    return cluster.ask_cluster(kubeconfig, context, body)


async def _items(kube: "Kube", resource: Any, namespace: str | None) -> "list[Object]":
    return (await kube.list(resource, namespace)).items


async def _decided(kube: "Kube", name: str, namespace: str) -> "Object":
    """Wait until a VM runs or is said to fit nowhere."""
    from roost.kube.base.client import VMS
    from roost.kube.base.mirror import Mirror

    vms = Mirror(kube, VMS, namespace)

    def decided() -> "Object | None":
        item = vms.get(name, namespace) or {}
        status = item.get("status") or {}
        over = status.get("phase") in ("Running", "Failed") or status.get("reason")
        return item if over else None

    try:
        await vms.start()
        return await vms.until(decided, _WAIT_S, f"a decision on VM {name}")
    except Unavailable as error:
        error.hint = "Maybe no controller runs: `roost kube controller` is what makes pods of VMs."
        raise
    finally:
        await vms.stop()


def _document(item: "Object") -> "Object":
    metadata = item["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "uid", "creationTimestamp")}
    # How many it is, is for disruption budgets; it says nothing about a VM.
    spec, status = (
        {key: value for key, value in (item.get(part) or {}).items() if key != "replicas"}
        for part in ("spec", "status")
    )
    return {"metadata": kept, "spec": spec, "status": status}


def _show_one(item: "Object", output: Any) -> None:
    if output is not None:
        show_document(_document(item), output)
        return
    from roost.cli.kube import tables

    show(*tables.vm(item))


_GROUPS = (
    Entry("migrate", "roost.cli.kube.migrate:migrate", "Commands", "Move a VM to another node."),
    Entry(
        "migrations", "roost.cli.kube.migrate:migrations", "Commands", "List migrations of VMs."
    ),
)  # fmt: skip
_COMMANDS: Sequence[tuple[str, Any]] = (
    ("create", create),
    ("list", list_vms),
    ("show", show_vm),
    ("delete", delete),
    ("sync", sync),
    ("check", check),
    ("stats", stats),
)

vm = new_app(
    "vm",
    help="Create, see, move and delete VMs that are pods.",
    cls=lazy_group(_GROUPS),
    invoke_without_command=True,
)
vm.callback()(show_help_when_bare)
for _name, _function in _COMMANDS:
    vm.command(_name)(_function)
for _entry in _GROUPS:
    vm.command(_entry.name, help=_entry.help)(stand_in)
