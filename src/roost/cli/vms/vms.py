"""`roost vm`: create VMs, look at them, change them, delete them."""

import functools
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest, RoostError
from roost.cli.questions.explain import SOME_HOSTS, show_explanation
from roost.cli.questions.place import NO
from roost.cli.questions.recommend import recommend
from roost.cli.show.screen import Output, show, styled
from roost.cli.steering.preempting import preempt
from roost.cli.vms.moves import migrate
from roost.cli.vms.vmsettings import Restart, resize, set_
from roost.cli.watch.consoles import console
from roost.cli.words.completing import complete_classes, complete_from, complete_hosts
from roost.cli.words.lifeoptions import (
    LIFE,
    ForOption,
    PolicyOption,
    ReservationOption,
    UntilOption,
    VMLabelOption,
    end_of,
)
from roost.cli.words.loading import new_group
from roost.cli.words.making import KeyOption
from roost.cli.words.nouns import (
    VM_STATES,
    HeadersOption,
    ListedProject,
    ProjectOption,
    SomeVMsArgument,
    SortOption,
    TimeoutOption,
    VMArgument,
    WatchOption,
)
from roost.cli.words.options import RequestWords, takes_request
from roost.cli.words.selecting import SelectorOption, named_vms, only_one
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from rich.console import RenderableType

    from roost.client import AsyncClient
    from roost.client.routes import VMFilters
    from roost.wire.bodies import VMBody, VMPage


_BOOT = "What it boots"
WaitOption = Annotated[bool, typer.Option("--wait", help="Stay until each is as asked.")]


@asks_server
@functools.partial(takes_request, omit=("name", "seed"))
def create(
    session: Session,
    words: RequestWords,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new VM.")],
    vm_label: VMLabelOption = None,
    affinity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="A rule about all VMs with a label ('app=web anti-affinity host').",
            rich_help_panel="Where it may go",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="Disk image: URL@sha256:HEX, sha256:HEX for one that hosts have, or a file here. "
            "The host must be able to read that same path, and `roost agent --image-from` must "
            "allow it.",
            rich_help_panel=_BOOT,
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="Kernel to boot directly; the image then only fills the disk.",
            rich_help_panel=_BOOT,
        ),
    ] = None,
    initrd: Annotated[
        str | None,
        typer.Option(metavar="REF", help="Initial RAM disk of the kernel.", rich_help_panel=_BOOT),
    ] = None,
    cmdline: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Command line of the kernel.", rich_help_panel=_BOOT),
    ] = None,
    user_data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="User data for cloud-init.", rich_help_panel=_BOOT),
    ] = None,
    nic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="user|tap:BRIDGE",
            help="A network card: in the driver's own network, or on a bridge of the host "
            "(default: one, user).",
            rich_help_panel=_BOOT,
        ),
    ] = None,
    forward: Annotated[
        list[str] | None,
        typer.Option(
            metavar="tcp:HOST:GUEST",
            help="A port of the host's loopback address that leads into the guest.",
            rich_help_panel=_BOOT,
        ),
    ] = None,
    queue: Annotated[
        bool,
        typer.Option("--queue", help="Wait in line when no host fits yet.", rich_help_panel=LIFE),
    ] = False,
    priority_class: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS",
            help="Priority class that gives its priority.",
            rich_help_panel=LIFE,
            autocompletion=complete_classes,
        ),
    ] = None,
    by_preempting: Annotated[
        bool,
        typer.Option(
            "--preempt",
            help="Let VMs of lower priority make room for it when no host fits, as its priority "
            "class allows; it fails when they cannot.",
            rich_help_panel=LIFE,
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Create nothing: say where it would go, or who would make room for it.",
            rich_help_panel=LIFE,
        ),
    ] = False,
    restart: Annotated[
        Restart | None,
        typer.Option(
            help="Where it starts again when its host dies (default: as its policy says, or here).",
            rich_help_panel=LIFE,
        ),
    ] = None,
    policy: PolicyOption = None,
    stopped: Annotated[
        bool,
        typer.Option(
            "--stopped", help="Give it a place, but do not start it.", rich_help_panel=LIFE
        ),
    ] = False,
    until: UntilOption = None,
    lives: ForOption = None,
    reservation: ReservationOption = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until it runs.", rich_help_panel=LIFE)
    ] = False,
    timeout: TimeoutOption = 120.0,
    key: KeyOption = None,
) -> None:
    """Create a VM; says on which host it is, and why there."""
    from roost.cli.show import listings, tables
    from roost.cli.show.remedies import Live
    from roost.cli.watch.waiting import wait_for_vm
    from roost.cli.words.asking import read_affinity, read_labels
    from roost.cli.words.bootwords import read_boot, read_nics
    from roost.cli.words.sized import sized, vm_said
    from roost.wire.bodies import CreateVM, DryRun, PlacementBody

    if not name:
        raise InvalidRequest("the name of the VM is empty", hint="Maybe roost vm create web-1 ...")
    words = sized(session, words)
    request = words.request(name)
    fields: dict[str, Any] = vm_said(words, request)
    if queue and by_preempting:
        raise InvalidRequest("--queue and --preempt: what should be done when no host fits?")
    vm = CreateVM(
        **fields,
        priority_class=priority_class,
        labels=read_labels(vm_label or [], "--vm-label"),
        affinity=[read_affinity(text) for text in affinity or []],
        on_no_fit="queue" if queue else "preempt" if by_preempting else "fail",
        restart=None if restart is None else restart.value,
        policy=policy,
        start=not stopped,
        nics=read_nics(nic or [], forward or []),
        boot=read_boot(image, kernel, initrd, cmdline, user_data),
        until=end_of(until, lives),
        reservation=reservation,
    )
    if dry_run:
        asked = DryRun(**{name: getattr(vm, name) for name in vm.__struct_fields__})
        answer = session.client.dry_run(asked)
        session.show(answer, tables.answer(answer, request, Live()))
        if not isinstance(answer, PlacementBody):
            raise typer.Exit(NO)
        return
    made = session.client.create_vm(vm, key=key)
    if not wait:
        session.show(made, listings.created(made))
        return
    goal = "stopped" if stopped else "running"
    if session.form is Output.TABLE and made.state != goal:
        show(listings.created(made))
    last = wait_for_vm(session, made, goal, timeout)
    session.show(last, styled(f"{last.name} is {last.state} on {last.host}", style="green"))


