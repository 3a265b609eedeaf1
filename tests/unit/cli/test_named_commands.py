"""Whatever roost tells somebody to type is a command of roost, with options that it has.

Every text of the source is looked at, and every page of the documents: hints, refusals, what the
doctor says, help. The real parser has the last word.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from roost.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
#: What an f-string will put there.
_SOME = "some"
#: A command in backticks, or after a word that bids to type it.
_NAMED = re.compile(r"`(?:\./)?roost ([a-z][^`\n]*)`|\bMaybe (?:\./)?roost ([a-z][^`\n.;]*)")
#: What a module has that names one: most name none, and need not be read as a tree.
_MAY_NAME = re.compile(r"`(?:\./)?roost\b|\bMaybe ")
#: Words of a shell that end a command.
_ENDS = ("|", ">", ">>", "2>", "&&", "||", "&", "#", "...", "…", "<")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield every text of a module with its line; what f-strings fill in is one word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = [
                each.value if isinstance(each, ast.Constant) else _SOME for each in node.values
            ]
            yield node.lineno, "".join(map(str, parts))


def named(text: str) -> Iterator[str]:
    """Yield the command lines that a text names, without `roost`."""
    for match in _NAMED.finditer(" ".join(text.split())):
        yield (match[1] or match[2]).strip()


def complaint(line: str) -> str | None:
    """Return what the parser would say against a command line that leaves out what is obvious."""
    try:
        words = shlex.split(line.replace("[", " ").replace("]", " "), comments=True)
    except ValueError:
        words = line.split()
    for end in _ENDS:
        words = words[: words.index(end)] if end in words else words
    entries = {entry.name: entry for entry in COMMANDS}
    if not words or words[0] == _SOME:
        return None
    if words[0] not in entries:
        return None if words[0] == "help" else f"no command {words[0]!r}"
    command: Any = entries[words[0]].load()
    rest = words[1:]
    while hasattr(command, "commands"):
        if not rest or rest[0].startswith("-"):
            return None  # the group itself: its help
        below = command.commands
        several = rest[0].split("|")
        if any(name not in below for name in several):
            return f"no command {rest[0]!r} of {command.name}"
        # What a group shows in its help stands for what it runs.
        command, rest = command.resolve_command(typer.Context(command), several[:1])[1], rest[1:]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    known |= {"--help", "-h"}
    for word in rest:
        option = word.split("=")[0].rstrip(",;:")
        if option.startswith("--") and option != "--" and option not in known:
            return f"{command.name} has no option {option}"
    takes = [each for each in command.params if each.param_type_name == "argument"]
    if not takes and rest and not rest[0].startswith("-") and not known - {"--help", "-h"}:
        return f"{command.name} takes nothing, not {rest[0]!r}"
    return None


def wrong_in(lines: Iterator[tuple[int, str]], where: Path) -> list[str]:
    return [
        f"{where.relative_to(ROOT)}:{number}: `roost {line}`: {said}"
        for number, text in lines
        for line in named(text)
        if (said := complaint(line)) is not None
    ]


def test_every_command_that_the_source_names_is_one() -> None:
    wrong, seen = [], 0
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text()
        lines = list(texts(source)) if _MAY_NAME.search(source) else []
        seen += sum(len(list(named(text))) for _, text in lines)
        wrong += wrong_in(iter(lines), path)
    assert wrong == []
    assert seen > 100  # it has looked


#: A line of a block that somebody is to type, with the lines that go on with it.
_TYPED = re.compile(r"^(?: {4,}|\t)?(?:\$ )?(?:sudo )?(?:\./)?roost ([a-z].*)$", re.MULTILINE)


def typed(page: str) -> Iterator[str]:
    """Yield the command lines of a page's blocks, fenced or indented."""
    text = re.sub(r"\\\n\s*", " ", page)
    fenced = re.findall(r"```(?:sh|bash|console|text)?\n(.*?)```", text, re.DOTALL)
    indented = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    for block in (*fenced, indented):
        yield from (match[1] for match in _TYPED.finditer(block))


def refused(line: str) -> str | None:
    """Return what the real parser says against a whole command line; nothing is run."""
    words = re.sub(r"\$\([^)]*\)", _SOME, line.split(" #")[0])
    words = words.replace("[", "").replace("]", "")  # what may be left out
    if "..." in words or "…" in words:
        return complaint(words)
    try:
        arguments = shlex.split(words, comments=True)
    except ValueError:
        return f"cannot be split: {line}"
    for end in _ENDS:
        arguments = arguments[: arguments.index(end)] if end in arguments else arguments
    entries = {entry.name: entry for entry in COMMANDS}
    if arguments[0] not in entries:
        return f"no command {arguments[0]!r}"
    command: Any = entries[arguments[0]].load()
    rest = arguments[1:]
    context: Any = None
    try:
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            context = typer.Context(command)
            _, command, rest = command.resolve_command(context, rest)
        if hasattr(command, "commands"):
            return None  # a group alone: its help
        command.make_context(command.name, rest, parent=context)
    except typer.TyperException as error:
        said = error.format_message()
        return None if _is_about_this_machine(said) else said
    return None


def _is_about_this_machine(said: str) -> bool:
    return "does not exist" in said or "is not readable" in said


def pages() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for folder in ("docs/how-to", "docs/reference"):
        found += sorted((ROOT / folder).glob("*.md"))
    return found


def test_every_command_that_the_documents_name_is_one() -> None:
    wrong = []
    for page in pages():
        wrong += wrong_in(iter([(0, page.read_text())]), page)
    assert wrong == []


def test_every_command_line_of_the_documents_is_taken_by_the_parser() -> None:
    wrong, seen = [], 0
    for page in pages():
        for line in typed(page.read_text()):
            seen += 1
            if (said := refused(line)) is not None:
                wrong.append(f"{page.relative_to(ROOT)}: `roost {line}`: {said}")
    assert wrong == []
    assert seen > 200  # it has looked


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hosts drain a", "no command 'hosts'"),
        ("host drian a", "no command 'drian' of host"),
        ("host drain a --forever", "drain has no option --forever"),
        ("vm stop|start|restart web --wait", None),
        ("vm create web --cpu 1 | jq .", None),
    ],
    ids=["noun", "verb", "option", "several verbs", "a pipe"],
)
def test_what_is_no_command_is_noticed(line: str, said: str | None) -> None:
    assert complaint(line) == said
