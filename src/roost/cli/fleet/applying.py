"""`roost apply` and `roost diff`: bring a fleet to what files say, after a plan of it."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from roost.base.errors import InvalidRequest, RoostError
from roost.cli.show.screen import Output, console, show, show_document
from roost.cli.words.making import every_page
from roost.cli.words.selecting import SelectorOption, read_selector
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.cli.words.applyfile import WantedFleet
    from roost.cli.words.fleetdiff import FleetNow, Plan, Step

#: Exit code of a diff that found differences.
_DIFFERS = 1
_MARKS = {"create": ("+", "green"), "change": ("~", "yellow"), "delete": ("-", "red"),
          "stays": ("!", "bold red")}  # fmt: skip

FilesOption = Annotated[
    list[str],
    typer.Option("--file", "-f", metavar="FILE|DIR", help="YAML or JSON; - is standard input."),
]
PruneOption = Annotated[
    bool,
    typer.Option("--prune", help="Delete VMs that the selector (-l) matches and no file names."),
]


@asks_server
def diff(
    session: Session, file: FilesOption, prune: PruneOption = False, selector: SelectorOption = None
) -> None:
    """Say what `roost apply` would do, and do nothing; ends with 1 if that is something."""
    plan, _ = _planned(session, file, prune, selector)
    _show_plan(session, plan)
    if plan.steps:
        raise typer.Exit(_DIFFERS)


@asks_server
def apply(
    session: Session,
    file: FilesOption,
    prune: PruneOption = False,
    selector: SelectorOption = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before many VMs are deleted.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
) -> None:
    """Bring projects, quotas, flavors, hosts, groups and VMs to what files say.

    What is as the files say is left alone, so applying twice changes nothing. What no file names
    stays, but for VMs that --prune deletes. The plan is shown first; every item's result follows.
    """
    plan, vms = _planned(session, file, prune, selector)
    if session.form is Output.TABLE or dry_run:
        _show_plan(session, plan)
    if dry_run:
        return
    _ask_before_deleting(plan, vms, yes)
    results = _Results(session)
    _carry_out(session, plan, results)
    results.end(plan)


def apply_files(
    server: str, token: str | None, files: list[str]
) -> tuple[list[dict[str, Any]], int]:
    """Apply files and return what became of each step, and how many things were as they say."""
    session = Session(Output.JSON, server, token)
    try:
        plan, _ = _planned(session, files, False, None)
        results = _Results(session)
        _carry_out(session, plan, results)
        return results.told, plan.unchanged
    finally:
        session.close()


def _planned(
    session: Session, files: list[str], prune: bool, selector: str | None
) -> "tuple[Plan, int]":
    from roost.cli.words.applyfile import read_wanted
    from roost.cli.words.fleetdiff import plan_of

    if prune != (selector is not None):
        raise InvalidRequest(
            "--prune and a selector belong together: which VMs are these files about?",
            hint="Maybe --prune -l app=shop.",
        )
    wanted = read_wanted(files)
    now = _fleet_now(session, wanted)
    chosen = None if selector is None else read_selector(selector)
    return plan_of(wanted, now, chosen), len(now.vms)


def _fleet_now(session: Session, wanted: "WantedFleet") -> "FleetNow":
    """Ask the server for what the files are about."""
    from roost.cli.words.fleetdiff import FleetNow

    client = session.client
    projects = {each.name: each for each in client.list_projects().projects}
    own = session.project
    if own is None:
        own = "default" if "default" in projects or len(projects) != 1 else next(iter(projects))
    groups = []
    if wanted.groups:
        groups = every_page(
            lambda after: client.list_groups(limit=1000, after=after), lambda page: page.groups
        )
    listed = client.list_flavors().flavors if wanted.flavors or wanted.vms else []
    return FleetNow(
        projects,
        {each.name: each for each in listed},
        {each.name: each for each in client.all_hosts()} if wanted.hosts else {},
        {(each.project, each.name): each for each in groups},
        {(each.project, each.name): each for each in client.all_vms()},
        own,
    )


def _ask_before_deleting(plan: "Plan", vms: int, yes: bool) -> None:
    from roost.cli.words.fleetdiff import too_many

    if yes or not too_many(plan, vms):
        return
    said = f"{plan.deleted} of {vms} VMs would be deleted, more than a tenth"
    if not sys.stdin.isatty():
        raise InvalidRequest(said, hint="Maybe --yes, if that is meant.")
    if not typer.confirm(f"{said}. Go on?", err=True):
        raise typer.Abort


def _line(step: "Step", mark: str) -> str:
    where = f" of {step.project}" if step.project not in ("", "default") else ""
    what = f"  {step.what}" if step.what else ""
    return f"{mark} {step.kind} {step.name}{where}{what}"


def _show_plan(session: Session, plan: "Plan") -> None:
    if session.form is not Output.TABLE:
        show_document(
            {"steps": [_step_json(step) for step in plan.steps], "unchanged": plan.unchanged},
            session.form,
        )
        return
    for step in plan.steps:
        mark, style = _MARKS[step.action]
        show(Text(_line(step, mark), style=style))
    count = {word: sum(s.action == word for s in plan.steps) for word in _MARKS}
    show(
        Text(
            f"{count['create']} to create, {count['change']} to change, "
            f"{count['delete']} to delete, {plan.unchanged} unchanged"
            + (f", {count['stays']} that cannot be done" if count["stays"] else "")
        )
    )


def _step_json(step: "Step") -> dict[str, Any]:
    found = {"kind": step.kind, "name": step.name, "action": step.action, "what": step.what}
    return found | ({"project": step.project} if step.project else {})


class _Results:
    """What became of each step; the exit code is that of the first failure."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.told: list[dict[str, Any]] = []
        self._failed: list[tuple[str, int]] = []

    @property
    def any_failed(self) -> bool:
        """Return whether a step was not done."""
        return bool(self._failed)

    def done(self, step: "Step", said: str) -> None:
        """Tell of a step that was done."""
        self.told.append(_step_json(step) | {"result": said})
        if self._session.form is Output.TABLE:
            show(Text(f"{step.kind} {step.name} {said}"))

    def failed(self, step: "Step", message: str, code: int) -> None:
        """Tell of a step that was not done, and why."""
        self._failed.append((step.name, code))
        self.told.append(_step_json(step) | {"error": message})
        if self._session.form is Output.TABLE:
            said = Text(f"{step.kind} {step.name}: {message}", style="red")
            console(stderr=True).print(said, soft_wrap=True)

    def end(self, plan: "Plan") -> None:
        """Sum up, and end with the code of the first failure."""
        if self._session.form is not Output.TABLE:
            show_document({"steps": self.told, "unchanged": plan.unchanged}, self._session.form)
        elif self._failed:
            count, of = len(self._failed), len(self.told)
            said = f"{of - count} of {of} done, {count} failed"
            console(stderr=True).print(Text(said, style="yellow"))
        if self._failed:
            raise typer.Exit(self._failed[0][1])


