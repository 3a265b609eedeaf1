"""Names for the shell to complete, asked from the server that the context names.

A shell waits while it completes: a server that is away or slow gives no names, and no error.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roost.base.errors import RoostError

if TYPE_CHECKING:
    from roost.client import Client

_TIMEOUT_S = 1.0
#: Names that a shell is given.
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


def _some(names: Iterable[str], incomplete: str) -> list[str]:
    """Return those of many names that begin so: as many as a shell can show, for a second."""
    until = time.monotonic() + _TIMEOUT_S
    found: dict[str, None] = {}
    for name in names:
        if name.startswith(incomplete):
            found[name] = None
        if len(found) >= _MOST or time.monotonic() > until:
            break
    return list(found)


def complete_vms(incomplete: str) -> list[str]:
    """Return the names of VMs that begin so."""
    return completed(
        lambda client: _some((vm.name for vm in client.all_vms()), incomplete),
        incomplete,
    )


def complete_hosts(incomplete: str) -> list[str]:
    """Return the names of hosts that begin so."""
    return completed(
        lambda client: _some((host.name for host in client.all_hosts()), incomplete), incomplete
    )


def complete_zones(incomplete: str) -> list[str]:
    """Return the zones of hosts that begin so."""
    return completed(
        lambda client: _some((host.zone for host in client.all_hosts() if host.zone), incomplete),
        incomplete,
    )


def complete_racks(incomplete: str) -> list[str]:
    """Return the racks of hosts that begin so."""
    return completed(
        lambda client: _some((host.rack for host in client.all_hosts() if host.rack), incomplete),
        incomplete,
    )


def complete_flavors(incomplete: str) -> list[str]:
    """Return the names of flavors that begin so."""
    return completed(
        lambda client: [each.name for each in client.list_flavors().flavors], incomplete
    )


def complete_classes(incomplete: str) -> list[str]:
    """Return the names of priority classes that begin so."""
    return completed(
        lambda client: [each.name for each in client.list_priority_classes().classes], incomplete
    )


def complete_accounts(incomplete: str) -> list[str]:
    """Return the names of accounts that begin so."""
    return completed(
        lambda client: [each.name for each in client.list_accounts().accounts], incomplete
    )


def complete_tokens(incomplete: str) -> list[str]:
    """Return the ids of tokens that begin so."""
    return completed(lambda client: [each.id for each in client.list_tokens().tokens], incomplete)


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
