"""The fence guard: a small process that stops VMs when the host's lease is over.

    python -m roost.agent.fencing.guard DIR...

It outlives the agent. Several times a second it reads DIR/lease; once the deadline has passed, or
the lease cannot be read, it carries out every stop recipe in DIR/fence: those of VMs that the
control plane may start elsewhere. It goes on doing so until the lease is fresh again. With
--watchdog it pets that device only while nothing is left to stop, so a host on which stopping
fails is reset.

Only the standard library is used, and one process per DIR holds DIR/guard.lock. DIR/guard.json is
its sign of life. SIGTERM makes it leave once no recipe is left.
"""

import argparse
import fcntl
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from roost.base import private

LEASE, RECIPES, SIGN, LOCK = "lease", "fence", "guard.json", "guard.lock"

POLL_S = 0.2
SIGN_EVERY_S = 1.0
#: An agent that was stopped while it held a lock must not keep the guard from its work.
LOCK_PATIENCE_S = 0.5


# The lease


def boot_id() -> str:
    """Return the id of this boot; monotonic seconds mean nothing across boots."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class LeaseWatch:
    """Tells from the lease file whether the lease holds."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._text: bytes = b""
        self._asleep = 0.0  # how long the machine had slept when this lease was first seen

    def is_fresh(self, now: float, asleep: float) -> bool:
        """Return whether the deadline is ahead. What cannot be read is over.

        The monotonic clock stands still while the machine sleeps, the control plane's does not: so
        time slept since the lease was seen first counts too.
        """
        try:
            text = self._path.read_bytes()
            lease = json.loads(text)
            deadline, boot = float(lease["deadline"]), lease["boot"]
        except (OSError, ValueError, TypeError, KeyError):
            return False
        if text != self._text:
            self._text, self._asleep = text, asleep
        return bool(boot == self._boot and now + (asleep - self._asleep) < deadline)


# Stopping


def carry_out(recipe: object) -> bool:
    """Carry out one stop recipe; return whether its VM surely does not execute any more."""
    if not isinstance(recipe, dict):
        return False
    handler = _HANDLERS.get(str(recipe.get("kind")))
    return handler is not None and handler(recipe)


def _edit(recipe: dict[str, object]) -> bool:
    """Change fields of a JSON file if one field has one of some values."""
    path, changes, when = Path(str(recipe["file"])), recipe["set"], recipe["when"]
    if not isinstance(changes, dict) or not isinstance(when, list):
        return False
    lock = os.open(str(recipe["lock"]), os.O_RDWR | os.O_CREAT, private.FILE)
    try:
        _lock_patiently(lock)
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            return True
        if not isinstance(content, dict):
            return False
        if content.get(str(recipe["field"])) in when:
            replace_file(path, json.dumps({**content, **changes}).encode())
        return True
    finally:
        os.close(lock)


def _kill(recipe: dict[str, object]) -> bool:
    """Kill processes, each given with its start time: a number that is used again is spared.

    The file `mark`, if one is given, then says which process was killed, so that it does not look
    like one that has crashed.
    """
    processes, mark = recipe["processes"], recipe.get("mark")
    if not isinstance(processes, list):
        return False
    path = Path(str(mark)) if mark else None
    gone = [_kill_one(int(each["pid"]), int(each["started"]), path) for each in processes]
    return all(gone)


def _kill_one(pid: int, started: int, mark: Path | None) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        # Compared while the handle is held, so it is this very process that gets the signal.
        if started_at(pid) != started:
            return True
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        if mark is not None:
            with suppress(OSError):
                replace_file(mark, f"{pid} {started}".encode())
        return is_gone(pid, started)
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


_HANDLERS: dict[str, Callable[[dict[str, object]], bool]] = {"edit": _edit, "kill": _kill}


