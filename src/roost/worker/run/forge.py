"""The forge: a small process from which the wardens of attempts are forked.

    worker --"FOLDER\\n"--> forge --fork--> warden of FOLDER
           <-"PID FOLDER\\n"--

A fork of a process that has little is quick (a millisecond); a new interpreter for every job would
cost twenty. When its worker goes the forge stays until its wardens have ended, because it must reap
them, and then goes too. Run as `python -m roost.worker.run.forge DATA`: the data folder is on
its command line, and on that of every warden, so that they can be found by it.
"""

import gc
import os
import selectors
import signal
from contextlib import suppress
from pathlib import Path

from roost.worker.run.warden import fork


def main() -> None:
    """Fork a warden for every folder that is named on the standard input."""
    os.umask(0o077)
    # Wardens live for a moment: a collection in one would copy all that it shares with the forge.
    gc.disable()
    gc.freeze()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    waker_reads, waker_writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker_writes, warn_on_full_buffer=False)
    wardens: set[int] = set()
    ready = selectors.DefaultSelector()
    ready.register(0, selectors.EVENT_READ)
    ready.register(waker_reads, selectors.EVENT_READ)

    def close() -> None:
        """Let go of what is the forge's own."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        ready.close()
        os.close(waker_reads)
        os.close(waker_writes)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)

    text, asks = b"", True
    while asks or wardens:
        for key, _ in ready.select():
            if key.fileobj == waker_reads:
                with suppress(OSError):
                    os.read(waker_reads, 4096)
                continue
            read = os.read(0, 65536)
            if not read:
                asks = False
                ready.unregister(0)
            *lines, text = (text + read).split(b"\n")
            for line in filter(None, lines):
                warden = fork(Path(os.fsdecode(line)), close)
                wardens.add(warden)
                with suppress(OSError):  # the worker is gone
                    os.write(1, b"%d %s\n" % (warden, line))
        _reap(wardens)


def _reap(wardens: set[int]) -> None:
    while wardens:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            wardens.clear()
            return
        if pid == 0:
            return
        wardens.discard(pid)


if __name__ == "__main__":
    main()
