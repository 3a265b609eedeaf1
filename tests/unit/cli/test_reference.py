"""docs/reference/cli.md lists every command and option, and nothing else.

Rewrite it with: pytest tests/unit/cli/test_reference.py --rewrite-goldens
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from roost.cli.main import COMMANDS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md"
MARK = "<!-- Below this line the page is written from the commands themselves. -->\n"
#: Options that every command has, or all of those that ask a server; the page tells of them once.
EVERYWHERE = ("--help", "--output", "--server", "--token")


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield a command, or those of a group, with their full names."""
    if hasattr(command, "commands"):
        for below in command.commands:
            # What a group shows in its help stands for what it runs.
            _, each, _ = command.resolve_command(typer.Context(command), [below])
            yield from commands(f"{name} {below}", each)
    else:
        yield f"roost {name}", command


def describe(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    own = [p for p in options if p.opts[0] not in EVERYWHERE]
    words = [p.metavar if p.required else f"[{p.metavar}]" for p in arguments]
    lines = [f"### {' '.join([name, *words])}", "", " ".join(command.help.split()), ""]
    rows = [(f"`{p.metavar}`", p.help or "") for p in arguments]
    rows += [(_spelled(p), f"{p.help or ''}{_default(p)}") for p in own]
    if rows:
        lines += ["| | |", "| --- | --- |"]
        lines += [f"| {left} | {right.replace('|', chr(92) + '|')} |" for left, right in rows]
        lines.append("")
    if not any(p.opts[0] == "--server" for p in options):
        lines += ["Asks no server.", ""]
    return "\n".join(lines)


def _spelled(option: Any) -> str:
    names = ", ".join(option.opts)
    if option.is_flag:
        return f"`{names}`"
    known = getattr(option, "type_descriptor", None) or option.type
    choices = getattr(known, "choices", None) if option.metavar is None else None
    value = option.metavar or (
        "|".join(str(getattr(each, "value", each)) for each in choices) if choices else "N"
    )
    spelled = f"`{names} {value}`".replace("|", "\\|")
    return f"{spelled} (repeatable)" if option.multiple else spelled


def _default(option: Any) -> str:
    if option.is_flag or option.default in (None, "", (), []):
        return ""
    return f" Default: `{str(option.default).replace(str(Path.home()), '~')}`."


def generated() -> str:
    parts: list[str] = []
    panel = ""
    for entry in COMMANDS:
        if entry.panel != panel:
            panel = entry.panel
            parts.append(f"## {panel}\n")
        parts += [describe(*each) for each in commands(entry.name, entry.load())]
    return "\n".join(parts)


def test_the_page_is_what_the_commands_say(pytestconfig: pytest.Config) -> None:
    page = PAGE.read_text(encoding="utf-8")
    head = page.partition(MARK)[0]
    wanted = f"{head}{MARK}\n{generated()}"
    if pytestconfig.getoption("--rewrite-goldens"):
        PAGE.write_text(wanted, encoding="utf-8")
        return
    assert page == wanted, "rewrite it: pytest tests/unit/cli/test_reference.py --rewrite-goldens"
