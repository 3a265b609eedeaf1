"""The same for each of several things, with what became of each.

One that fails does not keep the others from being done, and is told beside them. The command's exit
code is that of the first failure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import typer

from roost.base.errors import RoostError, Unauthorized, Unavailable
from roost.cli.show.screen import Output, console, show, show_document, show_text, styled
from roost.cli.words.session import Session, document

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deleted:
    """What is gone, by its name: the answer to a delete, where a server gives none."""

    deleted: str


def do_each(
    session: Session,
    noun: str,
    names: Sequence[str],
    act: Callable[[str], T],
    say: "Callable[[T], RenderableType]",
    *,
    begun: bool = False,
) -> None:
    """Run a command for each of several things, and show its state then, or why it failed.

    `begun`: all are under way and only watched, so that one which lasts too long ends no other.
    """
    done: list[T] = []
    failed: list[tuple[str, RoostError]] = []
    for name in names:
        try:
            done.append(act(name))
        except (Unavailable, Unauthorized) as error:
            if len(names) == 1:
                raise
            failed.append((name, error))
            if begun and isinstance(error, Unavailable):
                continue
            break  # the others would fail as well
        except RoostError as error:
            if len(names) == 1:
                raise  # with all its reasons
            failed.append((name, error))
            continue
        if session.names and isinstance(known := getattr(done[-1], "name", None), str):
            show_text(known)
        elif session.form is Output.TABLE:
            said = say(done[-1])
            show(styled(said) if isinstance(said, str) else said)
    left = names[len(done) + len(failed) :]
    if session.form is not Output.TABLE:
        _show_documents(session, noun, done, failed, left)
    else:
        for name, why in failed:
            target = console(stderr=True)
            target.print(styled(f"{name}: {why.message}", style="red"), soft_wrap=True)
        if failed:
            summed = f"{len(done)} of {len(names)} done, {len(failed)} failed"
            summed += f", {len(left)} not tried" if left else ""
            console(stderr=True).print(styled(summed, style="yellow"))
    if failed:
        raise typer.Exit(failed[0][1].exit_code)


def _plural(noun: str) -> str:
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def delete_each(
    session: Session,
    noun: str,
    names: Sequence[str],
    delete: Callable[[str], object],
    how: str = "is deleted",
) -> None:
    """Delete each of several things, and say of each that it is gone, or why it is not."""

    def one(name: str) -> Deleted:
        delete(name)
        return Deleted(name)

    do_each(session, noun, names, one, lambda gone: f"{gone.deleted} {how}")


def _show_documents(
    session: Session,
    noun: str,
    done: Sequence[object],
    failed: Sequence[tuple[str, RoostError]],
    left: Sequence[str],
) -> None:
    listed = [document(body) for body in done]
    if len(listed) == 1 and not failed:
        show_document(listed[0], session.form)
        return
    whole: dict[str, object] = {_plural(noun): listed}
    if failed:
        whole["failed"] = [{noun: name} | error.as_json() for name, error in failed]
        whole["not_tried"] = list(left)
    show_document(whole, session.form)
