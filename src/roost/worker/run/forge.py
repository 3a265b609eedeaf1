"""The forge: a small process from which wardens are forked.

    worker --"w"--> forge --fork--> warden
           <-- PID, and an end of a socket whose other end is that warden's

A fork of a process that has little is quick (some milliseconds), and shares its memory; a new
interpreter would cost ten times as much. When its worker goes the forge stays until its wardens
have ended, because it must reap them, and then goes too. Run as `python -m roost.worker.run.forge
DATA`, with a socket as its standard input: the data folder is on its command line, and on that of
every warden, so that they can be found by it.
"""

import gc
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from roost.worker.run.warden import serve


def main() -> None:
    """Fork a warden for every byte that comes on the standard input."""
    os.umask(0o077)
    # A collection in a warden would copy all that it shares with the forge.
    gc.disable()
    gc.freeze()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    waker_reads, waker_writes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker_writes, warn_on_full_buffer=False)
    worker = socket.socket(fileno=os.dup(0))
    wardens: set[int] = set()
    ready = selectors.DefaultSelector()
    ready.register(worker, selectors.EVENT_READ)
    ready.register(waker_reads, selectors.EVENT_READ)

    def close() -> None:
        """Let go of what is the forge's own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ready.close()
        worker.close()
        os.close(waker_reads)
        os.close(waker_writes)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.close(nothing)

    asks = True
    while asks or wardens:
        for key, _ in ready.select():
            if key.fileobj == waker_reads:
                with suppress(OSError):
                    os.read(waker_reads, 4096)
                continue
            wanted = worker.recv(4096)
            if not wanted:
                asks = False
                ready.unregister(worker)
            for _ in wanted:
                wardens.add(_fork(worker, close))
        _reap(wardens)


def _fork(worker: socket.socket, close: Callable[[], None]) -> int:
    """Fork a warden, give the worker the way to it, and return its process."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        theirs.close()
        _become_warden(ours, close)
    ours.close()
    with suppress(OSError), theirs:  # the worker is gone, and so is the warden then
        socket.send_fds(worker, [b"%d\n" % pid], [theirs.fileno()])
    return pid


def _become_warden(ours: socket.socket, close: Callable[[], None]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        close()
        serve(ours)
        code = 0
    except OSError as error:
        # Nothing of the worker may look like the job's own doing: without `ended.json` the worker
        # sees a warden that died, and says so.
        code = error.errno or 1
    finally:
        sys.stderr.flush()
        os._exit(code)


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
