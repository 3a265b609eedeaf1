"""`roost host`: look at hosts, close and open them, empty them, label them, forget them."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from roost.base.errors import InvalidRequest, RoostError
from roost.cli.fleet.hostsettings import set_
from roost.cli.show.screen import Output, note, show, show_document
from roost.cli.words.completing import complete_from, complete_zones
from roost.cli.words.each import delete_each, do_each
from roost.cli.words.loading import new_group
from roost.cli.words.nouns import (
    HeadersOption,
    HostArgument,
    HostsArgument,
    SortOption,
    TimeoutOption,
    WatchOption,
)
from roost.cli.words.selecting import SelectorOption, named_hosts, only_one, read_selector
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.client import AsyncClient
    from roost.wire.bodies import DrainBody, HostBody, HostPage, RecoveredBody, VMBody
    from roost.wire.plans import PlanDetail

HeldArgument = Annotated[
    list[str], typer.Argument(metavar="ID...", help="Ids of VMs, as `host show` has them.")
]
#: VMs that are named before a drain begins.
_MOST_PREDICTED = 10


@asks_server
def list_(
    session: Session,
    health: Annotated[
        str | None,
        typer.Option(
            metavar="HEALTH",
            help="Only online, suspect or offline ones.",
            autocompletion=complete_from("online", "suspect", "offline"),
        ),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="Only open, cordoned, draining or maintenance ones.",
            autocompletion=complete_from("open", "cordoned", "draining", "maintenance"),
        ),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Only of this zone.", autocompletion=complete_zones),
    ] = None,
    selector: SelectorOption = None,
    sort: SortOption = "name",
    no_headers: HeadersOption = False,
    watch: WatchOption = False,
) -> None:
    """List hosts with what is committed on them."""
    from roost.cli.show.columns import Listing
    from roost.cli.watch.listing import list_hosts
    from roost.wire.bodies import HostPage

    chosen = None if selector is None else read_selector(selector)

    def kept(host: "HostBody") -> bool:
        return chosen is None or chosen.matches(host.labels)

    async def fetch(client: "AsyncClient") -> "HostPage":
        found = client.all_hosts(health=health, admin=admin, zone=zone)
        return HostPage(hosts=[host async for host in found if kept(host)])

    if watch:
        from roost.cli.show import listings
        from roost.cli.watch.following import look

        look(session, fetch, lambda page: listings.hosts(page.hosts), watch)
    else:
        found = session.client.all_hosts(health=health, admin=admin, zone=zone)
        page = HostPage(hosts=[host for host in found if kept(host)])
        list_hosts(session, page, chosen, Listing(session.wide, sort, not no_headers))


@asks_server
def show_(
    session: Session,
    host: HostsArgument = None,
    selector: SelectorOption = None,
    watch: WatchOption = False,
) -> None:
    """Show hosts."""
    from roost.cli.show import listings
    from roost.cli.watch.following import look

    chosen = named_hosts(session, host, selector)
    if not watch:
        do_each(session, "host", chosen, session.client.get_host, listings.host)
        return
    name = only_one(chosen, "--watch", "roost host list --watch")
    look(session, lambda client: client.get_host(name), listings.host, watch)


@asks_server
def info(session: Session, host: HostArgument) -> None:
    """Show the lines that describe a host to the scheduler."""
    found = session.client.scheduling_info(host)
    session.show(found, found.text)


@asks_server
def cordon(
    session: Session,
    host: HostsArgument = None,
    selector: SelectorOption = None,
    reason: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Why; `roost host show` tells it until it is open again."
        ),
    ] = None,
) -> None:
    """Place nothing new on hosts."""

    def close(name: str) -> "HostBody":
        return session.client.cordon_host(name, reason=reason)

    do_each(session, "host", named_hosts(session, host, selector), close, _said)


@asks_server
def uncordon(session: Session, host: HostsArgument = None, selector: SelectorOption = None) -> None:
    """Open hosts again."""
    do_each(
        session, "host", named_hosts(session, host, selector), session.client.uncordon_host, _said
    )


def _said(host: "HostBody") -> str:
    vms = f"{host.vms} VM{'' if host.vms == 1 else 's'}"
    return f"{host.name} is {host.admin} and {host.health}, with {vms}"


@asks_server
def drain(
    session: Session,
    host: HostsArgument = None,
    selector: SelectorOption = None,
    status: Annotated[
        bool, typer.Option("--status", help="Only say how far a drain has come.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until each is empty or stuck.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what would move where, and what cannot leave."),
    ] = False,
    timeout: TimeoutOption = 600.0,
) -> None:
    """Cordon hosts and move their VMs away, two of each at a time; says how long, and what cannot.

    Of several hosts all are closed before the first VM leaves, so that none goes to another of
    them.
    """
    from roost.cli.show import listings, plans
    from roost.cli.watch.waiting import wait_for_drain
    from roost.wire.plans import MOST_MOVES, CreatePlan

    chosen = named_hosts(session, host, selector)
    if not status:
        wish = CreatePlan(
            goal="drain", hosts=chosen, dry_run=True, at_once=2, per_host=2, most=MOST_MOVES
        )
        if dry_run:
            ahead = session.client.create_plan(wish)
            session.show(ahead, plans.detail(ahead))
            raise typer.Exit(1 if ahead.blocked else 0)
        with suppress(RoostError):  # a drain does not fail for what is only to be told
            _predict(session.client.create_plan(wish))
    begun: dict[str, DrainBody] = {}
    if len(chosen) > 1 and not status:
        for name in chosen:
            with suppress(RoostError):  # told when its turn comes
                session.client.cordon_host(name)
        for name in chosen:
            with suppress(RoostError):
                begun[name] = session.client.drain_host(name)
    stuck = False

    def one(name: str) -> "DrainBody":
        nonlocal stuck
        if status:
            found = session.client.get_drain(name)
        else:
            found = begun[name] if name in begun else session.client.drain_host(name)
        if wait and found.state == "draining":
            found = wait_for_drain(session, name, timeout)
        stuck = stuck or found.state == "blocked"
        return found

    do_each(session, "host", chosen, one, listings.drain, begun=bool(begun))
    if stuck:
        raise typer.Exit(1)


def _predict(ahead: "PlanDetail") -> None:
    """Say how long a drain will take, and what will stand in its way."""
    from roost.cli.show.plans import seconds

    leave = "1 VM leaves" if ahead.moves == 1 else f"{ahead.moves} VMs leave"
    note(f"{leave}, in about {seconds(ahead.eta_s)}")
    for each in ahead.blocked[:_MOST_PREDICTED]:
        note(f"{each.name} cannot leave: {each.why}")
    if (more := len(ahead.blocked) - _MOST_PREDICTED) > 0:
        note(f"and {more} more cannot")


@asks_server
def labels(
    session: Session,
    host: HostArgument,
    label: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE|KEY-", help="Labels to set, or with a dash to take off."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take off all labels that are not given.")
    ] = False,
) -> None:
    """Show a host's labels, or change them."""
    from roost.cli.words.asking import read_labels

    changes = label or []
    removed = [text[:-1] for text in changes if text.endswith("-") and "=" not in text]
    added = read_labels([text for text in changes if text[:-1] not in removed], "label")
    found = session.client.get_host(host)
    if changes or replace:
        wanted = {} if replace else dict(found.labels)
        for key in removed:
            if wanted.pop(key, None) is None:
                raise InvalidRequest(f"host {host!r} has no label {key!r}", host=host)
        found = session.client.set_labels(host, wanted | added)
    if session.form is not Output.TABLE:
        show_document({"host": found.name, "labels": found.labels}, session.form)
        return
    for key, value in found.labels.items():
        show(Text(f"{key}={value}"))
    if not found.labels:
        show(Text(f"{host} has no labels", style="dim"))


