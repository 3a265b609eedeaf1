"""What a worker must still know after it was killed: its credential, and a folder per attempt.

    DIR/credential                0600
    DIR/worker.lock               one worker per folder
    DIR/attempts/NAME/            see `run/plan.py`; and
        assignment.json           what the control plane asked, 0600
        report.json               how it ended; kept when everything else of it is gone

A report outlives its acknowledgement for a while, so that an assignment that comes late or twice is
answered and not run again. A broken file is put aside and counts as unknown.
"""

import fcntl
import logging
import os
import shutil
from pathlib import Path
from typing import TypeVar

import msgspec

from roost.base import private
from roost.base.errors import Conflict
from roost.hostkit.files import file_name, put_aside, write_whole
from roost.wire.workerlink import Assignment, AttemptReport

log = logging.getLogger("roost.worker")

T = TypeVar("T")

_ASSIGNMENT, _REPORT = "assignment.json", "report.json"
#: Reports that are kept after they were acknowledged.
MOST_REPORTS = 4096


class WorkerStore:
    """The folder of one worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._attempts = folder / "attempts"
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folder and lock it; raises Conflict when another worker has it."""
        private.make_folder(self._attempts)
        descriptor = os.open(self.folder / "worker.lock", os.O_RDWR | os.O_CREAT, private.FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise Conflict(
                f"another worker works in {self.folder}",
                hint="Maybe it is still running; one folder belongs to one worker.",
            ) from error
        self._lock = descriptor

    def close(self) -> None:
        """Release the folder's lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def credential(self) -> str | None:
        """Return the machine's credential, None before it joined."""
        try:
            return (self.folder / "credential").read_text().strip() or None
        except FileNotFoundError:
            return None

    def save_credential(self, credential: str) -> None:
        """Keep the credential where no other user reads it."""
        private.make_folder(self.folder)
        write_whole(self.folder / "credential", credential.encode())

    def folder_of(self, attempt: str) -> Path:
        """Return the folder of an attempt, whatever its name is made of."""
        return self._attempts / file_name(attempt).removesuffix(".json")

    def begin(self, assignment: Assignment) -> Path:
        """Keep an assignment, with a folder for its job."""
        folder = self.folder_of(assignment.attempt)
        (folder / "work").mkdir(parents=True, exist_ok=True, mode=private.FOLDER)
        data = msgspec.json.encode(assignment)
        write_whole(folder / _ASSIGNMENT, data, durable=False)
        return folder

    def assignments(self) -> list[Assignment]:
        """Return what was asked and not finished when the worker was last here."""
        found = []
        for folder in sorted(self._attempts.iterdir()):
            if not (folder / _REPORT).exists():
                if (one := _read(folder / _ASSIGNMENT, Assignment)) is not None:
                    found.append(one)
                elif not any(folder.iterdir()):
                    folder.rmdir()
        return found

    def reports(self) -> list[AttemptReport]:
        """Return every report that is kept, the oldest first."""
        paths = sorted(self._attempts.glob(f"*/{_REPORT}"), key=lambda path: path.stat().st_mtime)
        return [one for path in paths if (one := _read(path, AttemptReport)) is not None]

    def finish(self, report: AttemptReport) -> None:
        """Keep how an attempt ended."""
        folder = self.folder_of(report.attempt)
        folder.mkdir(parents=True, exist_ok=True, mode=private.FOLDER)
        write_whole(folder / _REPORT, msgspec.json.encode(report), durable=False)

    def clear(self, attempt: str) -> None:
        """Drop everything of an attempt but its report."""
        folder = self.folder_of(attempt)
        if not folder.exists():
            return
        for entry in folder.iterdir():
            if entry.name == _REPORT:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

    def forget(self, attempt: str) -> None:
        """Drop an attempt, its report too."""
        shutil.rmtree(self.folder_of(attempt), ignore_errors=True)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        log.error("%s is broken (%s); it is now %s", path, error, put_aside(path).name)
        return None