def started_at(pid: int) -> int | None:
    """Return when a process was started, in clock ticks since boot; None when it is gone."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def is_gone(pid: int, started: int) -> bool:
    """Return whether a process executes no more; one that waits to be reaped does not.

    Its first thread may have ended before others, which still execute, or write to a disk that
    hangs: a process is gone when all of them are.
    """
    fields = _stat(pid)
    if not fields or int(fields[19]) != started:
        return True
    return fields[0] in "ZX" and int(fields[17]) <= 1


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()  # the name before it may hold anything


def _lock_patiently(descriptor: int) -> None:
    pause = threading.Event()
    give_up_at = time.monotonic() + LOCK_PATIENCE_S
    while time.monotonic() < give_up_at:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pause.wait(0.02)
        else:
            return


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file in one step."""
    beside, file = private.open_beside(path)
    try:
        with file:
            file.write(data)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


# One guarded folder


class Guard:
    """Stops the VMs of one folder of recipes when the lease is over."""

    def __init__(self, folder: Path, boot: str) -> None:
        self.folder = folder
        self._boot = boot
        self._lease = LeaseWatch(folder / LEASE, boot)
        self._sign_at = float("-inf")
        self._stopped: set[str] = set()
        self._lock = -1

    def lock(self) -> bool:
        """Lock the folder of recipes; False when another guard holds it."""
        self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, private.FILE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            return False
        return True

    def look(self, now: float, asleep: float) -> bool:
        """Stop VMs whose lease is over; return whether none is left to stop."""
        done = self._lease.is_fresh(now, asleep)
        if done:
            self._stopped.clear()
        else:
            done = self._stop_all()
        if now - self._sign_at >= SIGN_EVERY_S:
            self._sign_at = now
            self._give_sign(now)
        return done

    def recipes(self) -> list[Path]:
        """Return the recipes of this folder."""
        return sorted((self.folder / RECIPES).glob("*.json"))

    def is_removed(self) -> bool:
        """Return whether the folder itself is gone, and with it everything to guard."""
        return not self.folder.exists()

    def _stop_all(self) -> bool:
        all_done = True
        for path in self.recipes():
            try:
                done = carry_out(json.loads(path.read_bytes()))
            except FileNotFoundError:
                continue  # the agent was quicker
            except (OSError, ValueError, KeyError, TypeError):
                done = False
            if done:
                self._stopped.add(path.name)
            all_done = all_done and done
        return all_done

    def _give_sign(self, now: float) -> None:
        sign = {
            "pid": os.getpid(),
            "started": started_at(os.getpid()),
            "at": now,
            "boot": self._boot,
            "stopped": len(self._stopped),
        }
        with suppress(OSError):
            replace_file(self.folder / SIGN, json.dumps(sign).encode())


def read_sign(folder: Path) -> dict[str, object] | None:
    """Return the last sign of life of a folder's guard."""
    try:
        sign = json.loads((folder / SIGN).read_bytes())
    except (OSError, ValueError):
        return None
    return sign if isinstance(sign, dict) else None


# The process


def slept() -> float:
    """Return for how many seconds the machine has slept since it booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


def main(arguments: list[str] | None = None) -> int:
    """Guard folders until told to leave; exit code 0 also when others guard them already."""
    parser = argparse.ArgumentParser(
        prog="roost.agent.fencing.guard", description="The fence guard."
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--watchdog", metavar="DEVICE")
    options = parser.parse_args(arguments)
    private.withdraw_process()
    boot = boot_id()
    guards = [guard for folder in options.folders if (guard := Guard(folder, boot)).lock()]
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    watchdog = os.open(options.watchdog, os.O_WRONLY) if options.watchdog else None
    pause = threading.Event()
    while guards:
        now, asleep = time.monotonic(), slept()
        done = [guard.look(now, asleep) for guard in guards]
        if watchdog is not None and all(done):
            os.write(watchdog, b"\0")
        guards = [guard for guard in guards if not guard.is_removed()]
        if leave.is_set() and not any(guard.recipes() for guard in guards):
            break
        pause.wait(POLL_S)
    if watchdog is not None:
        os.write(watchdog, b"V")  # tells the device that this end is meant
        os.close(watchdog)
    return 0


if __name__ == "__main__":
    sys.exit(main())
