"""`roost maintenance`: empty hosts group by group, do something to each, and bring them back."""

import contextlib
import subprocess
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import Conflict, RoostError, Unavailable
from roost.cli.fleet.rolls import (
    closed_by_runs,
    in_words,
    interruptible,
    mark,
    runs_on,
    say,
    tell_left,
    way_back,
)
from roost.cli.show.screen import note
from roost.cli.watch.lists import lists
from roost.cli.words.completing import complete_hosts
from roost.cli.words.loading import new_group
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.plans import MaintenanceBody, MaintenanceGroup, PlanDetail

HostsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[HOST]...",
        help="Hosts to roll over; all that are open if none is named.",
        autocompletion=complete_hosts,
    ),
]
AtOnceOption = Annotated[
    int, typer.Option("--at-once", min=1, max=1000, metavar="N", help="Hosts away together.")
]
SpareOption = Annotated[
    bool,
    typer.Option(
        "--spare/--no-spare", help="Keep room to restart the VMs of one more host that is lost."
    ),
]


@asks_server
def plan(
    session: Session,
    host: HostsArgument = None,
    at_once: AtOnceOption = 10,
    spare: SpareOption = True,
) -> None:
    """Show in which groups hosts would be emptied, and which cannot be; nothing is changed."""
    from roost.cli.show import maintenance

    found = _ask(session, host or [], at_once, spare=spare)
    session.show(found, maintenance.groups(found))
    if found.left:
        raise typer.Exit(1)


@asks_server
def run(
    session: Session,
    command: Annotated[
        str,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="What to do to a host while it is out of service, by the shell; its name is in "
            "$ROOST_HOST. It must not end before the host may come back.",
        ),
    ],
    host: HostsArgument = None,
    at_once: AtOnceOption = 10,
    spare: SpareOption = True,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Roll over the others when some hosts cannot be emptied."
        ),
    ] = False,
    drain_timeout: Annotated[
        float,
        typer.Option(min=1.0, metavar="S", help="How long a group may take to be empty."),
    ] = 3600.0,
    online_timeout: Annotated[
        float,
        typer.Option(min=1.0, metavar="S", help="How long a host may take to be heard again."),
    ] = 600.0,
) -> None:
    """Roll over hosts: empty a group by a plan, run the command for each host, bring it back.

    Groups are asked for anew before each one, so that rules and N+1 hold for the fleet as it is. It
    stops at the first command that fails; that host stays in maintenance, and the others of its
    group are opened again, also by Ctrl-C. Run it again with the hosts that are left to go on. If
    it is killed, `roost maintenance list` names the hosts that it has left closed.
    """
    from roost.cli.show import maintenance

    tell_left(session, host or [])
    first = _ask(session, host or [], at_once, spare=spare)
    if first.left and not keep_going:
        session.show(first, maintenance.groups(first))
        raise typer.Exit(1)
    waiting = [name for group in first.groups for name in group.hosts]
    done: list[str] = []
    try:
        with interruptible():
            while waiting:
                found = _ask(session, waiting, at_once, spare=spare)
                if not found.groups:
                    _stop(done, waiting, f"host {found.left[0].host!r} cannot be emptied any more")
                group = found.groups[0]
                _roll(session, group, command, drain_timeout, online_timeout, done, waiting)
                waiting = [name for name in waiting if name not in group.hosts]
    except KeyboardInterrupt:
        left = [name for name in waiting if name not in done]
        say(f"interrupted: {len(done)} hosts are done, {len(left)} are left")
        say(_go_on(left))
        raise
    note(f"{len(done)} hosts are done")


def _ask(session: Session, hosts: list[str], at_once: int, *, spare: bool) -> "MaintenanceBody":
    from roost.wire.plans import PlanMaintenance

    asked = PlanMaintenance(hosts=hosts, at_once=at_once, spare=spare)
    return session.client.plan_maintenance(asked)


