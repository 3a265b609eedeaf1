"""`roost worker`: options in, `roost.app.workers` runs."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from roost.base.units import parse_bytes, parse_cpu
from roost.cli.running.serve import LogFormat, LogFormatOption, LogLevel, LogLevelOption
from roost.cli.words.options import reports_errors

_DATA = Path.home() / ".local" / "share" / "roost-worker"
_HAS = "What the machine has"


class Cloud(StrEnum):
    """Who tells a machine that it is taken away."""

    NONE = "none"
    AWS = "aws"
    AZURE = "azure"


@reports_errors
def worker(
    machine: Annotated[str, typer.Option(metavar="ID", help="Id of the machine in its pool.")],
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Address of a server, repeatable; else ROOST_SERVER, else the context file.",
        ),
    ] = None,
    join_token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            envvar="ROOST_JOIN_TOKEN",
            help="One-time token of this machine; needed the first time only.",
        ),
    ] = None,
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of its credential and its attempts.")
    ] = _DATA,
    cpu: Annotated[
        str | None,
        typer.Option(
            metavar="CORES", help="Cores for jobs (default: the machine's).", rich_help_panel=_HAS
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for jobs (default: the machine's, less a twentieth).",
            rich_help_panel=_HAS,
        ),
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Disk for jobs (default: what is free below --data).",
            rich_help_panel=_HAS,
        ),
    ] = None,
    cloud: Annotated[
        Cloud,
        typer.Option(
            help="Whose notices to look for that the machine is taken away, besides a file "
            "`notice` below --data."
        ),
    ] = Cloud.NONE,
    container_engine: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="podman or docker, with options of its own (default: the first that answers).",
        ),
    ] = "",
    container_option: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="An option of every `run` of the engine, repeatable."),
    ] = None,
    grace: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", help="How long a job that is ended may take to end itself."
        ),
    ] = 5.0,
    job_user: Annotated[
        str,
        typer.Option(
            metavar="USER",
            envvar="ROOST_JOB_USER",
            help="User under whom jobs run that are no containers (default: the worker's own); "
            "the worker must be root.",
        ),
    ] = "",
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
) -> None:
    """Run the worker of a rented machine.

    It joins with a one-time token, keeps the credential it gets, pulls the jobs that are assigned
    to its machine and runs them. Stopped or killed, it lets them run on; started again it goes on.
    """
    from roost.client.context import read_context

    context = read_context(os.environ, Path.cwd())
    from roost.app.workers import WorkerOptions, run_worker

    run_worker(
        WorkerOptions(
            machine=machine,
            servers=tuple(server or context.servers),
            data=data.resolve(),
            join_token=join_token,
            ca_file=context.ca_file,
            cpu_milli=None if cpu is None else parse_cpu(cpu, "--cpu"),
            memory_bytes=None if memory is None else parse_bytes(memory, "--memory"),
            disk_bytes=None if disk is None else parse_bytes(disk, "--disk"),
            notices="" if cloud is Cloud.NONE else cloud.value,
            container_engine=container_engine,
            container_options=tuple(container_option or ()),
            grace_s=grace,
            job_user=job_user,
            log_format=log_format.value,
            log_level=log_level.value,
        )
    )
