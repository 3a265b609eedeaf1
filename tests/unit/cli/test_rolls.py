"""Marks of maintenance runs, and the signals that end one."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from roost.cli.fleet.rolls import in_words, interruptible, mark, runs_on


def test_a_mark_tells_whether_its_process_still_runs() -> None:
    mine = mark()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        theirs = mine.replace(f"process {os.getpid()} ", f"process {other.pid} ")
        assert runs_on(theirs) is True
        other.communicate(b"\n")
    assert runs_on(theirs) is False
    assert in_words(theirs) == f"{theirs}, which runs no longer"


def test_a_mark_with_the_number_of_this_process_is_of_an_earlier_one() -> None:
    assert runs_on(mark()) is False


@pytest.mark.parametrize("closed", ["a new disk", ""])
def test_a_reason_that_is_no_mark_is_of_no_run(closed: str) -> None:
    assert runs_on(closed) is None


def test_of_a_run_on_another_machine_nothing_is_known() -> None:
    there = mark().replace(f" on {socket.gethostname()},", " on elsewhere.example,")
    assert in_words(there) == f"{there}, which may run no longer"


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_so(sign: signal.Signals) -> None:
    before = signal.signal(sign, signal.SIG_IGN)
    try:
        with interruptible():
            signal.raise_signal(sign)
        assert signal.getsignal(sign) is signal.SIG_IGN
    finally:
        signal.signal(sign, before)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_and_then_means_what_it_did(sign: signal.Signals) -> None:
    before = signal.signal(sign, signal.SIG_DFL)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(sign)
        assert signal.getsignal(sign) is signal.SIG_DFL
    finally:
        signal.signal(sign, before)
