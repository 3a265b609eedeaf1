"""The same for each of several things, with what became of each.

One that fails does not keep the others from being done, and is told beside them. The command's exit
code is that of the first failure.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.text import Text

from roost.base.errors import RoostError, Unauthorized, Unavailable
from roost.cli.show.screen import Output, console, show, show_document
from roost.cli.words.session import Session, document

if TYPE_CHECKING:
    from msgspec import Struct

T = TypeVar("T", bound="Struct")


def do_each(
    session: Session,
    noun: str,
    names: Sequence[str],
    act: Callable[[str], T],
    say: Callable[[T], str],
) -> None:
    """Run a command for each of several VMs or hosts, and show its state then, or why it failed."""
    done: list[T] = []
    failed: list[tuple[str, RoostError]] = []
    for name in names:
        try:
            done.append(act(name))
        except (Unavailable, Unauthorized) as error:
            if len(names) == 1:
                raise
            failed.append((name, error))
            break  # the others would fail as well
        except RoostError as error:
            if len(names) == 1:
                raise  # with all its reasons
            failed.append((name, error))
            continue
        if session.form is Output.TABLE:
            show(Text(say(done[-1])))
    left = names[len(done) + len(failed) :]
    if session.form is not Output.TABLE:
        _show_documents(session, noun, done, failed, left)
    else:
        for name, why in failed:
            target = console(stderr=True)
            target.print(Text(f"{name}: {why.message}", style="red"), soft_wrap=True)
        if failed:
            said = f"{len(done)} of {len(names)} done, {len(failed)} failed"
            said += f", {len(left)} not tried" if left else ""
            console(stderr=True).print(Text(said, style="yellow"))
    if failed:
        raise typer.Exit(failed[0][1].exit_code)


def _show_documents(
    session: Session,
    noun: str,
    done: "Sequence[Struct]",
    failed: Sequence[tuple[str, RoostError]],
    left: Sequence[str],
) -> None:
    listed = [document(body) for body in done]
    if len(listed) == 1 and not failed:
        show_document(listed[0], session.form)
        return
    whole: dict[str, object] = {f"{noun}s": listed}
    if failed:
        whole["failed"] = [{noun: name} | error.as_json() for name, error in failed]
        whole["not_tried"] = list(left)
    show_document(whole, session.form)
