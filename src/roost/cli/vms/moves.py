"""`roost vm migrate`: move VMs, watch their moves, call moves off."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import Conflict, InvalidRequest, RoostError
from roost.cli.show.screen import note
from roost.cli.words.completing import complete_hosts
from roost.cli.words.each import do_each
from roost.cli.words.nouns import ProjectOption, SomeVMsArgument, TimeoutOption
from roost.cli.words.selecting import SelectorOption, named_vms
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.cli.watch.movewatch import Ended
    from roost.client import AsyncClient
    from roost.wire.bodies import VMBody

_HOW = "How it moves"


@asks_server
def migrate(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", "--host", metavar="HOST", help="Where to; else the strategy chooses.",
            autocompletion=complete_hosts,
        ),
    ] = None,
    cold: Annotated[
        bool,
        typer.Option(
            "--cold", help="Stop it, and start it there; else it runs on.", rich_help_panel=_HOW
        ),
    ] = False,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Send at most so much a second (default: as its host is set).",
            rich_help_panel=_HOW,
        ),
    ] = None,
    downtime: Annotated[
        int | None,
        typer.Option(
            min=1, max=600_000, metavar="MS", help="Longest stand-still to aim for.",
            rich_help_panel=_HOW,
        ),
    ] = None,
    post_copy: Annotated[
        bool,
        typer.Option(
            "--post-copy", help="Fetch what is left when it runs there already.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    no_auto_converge: Annotated[
        bool,
        typer.Option(
            "--no-auto-converge", help="Do not slow a busy guest down so that the move ends.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, max=86_400, metavar="S",
            help="Give up after so many seconds; it stays (default: as its host is set).",
            rich_help_panel=_HOW,
        ),
    ] = None,
    ignore_budget: Annotated[
        bool,
        typer.Option(
            "--ignore-budget", help="Also if the disruption budget of a group of its is spent.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Call off the move that is under way.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until they have ended, and show how far each is.")
    ] = False,
    timeout: TimeoutOption = 3600.0,
    project: ProjectOption = None,
) -> None:  # fmt: skip
    """Move VMs to another host, or call their moves off.

    With --wait it ends with 0 when the VMs have moved, and with 4 when one stays; with --cancel it
    is the other way round.
    """
    import asyncio

    options = _options(
        to=to,
        cold=cold,
        bandwidth=bandwidth,
        downtime=downtime,
        post_copy=post_copy,
        no_auto_converge=no_auto_converge,
        limit=limit,
        ignore_budget=ignore_budget,
    )
    if cancel and options:
        raise InvalidRequest(
            "--cancel calls off the move that is under way, and takes no options of a new one",
            hint="Maybe leave out all but --cancel and --wait.",
        )

    chosen = named_vms(session, vm, selector, project)
    if not wait:

        def one(name: str) -> "VMBody":
            if cancel:
                return session.client.cancel_migration(name, project=project)
            return session.client.migrate_vm(name, project=project, **options)

        do_each(session, "vm", chosen, one, lambda found: _begun(found, cancel))
        return

    def ask(client: "AsyncClient", name: str) -> "Awaitable[VMBody]":
        if cancel:
            return client.cancel_migration(name, project=project)
        return client.migrate_vm(name, project=project, **options)

    endings: dict[str, Ended] = {}
    try:
        # All are asked for before the first is watched.
        since, asked = asyncio.run(_ask(session, ask, chosen))

        def watched(name: str) -> "VMBody":
            begun = asked[name]
            if isinstance(begun, RoostError):
                raise begun
            found, ended = asyncio.run(_watch(session, begun, since, cancel, timeout))
            endings[found.id] = ended
            _as_asked(found, ended, cancel)
            return found

        def told(found: "VMBody") -> str:
            return _ended(found, endings[found.id])

        do_each(session, "vm", chosen, watched, told, begun=True)
    except KeyboardInterrupt:
        call_off = f"`roost vm migrate {' '.join(chosen)} --cancel`"
        note(f"the move may go on; {call_off} calls it off")
        raise


def _options(
    *,
    to: str | None,
    cold: bool,
    bandwidth: str | None,
    downtime: int | None,
    post_copy: bool,
    no_auto_converge: bool,
    limit: int | None,
    ignore_budget: bool,
) -> dict[str, Any]:
    """Return what was said about the move, as the client takes it."""
    from roost.base.units import parse_bytes

    while_running = {
        "--downtime": downtime is not None,
        "--post-copy": post_copy,
        "--no-auto-converge": no_auto_converge,
    }
    for option, given in while_running.items():
        if cold and given:
            raise InvalidRequest(
                f"{option} is about a VM that runs while it moves; --cold stops it first",
                hint="Maybe leave one of the two out.",
            )
    options: dict[str, Any] = {}
    if to is not None:
        options["host"] = to
    if cold:
        options["cold"] = True
    if bandwidth is not None:
        options["bandwidth"] = parse_bytes(bandwidth.removesuffix("/s"), "bandwidth")
        if not options["bandwidth"]:
            raise InvalidRequest("--bandwidth 0 would never end")
    if downtime is not None:
        options["downtime_ms"] = downtime
    if post_copy:
        options["post_copy"] = True
    if no_auto_converge:
        options["auto_converge"] = False
    if limit is not None:
        options["limit_s"] = limit
    if ignore_budget:
        options["ignore_budget"] = True
    return options


Ask = Callable[["AsyncClient", str], "Awaitable[VMBody]"]


async def _ask(
    session: Session, ask: Ask, names: list[str]
) -> "tuple[int, dict[str, VMBody | RoostError]]":
    """Ask for moves; return the event before them all, and what was answered to each."""
    from roost.cli.watch.following import newest_sequence

    asked: dict[str, VMBody | RoostError] = {}
    async with session.async_client() as client:
        # Before they are asked for, so that no end of one can be missed.
        since = await newest_sequence(client)
        for name in names:
            try:
                asked[name] = await ask(client, name)
            except RoostError as error:
                asked[name] = error
    return since, asked


async def _watch(
    session: Session, asked: "VMBody", since: int, cancel: bool, timeout_s: float
) -> "tuple[VMBody, Ended]":
    from roost.cli.watch.movewatch import Ended, MoveScreen, watch_move

    if asked.migration is None:
        return asked, Ended(not cancel, "")
    async with session.async_client() as client:
        with MoveScreen(asked.name) as screen:
            ended = await watch_move(
                client, asked, since, screen, begins=not cancel, timeout_s=timeout_s
            )
        return await client.get_vm(asked.id), ended


def _begun(found: "VMBody", cancel: bool) -> str:
    from roost.cli.show import listings

    if found.migration is None:
        return f"{found.name} is {found.state} on {found.host}"
    if cancel:
        return f"{found.name}: the move to {found.migration.target} is being called off"
    return f"{found.name} moves from {listings.move(found.migration)}"


def _as_asked(found: "VMBody", ended: "Ended", cancel: bool) -> None:
    """Refuse a move that did not end as it was asked for: that is a conflict."""
    if ended.moved is cancel:
        raise Conflict(
            f"VM {_ended(found, ended)}",
            vm=found.name,
            host=found.host,
            moved=ended.moved,
            reason=ended.note,
        )


def _ended(found: "VMBody", ended: "Ended") -> str:
    where = found.host or "no host"
    if not ended.moved:
        return f"{found.name} stays on {where}{f': {ended.note}' if ended.note else ''}"
    still = ended.downtime_ms
    stood = "" if still is None else f"; it stood still for {still} ms"
    return f"{found.name} has moved to {where}{stood}"
