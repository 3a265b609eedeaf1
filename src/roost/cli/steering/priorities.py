"""`roost priority`: priority classes, which order VMs and say who displaces whom."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.cli.steering.preempting import list_preemptions
from roost.cli.watch.lists import lists
from roost.cli.words.completing import complete_classes
from roost.cli.words.each import delete_each
from roost.cli.words.loading import new_group
from roost.cli.words.making import DescriptionOption, KeyOption
from roost.cli.words.session import Session, asks_server

if TYPE_CHECKING:
    from roost.wire.priorities import PriorityClassBody

ClassArgument = Annotated[
    str,
    typer.Argument(
        metavar="CLASS", help="Name of the priority class.", autocompletion=complete_classes
    ),
]
ClassesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CLASS...", help="Names of priority classes.", autocompletion=complete_classes
    ),
]
PreemptsOption = Annotated[
    bool | None,
    typer.Option(
        "--preempts-lower/--never-preempts",
        help="Whether its VMs displace those of lower priority when there is no room.",
    ),
]
DefaultOption = Annotated[
    bool | None,
    typer.Option("--default/--not-default", help="Whether VMs that name no class have it."),
]


@lists
def list_(session: Session) -> None:
    """List priority classes, the most important first."""
    from roost.cli.show import priorities

    found = session.client.list_priority_classes()
    session.show(found, priorities.listed(found.classes))


@asks_server
def show_(session: Session, priority_class: ClassArgument) -> None:
    """Show a priority class."""
    _show(session, session.client.get_priority_class(priority_class))


@asks_server
def create(
    session: Session,
    priority_class: Annotated[
        str, typer.Argument(metavar="CLASS", help="Name of the new priority class.")
    ],
    value: Annotated[
        int, typer.Argument(metavar="VALUE", help="Priority of its VMs, -1000000 to 1000000.")
    ],
    preempts: PreemptsOption = None,
    default: DefaultOption = None,
    description: DescriptionOption = None,
    key: KeyOption = None,
) -> None:
    """Create a priority class; its value never changes."""
    from roost.wire.priorities import CreatePriorityClass

    given = _given(preempts, default, description)
    body = CreatePriorityClass(name=priority_class, value=value, **given)
    _show(session, session.client.create_priority_class(body, key=key))


@asks_server
def change(
    session: Session,
    priority_class: ClassArgument,
    preempts: PreemptsOption = None,
    default: DefaultOption = None,
    description: DescriptionOption = None,
) -> None:
    """Change a priority class, but for its value; what is not named stays."""
    from roost.wire.priorities import ChangePriorityClass

    body = ChangePriorityClass(**_given(preempts, default, description))
    _show(session, session.client.change_priority_class(priority_class, body))


@asks_server
def delete(
    session: Session,
    priority_class: ClassesArgument,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Also if VMs have it: they keep their priority and displace nobody."
        ),
    ] = False,
) -> None:
    """Delete priority classes."""
    act = partial(session.client.delete_priority_class, force=force)
    delete_each(session, "priority_class", priority_class, act)


def _given(preempts: bool | None, default: bool | None, description: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"default": default, "description": description}
    if preempts is not None:
        found["preempts"] = "lower" if preempts else "never"
    return {name: value for name, value in found.items() if value is not None}


def _show(session: Session, found: "PriorityClassBody") -> None:
    from roost.cli.show import priorities

    session.show(found, priorities.detail(found))


priority = new_group(
    "priority",
    "Priority classes, and who makes room for whom.",
    {
        "list": list_,
        "show": show_,
        "create": create,
        "change": change,
        "delete": delete,
        "preemptions": list_preemptions,
    },
)
