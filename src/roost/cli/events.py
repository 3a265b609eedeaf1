"""`roost events`: what happened, in order, and what happens from now on."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from roost.cli.show.screen import Output, console, show_document, show_line
from roost.cli.words.session import Session, asks_server, document

if TYPE_CHECKING:
    from roost.wire.bodies import EventBody

#: Events that are shown when nobody said since when.
_SOME = 50
_PAGE = 1000


@asks_server
def events(
    session: Session,
    since: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="SEQ", help=f"After this sequence (default: the last {_SOME})."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what happens, until interrupted.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after so many events.")
    ] = None,
) -> None:
    """Show what happened, and what happens."""
    start = max(0, _newest(session) - _SOME) if since is None else since
    try:
        for number, event in enumerate(_events(session, start, follow), 1):
            _show_event(session, event)
            if number == limit:
                return
    except KeyboardInterrupt:
        return  # how following ends


def _newest(session: Session) -> int:
    from roost.cli.watch.following import newest_sequence

    async def ask() -> int:
        async with session.async_client() as client:
            return await newest_sequence(client)

    return asyncio.run(ask())


def _events(session: Session, since: int, follow: bool) -> "Iterator[EventBody]":
    """Yield events; who asks for some that are kept no longer is told, and gets the others."""
    from roost.base.errors import EventsGone

    while True:
        try:
            yield from _kept_events(session, since, follow)
        except EventsGone as gone:
            since = int(str(gone.details["kept_after"]))
            typer.echo(f"roost: {gone.message}; going on behind {since}", err=True)
        else:
            return


def _kept_events(session: Session, since: int, follow: bool) -> "Iterator[EventBody]":
    if follow:
        yield from session.client.events(since, patience_s=None)
    while True:
        page = session.client.list_events(since=since, limit=_PAGE)
        yield from page.events
        if not page.events or page.next <= since:
            return
        since = page.events[-1].seq


def _show_event(session: Session, event: "EventBody") -> None:
    if session.form is Output.TABLE:
        from roost.cli.show import listings

        console().print(listings.event(event), soft_wrap=True)
    elif session.form is Output.YAML:
        show_document(document(event), session.form)
    else:
        show_line(document(event))  # one a line, so that a reader can take them as they come
