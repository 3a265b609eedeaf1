"""`roost job`: submit programs, see what becomes of them, read what they write."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest, NotFound
from roost.cli.show.screen import Output
from roost.cli.watch.lists import lists
from roost.cli.words.completing import complete_projects
from roost.cli.words.each import delete_each, do_each
from roost.cli.words.jobwords import (
    CpuOption,
    DiskOption,
    EnvOption,
    InputsOption,
    KeepInOption,
    MemoryOption,
    OutputsOption,
    RegistryOption,
    RestartsOption,
    RetriesOption,
    RunLimitOption,
    complete_jobs,
    complete_kinds,
    complete_pools,
    read_items,
    spec_fields,
)
from roost.cli.words.loading import new_group
from roost.cli.words.making import KeyOption, every_page
from roost.cli.words.options import OWN_PROJECT
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.jobs import ArrayDetail, CancelledBody

#: What a list asks for at once.
_PAGE = 1000
#: Exit code of a command that waited for jobs of which some did not complete.
_NOT_COMPLETED = 1

JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Id of a job or an array.", autocompletion=complete_jobs),
]
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="Ids of jobs or arrays.", autocompletion=complete_jobs),
]
PoolOption = Annotated[
    str | None,
    typer.Option(metavar="POOL", help="Pool whose machines run it.", autocompletion=complete_pools),
]
KindOption = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="Job kind to begin from.", autocompletion=complete_kinds),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Project; else ROOST_PROJECT, else the context's.",
        autocompletion=complete_projects,
    ),
    OWN_PROJECT,
]
NameOption = Annotated[str, typer.Option("--name", metavar="TEXT", help="What it is called.")]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="A parameter; repeatable."),
]
NeedsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--needs",
        metavar="JOB",
        help="Begin when all of this has ended; repeatable.",
        autocompletion=complete_jobs,
    ),
]
PriorityOption = Annotated[
    int | None, typer.Option("--priority", metavar="N", help="Higher ones are looked at first.")
]
QueueLimitOption = Annotated[
    str | None,
    typer.Option("--queue-limit", metavar="LENGTH", help="Fail if there is no room so long (2h)."),
]
KindArgument = Annotated[
    str, typer.Argument(metavar="KIND", help="Name of the kind.", autocompletion=complete_kinds)
]
KindsArgument = Annotated[
    list[str],
    typer.Argument(metavar="KIND...", help="Names of kinds.", autocompletion=complete_kinds),
]
WaitOption = Annotated[bool, typer.Option("--wait", help="Stay until all of it has ended.")]
CommandArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND...", help="Program and its words, after two dashes."),
]


@asks_server
def submit(
    session: Session,
    command: CommandArgument = None,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Container image to run it in.")
    ] = None,
    registry_account: RegistryOption = None,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, help="So many equal jobs.")
    ] = 1,
    pool: PoolOption = None,
    kind: KindOption = None,
    project: ProjectOption = None,
    name: NameOption = "",
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    disk: DiskOption = None,
    env: EnvOption = None,
    parameter: ParameterOption = None,
    input_file: InputsOption = None,
    output_file: OutputsOption = None,
    keep_in: KeepInOption = None,
    run_limit: RunLimitOption = None,
    queue_limit: QueueLimitOption = None,
    retries: RetriesOption = None,
    restarts: RestartsOption = None,
    priority: PriorityOption = None,
    needs: NeedsOption = None,
    wait: WaitOption = False,
    key: KeyOption = None,
) -> None:
    """Submit a job; with --count, an array of equal ones."""
    fields = spec_fields(
        command, image, cpu, memory, disk, env, parameter, input_file, output_file, keep_in,
        run_limit, queue_limit, retries, restarts, priority, registry_account,
    )  # fmt: skip
    _send(session, fields, count, None, pool, kind, project, name, needs, wait=wait, key=key)


@asks_server
def array(
    session: Session,
    items: Annotated[
        Path,
        typer.Argument(
            metavar="ITEMS",
            help="File with one item per line, text or JSON (.jsonl); - is the standard input.",
        ),
    ],
    command: CommandArgument = None,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Container image to run it in.")
    ] = None,
    registry_account: RegistryOption = None,
    pool: PoolOption = None,
    kind: KindOption = None,
    project: ProjectOption = None,
    name: NameOption = "",
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    disk: DiskOption = None,
    env: EnvOption = None,
    parameter: ParameterOption = None,
    input_file: InputsOption = None,
    output_file: OutputsOption = None,
    keep_in: KeepInOption = None,
    run_limit: RunLimitOption = None,
    queue_limit: QueueLimitOption = None,
    retries: RetriesOption = None,
    restarts: RestartsOption = None,
    priority: PriorityOption = None,
    needs: NeedsOption = None,
    wait: WaitOption = False,
    key: KeyOption = None,
) -> None:
    """Submit one job for each item; {item} and {index} in the command are filled in."""
    fields = spec_fields(
        command, image, cpu, memory, disk, env, parameter, input_file, output_file, keep_in,
        run_limit, queue_limit, retries, restarts, priority, registry_account,
    )  # fmt: skip
    found = read_items(items)
    _send(session, fields, 1, found, pool, kind, project, name, needs, wait=wait, key=key)


def _send(
    session: Session,
    fields: dict[str, Any],
    count: int,
    items: list[Any] | None,
    pool: str | None,
    kind: str | None,
    project: str | None,
    name: str,
    needs: list[str] | None,
    *,
    wait: bool,
    key: str | None,
) -> None:
    from roost.cli.show import jobs
    from roost.wire.jobs import SubmitJobs

    body = SubmitJobs(
        name=name, count=count, items=items, pool=pool, kind=kind, project=project,
        needs=needs or [], **fields,
    )  # fmt: skip
    made = session.client.submit_jobs(body, key=key)
    if wait:
        made = _wait_for(session, made)
        session.show(made, jobs.detail(made))
        _leave(made)
    else:
        session.show(made, jobs.submitted(made))


@lists
def list_(
    session: Session,
    of: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB", help="Only the jobs of this array.", autocompletion=complete_jobs
        ),
    ] = None,
    project: ProjectOption = None,
    pool: PoolOption = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="open or finished; of an array, a job's state."),
    ] = None,
    most: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="So many at most.")
    ] = 100,
) -> None:
    """List what was submitted, the newest first, or the jobs of one array."""
    from roost.cli.show import jobs
    from roost.wire.jobs import ArrayPage, JobPage

    if of is not None:
        ask = partial(session.client.list_jobs, of, state=state, limit=min(most, _PAGE))
        if most > _PAGE:
            found = every_page(lambda after: ask(after=after), lambda page: page.jobs)[:most]
        else:
            found = ask().jobs
        session.show(JobPage(jobs=found), jobs.listed_jobs(found))
        return
    page = session.client.list_arrays(
        project=project, pool=pool, state=state, limit=min(most, _PAGE)
    )
    session.show(ArrayPage(arrays=page.arrays, next=page.next), jobs.listed(page.arrays))


@asks_server
def show_(session: Session, job: JobArgument) -> None:
    """Show a job and its attempts, or an array and how far it has come."""
    from roost.cli.show import jobs

    own = session.client.get_array(job)
    if "." not in job and own.size > 1:
        session.show(own, jobs.detail(own))
    else:
        found = session.client.get_job(job)
        session.show(found, jobs.job(found))


@asks_server
def wait(
    session: Session,
    job: JobArgument,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="LENGTH", help="Give up after so long.")
    ] = None,
) -> None:
    """Stay until a job or array has ended; exit code 1 when not all of it completed."""
    from roost.cli.show import jobs
    from roost.cli.words.durations import read_duration

    own = session.client.get_array(job)
    most = None if timeout is None else float(read_duration(timeout))
    found = _wait_for(session, own, most)
    session.show(found, jobs.detail(found))
    _leave(found)


def _wait_for(session: Session, own: "ArrayDetail", most_s: float | None = None) -> "ArrayDetail":
    from roost.cli.watch.jobprogress import wait_for_array

    return wait_for_array(session, own, most_s)


def _leave(found: "ArrayDetail") -> None:
    if found.state != "completed":
        raise typer.Exit(_NOT_COMPLETED)


@asks_server
def cancel(session: Session, job: JobsArgument) -> None:
    """Cancel jobs, or all jobs of arrays."""
    now = ""  # the one of which an answer is shown, which has no name

    def one(name: str) -> "CancelledBody":
        nonlocal now
        now = name
        return session.client.cancel_jobs(name)

    def said(found: "CancelledBody") -> str:
        done = f"{found.cancelled} cancelled, {found.cancelling} told to end"
        return done if len(job) == 1 else f"{now}: {done}"

    do_each(session, "job", job, one, said)


@asks_server
def logs(
    session: Session,
    job: JobArgument,
    stderr: Annotated[bool, typer.Option("--stderr", help="What it wrote as errors.")] = False,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="Of an earlier attempt.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Stay until it has ended.")
    ] = False,
) -> None:
    """Print what a job has written, while it runs or later."""
    from roost.cli.show.screen import note, show_piece
    from roost.cli.watch.jobprogress import pause

    start = 0
    while True:
        piece = session.client.read_job_log(
            job, stream="stderr" if stderr else "stdout", attempt=attempt, start=start
        )
        show_piece(piece.data)
        start = piece.next
        if piece.ended or not (follow or piece.data):
            break
        if not piece.data:
            pause()
    if piece.dropped:
        note(f"{piece.dropped} bytes more were not kept: a log has a limit")


@asks_server
def explain(session: Session, job: JobArgument) -> None:
    """Say why a job is not running."""
    from roost.cli.show import jobs

    found = session.client.explain_job(job)
    session.show(found, jobs.explained(found))


@asks_server
def stats(
    session: Session,
    project: ProjectOption = None,
    pool: PoolOption = None,
    account: Annotated[str | None, typer.Option(metavar="NAME", help="Account.")] = None,
) -> None:
    """Count jobs, machine hours and money."""
    from roost.cli.show import jobs

    found = session.client.job_stats(project=project, pool=pool, account=account)
    session.show(found, jobs.stats(found))


# Kinds


@lists
def kind_list(session: Session) -> None:
    """List job kinds."""
    from roost.cli.show import jobs

    found = session.client.list_job_kinds()
    session.show(found, jobs.kinds(found.kinds))


@asks_server
def kind_show(session: Session, name: KindArgument) -> None:
    """Show a job kind."""
    from roost.cli.show import jobs

    found = session.client.get_job_kind(name)
    session.show(found, jobs.kind(found))


@asks_server
def kind_create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new kind.")],
    command: CommandArgument = None,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Container image to run it in.")
    ] = None,
    registry_account: RegistryOption = None,
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSON schema of the parameters of its jobs."),
    ] = None,
    project: ProjectOption = None,
    cpu: CpuOption = None,
    memory: MemoryOption = None,
    disk: DiskOption = None,
    env: EnvOption = None,
    parameter: ParameterOption = None,
    input_file: InputsOption = None,
    output_file: OutputsOption = None,
    keep_in: KeepInOption = None,
    run_limit: RunLimitOption = None,
    queue_limit: QueueLimitOption = None,
    retries: RetriesOption = None,
    restarts: RestartsOption = None,
    priority: PriorityOption = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="What it does.")] = "",
) -> None:
    """Make a job kind: what is always the same about some jobs."""
    import msgspec

    from roost.cli.show import jobs
    from roost.wire.jobs import CreateJobKind

    fields = spec_fields(
        command, image, cpu, memory, disk, env, parameter, input_file, output_file, keep_in,
        run_limit, queue_limit, retries, restarts, priority, registry_account,
    )  # fmt: skip
    if schema is not None:
        try:
            fields["parameters_schema"] = msgspec.json.decode(schema.read_bytes(), type=dict)
        except (OSError, msgspec.DecodeError) as error:
            raise InvalidRequest(f"{str(schema)!r} is no JSON schema: {error}") from error
    body = CreateJobKind(name=name, project=project, description=description, **fields)
    found = session.client.create_job_kind(body)
    session.show(found, jobs.kind(found))


@asks_server
def fetch(
    session: Session,
    job: JobArgument,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Folder that they are written to.")
    ] = Path(),
) -> None:
    """Fetch the files that a job has kept in the server's own store."""
    from roost.cli.show.screen import show_document, show_text
    from roost.cli.show.steering import unsteered
    from roost.cli.words.fetching import fetch_output

    found = session.client.get_job(job)
    if not found.outputs:
        raise NotFound(f"job {job!r} has kept nothing", job=job)
    read = session.client.jobs.output
    files = [str(fetch_output(read(job, kept.name), kept, to)) for kept in found.outputs]
    if session.form is Output.TABLE:
        show_text(unsteered("\n".join(files)))
    else:
        show_document({"files": files}, session.form)


@asks_server
def kind_delete(session: Session, name: KindsArgument) -> None:
    """Delete job kinds; their jobs stay."""
    delete_each(session, "kind", name, session.client.delete_job_kind)


job = new_group(
    "job",
    "Programs that run on rented machines.",
    {
        "submit": submit,
        "array": array,
        "list": list_,
        "show": show_,
        "wait": wait,
        "logs": logs,
        "fetch": fetch,
        "cancel": cancel,
        "explain": explain,
        "stats": stats,
    },
)
job.add_typer(
    new_group(
        "kind",
        "Kinds of jobs: what is always the same about them.",
        {"list": kind_list, "show": kind_show, "create": kind_create, "delete": kind_delete},
    ),
    name="kind",
)
