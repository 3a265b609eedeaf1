"""`roost help`: the pages of the documents on the terminal, and the help of any command.

The pages are those of `docs/how-to` and `docs/reference`: of the checkout if this package lies
in one, else as they were installed with it. Without either there are no topics, only commands.
"""

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from roost.base.errors import NotFound
from roost.cli.show.screen import console, show, show_text
from roost.cli.words.options import reports_errors

#: Where pages may be: in a checkout, below the prefix of an install.
PLACES = (
    Path(__file__).resolve().parents[3] / "docs",
    Path(sys.prefix) / "share" / "roost" / "docs",
)
FOLDERS = ("how-to", "reference")


def pages() -> dict[str, Path]:
    """Return every page by its topic; what is to be done comes before what is to be looked up."""
    place = next((each for each in PLACES if (each / FOLDERS[0]).is_dir()), None)
    if place is None:
        return {}
    found: dict[str, Path] = {}
    for folder in FOLDERS:
        for path in sorted((place / folder).glob("*.md")):
            found.setdefault(path.stem, path)
    return found


def complete_topics(incomplete: str) -> list[str]:
    """Return the topics that begin so."""
    return [name for name in pages() if name.startswith(incomplete)]


TopicArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TOPIC | COMMAND...]",
        help="A topic of the list, or a command (vm create).",
        autocompletion=complete_topics,
    ),
]


@reports_errors
def help_(topic: TopicArgument = None) -> None:
    """Explain a topic or a command; alone, list the topics."""
    known = pages()
    if not topic:
        _list(known)
    elif len(topic) == 1 and topic[0] in known:
        _page(known[topic[0]].read_text(encoding="utf-8"))
    else:
        _command(topic, known)


def _list(known: dict[str, Path]) -> None:
    from roost.cli.show.tables import table

    listed = table("topic", "about")
    for name, path in known.items():
        listed.add_row(name, title(path))
    show(listed, "", "roost help TOPIC shows one, roost help COMMAND what a command takes.")


def title(path: Path) -> str:
    """Return the first heading of a page."""
    with path.open(encoding="utf-8") as lines:
        return next((line[2:].strip() for line in lines if line.startswith("# ")), path.stem)


def _page(text: str) -> None:
    """Show a page: drawn on a terminal, as it is written in a pipe."""
    target = console()
    if not target.is_terminal:
        show_text(text)
        return
    from rich.markdown import Markdown

    with target.pager(styles=True):
        target.print(Markdown(text))


def _command(words: list[str], known: dict[str, Path]) -> None:
    from roost.cli.main import COMMANDS, run

    names = [entry.name for entry in COMMANDS]
    if words[0] not in names:
        close = get_close_matches(words[0], [*known, *names], 3)
        hint = f"Maybe {' or '.join(close)}." if close else "Maybe `roost help` lists it."
        raise NotFound(f"no topic or command {' '.join(words)!r}", topic=words[0], hint=hint)
    if code := run([*words, "--help"]):
        raise typer.Exit(code)
