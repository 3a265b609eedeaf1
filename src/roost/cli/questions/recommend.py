"""`roost vm recommend`: which hosts are best for a VM, and what each of them would gain it."""

from collections.abc import Mapping
from typing import Annotated

import typer

from roost.base.errors import InvalidRequest
from roost.cli.words.completing import complete_vms
from roost.cli.words.lifeoptions import (
    ForOption,
    PolicyOption,
    ReservationOption,
    UntilOption,
    VMLabelOption,
    end_of,
)
from roost.cli.words.options import RequestWords, takes_request
from roost.cli.words.session import Session, asks_server


@asks_server
@takes_request
def recommend(
    session: Session,
    words: RequestWords,
    vm: Annotated[
        str | None,
        typer.Argument(
            metavar="VM",
            help="A VM of the server, by name or id; else describe one with options.",
            autocompletion=complete_vms,
        ),
    ] = None,
    most: Annotated[int, typer.Option(min=1, max=16, help="Rank so many hosts.")] = 5,
    vm_label: VMLabelOption = None,
    policy: PolicyOption = None,
    until: UntilOption = None,
    lives: ForOption = None,
    reservation: ReservationOption = None,
) -> None:
    """Rank the hosts for a VM: where it would go, and what every rule says.

    A VM that exists is judged as if it were nowhere; the host that it has stands among the others.
    """
    from roost.cli.show import recommendations
    from roost.cli.words.asking import read_labels
    from roost.cli.words.sized import sized, vm_said
    from roost.wire.bodies import CreateVM
    from roost.wire.recommendations import AskRecommendations

    if vm is None:
        words = sized(session, words)
        new = CreateVM(
            **vm_said(words, words.request()),
            labels=read_labels(vm_label or [], "--vm-label"),
            policy=policy,
            until=end_of(until, lives),
            reservation=reservation,
        )
        asked = AskRecommendations(new=new, most=most)
    else:
        more = {"vm-label": vm_label, "policy": policy, "until": until, "for": lives}
        refuse_described(vm, words, more | {"reservation": reservation})
        asked = AskRecommendations(vm=vm, project=dict(words.words).get("project"), most=most)
    found = session.client.recommend(asked)
    session.show(found, recommendations.ranking(found))


def refuse_described(
    vm: str, words: RequestWords, more: Mapping[str, object] | None = None
) -> None:
    """Refuse amounts and rules typed beside the name of a VM, which has its own."""
    others = [word for word, _ in words.words if word != "project"]
    others += ["flavor"] if words.flavor else []
    others += [option for option, value in (more or {}).items() if value]
    if others:
        raise InvalidRequest(
            f"VM {vm!r} exists and has its own amounts and rules; --{others[0]} describes another",
            hint="Maybe leave the VM's name out.",
        )