def _roll(
    session: Session,
    group: "MaintenanceGroup",
    command: str,
    drain_timeout: float,
    online_timeout: float,
    done: list[str],
    waiting: list[str],
) -> None:
    """Empty one group, do what is to be done to each host of it, and open it again."""
    client = session.client
    leave = "1 VM leaves" if group.moves == 1 else f"{group.moves} VMs leave"
    note(f"{', '.join(group.hosts)}: {leave}, in about {group.eta_s:.0f} s")
    closed: list[str] = []  # those that nothing was done to yet
    try:
        marked = mark()
        for name in group.hosts:
            closed.append(name)  # before it is asked for: an answer may get lost
            client.cordon_host(name, reason=marked)
        try:
            _drain(session, group, drain_timeout)
        except (Conflict, Unavailable) as error:
            _stop(done, waiting, error.message)
        for name in group.hosts:
            client.set_maintenance(name, on=True)
        for name in group.hosts:
            note(f"{name} is empty and out of service: {command}")
            closed.remove(name)
            try:
                code = _execute(command, name)
                if code:
                    why = f"the command for {name} ended with {code}; it is in maintenance"
                    _stop(done, waiting, why)
                _wait_online(session, name, online_timeout)
                client.set_maintenance(name, on=False)
            except KeyboardInterrupt:
                say(f"{name} stays in maintenance: its command, or its return, was interrupted")
                say(f"when it is well: roost host maintenance off {name}")
                raise
            done.append(name)
            note(f"{name} is back")
    finally:
        _reopen(session, closed)


def _reopen(session: Session, hosts: list[str]) -> None:
    """Open hosts again that nothing was done to; one that cannot be does not keep the others."""
    for name in hosts:
        try:
            session.client.uncordon_host(name)  # out of maintenance as well
        except RoostError as error:
            say(f"{name} stays closed: {error.message}")
        else:
            say(f"{name} is open again: nothing was done to it")


def _drain(session: Session, group: "MaintenanceGroup", timeout: float) -> None:
    """Empty the hosts of a group by plans, one if it is large enough; what stays is an error."""
    from roost.base.clock import RealClock

    clock = RealClock()
    end = clock.monotonic() + timeout
    while True:
        over = _drain_once(session, group, max(1.0, end - clock.monotonic()))
        if over.state == "done" and not over.blocked:
            return
        # Those that were too many for one plan leave by the next.
        too_many = all(each.guard == "limit" for each in over.blocked)
        if over.state == "done" and over.done and too_many:
            continue
        why = over.why or ", ".join(f"{each.name}: {each.why}" for each in over.blocked[:3])
        raise Conflict(f"{', '.join(group.hosts)} could not be emptied: {why}", plan=over.id)


def _drain_once(session: Session, group: "MaintenanceGroup", timeout: float) -> "PlanDetail":
    """Carry out one plan to empty the hosts of a group; return it as it is when it is over."""
    import asyncio

    from roost.cli.watch.planwatch import watch_plan
    from roost.wire.plans import MOST_MOVES, CreatePlan

    asked = CreatePlan(goal="drain", hosts=group.hosts, apply=True, most=MOST_MOVES)
    made = session.client.create_plan(asked)
    try:
        return asyncio.run(watch_plan(session.async_client(), made.id, timeout))
    except BaseException:  # Ctrl-C as well: the hosts are opened again, and need not be emptied
        with contextlib.suppress(RoostError):
            session.client.cancel_plan(made.id)
        raise


def _execute(command: str, host: str) -> int:
    """Run the user's command for one host; its output goes where ours goes."""
    import os

    # The user's own command line, typed for this purpose: the shell is what was asked for.
    return subprocess.run(
        command, shell=True, check=False, env={**os.environ, "ROOST_HOST": host}
    ).returncode


def _wait_online(session: Session, host: str, timeout: float) -> None:
    from roost.base.clock import RealClock
    from roost.cli.watch.jobprogress import pause

    clock = RealClock()
    end = clock.monotonic() + timeout
    while session.client.get_host(host).health != "online":
        if clock.monotonic() > end:
            raise Unavailable(
                f"host {host!r} is not heard of after {timeout:g} s",
                hint=f"Maybe bring it back, then roost host maintenance off {host}.",
                host=host,
            )
        pause(1.0)


def _stop(done: list[str], waiting: list[str], why: str) -> None:
    left = [name for name in waiting if name not in done]
    raise Conflict(
        f"{why}; {len(done)} hosts are done, {len(left)} are left",
        hint=f"Maybe {_go_on(left)}",
        done=done,
        left=left,
    )


def _go_on(left: list[str]) -> str:
    return f"go on with: roost maintenance run --command ... {' '.join(left[:20])}"


@lists
def list_(session: Session) -> None:
    """List hosts that a run has closed, and how to take back those of a run that was killed."""
    from roost.cli.show import maintenance
    from roost.wire.bodies import HostPage

    found = closed_by_runs(session)
    left = [host for host in found if not runs_on(host.closed)]
    told = [(host, in_words(host.closed)) for host in found]
    session.show(HostPage(hosts=found), maintenance.closed(told, way_back(left) if left else []))


maintenance = new_group(
    "maintenance",
    "Roll maintenance over hosts, in groups that rules and N+1 allow.",
    {"plan": plan, "run": run, "list": list_},
)
