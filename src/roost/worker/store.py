"""What a worker must still know after it was killed: its credential, and a folder per attempt.

    DIR/credential                0600
    DIR/worker.lock               one worker per folder
    DIR/attempts/NAME/            see `run/plan.py`; and
        assignment.json           what the control plane asked, 0600
    DIR/reports.jsonl             how attempts ended, a line each, the newest last
    DIR/reports.old.jsonl         those before them: a file that is full takes this one's place

A report outlives its attempt's folder for a while, so that an assignment that comes late or twice
is answered and not run again. Few files for all of them: a line that is added costs less than a
file that is made and later removed, and a whole file goes at once. A broken file is put aside and
counts as unknown; of the reports only the line that is broken is lost, and its attempt's folder
says the same.
"""

import errno
import fcntl
import logging
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from roost.base import private
from roost.base.errors import Conflict
from roost.hostkit.files import file_name, put_aside, write_whole
from roost.wire.workerlink import Assignment, AttemptReport
from roost.worker.run.plan import ENDED, WARDEN, WORK

log = logging.getLogger("roost.worker")

T = TypeVar("T")

_ASSIGNMENT = "assignment.json"
_REPORTS, _OLD_REPORTS = "reports.jsonl", "reports.old.jsonl"
#: Reports that are kept after they were acknowledged.
MOST_REPORTS = 4096


class WorkerStore:
    """The folder of one worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._attempts = folder / "attempts"
        self._lock: int | None = None
        self._journal: int | None = None  # where reports are added
        self._lines = 0

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
        self._close_journal()

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
        for each in (folder, folder / WORK):
            with suppress(FileExistsError):
                each.mkdir(mode=private.FOLDER)
        data = msgspec.json.encode(assignment)
        write_whole(folder / _ASSIGNMENT, data, durable=False)
        return folder

    def assignments(self) -> list[Assignment]:
        """Return what was asked and not cleared when the worker was last here."""
        found = []
        for folder in sorted(self._attempts.iterdir()):
            if (one := _read(folder / _ASSIGNMENT, Assignment)) is not None:
                found.append(one)
            elif not any(folder.iterdir()):
                folder.rmdir()
        return found

    def reports(self) -> list[AttemptReport]:
        """Return every report that is kept, the oldest first."""
        found: dict[str, AttemptReport] = {}
        for line in self._read_lines(_OLD_REPORTS) + self._read_lines(_REPORTS):
            try:
                one = msgspec.json.decode(line, type=AttemptReport)
            except msgspec.DecodeError:  # the worker was killed while it wrote, or the disk is full
                continue
            found.pop(one.attempt, None)
            found[one.attempt] = one
        return list(found.values())[-MOST_REPORTS:]

    def finish(self, report: AttemptReport) -> None:
        """Keep how an attempt ended."""
        try:
            if self._lines >= 2 * MOST_REPORTS:  # an attempt may be there twice
                self._close_journal()
                (self.folder / _REPORTS).replace(self.folder / _OLD_REPORTS)
                self._lines = 0
            if self._journal is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._journal = os.open(self.folder / _REPORTS, flags, private.FILE)
                self._lines = len(self._read_lines(_REPORTS))
                os.write(self._journal, b"\n")  # whatever was cut off before ends here
            data = msgspec.json.encode(report) + b"\n"
            if os.write(self._journal, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), _REPORTS)
        except OSError:
            self._close_journal()  # opened anew, the next report begins a line of its own
            raise
        self._lines += 1

    def _close_journal(self) -> None:
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None

    def _read_lines(self, name: str) -> list[bytes]:
        try:
            return list(filter(None, (self.folder / name).read_bytes().splitlines()))
        except FileNotFoundError:
            return []

    def clear(self, attempts: Iterable[str]) -> None:
        """Drop the folders of attempts."""
        for attempt in attempts:
            self._drop(self.folder_of(attempt))

    @staticmethod
    def _drop(folder: Path) -> None:
        try:  # most jobs leave nothing, and looking for what they left costs more than this
            (folder / WORK).rmdir()
            for name in (_ASSIGNMENT, WARDEN, ENDED):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        log.error("%s is broken (%s); it is now %s", path, error, put_aside(path).name)
        return None
