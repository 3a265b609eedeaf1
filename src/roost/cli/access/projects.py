"""`roost project`: projects, their quotas and what they use of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from roost.cli.watch.lists import lists
from roost.cli.words.each import delete_each, do_each
from roost.cli.words.loading import new_group
from roost.cli.words.nouns import ProjectArgument, ProjectsArgument, WatchOption
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.bodies import ProjectBody, QuotaBody

T = TypeVar("T")

CPUOption = Annotated[
    str | None, typer.Option("--cpu", metavar="CORES", help="Most cores; none lifts the limit.")
]
MemoryOption = Annotated[
    str | None, typer.Option("--memory", metavar="SIZE", help="Most memory (1TiB), or none.")
]
DiskOption = Annotated[
    str | None, typer.Option("--disk", metavar="SIZE", help="Most disk (10TiB), or none.")
]
VMsLimitOption = Annotated[
    str | None, typer.Option("--vms", metavar="N", help="Most VMs, or none.")
]


@lists
def list_(session: Session, watch: WatchOption = False) -> None:
    """List projects with what they use of their quotas."""
    from roost.cli.show import listings
    from roost.cli.watch.following import look

    look(
        session,
        lambda client: client.list_projects(),
        lambda page: listings.projects(page.projects),
        watch,
    )


@asks_server
def show_(session: Session, project: ProjectArgument, watch: WatchOption = False) -> None:
    """Show one project."""
    from roost.cli.show import listings
    from roost.cli.watch.following import look

    look(
        session,
        lambda client: client.get_project(project),
        lambda body: listings.projects([body]),
        watch,
    )


@asks_server
def create(
    session: Session,
    project: ProjectArgument,
    cpu: CPUOption = None,
    memory: MemoryOption = None,
    disk: DiskOption = None,
    vms: VMsLimitOption = None,
) -> None:
    """Create a project; limits that are left out are none."""
    from roost.cli.show import listings
    from roost.wire.bodies import QuotaBody

    quota = _changed(QuotaBody(), cpu, memory, disk, vms)
    found = session.client.create_project(project, quota)
    session.show(found, listings.projects([found]))


@asks_server
def quota(
    session: Session,
    project: ProjectsArgument,
    cpu: CPUOption = None,
    memory: MemoryOption = None,
    disk: DiskOption = None,
    vms: VMsLimitOption = None,
) -> None:
    """Change quotas of projects; limits that are left out stay."""
    from roost.base.units import exact_cpu
    from roost.cli.show import listings
    from roost.wire.bodies import QuotaBody

    def one(name: str) -> "ProjectBody":
        found = session.client.get_project(name)
        if cpu is memory is disk is vms is None:
            return found
        milli = found.cpu_milli.quota
        now = QuotaBody(
            cpu=None if milli is None else exact_cpu(milli),
            memory=found.memory_bytes.quota,
            disk=found.disk_bytes.quota,
            vms=found.vms.quota,
        )
        return session.client.set_quota(name, _changed(now, cpu, memory, disk, vms))

    do_each(session, "project", project, one, lambda found: listings.projects([found]))


def _changed(
    now: "QuotaBody", cpu: str | None, memory: str | None, disk: str | None, vms: str | None
) -> "QuotaBody":
    from roost.base.units import exact_cpu, parse_bytes, parse_count, parse_cpu
    from roost.wire.bodies import QuotaBody

    def limit(given: str | None, kept: T, read: Callable[[str], T]) -> T | None:
        if given is None:
            return kept
        return None if given.lower() == "none" else read(given)

    return QuotaBody(
        cpu=limit(cpu, now.cpu, lambda text: exact_cpu(parse_cpu(text))),
        memory=limit(memory, now.memory, lambda text: parse_bytes(text, "memory")),
        disk=limit(disk, now.disk, lambda text: parse_bytes(text, "disk")),
        vms=limit(vms, now.vms, lambda text: parse_count(text, "vms")),
    )


@asks_server
def delete(session: Session, project: ProjectsArgument) -> None:
    """Delete projects that have no VMs."""
    delete_each(session, "project", project, session.client.delete_project)


project = new_group(
    "project",
    "Projects and their quotas.",
    {"list": list_, "show": show_, "create": create, "quota": quota, "delete": delete},
)
