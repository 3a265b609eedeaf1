"""Outputs: files that a job left, written to the store that its pool names.

A file is looked up without following links out of the job's folder: what a job points at is not
what it left. What was looked at is what is read, by a handle: another job of the same user may
have one of a folder in there, and put something else into its place meanwhile. Writing one again
changes nothing, so a worker that was killed in between begins anew.
"""

import errno
import os
import stat
from pathlib import Path
from urllib.parse import quote

from roost.base.nolinks import open_below
from roost.wire.workerlink import OutputKept, OutputOrder
from roost.worker.files import urls
from roost.worker.files.inputs import FilesFailed, place

#: What there is instead of a file: nothing, a file for a folder, a link, a socket.
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)


def keep_outputs(
    work: Path,
    outputs: list[OutputOrder],
    to: str,
    *,
    ended_well: bool,
    owner: int | None = None,
) -> list[OutputKept]:
    """Write every output to the store; what a job that failed did not leave is not missed."""
    kept = []
    for one in outputs:
        path = place(work, one.name, "output_missing")
        try:
            file = open_below(within := work.resolve(), path.relative_to(within).parts)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise FilesFailed("output_failed", f"output {one.name}: {error}") from error
            file = -1
        try:
            found = os.fstat(file) if file >= 0 else None
            if found is None or not stat.S_ISREG(found.st_mode):
                if one.required and ended_well:
                    raise FilesFailed("output_missing", f"the job left no file {one.name!r}")
                continue
            if owner is not None and found.st_uid != owner:
                # Another name of a file that the job itself may not read.
                raise FilesFailed("output_missing", f"{one.name!r} is not a file of the job's user")
            if not to:
                raise FilesFailed("output_failed", "no store of outputs is named")
            kept.append(_keep(one.name, file, f"{to.rstrip('/')}/{quote(one.name)}"))
        finally:
            if file >= 0:
                os.close(file)
    return kept


def _keep(name: str, file: int, url: str) -> OutputKept:
    """Write an open file to the store."""
    try:
        digest = urls.store(Path(f"/proc/self/fd/{file}"), url)
    except (urls.Missing, urls.Denied) as error:
        raise FilesFailed("output_failed", f"output {name}: {error}") from error
    except (urls.Away, OSError) as error:
        raise FilesFailed("output_failed", f"output {name}: {error}", again=True) from error
    return OutputKept(name=name, url=url, bytes=os.fstat(file).st_size, digest=digest)
