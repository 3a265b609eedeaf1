"""What a copy of a ledger holds: counted by plain SQL, so that any schema is read as it is.

`backups` shows it to a person; `filecopies` asks SQLite and `dumps` PostgreSQL.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

SCHEMA = "SELECT version_num FROM alembic_version"
_COUNTED = {
    "schema": SCHEMA,
    "hosts": "SELECT count(*) FROM hosts",
    "vms": "SELECT count(*) FROM vms",
    "last_event": "SELECT coalesce(max(seq), 0) FROM events",
}
_KEY = "SELECT fingerprint FROM sealing_keys"


@dataclass(frozen=True, slots=True)
class Held:
    """What a copy, or a ledger that was put back, holds."""

    database: str
    file: str
    size_bytes: int
    schema: str
    hosts: int
    vms: int
    last_event: int
    key: str | None  # fingerprint of the key that seals its secrets
    key_is_here: bool = True
    kept: str | None = None  # where the file lies that was in its place


def questions(tables: Collection[str]) -> dict[str, str]:
    """Return what to ask a ledger that has these tables; before schema 0007 it had no keys."""
    return _COUNTED | ({"key": _KEY} if "sealing_keys" in tables else {})


def held_of(answers: Mapping[str, object]) -> Held:
    """Return what a ledger holds that has answered each question with one value, or None."""
    key = answers.get("key")
    return Held(
        database="",
        file="",
        size_bytes=0,
        schema=str(answers["schema"]),
        hosts=int(str(answers["hosts"])),
        vms=int(str(answers["vms"])),
        last_event=int(str(answers["last_event"])),
        key=None if key is None else str(key),
    )