@asks_server
def confirm_dead(
    session: Session,
    reason: Annotated[
        str,
        typer.Option(metavar="TEXT", help="How you know that it is off; kept in the events."),
    ],
    host: HostsArgument = None,
    selector: SelectorOption = None,
) -> None:
    """Give your word that hosts are off and stay off.

    Their VMs with restart=elsewhere may then start on other hosts, the others when you ask for it
    (`roost host recover`). If a host still runs them, each runs twice: pull the plug first.
    """

    def believe(name: str) -> "HostBody":
        return session.client.confirm_dead(name, reason)

    do_each(session, "host", named_hosts(session, host, selector), believe, _said)


@asks_server
def recover(session: Session, host: HostsArgument = None, selector: SelectorOption = None) -> None:
    """Start all VMs elsewhere of hosts that are proved to be off, the most urgent first.

    Also those with restart=here, which no process restarts by itself. What was on a host's own
    disk is lost: such a VM begins with its image.
    """
    stay = 0

    def one(name: str) -> "RecoveredBody":
        nonlocal stay
        found = session.client.recover_host(name)
        stay += len(found.failed)
        return found

    do_each(session, "host", named_hosts(session, host, selector), one, _recovered)
    if stay:
        raise typer.Exit(1)


def _recovered(found: "RecoveredBody") -> Text:
    restarted = f"{len(found.restarted)} VMs of {found.host} start elsewhere"
    said = Text(f"{restarted}, {len(found.queued)} wait")
    for each in found.failed:
        said.append(f"\n{each.vm} stays: {each.why}", style="bold red")
    return said


