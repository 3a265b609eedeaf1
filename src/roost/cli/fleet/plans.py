"""`roost plan`: plan moves towards a goal, look at them, carry them out."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest
from roost.cli.watch.lists import lists
from roost.cli.words.completing import complete_from, complete_hosts, complete_plans, complete_vms
from roost.cli.words.each import do_each
from roost.cli.words.loading import new_group
from roost.cli.words.making import KeyOption, every_page
from roost.cli.words.nouns import ProjectOption, TimeoutOption
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roost.wire.plans import GivenWindow, PlanDetail

#: How many plans a command asks for at once.
_PAGE = 1000
_LIMITS, _TIME = "Limits", "When"

#: What a plan may be for.
_GOALS = (
    "balance", "consolidate", "drain", "repair", "defragment", "headroom", "talkers", "spare",
    "move",
)  # fmt: skip

#: What may be done about VMs that do not converge.
_NOT_CONVERGING = ("auto_converge", "post_copy", "refuse")

PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", help="Id of the plan.", autocompletion=complete_plans)
]
PlansArgument = Annotated[
    list[str],
    typer.Argument(metavar="PLAN...", help="Ids of plans.", autocompletion=complete_plans),
]
HtmlOption = Annotated[
    str | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Also write a report with pictures there; to FILE.svg the picture alone.",
    ),
]


@lists
def list_(
    session: Session,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="Only these: planned, waiting, running, paused, done, failed, cancelled.",
            autocompletion=complete_from(
                "planned", "waiting", "running", "paused", "done", "failed", "cancelled"
            ),
        ),
    ] = None,
) -> None:
    """List plans, the newest first."""
    from roost.cli.show import plans
    from roost.wire.plans import PlanPage

    ask = partial(session.client.list_plans, state=state, limit=_PAGE)
    found = every_page(lambda after: ask(after=after), lambda page: page.plans)
    session.show(PlanPage(plans=found), plans.listed(found))


@asks_server
def show_(
    session: Session,
    plan: PlanArgument,
    html: HtmlOption = None,
) -> None:
    """Show a plan: its moves in waves, what they cost, what stands in their way."""
    found = _with_all_moves(session, session.client.get_plan(plan))
    if html is not None:
        _write_report(found, html)
    _show(session, found)


@asks_server
def create(
    session: Session,
    goal: Annotated[
        str,
        typer.Option(
            "--goal",
            metavar="GOAL",
            help="balance, consolidate, drain, repair, defragment, headroom, talkers, spare or "
            "move.",
            autocompletion=complete_from(*_GOALS),
        ),
    ],
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host", metavar="HOST", help="Host to drain; repeatable.",
            autocompletion=complete_hosts,
        ),
    ] = None,
    vm: Annotated[
        list[str] | None,
        typer.Option(
            "--vm", metavar="VM", help="VM to move; repeatable.", autocompletion=complete_vms
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="HOST", help="Where the VMs move; else the engine chooses.",
            autocompletion=complete_hosts,
        ),
    ] = None,
    project: ProjectOption = None,
    cpu: Annotated[
        str | None, typer.Option("--cpu", metavar="CORES", help="Of the VM to make room for.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Of the VM to make room for.")
    ] = None,
    disk: Annotated[
        str, typer.Option("--disk", metavar="SIZE", help="Of the VM to make room for.")
    ] = "0",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Keep nothing: show what would be done.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Begin at once, or at --start.")
    ] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--start", metavar="TIME", help="Begin no move before, as 2026-11-20T22:00:00Z.",
            rich_help_panel=_TIME,
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--end", metavar="TIME", help="Begin no move after.", rich_help_panel=_TIME
        ),
    ] = None,
    window: Annotated[
        list[str] | None,
        typer.Option(
            "--window", metavar="trough|maintenance|START/END",
            help="Begin moves only there: when hosts are foreseen calm, in their maintenance "
            "times, or in times given; these are repeatable.",
            rich_help_panel=_TIME,
        ),
    ] = None,
    spare: Annotated[
        int | None,
        typer.Option(
            "--spare", min=0, max=2, metavar="K",
            help="Hosts that may be lost after a consolidation, the emptied ones off, or after a "
            "plan to spare (there 1 unless given) (N+k).",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            "--at-once", min=1, max=1000, metavar="N", help="VMs that move at a time (8).",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    per_host: Annotated[
        int | None,
        typer.Option(
            "--per-host", min=1, max=64, metavar="N", help="Of those from or to one host (2).",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    per_link: Annotated[
        int | None,
        typer.Option(
            "--per-link", min=1, max=64, metavar="N",
            help="Of those over one link of a described network (4).",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    not_converging: Annotated[
        str | None,
        typer.Option(
            "--not-converging", metavar="auto_converge|post_copy|refuse",
            help="VMs that write faster than they can be sent are slowed down (so unless told), go "
            "on at the target before their memory is there, or stay.",
            rich_help_panel=_LIMITS,
            autocompletion=complete_from(*_NOT_CONVERGING),
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--most", min=1, max=5000, metavar="N", help="Moves in all (500).",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    html: HtmlOption = None,
    key: KeyOption = None,
) -> None:  # fmt: skip
    """Plan moves towards a goal; nothing moves before the plan is applied."""
    from roost.planner.drafting import GOALS
    from roost.wire.bodies import DemandBody
    from roost.wire.plans import CreatePlan

    if goal not in GOALS:
        raise InvalidRequest(
            f"there is no goal {goal!r}", hint=f"Maybe one of {', '.join(GOALS)}.", goal=goal
        )
    if not_converging not in (None, *_NOT_CONVERGING):
        raise InvalidRequest(
            f"--not-converging {not_converging!r} is none of {', '.join(_NOT_CONVERGING)}"
        )
    if (cpu is None) != (memory is None):
        raise InvalidRequest("the VM to make room for has --cpu and --memory")
    demand = None
    if cpu is not None and memory is not None:
        demand = DemandBody(cpu=cpu, memory=memory, disk=disk)
    kind, windows = _windows(window or [])
    given: dict[str, Any] = {
        "spare": spare, "window": kind, "windows": windows,
        "hosts": host, "vms": vm, "to": to, "project": project, "demand": demand, "start": start,
        "end": end, "at_once": at_once, "per_host": per_host, "per_link": per_link,
        "most": most, "not_converging": not_converging,
    }  # fmt: skip
    body = CreatePlan(
        goal=goal,  # type: ignore[arg-type]
        dry_run=dry_run,
        apply=apply,
        **{word: value for word, value in given.items() if value is not None},
    )
    found = session.client.create_plan(body, key=key)
    if html is not None:
        found = _with_all_moves(session, found)
    _show(session, found)  # first: it is there, whether or not its report can be written
    if html is not None:
        _write_report(found, html)


@asks_server
def apply(session: Session, plan: PlanArgument) -> None:
    """Let a plan begin, now or at its start."""
    _show(session, session.client.apply_plan(plan))


@asks_server
def watch(session: Session, plan: PlanArgument, timeout: TimeoutOption = 3600.0) -> None:
    """Stay with a plan until it is over, and show how far it is; ends with 4 unless it is done."""
    import asyncio

    from roost.cli.watch.planwatch import watch_plan

    found = asyncio.run(watch_plan(session.async_client(), plan, timeout))
    _show(session, found)
    if found.state != "done":
        raise typer.Exit(4)


@asks_server
def pause(session: Session, plan: PlansArgument) -> None:
    """Begin no more moves of plans; those under way end. The room of the others stays held."""
    _each(session, plan, session.client.pause_plan)


@asks_server
def resume(session: Session, plan: PlansArgument) -> None:
    """Go on with plans that were paused."""
    _each(session, plan, session.client.resume_plan)


@asks_server
def cancel(session: Session, plan: PlansArgument) -> None:
    """End plans; moves that have not left their hosts are taken back."""
    _each(session, plan, session.client.cancel_plan)


def _each(session: Session, plans: list[str], act: "Callable[[str], PlanDetail]") -> None:
    from roost.cli.show.plans import detail

    do_each(session, "plan", plans, act, detail)


@asks_server
def recommend(session: Session) -> None:
    """Say what is wrong with the fleet now, and what one plan would do about each of it."""
    from roost.cli.show import plans

    found = session.client.recommend_fleet()
    session.show(found, plans.recommendations(found.recommendations))


@asks_server
def continuous(session: Session) -> None:
    """Say what continuous mode may do, and what its last look said."""
    from roost.cli.show import plans

    found = session.client.get_continuous()
    session.show(found, plans.continuous(found))


def _windows(
    words: "Sequence[str]",
) -> "tuple[str | None, list[GivenWindow] | None]":
    """Return the kind of window that is asked for, or the windows that are given."""
    from roost.wire.plans import GivenWindow

    if words and words[0] in ("trough", "maintenance"):
        if len(words) > 1:
            raise InvalidRequest(f"--window {words[0]} stands alone")
        return words[0], None
    found = []
    for each in words:
        start, slash, end = each.partition("/")
        if not slash:
            raise InvalidRequest(
                f"--window {each!r} is neither trough nor maintenance nor START/END",
                hint="Maybe 2026-11-20T22:00:00Z/2026-11-20T23:00:00Z.",
            )
        found.append(GivenWindow(start=start, end=end))
    return None, found or None


def _with_all_moves(session: Session, found: "PlanDetail") -> "PlanDetail":
    """Return a plan with the moves of further pages; one of a dry run has all of its moves."""
    after = found.next
    while after is not None:
        page = session.client.get_plan(found.id, after=after)
        found.listed += page.listed
        after = page.next
    found.next = None
    return found


def _show(session: Session, found: "PlanDetail") -> None:
    from roost.cli.show import plans

    session.show(found, plans.detail(found))


def _write_report(found: "PlanDetail", file: str) -> None:
    from pathlib import Path

    from roost.cli.show.planreport import picture, report
    from roost.cli.show.screen import note

    made = picture if file.endswith(".svg") else report
    try:
        Path(file).write_text(made(found), encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"the report cannot be written to {file!r}: {error}") from error
    note(f"the report is in {file}")


plan = new_group(
    "plan",
    "Plan moves towards a goal, and carry them out.",
    {
        "list": list_,
        "show": show_,
        "create": create,
        "apply": apply,
        "watch": watch,
        "pause": pause,
        "resume": resume,
        "cancel": cancel,
        "continuous": continuous,
    },
)
