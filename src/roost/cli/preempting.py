"""`roost vm preempt`: let VMs of lower priority make room for one that waits."""

from typing import Annotated

import typer

from roost.cli.words.nouns import ProjectOption, VMArgument
from roost.cli.words.session import Session, asks_server


@asks_server
def preempt(
    session: Session,
    vm: VMArgument,
    project: ProjectOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: say who would make room.")
    ] = False,
) -> None:
    """Let VMs of lower priority make room for one that waits, as its priority class allows."""
    from roost.cli.show import priorities

    if dry_run:
        found = session.client.get_preemption(vm, project=project)
    else:
        found = session.client.preempt_for_vm(vm, project=project)
    session.show(found, priorities.answer(found))


@asks_server
def list_preemptions(session: Session) -> None:
    """List preemptions under way: for whom room is made, where and by whom."""
    from roost.cli.show import priorities

    found = session.client.list_preemptions(limit=1000)
    session.show(found, priorities.under_way(found.preemptions))