def _carry_out(session: Session, plan: "Plan", results: _Results) -> None:
    """Do the steps in their order; one that fails keeps only deletions from being done.

    What a file renames is created and deleted: without the new one the old one stays.
    """
    new = [step for step in plan.steps if (step.kind, step.action) == ("vm", "create")]
    made = False
    for step in plan.steps:
        if step in new:
            if not made:  # all of them in one request, where the first of them stands
                _create(session, new, results)
                made = True
            continue
        if step.action == "stays":
            results.failed(step, step.what, 4)
            continue
        if step.action == "delete" and results.any_failed:
            results.failed(step, "not deleted: not everything else could be done", 4)
            continue
        try:
            results.done(step, _do(session, step))
        except RoostError as error:
            results.failed(step, error.message, error.exit_code)


def _create(session: Session, steps: "list[Step]", results: _Results) -> None:
    from roost.wire.bodies import MOST_IN_BATCH

    for begin in range(0, len(steps), MOST_IN_BATCH):
        some = steps[begin : begin + MOST_IN_BATCH]
        try:
            _create_some(session, some, results)
        except RoostError as error:
            for step in some:
                results.failed(step, error.message, error.exit_code)


def _create_some(session: Session, steps: "list[Step]", results: _Results) -> None:
    found = session.client.create_vms([step.body for step in steps])
    for step, item in zip(steps, found.results, strict=True):
        if item.error is not None:
            results.failed(step, str(item.error.get("message", "refused")), 6)
        elif item.host is None:
            results.done(step, "waits in the queue")
        else:
            results.done(step, f"created on {item.host}")


def _do(session: Session, step: "Step") -> str:
    from roost.wire.bodies import ResizeVM, SetVM

    client, name, body = session.client, step.name, step.body
    where = step.project or None
    if step.kind == "project":
        act = client.create_project if step.action == "create" else client.set_quota
        act(name, body)
    elif step.kind == "flavor" and step.action == "create":
        client.create_flavor(body)
    elif step.kind == "flavor":
        client.change_flavor(name, body)
    elif step.kind == "host":
        client.set_host(name, body)
    elif step.kind == "group" and step.action == "create":
        client.create_group(body)
    elif step.kind == "group":
        client.set_group_rule(name, body, project=where)
    elif step.action == "delete":
        client.delete_vm(body)  # by its id: names can change, and be taken by others
        return "deleted"
    elif isinstance(body, ResizeVM):
        client.resize_vm(name, body, project=where)
        return f"resized: {step.what}"
    elif isinstance(body, SetVM):
        client.set_vm(name, body, project=where)
    else:
        how, group = body
        turn = client.add_to_group if how == "add" else client.remove_from_group
        turn(group, [name], project=where)
    return "created" if step.action == "create" else f"changed: {step.what}"
