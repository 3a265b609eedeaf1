"""Many worlds, side by side on the cores; what fails is shrunk and kept so that it can be replayed.

Each worker process runs with a fixed hash seed, so that sets of words have one order: without it
the same history would not be the same twice.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

import msgspec
from msgspec import Struct

from roost.base.errors import InvalidRequest
from roost.sim.history import History
from roost.sim.shrinking import shrink
from roost.sim.world import Verdict, run_history

_verdict = msgspec.json.Decoder(Verdict)


class Tally(Struct):
    """What a campaign has seen."""

    worlds: int = 0
    events: int = 0
    faults: int = 0
    crashes: int = 0
    virtual_s: float = 0.0
    broken: list[Verdict] = []
    coverage: dict[str, int] = {}

    def add(self, verdict: Verdict) -> None:
        """Count one world."""
        self.worlds += 1
        self.events += verdict.events
        self.faults += verdict.faults
        self.crashes += verdict.crashes
        self.virtual_s += verdict.seconds
        self.coverage = dict(Counter(self.coverage) + Counter(verdict.coverage))
        if verdict.broken:
            self.broken.append(verdict)


def run_seeds(
    seeds: Iterable[int],
    *,
    jobs: int,
    actions: int,
    seconds: float,
    told: Callable[[Verdict], None] = lambda verdict: None,
) -> Tally:
    """Run the worlds of many seeds in worker processes."""
    tally = Tally()
    for verdict in _verdicts(list(seeds), jobs, actions, seconds):
        tally.add(verdict)
        told(verdict)
    return tally


def _verdicts(seeds: list[int], jobs: int, actions: int, seconds: float) -> Iterator[Verdict]:
    waiting: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[Verdict | Exception] = SimpleQueue()
    for seed in seeds:
        waiting.put(seed)
    with ExitStack() as stack:
        for _ in range(max(1, min(jobs, len(seeds)))):
            worker = stack.enter_context(_worker(actions, seconds))
            stack.callback(worker.kill)
            Thread(target=_feed, args=(worker, waiting, done), daemon=True).start()
        for _ in seeds:
            verdict = done.get()
            if isinstance(verdict, Exception):
                raise verdict
            yield verdict


def _worker(actions: int, seconds: float) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "roost.sim.worker", str(actions), str(seconds)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=fixed_environment()
    )


def _feed(
    worker: "subprocess.Popen[bytes]",
    waiting: "SimpleQueue[int]",
    done: "SimpleQueue[Verdict | Exception]",
) -> None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    while True:
        try:
            seed = waiting.get_nowait()
        except Empty:
            return
        try:
            worker.stdin.write(b"%d\n" % seed)
            worker.stdin.flush()
            done.put(_verdict.decode(worker.stdout.readline()))
        except (OSError, ValueError, msgspec.DecodeError) as error:
            done.put(RuntimeError(f"the worker died at seed {seed}: {error}"))
            return


def fixed_environment() -> dict[str, str]:
    """Return this process's environment with a fixed order of sets."""
    return {**os.environ, "PYTHONHASHSEED": "0"}


def has_fixed_order() -> bool:
    """Return whether this process gives the same history the same digest every time."""
    return os.environ.get("PYTHONHASHSEED") == "0"


def shrunk(history: History, broken: str, *, most_tries: int = 120) -> History:
    """Return the shortest history found that breaks the same law."""
    kind = _kind(broken)
    return shrink(
        history, lambda tried: _kind(run_history(tried).broken) == kind, most_tries=most_tries
    )


def _kind(broken: str) -> str:
    """Return which law it was, without the names of those who broke it."""
    words = [word for word in broken.split() if not any(c.isdigit() for c in word)]
    return " ".join(words[:6])


def write_history(path: Path, history: History) -> None:
    """Keep a history where it can be run again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(history), indent=1))


def read_history(path: Path) -> History:
    """Read a history from a JSON or YAML file."""
    try:
        data = path.read_bytes()
        if path.suffix in (".yaml", ".yml"):
            return msgspec.yaml.decode(data, type=History)
        return msgspec.json.decode(data, type=History)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"{path} is no history: {error}") from error