@asks_server
def list_(
    session: Session,
    project: ListedProject = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Only on this host.", autocompletion=complete_hosts),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="Only in this state (running, pending ...).",
            autocompletion=complete_from(*VM_STATES),
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this name.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only with this label.")
    ] = None,
    selector: SelectorOption = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many (default: all).")
    ] = None,
    sort: SortOption = "",
    no_headers: HeadersOption = False,
    watch: WatchOption = False,
) -> None:
    """List VMs."""
    from roost.cli.show.columns import Listing
    from roost.cli.watch.listing import list_vms
    from roost.cli.words.asking import read_labels
    from roost.cli.words.selecting import read_selector
    from roost.wire.bodies import VMPage

    labels = read_labels(label or [], "--label")
    chosen = None if selector is None else read_selector(selector)
    if chosen is not None:
        labels = chosen.equal() | labels

    filters: VMFilters = {
        "project": project, "host": host, "state": state, "name": name, "labels": labels
    }  # fmt: skip
    if not watch:
        list_vms(session, chosen, limit, Listing(session.wide, sort, not no_headers), **filters)
        return

    from roost.cli.show import listings  # a list that is shown once draws nothing
    from roost.cli.watch.following import look

    async def fetch(client: "AsyncClient") -> "VMPage":
        found: list[VMBody] = []
        after: str | None = None
        while True:
            wanted = 1000 if limit is None else min(1000, limit - len(found))
            page = await client.list_vms(**filters, limit=wanted, after=after)
            found += [vm for vm in page.vms if chosen is None or chosen.matches(vm.labels)]
            after = page.next
            if after is None or len(found) == limit:
                return VMPage(vms=found, next=after)

    look(session, fetch, lambda page: listings.vms(page.vms, datetime.now(UTC)), watch)


@asks_server
def show_(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: ProjectOption = None,
    watch: WatchOption = False,
) -> None:
    """Show VMs: their state, their host, and why they are there or wait."""
    from roost.cli.show import listings
    from roost.cli.watch.following import look
    from roost.cli.words.each import do_each

    def drawn(body: "VMBody") -> "RenderableType":
        return listings.vm(body, datetime.now(UTC))

    chosen = named_vms(session, vm, selector, project)
    if not watch:
        act = functools.partial(session.client.get_vm, project=project)
        do_each(session, "vm", chosen, act, drawn)
        return
    name = only_one(chosen, "--watch", "roost vm list --watch")
    look(session, lambda client: client.get_vm(name, project=project), drawn, watch)


@asks_server
def delete(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: ProjectOption = None,
) -> None:
    """Delete VMs."""
    chosen = named_vms(session, vm, selector, project)
    _each(session, chosen, lambda name: session.client.delete_vm(name, project=project))


