"""`roost vm preempt`: let VMs of lower priority make room for one that waits."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from roost.cli.words.each import do_each
from roost.cli.words.nouns import ProjectOption, SomeVMsArgument
from roost.cli.words.selecting import SelectorOption, named_vms
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.bodies import PreemptionBody

#: How many preemptions a command asks for at once.
_PAGE = 1000


@asks_server
def preempt(
    session: Session,
    vm: SomeVMsArgument = None,
    selector: SelectorOption = None,
    project: ProjectOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: say who would make room.")
    ] = False,
) -> None:
    """Let VMs of lower priority make room for VMs that wait, as their priority class allows."""
    from roost.cli.show import priorities

    chosen = named_vms(session, vm, selector, project)
    ask = session.client.get_preemption if dry_run else session.client.preempt_for_vm
    do_each(session, "vm", chosen, partial(ask, project=project), priorities.answer)


@asks_server
def list_preemptions(session: Session) -> None:
    """List preemptions under way: for whom room is made, where and by whom."""
    from roost.cli.show import priorities
    from roost.wire.priorities import PreemptionPage

    found: list[PreemptionBody] = []
    after: str | None = None
    while True:
        page: PreemptionPage = session.client.list_preemptions(limit=_PAGE, after=after)
        found += page.preemptions
        after = page.next
        if after is None:
            break
    session.show(PreemptionPage(preemptions=found), priorities.under_way(found))
