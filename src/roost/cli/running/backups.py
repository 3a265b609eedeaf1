"""`roost backup` and `roost restore`: copies of the database. Need files and no server."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from roost.app.options import ServeOptions
from roost.base.units import format_bytes
from roost.cli.running.serve import DATA, DatabaseOption, DataOption, KeyFileOption
from roost.cli.show.reporting import reports_errors
from roost.cli.show.screen import Output, note, show, show_document
from roost.cli.words.opening import chosen_output
from roost.cli.words.options import OutputOption

if TYPE_CHECKING:
    from roost.app.backups import Held


@reports_errors
def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="New file to write.")],
    data: DataOption = DATA,
    database: DatabaseOption = None,
    key_file: KeyFileOption = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            metavar="FILE",
            help="New file for the key of its secrets, to be kept elsewhere.",
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Write a copy of the database to a file, while servers run or not.

    Of PostgreSQL it is what pg_dump writes. User data in it is sealed: whoever has the copy and the
    key reads it.
    """
    from roost.app.backups import backup as write
    from roost.app.keys import export_keys
    from roost.app.keys import key_file as found

    form = chosen_output(output)
    options = ServeOptions(data=data, database=database, key_file=key_file)
    if form is Output.TABLE:
        note("copying the database ...")
    held = write(options, target)
    if key is not None:
        export_keys(found(options), key)
    if form is not Output.TABLE:
        show_document(asdict(held), form)
        return
    show(Text(f"wrote {target} ({format_bytes(held.size_bytes)}): {_holds(held)}"))
    if key is not None:
        show(Text(f"wrote its key to {key}; keep the two apart"))


@reports_errors
def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What `roost backup` wrote.")],
    data: DataOption = DATA,
    database: DatabaseOption = None,
    key_file: KeyFileOption = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="Key to take over: what `backup --key` wrote."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Put it in the place of a database that is there; a file is kept beside it.",
        ),
    ] = False,
    output: OutputOption = None,
) -> None:
    """Put a copy of the database back. Stop every server first.

    From then on every VM is in doubt until hosts have said what they have, and no fencing of before
    proves anything: `roost doctor` says what is still open.
    """
    from roost.app.backups import restore as put
    from roost.app.keys import import_keys
    from roost.app.keys import key_file as found

    form = chosen_output(output)
    options = ServeOptions(data=data, database=database, key_file=key_file)
    if form is Output.TABLE:
        note("putting the copy in place ...")
    if key is not None:
        import_keys(found(options), key)
    held = put(options, source, replace=replace)
    if form is not Output.TABLE:
        show_document(asdict(held), form)
        return
    show(Text(f"{held.database} is restored: {_holds(held)}"))
    if held.kept is not None:
        show(Text(f"what was there is kept as {held.kept}"))
    if held.hosts:
        show(
            Text(
                f"{held.vms} VMs are in doubt until {held.hosts} hosts have answered: roost doctor"
            )
        )
    if not held.key_is_here:
        show(
            Text(
                f"its secrets are sealed with key {held.key}, which is not here: a server refuses "
                "to start. Maybe roost key import FILE.",
                style="yellow",
            )
        )


def _holds(held: "Held") -> str:
    return (
        f"{held.hosts} hosts, {held.vms} VMs, up to event {held.last_event}, schema {held.schema}"
    )
