"""Names for the shell to complete, asked from the server that the context names.

A shell waits while it completes: a server that is away or slow gives no names, and no error.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import RoostError

if TYPE_CHECKING:
    from roost.client import Client

_TIMEOUT_S = 1.0
_MOST = 200


def completed(ask: "Callable[[Client], list[str]]", incomplete: str) -> list[str]:
    """Return the names that begin so, asked from the server; none when it is away."""
    from roost.client import Client, Patience, read_context

    try:
        # What is typed before the word that is completed is not known here: the context holds.
        context = read_context(os.environ, Path.cwd())
        with Client(
            context.server,
            context.token,
            ca_file=context.ca_file,
            others=context.others,
            timeout_s=_TIMEOUT_S,
            patience=Patience(0.0, 0.0),
        ) as client:
            return [name for name in ask(client) if name.startswith(incomplete)]
    except RoostError:
        return []


def complete_contexts(incomplete: str) -> list[str]:
    """Return the names of contexts that begin so."""
    from roost.client.context import context_file, load_contexts

    try:
        path = context_file(os.environ, Path.cwd())
        names = [] if path is None else sorted(load_contexts(path).contexts)
    except RoostError:
        return []
    return [name for name in names if name.startswith(incomplete)]


def complete_from(*words: str) -> Callable[[str], list[str]]:
    """Return a completion of words that are known beforehand."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def complete_vms(incomplete: str) -> list[str]:
    """Return the names of VMs that begin so."""
    return completed(
        lambda client: [vm.name for vm in client.list_vms(limit=_MOST).vms], incomplete
    )


def complete_hosts(incomplete: str) -> list[str]:
    """Return the names of hosts that begin so."""
    return completed(
        lambda client: [host.name for host in client.list_hosts(limit=_MOST).hosts], incomplete
    )


def complete_projects(incomplete: str) -> list[str]:
    """Return the names of projects that begin so."""
    return completed(
        lambda client: [each.name for each in client.list_projects().projects], incomplete
    )


def complete_groups(incomplete: str) -> list[str]:
    """Return the names of groups that begin so."""
    return completed(
        lambda client: [group.id for group in client.list_groups(limit=_MOST).groups], incomplete
    )


def complete_rules(incomplete: str) -> list[str]:
    """Return the names of rules that begin so."""
    return completed(
        lambda client: [each.name for each in client.list_constraints(limit=_MOST).constraints],
        incomplete,
    )


def complete_policies(incomplete: str) -> list[str]:
    """Return the names of policies that begin so."""
    return completed(
        lambda client: [each.name for each in client.list_policies(limit=_MOST).policies],
        incomplete,
    )


def complete_reservations(incomplete: str) -> list[str]:
    """Return the names of reservations that begin so."""
    return completed(
        lambda client: [each.name for each in client.list_reservations(limit=_MOST).reservations],
        incomplete,
    )


def complete_strategies(incomplete: str) -> list[str]:
    """Return the names of strategies that begin so."""
    return completed(
        lambda client: [each.name for each in client.strategies().strategies], incomplete
    )


#: The option of lists that shows the things of one project alone.
OnlyProject = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Only of this project.", autocompletion=complete_projects),
]


def complete_plans(incomplete: str) -> list[str]:
    """Return the ids of plans that begin so."""
    return completed(
        lambda client: [each.id for each in client.list_plans(limit=_MOST).plans], incomplete
    )
