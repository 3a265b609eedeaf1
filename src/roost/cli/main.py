"""The command `roost`: every command in one literal table, and errors to exit codes."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from roost import __version__
from roost.base.errors import InvalidRequest
from roost.cli.show.screen import Output, show_error, show_text
from roost.cli.words.loading import Entry, lazy_group, new_app, stand_in

_THINGS = "What there is"
_QUESTIONS = "Questions (of the server, or of a fleet file with --fleet)"
_RUNNING = "Running roost"

COMMANDS = (
    Entry("vm", "roost.cli.vms.vms:vm", _THINGS, "Create, see, change and delete VMs."),
    Entry(
        "host",
        "roost.cli.fleet.hosts:host",
        _THINGS,
        "See hosts, cordon, drain, label and set them.",
    ),
    Entry(
        "group", "roost.cli.vms.groups:group", _THINGS, "Groups of VMs: their rules and members."
    ),
    Entry(
        "flavor", "roost.cli.vms.flavors:flavor", _THINGS, "Flavors: the amounts of VMs, by name."
    ),
    Entry("rule", "roost.cli.steering.rules:rule", _THINGS, "Rules about where VMs may be."),
    Entry(
        "policy",
        "roost.cli.steering.policies:policy",
        _THINGS,
        "Policies: bundles of how VMs are placed.",
    ),
    Entry(
        "priority",
        "roost.cli.steering.priorities:priority",
        _THINGS,
        "Priority classes, and who makes room for whom.",
    ),
    Entry(
        "reservation",
        "roost.cli.steering.reservations:reservation",
        _THINGS,
        "Capacity kept for a project, a user or a purpose.",
    ),
    Entry(
        "plan",
        "roost.cli.fleet.plans:plan",
        _THINGS,
        "Plan moves towards a goal, and carry them out.",
    ),
    Entry(
        "maintenance",
        "roost.cli.fleet.maintenance:maintenance",
        _THINGS,
        "Roll maintenance over hosts, in groups that rules and N+1 allow.",
    ),
    Entry("job", "roost.cli.rented.jobs:job", _THINGS, "Programs that run on rented machines."),
    Entry("pool", "roost.cli.rented.pools:pool", _THINGS, "Machines that are rented for jobs."),
    Entry(
        "account",
        "roost.cli.rented.accounts:account",
        _THINGS,
        "With whose credentials machines are rented.",
    ),
    Entry("project", "roost.cli.access.projects:project", _THINGS, "Projects and their quotas."),
    Entry(
        "topology",
        "roost.cli.fleet.topology:topology",
        _THINGS,
        "The network between hosts: links, paths, a picture.",
    ),
    Entry(
        "token", "roost.cli.access.tokens:token", _THINGS, "Tokens for people, programs and agents."
    ),
    Entry(
        "events", "roost.cli.fleet.events:events", _THINGS, "Show what happened, and what happens."
    ),
    Entry(
        "apply",
        "roost.cli.fleet.applying:apply",
        _THINGS,
        "Bring projects, quotas, flavors, hosts, groups and VMs to what files say.",
    ),
    Entry(
        "diff",
        "roost.cli.fleet.applying:diff",
        _THINGS,
        "Say what `roost apply` would do, and do nothing; ends with 1 if that is something.",
    ),
    Entry(
        "place",
        "roost.cli.questions.place:place",
        _QUESTIONS,
        "Find a host for a VM, or say why there is none.",
    ),
    Entry(
        "explain",
        "roost.cli.questions.explain:explain",
        _QUESTIONS,
        "Say why a VM fits on some hosts or on none.",
    ),
    Entry(
        "capacity",
        "roost.cli.questions.capacity:capacity",
        _QUESTIONS,
        "Count how many more such VMs the fleet takes.",
    ),
    Entry(
        "info",
        "roost.cli.questions.info:info",
        _QUESTIONS,
        "Show what the scheduler knows of one host.",
    ),
    Entry(
        "strategies",
        "roost.cli.questions.strategies:strategies",
        _QUESTIONS,
        "List the strategies and how each one chooses.",
    ),
    Entry(
        "replay",
        "roost.cli.questions.replay:replay",
        _QUESTIONS,
        "Take a recorded decision again and compare.",
    ),
    Entry(
        "analyze",
        "roost.cli.questions.analyze:analyze",
        _QUESTIONS,
        "What VMs and hosts use over time.",
    ),
    Entry(
        "recommend",
        "roost.cli.fleet.plans:recommend",
        _QUESTIONS,
        "Say what is wrong with the fleet now, and what one plan would do about each of it.",
    ),
    Entry(
        "help",
        "roost.cli.topics:help_",
        _RUNNING,
        "Explain a topic or a command; alone, list the topics.",
    ),
    Entry("serve", "roost.cli.running.serve:serve", _RUNNING, "Run the control plane."),
    Entry("agent", "roost.cli.running.agent:agent", _RUNNING, "Run the agent of a host."),
    Entry(
        "worker", "roost.cli.running.worker:worker", _RUNNING, "Run the worker of a rented machine."
    ),
    Entry(
        "doctor",
        "roost.cli.running.doctor:doctor",
        _RUNNING,
        "Check that the server is well and that its database holds what it must.",
    ),
    Entry(
        "context",
        "roost.cli.access.contexts:context",
        _RUNNING,
        "Which control planes commands ask, and as whom.",
    ),
    Entry("key", "roost.cli.running.key:key", _RUNNING, "The key of the database's secrets."),
    Entry(
        "backup",
        "roost.cli.running.backups:backup",
        _RUNNING,
        "Write a copy of the database to a file, while servers run or not.",
    ),
    Entry(
        "restore",
        "roost.cli.running.backups:restore",
        _RUNNING,
        "Put a copy of the database back. Stop every server first.",
    ),
    Entry(
        "ledger", "roost.cli.running.ledger:ledger", _RUNNING, "Finish an upgrade of the database."
    ),
    Entry(
        "warm",
        "roost.cli.running.warm:warm",
        _RUNNING,
        "Compile the kernels now, so that no later start waits for them.",
    ),
    Entry(
        "sim",
        "roost.cli.running.sim:sim",
        _RUNNING,
        "Run the control plane and agents through simulated faults.",
    ),
    Entry(
        "kube",
        "roost.cli.kube.commands:kube",
        _RUNNING,
        "VMs as pods on Kubernetes, real or local.",
    ),
    Entry(
        "demo",
        "roost.cli.demo.demo:demo",
        _RUNNING,
        "Run a control plane with 20 virtual hosts, and show what it does.",
    ),
)

app = new_app(
    "roost",
    cls=lazy_group(COMMANDS),
    help="roost finds every VM its place, and says why.",
    add_completion=True,
)
for _entry in COMMANDS:
    app.command(_entry.name, help=_entry.help, rich_help_panel=_entry.panel)(stand_in)


def _print_version(asked: bool) -> None:
    if asked:
        show_text(f"roost {__version__}")
        raise typer.Exit


@app.callback()
def _roost(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options that stand before the command."""


def asked_output(arguments: Sequence[str]) -> Output:
    """Return the output that was asked for, even in a command line that cannot be read."""
    joined = " ".join(arguments).replace("--output", "-o").replace("=", " ") + " "
    for form in (Output.JSON, Output.YAML):
        if f"-o {form} " in joined or f"-o{form} " in joined:
            return form
    return Output.TABLE


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        # Bare `roost` is a question, not a mistake.
        asked = list(arguments) or ["--help"]
        code = app(args=asked, prog_name="roost", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "roost"
        mistake = InvalidRequest(error.format_message(), hint=f"Maybe {command} --help tells more.")
        show_error(mistake, asked_output(arguments))
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else 0


def main() -> None:
    """Run the command line of this process."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read us has seen enough (| head); Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code)


if __name__ == "__main__":
    main()
