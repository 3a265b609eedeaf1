"""Files of a job written to a folder: whole, compared with their digest, and nowhere else."""

import os
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path, PurePosixPath

from roost.base.errors import Conflict, InvalidRequest
from roost.wire.jobs import KeptOutput


def fetch_output(pieces: Iterable[bytes], kept: KeptOutput, folder: Path) -> Path:
    """Write an output below a folder by its name, over one that is there; return where."""
    name = PurePosixPath(kept.name)
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise InvalidRequest(f"{kept.name!r} is no name of a file below a folder", name=kept.name)
    to = folder / name
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        # Under a name that no output has: a job may well keep both `b` and `b.part`.
        opened, beside_name = tempfile.mkstemp(prefix=".roost-", dir=to.parent)
    except OSError as error:
        raise _unwritten(to, error) from error
    beside, found = Path(beside_name), sha256()
    try:
        try:
            with os.fdopen(opened, "wb") as file:
                for piece in pieces:
                    found.update(piece)
                    file.write(piece)
                os.fchmod(file.fileno(), 0o666 & ~_umask())
        except OSError as error:
            raise _unwritten(to, error) from error
        digest = f"sha256:{found.hexdigest()}"
        if kept.digest and digest != kept.digest:
            raise Conflict(
                f"{kept.name!r} is not what the job has left: it has {digest}, not {kept.digest}",
                hint="Maybe try again, or run the job again.",
                name=kept.name,
            )
        try:
            beside.replace(to)
        except OSError as error:
            raise _unwritten(to, error) from error
    finally:
        beside.unlink(missing_ok=True)
    return to


def _unwritten(to: Path, error: OSError) -> InvalidRequest:
    return InvalidRequest(f"cannot write {str(to)!r}: {error.strerror or error}")


def _umask() -> int:
    """Return what this process takes from modes of its files; to be read it must be set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
