"""`roost vm migrate`: move VMs, watch one move, call moves off."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import Conflict, InvalidRequest
from roost.cli.show.screen import note, styled
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
        bool, typer.Option("--wait", help="Stay until the move has ended, and show how far it is.")
    ] = False,
    timeout: TimeoutOption = 3600.0,
    project: ProjectOption = None,
) -> None:  # fmt: skip
    """Move VMs to another host, or call their moves off.

    With --wait, of one VM, it ends with 0 when the VM has moved, and with 4 when it stays; with
    --cancel it is the other way round.
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
    if len(chosen) > 1:
        raise InvalidRequest(
            f"--wait watches the move of one VM, not of {len(chosen)}",
            hint="Maybe without it, and then roost vm list --watch.",
        )
    [name] = chosen

    def ask(client: "AsyncClient") -> "Awaitable[VMBody]":
        if cancel:
            return client.cancel_migration(name, project=project)
        return client.migrate_vm(name, project=project, **options)

    try:
        found, ended = asyncio.run(_ask_and_watch(session, ask, cancel, timeout))
    except KeyboardInterrupt:
        note(f"the move may go on; `roost vm migrate {name} --cancel` calls it off")
        raise
    _conclude(session, found, ended, cancel)


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


Ask = Callable[["AsyncClient"], "Awaitable[VMBody]"]


async def _ask_and_watch(
    session: Session, ask: Ask, cancel: bool, timeout_s: float
) -> "tuple[VMBody, Ended]":
    from roost.cli.watch.following import newest_sequence
    from roost.cli.watch.movewatch import Ended, MoveScreen, watch_move

    async with session.async_client() as client:
        # Before it is asked for, so that no end of it can be missed.
        since = await newest_sequence(client)
        asked = await ask(client)
        if asked.migration is None:
            return asked, Ended(not cancel, "")
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


def _conclude(session: Session, found: "VMBody", ended: "Ended", cancel: bool) -> None:
    """Say how it ended; not as it was asked for is a conflict."""
    where = found.host or "no host"
    told = f": {ended.note}" if ended.note else ""
    if ended.moved:
        said = f"{found.name} has moved to {where}"
    else:
        said = f"{found.name} stays on {where}{told}"
    if ended.moved is cancel:
        raise Conflict(
            f"VM {said}", vm=found.name, host=found.host, moved=ended.moved, reason=ended.note
        )
    if ended.moved and ended.downtime_ms is not None:
        said += f"; it stood still for {ended.downtime_ms} ms"
    session.show(found, styled(said, style="green"))
