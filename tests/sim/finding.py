"""How many worlds find a planted mistake: in worker processes, with a fixed order of sets.

python -m tests.sim.finding [--worlds N] [--first SEED] [--jobs N] [--only NAME] [--json FILE]
"""

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from roost.sim.campaign import fixed_environment
from roost.sim.draws import draw_history
from roost.sim.history import History
from roost.sim.world import run_history
from tests.sim.mutants import names, plant
from tests.sim.written import WRITTEN


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
    words = [mistake, str(enough or 0), *map(str, seeds)]
    how = "--written" if written else "--drawn"
    command = [sys.executable, "-m", "tests.sim.finding", how, *words]
    done = subprocess.run(
        command, env=fixed_environment(), cwd=Path(__file__).parents[2], capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.args} ended with {done.returncode}:\n{done.stderr[-4000:]}"
    return msgspec.json.decode(done.stdout, type=Found)


def _find_here(
    mistake: str, seeds: Sequence[int], enough: int, history: Callable[[int], History]
) -> Found:
    found = Found(mistake, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        plant(mistake, patch)
        for seed in seeds:
            found.worlds += 1
            broken = run_history(history(seed)).broken
            if broken:
                found.found += 1
                if found.first is None:
                    found.first, found.law = seed, broken[:160]
            if enough and found.found >= enough:
                break
    return found


def find_all(mistakes: Sequence[str], seeds: Sequence[int], jobs: int) -> Iterable[Found]:
    """Run all the worlds with each mistake, several mistakes side by side."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda mistake: find(mistake, seeds), mistakes)


def table(results: Iterable[Found]) -> Iterable[str]:
    """Return the lines of a table, one per mistake, as they come."""
    yield f"{'planted mistake':28} {'found in':>12} {'first seed':>10}  law"
    for each in results:
        first = "-" if each.first is None else str(each.first)
        yield f"{each.mistake:28} {each.found:>5} of {each.worlds:<4} {first:>9}  {each.law[:90]}"


def main() -> None:
    """Print in how many worlds each mistake is found."""
    if sys.argv[1:2] in (["--drawn"], ["--written"]):
        mistake, enough, *seeds = sys.argv[2:]
        history = WRITTEN[mistake] if sys.argv[1] == "--written" else draw_history
        result = _find_here(mistake, [int(seed) for seed in seeds], int(enough), history)
        sys.stdout.write(msgspec.json.encode(result).decode())
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
