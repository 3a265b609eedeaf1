"""Inputs: files that are in a job's folder before it starts, each whole and with its digest."""

import errno
from pathlib import Path

from roost.model.job import EndReason
from roost.wire.workerlink import InputOrder
from roost.worker.files import urls
from roost.worker.run.jobuser import JobUser

#: Bytes of all inputs where the job says nothing about its disk.
MOST_BYTES = 1 << 40


class FilesFailed(Exception):
    """Files of an attempt could not be fetched or kept; `again` says if another try may help."""

    def __init__(self, reason: EndReason, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.reason: EndReason = reason
        self.message = message
        self.again = again


def place(work: Path, name: str, reason: EndReason) -> Path:
    """Return where a file of a job lies; raises if that is outside of its folder."""
    found = (work / name).resolve()
    if not name or not found.is_relative_to(work.resolve()) or found == work.resolve():
        raise FilesFailed(reason, f"{name[:200]!r} is not a file in the job's folder")
    return found


def fetch_inputs(
    work: Path, inputs: list[InputOrder], disk_bytes: int, user: JobUser | None = None
) -> None:
    """Fetch every input that is not there yet, files as `user` reads them; raises FilesFailed."""
    room = disk_bytes or MOST_BYTES
    for one in inputs:
        to = place(work, one.name, "input_missing")
        if to.exists():
            room -= to.stat().st_size
            continue
        part = to.with_name(f".{to.name}.part")
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            digest = urls.fetch(one.url, part, most=max(0, room), user=user)
        except OSError as error:
            part.unlink(missing_ok=True)
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            why: EndReason = "worker_disk_full" if full else "worker_failed"
            raise FilesFailed(why, f"input {one.name}: {error}") from error
        except (urls.Missing, urls.Denied) as error:
            part.unlink(missing_ok=True)
            raise FilesFailed("input_missing", f"input {one.name}: {error}") from error
        except urls.TooMuch as error:
            part.unlink(missing_ok=True)
            raise FilesFailed("disk_full", f"input {one.name}: {error}") from error
        except urls.Away as error:
            part.unlink(missing_ok=True)
            raise FilesFailed("worker_failed", f"input {one.name}: {error}", again=True) from error
        if one.digest and digest != one.digest:
            part.unlink()
            said = f"input {one.name}: its digest is {digest}, not {one.digest}"
            raise FilesFailed("input_missing", said)
        part.replace(to)
        room -= to.stat().st_size
