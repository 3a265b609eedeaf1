"""`roost explain`: why this host and not the others, or why none at all."""

from contextlib import suppress
from typing import Annotated

import typer
from msgspec import structs

from roost.base.errors import InvalidRequest
from roost.cli.questions.place import refuse_file_options
from roost.cli.questions.recommend import refuse_described
from roost.cli.words.completing import complete_hosts, complete_vms
from roost.cli.words.opening import fleet_file, open_engine
from roost.cli.words.options import FleetOption, RequestWords, VMsOption, takes_request
from roost.cli.words.session import Session, asks_server

#: Hosts that a table lists when nobody asked for all.
SOME_HOSTS = 20
#: Runners-up that a server is asked for when it explains a VM that does not exist.
_RUNNERS_UP = 10


@asks_server
@takes_request
def explain(
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
    fleet: FleetOption = None,
    vms: VMsOption = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="Speak of this host only.", autocompletion=complete_hosts
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List every host.")] = False,
) -> None:
    """Say why a VM fits on some hosts or on none.

    Counts the reasons, lists the hosts, names the nearest miss and the smallest fix.
    """
    most = None if everything else SOME_HOSTS
    if vm is not None:
        _explain_vm(session, vm, words, host or [], most, fleet)
        return
    path = fleet_file(fleet)
    if path is not None:
        from roost.cli.words import onfile

        onfile.explain(
            open_engine(path, vms), onfile.on_file(words.request()), host or [], most, session.form
        )
        return
    refuse_file_options({"--vms": vms is not None, "--host without a VM": bool(host)})
    _explain_request(session, words)


def _explain_vm(
    session: Session,
    vm: str,
    words: RequestWords,
    hosts: list[str],
    most: int | None,
    fleet: str | None,
) -> None:
    refuse_described(vm, words)
    if fleet is not None:
        raise InvalidRequest(
            f"VM {vm!r} is looked for on a server, not in a fleet file",
            hint="Maybe --cpu and --memory, which describe a VM to a fleet file.",
        )
    show_explanation(session, vm, dict(words.words).get("project"), hosts, most)


def show_explanation(
    session: Session, vm: str, project: str | None, hosts: list[str], most: int | None
) -> None:
    """Show what every host says to a VM of the server."""
    from roost.cli.show import tables
    from roost.cli.show.listings import asked_by
    from roost.cli.show.remedies import Live

    found = session.client.explain_vm(vm, hosts=hosts, project=project)
    if hosts:
        named = [each for each in found.verdicts if each.host in hosts]
        session.show(found, tables.verdicts(named))
        return
    body = session.client.get_vm(vm, project=project)
    session.show(found, tables.explanation(found, asked_by(body), most, Live(body)))


def _explain_request(session: Session, words: RequestWords) -> None:
    """Explain a VM that does not exist: a dry run knows all but the single hosts' verdicts."""
    from roost.cli.show import tables
    from roost.cli.show.remedies import Live
    from roost.cli.words.asking import vm_fields
    from roost.wire.bodies import DryRun, RejectionBody

    request = words.request()
    asked = DryRun(**vm_fields(request), runners_up=_RUNNERS_UP)
    found = session.client.dry_run(asked)
    if isinstance(found, RejectionBody):
        with suppress(InvalidRequest):  # a server of an earlier release does not know the word
            found = session.client.dry_run(structs.replace(asked, moves=True))
    session.show(found, tables.answer(found, request, Live()))