@asks_server
def start(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: ProjectOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Start VMs that are stopped."""
    goal = ("running", timeout) if wait else None
    chosen = named_vms(session, vm, selector, project)
    _each(session, chosen, lambda name: session.client.start_vm(name, project=project), goal)


@asks_server
def stop(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: ProjectOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Stop VMs; they keep their place."""
    goal = ("stopped", timeout) if wait else None
    chosen = named_vms(session, vm, selector, project)
    _each(session, chosen, lambda name: session.client.stop_vm(name, project=project), goal)


@asks_server
def restart(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: ProjectOption = None,
    wait: WaitOption = False,
    timeout: TimeoutOption = 120.0,
) -> None:
    """Stop VMs and start them again."""
    goal = ("running", timeout) if wait else None
    chosen = named_vms(session, vm, selector, project)
    act = functools.partial(session.client.restart_vm, project=project)
    _each(session, chosen, act, goal, _restarting)


@asks_server
def recover(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: ProjectOption = None,
) -> None:
    """Start VMs elsewhere whose host is proved to be off.

    The proof is a fence command that succeeded, or your word (`roost host confirm-dead`). What was
    on the host's own disk is lost: such a VM begins with its image.
    """
    chosen = named_vms(session, vm, selector, project)
    _each(session, chosen, lambda name: session.client.recover_vm(name, project=project))


@asks_server
def pause(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: ProjectOption = None,
) -> None:
    """Let VMs stand still, their memory kept."""
    chosen = named_vms(session, vm, selector, project)
    _each(session, chosen, lambda name: session.client.pause_vm(name, project=project))


@asks_server
def resume(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: ProjectOption = None,
) -> None:
    """Let paused VMs go on."""
    chosen = named_vms(session, vm, selector, project)
    _each(session, chosen, lambda name: session.client.resume_vm(name, project=project))


def _each(
    session: Session,
    names: list[str],
    act: "Callable[[str], VMBody]",
    goal: tuple[str, float] | None = None,
    said: "Callable[[VMBody], str] | None" = None,
) -> None:
    """Do the same to each VM, and show what it is then; with a goal, once it is in that state."""
    from roost.cli.words.each import do_each

    bodies: dict[str, VMBody] = {}
    if goal is not None and len(names) > 1:  # all are told before the first is waited for
        for name in names:
            with suppress(RoostError):
                bodies[name] = act(name)

    def one(name: str) -> "VMBody":
        body = bodies[name] if name in bodies else act(name)
        if goal is None:
            return body
        from roost.cli.watch.waiting import wait_for_vm

        return wait_for_vm(session, body, *goal)

    do_each(session, "vm", names, one, said or _now)


def _now(body: "VMBody") -> str:
    where = f" on {body.host}" if body.host else ""
    if body.state == body.desired:
        return f"{body.name} is {body.state}{where}"
    return f"{body.name} is {body.state}{where} (wanted: {body.desired})"


def _restarting(body: "VMBody") -> str:
    """Say that it is told to: until its host has done so it is as it was, running."""
    if body.observed_generation >= body.generation:
        return _now(body)
    return f"{body.name} is being restarted{f' on {body.host}' if body.host else ''}"


@asks_server
def explain(
    session: Session,
    vm: VMArgument,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="Speak of this host only.", autocompletion=complete_hosts
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every host.")] = False,
    project: ProjectOption = None,
) -> None:
    """Say what every host says to a VM."""
    show_explanation(session, vm, project, host or [], None if everything else SOME_HOSTS)


@asks_server
def batch(
    session: Session,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="VMs as JSON or YAML (a list, or {vms: [...]}), or as words, one VM a line; - is "
            "standard input.",
        ),
    ],
    atomic: Annotated[bool, typer.Option("--atomic", help="Create all of them or none.")] = False,
    key: KeyOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where they would go, and create none.")
    ] = False,
) -> None:
    """Create many VMs at once; those that are there already as asked are no failures."""
    from roost.cli.show import batches, listings
    from roost.cli.words.batchfile import read_batch
    from roost.cli.words.repeated import settle_repeated

    asked = read_batch(file, session.project)
    if dry_run:
        would = session.client.dry_run_batch(asked.vms, atomic=atomic or asked.atomic)
        session.show(would, batches.dry_run(would, len(asked.vms)))
        if batches.placed(would) < len(asked.vms):
            raise typer.Exit(1)
        return
    found = session.client.create_vms(asked.vms, atomic=atomic or asked.atomic, key=key)
    there = settle_repeated(session.client, asked.vms, found)
    said = f"{there} there already, as asked" if there else ""
    session.show(found, listings.batch(found), styled(said, style="dim"))
    if found.failed:
        raise typer.Exit(1)


vm = new_group(
    "vm",
    "Create, see, change and delete VMs.",
    {
        "create": create,
        "list": list_,
        "show": show_,
        "delete": delete,
        "start": start,
        "stop": stop,
        "restart": restart,
        "recover": recover,
        "pause": pause,
        "resume": resume,
        "console": console,
        "resize": resize,
        "set": set_,
        "migrate": migrate,
        "preempt": preempt,
        "explain": explain,
        "recommend": recommend,
        "batch": batch,
    },
)
