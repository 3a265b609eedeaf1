"""`roost doctor`: is the server there, is it ready, and does its database hold what it must?"""

import typer
from rich.console import RenderableType
from rich.text import Text

from roost.base.errors import InvariantBroken
from roost.cli.words.session import Session, asks_server


@asks_server
def doctor(session: Session) -> None:
    """Check that the server is well and that its database holds what it must."""
    alive, ready = session.client.health(), session.client.readiness()
    found = session.client.doctor()
    parts: list[RenderableType] = [
        _line(True, f"{session.client.server} answers ({alive.status})"),
        _line(ready.status in ("ok", "ready"), f"it is {ready.status} {ready.detail}".rstrip()),
    ]
    broken = {finding.check for finding in found.findings}
    parts += [
        _line(check not in broken, f"{check}: {count} checked")
        for check, count in found.checked.items()
    ]
    parts += [_line(False, f"{each.check}: {each.message}") for each in found.findings]
    parts += [
        Text.assemble(("note ", "yellow"), f"{each.check}: {each.message}") for each in found.notes
    ]
    verdict = "all is well" if found.ok else f"{len(found.findings)} findings; please report them"
    session.show(found, *parts, Text(verdict, style="bold green" if found.ok else "bold red"))
    if not found.ok:
        raise typer.Exit(InvariantBroken.exit_code)


def _line(good: bool, said: str) -> Text:
    return Text.assemble(("ok   ", "green") if good else ("BAD  ", "bold red"), said)
