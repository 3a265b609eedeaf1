"""`roost doctor`: is the server there, is it ready, and does its database hold what it must?"""

import typer
from rich.console import RenderableType
from rich.text import Text

from roost.base.errors import InvariantBroken
from roost.cli.words.session import Session, asks_server
from roost.wire.bodies import DoctorBody

#: The exit code when nothing is broken and the fleet needs somebody: the answer is no.
TROUBLE = 1


@asks_server
def doctor(session: Session) -> None:
    """Check that the server is well and that its database holds what it must."""
    alive, ready = session.client.health(), session.client.readiness()
    found = session.client.doctor()
    is_ready = ready.status in ("ok", "ready")
    parts: list[RenderableType] = [
        _line(True, f"{session.client.server} answers ({alive.status})"),
        _line(is_ready, f"it is {ready.status} {ready.detail}".rstrip()),
    ]
    broken = {finding.check for finding in found.findings}
    parts += [
        _line(check not in broken, f"{check}: {count} checked")
        for check, count in found.checked.items()
    ]
    parts += [_line(False, f"{each.check}: {each.message}") for each in found.findings]
    parts += [
        Text.assemble(("LOOK ", "bold yellow"), f"{each.check}: {each.message}")
        for each in found.troubles
    ]
    parts += [
        Text.assemble(("note ", "yellow"), f"{each.check}: {each.message}") for each in found.notes
    ]
    verdict = Text(_verdict(found, is_ready), style=f"bold {_colour(found, is_ready)}")
    session.show(found, *parts, verdict)
    if found.findings:
        raise typer.Exit(InvariantBroken.exit_code)
    if not (found.ok and is_ready):
        raise typer.Exit(TROUBLE)


def _verdict(found: DoctorBody, ready: bool) -> str:
    if found.findings:
        return f"{len(found.findings)} findings; please report them"
    if not ready:
        return "the database is sound; the server is not ready"
    return "all is well" if found.ok else "the database is sound; the fleet needs somebody"


def _colour(found: DoctorBody, ready: bool) -> str:
    return "red" if found.findings else "green" if found.ok and ready else "yellow"


def _line(good: bool, said: str) -> Text:
    return Text.assemble(("ok   ", "green") if good else ("BAD  ", "bold red"), said)
