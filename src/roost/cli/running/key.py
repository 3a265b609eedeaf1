"""`roost key`: the key that a ledger's secrets are sealed with. Needs files and no server."""

from pathlib import Path
from typing import Annotated

import typer

from roost.app.options import ServeOptions
from roost.cli.running.serve import DATA, DatabaseOption, DataOption, KeyFileOption
from roost.cli.words.loading import new_group
from roost.cli.words.options import reports_errors


@reports_errors
def show(data: DataOption = DATA, key_file: KeyFileOption = None) -> None:
    """Show the fingerprints of the keys that a control plane has, the newest first."""
    from roost.app.keys import fingerprints
    from roost.app.keys import key_file as found

    for each in fingerprints(found(ServeOptions(data=data, key_file=key_file))):
        typer.echo(each)


@reports_errors
def export(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="New file to write.")],
    data: DataOption = DATA,
    key_file: KeyFileOption = None,
) -> None:
    """Write the keys to a file, for another replica or for where backups are kept.

    Whoever has that file and the database can read its secrets.
    """
    from roost.app.keys import export_keys
    from roost.app.keys import key_file as found

    keys = export_keys(found(ServeOptions(data=data, key_file=key_file)), target)
    typer.echo(f"wrote key {', '.join(keys)} to {target}")


@reports_errors
def import_(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What `roost key export` wrote.")],
    data: DataOption = DATA,
    key_file: KeyFileOption = None,
) -> None:
    """Take over the keys of a file, so that a control plane here opens what others sealed."""
    from roost.app.keys import import_keys
    from roost.app.keys import key_file as found

    file = found(ServeOptions(data=data, key_file=key_file))
    keys = import_keys(file, source)
    typer.echo(f"{file.path} has key {', '.join(keys)}")


@reports_errors
def rotate(
    data: DataOption = DATA,
    database: DatabaseOption = None,
    key_file: KeyFileOption = None,
    old_key_is_lost: Annotated[
        bool,
        typer.Option(
            "--old-key-is-lost",
            help="Go on without the old key; user data that it sealed cannot be read.",
        ),
    ] = False,
) -> None:
    """Make a new key and seal everything with it. Stop every server first.

    Older keys stay in the file, for backups that need them. Hand the file on to other replicas
    before they start.
    """
    from roost.app.keys import rotate_key

    options = ServeOptions(data=data, database=database, key_file=key_file)
    key, number = rotate_key(options, old_is_lost=old_key_is_lost)
    typer.echo(
        f"the ledger is sealed with key {key}; the user data of {number} VMs was sealed anew"
    )


key = new_group(
    "key",
    "The key of the database's secrets.",
    {"show": show, "export": export, "import": import_, "rotate": rotate},
)
