"""Commands that are imported when they are asked for: help reads a table, and only one runs."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from roost.cli.show.screen import show

SETTINGS = {"help_option_names": ["-h", "--help"]}


class Entry(NamedTuple):
    """A command: its name, where its function or group is, and what help says of it."""

    name: str
    where: str  # as `load` takes it
    panel: str
    help: str

    def load(self) -> Any:
        """Import the command and return it as the parser wants it."""
        found = load(self.where)
        if not isinstance(found, typer.Typer):
            single = new_app(self.name)
            single.command(self.name)(found)
            found = single
        return get_command(found)


def load(where: str) -> Any:
    """Import what stands at a place, given as module:attribute."""
    module, _, attribute = where.partition(":")
    return getattr(importlib.import_module(module), attribute)


def new_app(name: str, **more: Any) -> typer.Typer:
    """Return an empty group of commands in the house manner."""
    return typer.Typer(
        name=name,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        add_completion=more.pop("add_completion", False),
        context_settings=SETTINGS,
        **more,
    )


def new_group(name: str, about: str, commands: dict[str, Callable[..., None]]) -> typer.Typer:
    """Return a group with these commands; alone, its name prints its help."""
    group = new_app(name, help=about, invoke_without_command=True)
    group.callback()(show_help_when_bare)
    for command, function in commands.items():
        group.command(command)(function)
    return group


def show_help_when_bare(ctx: typer.Context) -> None:
    """Print the help of a group that was named alone."""
    if ctx.invoked_subcommand is None:
        # Help with panels prints itself; plain help comes back as text.
        if text := ctx.get_help():
            show(text)
        raise typer.Exit


def lazy_group(entries: tuple[Entry, ...]) -> type[TyperGroup]:
    """Return the kind of group that knows these commands by their entries alone."""
    known = {entry.name: entry for entry in entries}

    class LazyGroup(TyperGroup):
        """Shows stand-ins in help and completion, and runs the real thing."""

        def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
            name, stand_in, rest = super().resolve_command(ctx, args)
            return name, known[name].load() if name in known else stand_in, rest

    return LazyGroup


def stand_in() -> None:
    """Stand for a command that is not loaded."""
