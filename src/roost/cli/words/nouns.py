"""Arguments and options that the commands of all nouns share."""

from typing import Annotated

import typer

from roost.cli.words.completing import complete_hosts, complete_projects, complete_vms
from roost.cli.words.options import OWN_PROJECT

VMArgument = Annotated[
    str, typer.Argument(metavar="VM", help="Name or id of the VM.", autocompletion=complete_vms)
]
SomeVMsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="VM...", help="Names or ids of VMs; or --selector.", autocompletion=complete_vms
    ),
]
HostsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="HOST...", help="Names of hosts; or --selector.", autocompletion=complete_hosts
    ),
]
HostArgument = Annotated[
    str, typer.Argument(metavar="HOST", help="Name of the host.", autocompletion=complete_hosts)
]
ProjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROJECT", help="Name of the project.", autocompletion=complete_projects
    ),
]
ProjectsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="PROJECT...", help="Names of projects.", autocompletion=complete_projects
    ),
]
ProjectOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Project in which a VM's name is looked up; else ROOST_PROJECT, else the context's, "
        "else your own.",
        autocompletion=complete_projects,
    ),
    OWN_PROJECT,
]
#: Of lists: of one project, by default that of the context.
ListedProject = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        help="Only of this project; else ROOST_PROJECT, else the context's; '' is of all.",
        autocompletion=complete_projects,
    ),
    OWN_PROJECT,
]
#: States of a VM, as lists take them.
VM_STATES = (
    "pending", "starting", "running", "pausing", "paused", "stopping", "stopped", "migrating",
    "failed", "unknown", "deleting",
)  # fmt: skip
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Show it again whenever something happens.")
]
SortOption = Annotated[
    str,
    typer.Option(
        "--sort", metavar="COLUMN", help="By this column; -COLUMN is the other way round."
    ),
]
HeadersOption = Annotated[bool, typer.Option("--no-headers", help="Without the line of names.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long --wait waits.")
]
