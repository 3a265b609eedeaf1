"""`roost vm preempt`: let VMs of lower priority make room for one that waits."""

from typing import TYPE_CHECKING, Annotated

import typer

from roost.cli.words.each import do_each
from roost.cli.words.nouns import ProjectOption, SomeVMsArgument
from roost.cli.words.selecting import SelectorOption, named_vms
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from rich.console import RenderableType

    from roost.wire.bodies import PreemptionBody
    from roost.wire.priorities import PreemptionAnswer

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
    now = ""  # the VM of which an answer is shown, which does not name it

    def one(name: str) -> "PreemptionAnswer":
        nonlocal now
        now = name
        return ask(name, project=project)

    def said(found: "PreemptionAnswer") -> "RenderableType":
        return priorities.answer(found, now if len(chosen) > 1 else "")

    do_each(session, "vm", chosen, one, said)


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
