"""The keys of a ledger, as an operator handles them: looked at, carried to a replica, changed."""

import asyncio
from pathlib import Path

from roost.app.options import KEY_NAME, ServeOptions
from roost.base.clock import RealClock
from roost.base.errors import Conflict, InvalidRequest
from roost.base.ids import IdSource
from roost.base.private import withdraw_process
from roost.ledger.opening import open_store
from roost.parts.sealedrows import change_key
from roost.parts.sealing import KeyFile


def key_file(options: ServeOptions) -> KeyFile:
    """Return the key file of a control plane with these options."""
    return KeyFile(options.key_file or options.data / KEY_NAME)


def fingerprints(file: KeyFile) -> list[str]:
    """Return which keys a file has, the newest first."""
    found = [key.fingerprint for key in file.load()]
    if not found:
        raise InvalidRequest(
            f"{str(file.path)!r} has no key", hint="Maybe name its folder with --data DIR."
        )
    return found


def export_keys(file: KeyFile, target: Path) -> list[str]:
    """Write all keys to a new file that only its owner can read."""
    withdraw_process()
    found = fingerprints(file)
    if target.exists():
        raise Conflict(f"{str(target)!r} is there already", hint="Maybe name a new file.")
    KeyFile(target).put_first(file.load())
    return found


def import_keys(file: KeyFile, source: Path) -> list[str]:
    """Put the keys of a file before those that a control plane has."""
    withdraw_process()
    found = fingerprints(KeyFile(source))
    file.put_first(KeyFile(source).load())
    return found


def rotate_key(options: ServeOptions, *, old_is_lost: bool) -> tuple[str, int]:
    """Seal a ledger with a new key while no server uses it; return the key, and how many rows."""
    withdraw_process()
    file = key_file(options)
    return asyncio.run(_rotate(options, file, old_is_lost))


async def _rotate(options: ServeOptions, file: KeyFile, old_is_lost: bool) -> tuple[str, int]:
    clock = RealClock()
    database = options.database or f"sqlite:///{options.data / 'roost.db'}"
    store = await open_store(database, clock, IdSource(clock.wall_ms))
    try:
        number = await change_key(store, file, clock.wall_ms(), keep_unread=old_is_lost)
    finally:
        await store.close()
    return file.load()[0].fingerprint, number
