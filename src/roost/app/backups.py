"""Copies of a ledger, taken while it serves and put back while it does not.

    SQLite       the file, copied by SQLite itself in one read transaction (`filecopies`)
    PostgreSQL   what `pg_dump` writes, in its own format (`dumps`)

A copy is whole or not there: it is written beside its place, looked at, then renamed. A ledger that
is put back says so from the moment that it is there: every VM is in doubt until hosts have said
what they have, and fencing from before the copy proves nothing (ADR-0051). A file that was in the
place of a restored one is kept beside it.
"""

import asyncio
import dataclasses
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from roost.app.filecopies import copy_file, put_file
from roost.app.held import Held
from roost.app.keys import fingerprints
from roost.app.options import KEY_NAME, ServeOptions
from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.base.private import withdraw_process
from roost.parts.sealing import KeyFile

__all__ = ["Held", "backup", "restore"]

_SQLITE, _POSTGRES = b"SQLite format 3\0", b"PGDMP"
_KINDS = {"sqlite": "a SQLite database", "postgres": "a PostgreSQL database"}


def backup(options: ServeOptions, target: Path) -> Held:
    """Write a copy of a ledger to a new file, whether a server uses it or not."""
    withdraw_process()
    if target.exists():
        raise Conflict(f"{str(target)!r} is there already", hint="Maybe name a new file.")
    url = _url(options)
    if url.drivername == "sqlite":
        held = copy_file(Path(url.database or ""), target)
    else:
        from roost.app.dumps import dump  # its driver takes a fifth of a second to import

        held = asyncio.run(dump(url, target))
    return _of(held, options, url, target)


def restore(options: ServeOptions, source: Path, *, replace: bool) -> Held:
    """Put a copy in the place of a ledger that no server uses, and put every VM in doubt."""
    withdraw_process()
    kind, url = _kind(source), _url(options)
    if (kind == "sqlite") != (url.drivername == "sqlite"):
        raise InvalidRequest(
            f"{str(source)!r} is a copy of {_KINDS[kind]}, and {_shown(url)} is none",
            hint="Maybe name the database with --database URL.",
        )
    note, kept = f"restored from {source.name}", None
    if kind == "sqlite":
        held, kept = put_file(source, Path(url.database or ""), note, replace=replace)
    else:
        from roost.app.dumps import put_dump

        held = asyncio.run(put_dump(source, url, note, replace=replace))
    return _of(held, options, url, source, kept)


def _kind(source: Path) -> str:
    try:
        with source.open("rb") as file:
            begins = file.read(len(_SQLITE))
    except OSError as error:
        raise NotFound(f"cannot read {str(source)!r}: {error.strerror}", file=str(source)) from None
    if begins == _SQLITE:
        return "sqlite"
    if begins.startswith(_POSTGRES):
        return "postgres"
    raise InvalidRequest(
        f"{str(source)!r} is no copy of a ledger",
        hint="Maybe name what `roost backup` wrote, a SQLite file or a pg_dump --format=custom.",
        file=str(source),
    )


def _has_key(options: ServeOptions, key: str | None) -> bool:
    """Say whether the key that a ledger is sealed with lies here."""
    if key is None:
        return True
    file = KeyFile(options.key_file or options.data / KEY_NAME)
    try:
        return key in fingerprints(file)
    except (InvalidRequest, NotFound):
        return False


def _url(options: ServeOptions) -> URL:
    """Return the URL of a ledger; a password is in its own place, where it is never shown."""
    try:
        found = make_url(options.database or f"sqlite:///{options.data / 'roost.db'}")
    except ArgumentError as error:
        raise InvalidRequest(
            f"{options.database!r} is no database URL",
            hint="Maybe sqlite:///roost.db or postgresql://user@host/roost.",
        ) from error
    asked = found.query.get("password")
    if isinstance(asked, str):
        found = found.difference_update_query(["password"])
        found = found if found.password else found.set(password=asked)
    if "sslpassword" in found.query:
        raise InvalidRequest(
            f"{_shown(found.difference_update_query(['sslpassword']))} has an sslpassword, which "
            "pg_dump takes only where others see it",
            hint="Maybe give it a client key without a password, readable by its owner alone.",
        )
    if found.drivername not in ("sqlite", "postgresql", "postgres"):
        raise InvalidRequest(f"{_shown(found)} names no database that roost knows")
    return found


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=True)


def _of(held: Held, options: ServeOptions, url: URL, file: Path, kept: Path | None = None) -> Held:
    """Return what a copy holds, with where it lies and whether its key is here."""
    return dataclasses.replace(
        held,
        database=_shown(url),
        file=str(file),
        size_bytes=file.stat().st_size,
        key_is_here=_has_key(options, held.key),
        kept=None if kept is None else str(kept),
    )
