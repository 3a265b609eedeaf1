"""Many worlds, side by side on the cores; what fails is shrunk and kept so that it can be replayed.

A world is drawn from a seed alone, or is a scenario with a seed. Each worker process runs with a
fixed hash seed, so that sets of words have one order: without it the same history would not be the
same twice.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from threading import Thread
from time import monotonic

import msgspec
import yaml
from msgspec import Struct

from roost.base.errors import InvalidRequest
from roost.sim.campaign.shrinking import shrink
from roost.sim.histories.draws import draw_history
from roost.sim.histories.history import History
from roost.sim.histories.scenarios import parse_scenario, read_scenario
from roost.sim.histories.workloads import expand
from roost.sim.world import Verdict, run_history
from roost.wire.text.strictyaml import read_yaml

#: How often somebody who waits for a campaign hears of it at least.
_TELL_S = 10.0
#: Where seeds are drawn from: beyond those that people count up to.
_DRAWN = range(10**6, 2**31)


class Task(Struct, frozen=True, omit_defaults=True):
    """One world to run: a seed, and a scenario or how large the drawn world is."""

    seed: int
    scenario: str = ""  # its file; empty: the world is drawn
    actions: int = 90
    seconds: float = 150.0

    @property
    def name(self) -> str:
        """Return the name of the world: its scenario and seed."""
        return f"{Path(self.scenario).stem}-{self.seed}" if self.scenario else f"seed-{self.seed}"

    def history(self) -> History:
        """Return the history of the world."""
        if self.scenario:
            return expand(read_scenario(Path(self.scenario)), self.seed)
        return draw_history(self.seed, actions=self.actions, seconds=self.seconds)


def drawn_seeds(text: str, number: int) -> list[int]:
    """Return seeds that a text stands for, none of them small: the same for the same text."""
    return Random(f"worlds of {text}").sample(_DRAWN, number)


class Ran(Struct):
    """A world that was run, and what that took of this machine."""

    task: Task
    verdict: Verdict
    cpu_s: float


_ran = msgspec.json.Decoder(Ran)


class Tally(Struct):
    """What a campaign has seen."""

    worlds: int = 0
    events: int = 0
    least_events: int = 0  # of one world
    faults: int = 0
    crashes: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    broken: list[Ran] = []
    coverage: dict[str, int] = {}
    scenarios: dict[str, "Tally"] = {}

    def add(self, ran: Ran) -> None:
        """Add one world's verdict to the counts."""
        verdict = ran.verdict
        least = verdict.events if self.worlds == 0 else min(self.least_events, verdict.events)
        self.worlds, self.least_events = self.worlds + 1, least
        self.events += verdict.events
        self.faults += verdict.faults
        self.crashes += verdict.crashes
        self.virtual_s += verdict.seconds
        self.cpu_s += ran.cpu_s
        self.coverage = dict(Counter(self.coverage) + Counter(verdict.coverage))
        if verdict.broken:
            self.broken.append(ran)

    def add_by_scenario(self, ran: Ran) -> None:
        """Count one world, also among those of its scenario."""
        self.add(ran)
        if ran.task.scenario:
            name = Path(ran.task.scenario).stem
            self.scenarios.setdefault(name, Tally()).add(ran)


def run_tasks(
    tasks: Sequence[Task],
    *,
    jobs: int,
    told: Callable[[Tally], None] = lambda tally: None,
) -> Tally:
    """Run worlds in worker processes; `told` hears of each, and every few seconds meanwhile."""
    tally, began = Tally(), monotonic()
    for ran in _results(tasks, jobs):
        if ran is not None:
            tally.add_by_scenario(ran)
        tally.wall_s = monotonic() - began
        told(tally)
    return tally


def _results(tasks: Sequence[Task], jobs: int) -> Iterator[Ran | None]:
    waiting: SimpleQueue[Task] = SimpleQueue()
    done: SimpleQueue[Ran | Exception] = SimpleQueue()
    for task in tasks:
        waiting.put(task)
    with ExitStack() as stack:
        for _ in range(max(1, min(jobs, len(tasks)))):
            worker = stack.enter_context(_worker())
            stack.callback(worker.kill)
            Thread(target=_feed, args=(worker, waiting, done), daemon=True).start()
        left = len(tasks)
        while left:
            try:
                ran = done.get(timeout=_TELL_S)
            except Empty:
                yield None
                continue
            if isinstance(ran, Exception):
                raise ran
            left -= 1
            yield ran


def _worker() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "roost.sim.campaign.worker"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=fixed_environment()
    )


def _feed(
    worker: "subprocess.Popen[bytes]",
    waiting: "SimpleQueue[Task]",
    done: "SimpleQueue[Ran | Exception]",
) -> None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    while True:
        try:
            task = waiting.get_nowait()
        except Empty:
            return
        try:
            worker.stdin.write(msgspec.json.encode(task) + b"\n")
            worker.stdin.flush()
            done.put(_ran.decode(worker.stdout.readline()))
        except (OSError, ValueError, msgspec.DecodeError) as error:
            done.put(RuntimeError(f"the worker died at {task.name}: {error}"))
            return


def fixed_environment() -> dict[str, str]:
    """Return this process's environment with a fixed order of sets."""
    return {**os.environ, "PYTHONHASHSEED": "0"}


def has_fixed_order() -> bool:
    """Return whether this process gives the same history the same digest every time."""
    return os.environ.get("PYTHONHASHSEED") == "0"


# What broke a law


def shrunk(
    history: History, broken: str, *, most_tries: int = 120, most_s: float = 180.0
) -> History:
    """Return the shortest history found that breaks the same law."""
    kind, end = _kind(broken), monotonic() + most_s

    def fails(tried: History) -> bool:
        return monotonic() < end and _kind(run_history(tried).broken) == kind

    return shrink(history, fails, most_tries=most_tries)


def _kind(broken: str) -> str:
    """Return which law it was, without the names of those who broke it."""
    words = [word for word in broken.split() if not any(c.isdigit() for c in word)]
    return " ".join(words[:6])


# Files


def write_history(path: Path, history: History) -> None:
    """Keep a history where it can be run again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(history), indent=1))


def read_history(path: Path) -> History:
    """Read a history from a JSON or YAML file."""
    return read_world(path, None)


def read_world(path: Path, seed: int | None) -> History:
    """Read a history, or a scenario that a seed makes one of; a history names its own seed."""
    try:
        text = path.read_text()
        found = read_yaml(text) if path.suffix in (".yaml", ".yml") else None
        if isinstance(found, dict) and "seed" not in found:
            return expand(parse_scenario(text, str(path)), seed or 0)
        if found is not None:
            history = msgspec.convert(found, History)
        else:
            history = msgspec.json.decode(text, type=History)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, yaml.YAMLError) as error:
        raise InvalidRequest(f"{path} is no history: {error}") from error
    if seed is not None:
        history.seed = seed
    return history