@asks_server
def adopt_held(
    session: Session,
    host: HostArgument,
    vm: HeldArgument,
) -> None:
    """Make VMs that a host runs and the server does not know the server's, where they are.

    Such as those that were created after the backup that was restored. They have their old names,
    projects, sizes, images and network cards, and no groups, constraints or priority: hosts do not
    know them.
    """
    act = partial(session.client.adopt_held, host)
    do_each(session, "vm", vm, act, lambda found: _adopted(found, host))


def _adopted(found: "VMBody", host: str) -> str:
    return f"{found.name} of project {found.project} is adopted on {host}"


@dataclass(frozen=True, slots=True)
class Destroying:
    """A VM that a host is told to destroy: the answer to that, where a server gives none."""

    host: str
    destroying: str


@asks_server
def destroy_held(
    session: Session,
    host: HostArgument,
    vm: HeldArgument,
) -> None:
    """Destroy VMs that a host runs and nobody asked for, with their disks.

    A VM that the server has on that host is deleted by `roost vm delete`. A copy of one that it has
    on another host is destroyed only while that host has the VM as it was ordered.
    """

    def one(name: str) -> Destroying:
        session.client.destroy_held(host, name)
        return Destroying(host, name)

    do_each(
        session, "vm", vm, one, lambda told: f"{told.host} is told to destroy {told.destroying}"
    )


@asks_server
def maintenance(
    session: Session,
    state: Annotated[
        str,
        typer.Argument(
            metavar="on|off",
            help="Out of service, or back.",
            autocompletion=complete_from("on", "off"),
        ),
    ],
    host: HostsArgument = None,
    selector: SelectorOption = None,
) -> None:
    """Take empty hosts out of service, or bring them back; drain them first."""
    if state not in ("on", "off"):
        raise InvalidRequest(f"maintenance is on or off, not {state!r}")

    def one(name: str) -> "HostBody":
        return session.client.set_maintenance(name, on=state == "on")

    do_each(session, "host", named_hosts(session, host, selector), one, _said)


@asks_server
def delete(session: Session, host: HostsArgument = None, selector: SelectorOption = None) -> None:
    """Forget hosts that have no VMs."""
    chosen = named_hosts(session, host, selector)
    delete_each(session, "host", chosen, session.client.delete_host, "is forgotten")


host = new_group(
    "host",
    "See hosts, cordon, drain, label and set them.",
    {
        "list": list_,
        "show": show_,
        "info": info,
        "cordon": cordon,
        "uncordon": uncordon,
        "drain": drain,
        "maintenance": maintenance,
        "labels": labels,
        "set": set_,
        "confirm-dead": confirm_dead,
        "recover": recover,
        "adopt-held": adopt_held,
        "destroy-held": destroy_held,
        "delete": delete,
    },
)
