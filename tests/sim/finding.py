"""How many worlds find a planted mistake: in worker processes, with a fixed order of sets.

python -m tests.sim.finding [--worlds N] [--first SEED] [--jobs N] [--only NAME] [--json FILE]
"""

import argparse
import atexit
import gc
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryFile
from threading import Lock

import msgspec
import pytest
from msgspec import Struct

from roost.sim.campaign.running import fixed_environment
from roost.sim.histories.draws import draw_history
from roost.sim.world import run_history
from tests.sim.mutants import names, plant
from tests.sim.written import WRITTEN

_PROGRAM = (sys.executable, "-m", "tests.sim.finding", "--forks")
#: A world takes a second or two; on a machine that has other work to do, many more.
_WORLD_S = 120.0


class Found(Struct):
    """In how many worlds a mistake broke a law; `first` is the first seed, and which law it was."""

    mistake: str
    worlds: int
    found: int
    first: int | None = None
    law: str = ""

    def __str__(self) -> str:
        if self.first is None:
            return f"{self.mistake}: found in none of {self.worlds} worlds"
        return (
            f"{self.mistake}: found in {self.found} of {self.worlds} worlds, "
            f"first at seed {self.first}: {self.law}"
        )


def find(
    mistake: str, seeds: Iterable[int], *, enough: int | None = None, written: bool = False
) -> Found:
    """Run worlds with a mistake planted, in a process of its own, until enough have found it."""
    return _finder().find(Question(mistake, list(seeds), enough or 0, written))


class Question(Struct):
    """A mistake, and the worlds in which to look for it."""

    mistake: str
    seeds: list[int]
    enough: int
    written: bool


class Finder:
    """A process with a fixed order of sets that forks for each question.

    The fork begins with everything imported and nothing planted; importing takes longer than most
    worlds that find a mistake. It answers on a pipe of its own, for worlds may print: a full stop
    after each world, and in the end what was found, or an empty line.
    """

    def __init__(self, program: Sequence[str] = _PROGRAM, world_s: float = _WORLD_S) -> None:
        self._program, self.world_s = program, world_s
        self._lock = Lock()
        self._said = TemporaryFile("w+")  # noqa: SIM115 - as long as the process lives
        self._start()
        atexit.register(self._close)

    def find(self, question: Question) -> Found:
        """Ask, and wait for the answer; of a world that does not end, no longer than its limit."""
        with self._lock:
            questions = self._process.stdin
            assert questions is not None
            questions.write(f"{msgspec.json.encode(question).decode()}\n")
            questions.flush()
            answer = self._line()
            while answer == ".":
                answer = self._line()
            if answer is None:
                self._kill()
                self._start()
        assert answer is not None, f"a world of {question} takes longer than {self.world_s:g} s"
        assert answer, f"{question} has no answer:\n{self._last_words()}"
        return msgspec.json.decode(answer, type=Found)

    def _start(self) -> None:
        answers, theirs = os.pipe()
        self._process = subprocess.Popen(
            [*self._program, str(theirs)], env=fixed_environment(), cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE, stdout=self._said, stderr=self._said, text=True,
            pass_fds=[theirs], process_group=0,
        )  # fmt: skip
        os.close(theirs)
        self._answers, self._unread = answers, b""

    def _line(self) -> str | None:
        """Return the next line, None when there is none in time; empty when it has ended."""
        while b"\n" not in self._unread:
            if not select.select([self._answers], [], [], self.world_s)[0]:
                return None
            if not (data := os.read(self._answers, 65536)):
                return ""
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def _last_words(self) -> str:
        self._said.seek(0)
        return self._said.read()[-4000:]

    def _kill(self) -> None:
        """End the process, and the fork that it waits for."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        os.close(self._answers)

    def _close(self) -> None:
        self._kill()
        self._said.close()


@cache
def _finder() -> Finder:
    return Finder()


def answer_in_forks(answers: int) -> None:
    """Answer each question on standard input in a fork; an empty line says that it has failed."""
    gc.freeze()  # a fork that looks for garbage would copy all the memory that it shares
    for line in sys.stdin:
        if not (fork := os.fork()):
            try:
                question = msgspec.json.decode(line, type=Question)
                result = _find_here(question, lambda: os.write(answers, b".\n"))
                os.write(answers, msgspec.json.encode(result) + b"\n")
                sys.stdout.flush()
            except BaseException:  # noqa: BLE001 - told, and the fork ends
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        if os.waitpid(fork, 0)[1]:
            os.write(answers, b"\n")


def _find_here(question: Question, after_world: Callable[[], object]) -> Found:
    mistake, enough = question.mistake, question.enough
    history = WRITTEN[mistake] if question.written else draw_history
    found = Found(mistake, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        plant(mistake, patch)
        for seed in question.seeds:
            found.worlds += 1
            broken = run_history(history(seed)).broken
            after_world()
            if broken:
                found.found += 1
                if found.first is None:
                    found.first, found.law = seed, broken[:160]
            if enough and found.found >= enough:
                break
    return found


def find_all(mistakes: Sequence[str], seeds: Sequence[int], jobs: int) -> Iterable[Found]:
    """Run all the worlds with each mistake, several mistakes side by side."""
    finders: SimpleQueue[Finder] = SimpleQueue()
    for _ in range(jobs):
        finders.put(Finder())

    def find_one(mistake: str) -> Found:
        finder = finders.get()
        try:
            return finder.find(Question(mistake, list(seeds), 0, written=False))
        finally:
            finders.put(finder)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(find_one, mistakes)


def table(results: Iterable[Found]) -> Iterable[str]:
    """Return the lines of a table, one per mistake, as they come."""
    yield f"{'planted mistake':28} {'found in':>12} {'first seed':>10}  law"
    for each in results:
        first = "-" if each.first is None else str(each.first)
        yield f"{each.mistake:28} {each.found:>5} of {each.worlds:<4} {first:>9}  {each.law[:90]}"


def main() -> None:
    """Print in how many worlds each mistake is found."""
    if sys.argv[1:2] == ["--forks"]:
        answer_in_forks(int(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description="How many worlds find each planted mistake.")
    parser.add_argument("--worlds", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=None, help="names of mistakes")
    parser.add_argument("--json", type=Path, default=None, help="where to write the results")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.worlds)
    results: list[Found] = []

    def kept() -> Iterable[Found]:
        for each in find_all(given.only or names(), seeds, given.jobs):
            results.append(each)
            yield each

    for line in table(kept()):
        print(line, flush=True)
    found = sum(each.first is not None for each in results)
    print(f"{found} of {len(results)} planted mistakes found")
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))


if __name__ == "__main__":
    main()
