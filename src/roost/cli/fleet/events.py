"""`roost events`: what happened, in order, and what happens from now on."""

import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roost.base.errors import InvalidRequest, NotFound
from roost.base.timestamps import read_timestamp, timestamp
from roost.cli.show.screen import Output, console, note, show_document, show_line
from roost.cli.words.completing import complete_hosts, complete_vms
from roost.cli.words.durations import read_duration
from roost.cli.words.nouns import ProjectOption
from roost.cli.words.session import Session, asks_server, document

if TYPE_CHECKING:
    from roost.wire.bodies import EventBody

#: Events that are shown when nobody said since when.
_SOME = 50
_PAGE = 1000
_WHICH = "Which"


@asks_server
def events(
    session: Session,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="SEQ|LENGTH|TIME",
            help=f"After this sequence, for so long (1h, 7d), or from this time on (default: the "
            f"last {_SOME}).",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="LENGTH|TIME", help="Before this time, or so long ago."),
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="The newest so many.")
    ] = None,
    vm: Annotated[
        str,
        typer.Option(
            metavar="VM",
            help="About this VM; one that is gone, by its id.",
            rich_help_panel=_WHICH,
            autocompletion=complete_vms,
        ),
    ] = "",
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="About this host itself.",
            rich_help_panel=_WHICH,
            autocompletion=complete_hosts,
        ),
    ] = "",
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Of this kind (vm.created); 'vm.*' is of all that begin so.",
            rich_help_panel=_WHICH,
        ),
    ] = "",
    text: Annotated[
        str,
        typer.Option(
            "--text",
            metavar="TEXT",
            help="With this in note, subject, actor or kind.",
            rich_help_panel=_WHICH,
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what happens, until interrupted.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after so many events.")
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Show what happened, and what happens."""
    which: dict[str, Any] = {"vm": vm, "host": host, "kind": kind, "text": text}
    which = {name: value for name, value in which.items() if value}
    if vm and project:
        which["project"] = project
    start, from_time = _begin(since)
    if from_time is not None:
        which["since_time"] = from_time
    if until is not None:
        which["until_time"] = _moment(until, "--until")
    if follow and (text or until is not None):
        raise InvalidRequest(
            "--follow goes by --vm, --host and --kind, not by --text or --until",
            hint="Maybe roost events --follow | grep ...",
        )
    if last is None and since is None:
        last = _SOME
    try:
        number = 0
        for number, event in enumerate(_events(session, start, last, follow, which), 1):
            _show_event(session, event)
            if number == limit:
                return
        if not number and session.form is Output.TABLE:
            note("no event matches" if which else "no events")
    except KeyboardInterrupt:
        return  # how following ends


def _begin(since: str | None) -> tuple[int, str | None]:
    """Return the sequence and the moment after which events are shown."""
    if since is None:
        return 0, None
    if since.isascii() and since.isdigit() and len(since) < 16:
        return int(since), None
    return 0, _moment(since, "--since")


def _moment(text: str, option: str) -> str:
    """Return a moment: as it is typed, or so long ago."""
    if re.fullmatch(r"\s*[0-9]{1,9}\s*[smhd]\s*", text):
        return timestamp(round(1000 * (time.time() - read_duration(text))))
    try:
        return timestamp(read_timestamp(text, option))
    except InvalidRequest as error:
        raise InvalidRequest(
            f"{option} {text!r} is neither a length of time nor a moment",
            hint=f"Maybe {option} 1h, or {option} 2026-11-20T08:00:00Z?",
        ) from error


def _events(
    session: Session, since: int, last: int | None, follow: bool, which: dict[str, Any]
) -> "Iterator[EventBody]":
    """Yield events; who asks for some that are kept no longer is told, and gets the others."""
    from roost.base.errors import EventsGone

    while True:
        try:
            yield from _kept_events(session, since, last, follow, which)
        except EventsGone as gone:
            since = int(str(gone.details["kept_after"]))
            typer.echo(f"roost: {gone.message}; going on behind {since}", err=True)
        else:
            return


def _kept_events(
    session: Session, since: int, last: int | None, follow: bool, which: dict[str, Any]
) -> "Iterator[EventBody]":
    is_wanted = _chooser(session, which) if follow else None
    if last is not None:
        page = session.client.list_events(since=since or None, last=last, **which)
        yield from page.events
        since = page.next
    elif not follow or which:
        full = True
        while full:  # only the last page is not
            page = session.client.list_events(since=since, limit=_PAGE, **which)
            yield from page.events
            full, since = len(page.events) >= _PAGE, page.next
    if is_wanted is not None:
        yield from filter(is_wanted, session.client.events(since, patience_s=None))


def _chooser(session: Session, which: dict[str, Any]) -> "Callable[[EventBody], bool]":
    """Return what chooses from a stream as the server does from what it keeps.

    A stream tells of all events. A VM is the one that has the name now, whatever it is named later.
    """
    subject = f"host/{which['host']}" if "host" in which else None
    if "vm" in which:
        subject = f"vm/{_vm_id(session, which['vm'], which.get('project'))}"
    kind = which.get("kind", "")
    begins = kind.rstrip("*") if kind.endswith("*") else None

    def is_wanted(event: "EventBody") -> bool:
        if subject is not None and event.subject != subject:
            return False
        return event.kind.startswith(begins) if begins is not None else kind in ("", event.kind)

    return is_wanted


def _vm_id(session: Session, ref: str, project: str | None) -> str:
    try:
        return session.client.get_vm(ref, project=project).id
    except NotFound:
        if ref.startswith("vm-"):
            return ref  # one that is gone; what is no id either, the server refuses
        raise


def _show_event(session: Session, event: "EventBody") -> None:
    if session.form is Output.TABLE:
        from roost.cli.show import listings

        console().print(listings.event(event), soft_wrap=True)
    elif session.form is Output.YAML:
        show_document(document(event), session.form)
    else:
        show_line(document(event))  # one a line, so that a reader can take them as they come
