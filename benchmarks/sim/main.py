"""Run the benchmark of simulated worlds, print its table and write build/bench/sim.json.

Four jobs: a campaign of drawn worlds on two processes, the shipped quiet week on one, a year of VMs
that come and go (`year`), and mistakes planted into the production code, each of which must be
found. Worlds that break a law are counted and named, and the run goes on. Exit code 0 means that
every law held in every world; goals that were missed are listed but do not fail the run. 1 means
that something was wrong, 2 that no row has the asked name.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.api.main import run, show
from benchmarks.api.verifying import Wrong
from benchmarks.engine.measuring import Job, named, say, say_if_busy
from benchmarks.results import Result, at_least, at_most
from benchmarks.sim.year import DAYS, year_rows
from roost.sim.campaign.running import Tally, Task, fixed_environment, run_tasks
from roost.sim.world import Verdict
from tests.sim.finding import Found, find_all
from tests.sim.mutants import NAMED, names
from tests.turns import in_turn

REPOSITORY = Path(__file__).parents[2]
OUTPUT = REPOSITORY / "build" / "bench" / "sim.json"
#: Two cores are what the goal of a campaign is stated for.
_JOBS = 2
_VIOLATIONS = "violations"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run. Goals of time are stated for the full sizes; a short run has none."""

    worlds: int
    mistakes: int  # how many of those planted; fewer than all take turns by the commit
    mutant_worlds: int
    week: bool
    full: bool

    def goal(self, value: float) -> float | None:
        """Return a goal that holds for the full sizes only."""
        return value if self.full else None


FULL = Sizes(worlds=1_000, mistakes=len(names()), mutant_worlds=40, week=True, full=True)
SHORT = Sizes(worlds=24, mistakes=6, mutant_worlds=6, week=False, full=False)


def jobs_of(sizes: Sizes) -> Iterator[Job]:
    """Return all jobs."""
    yield Job("campaign", lambda: campaign_rows(sizes))
    if sizes.week:
        yield Job("week", lambda: week_rows(sizes))
    days = DAYS if sizes.full else 12
    yield Job("database after a virtual year", lambda: year_rows(days, full=sizes.full))
    yield Job("mistakes", lambda: mistake_rows(sizes))


def campaign_rows(sizes: Sizes) -> Iterator[Result]:
    """Run drawn worlds, as `make chaos` does."""
    told = [0.0]

    def tell(tally: Tally) -> None:
        if tally.wall_s - told[0] >= 30:
            told[0] = tally.wall_s
            say(f"    {tally.worlds} of {sizes.worlds} worlds, {tally.events:,} events")

    tally = run_tasks([Task(seed) for seed in range(sizes.worlds)], jobs=_JOBS, told=tell)
    for ran in tally.broken:
        say(f"    {ran.task.name} broke a law: {ran.verdict.broken}")
    worlds = f"{sizes.worlds:,} worlds, {_JOBS} processes"
    yield at_most(
        "campaign: wall time", tally.wall_s, "s", sizes.goal(600.0), sizes.goal(300.0), note=worlds
    )
    yield at_least(
        "campaign: least events of a world", tally.least_events, "events", sizes.goal(1_000.0)
    )
    yield at_least(
        "campaign: virtual events per CPU second", tally.events / tally.cpu_s, "events/s", None
    )
    yield at_least("campaign: events", tally.events, "events", None)
    yield at_least("campaign: faults", tally.faults, "faults", None)
    yield at_least("campaign: crashes", tally.crashes, "crashes", None)
    yield _violations("campaign", [ran.task.name for ran in tally.broken])


def week_rows(sizes: Sizes) -> Iterator[Result]:
    """Run the shipped quiet week in a process of its own."""
    command = [str(Path(sys.executable).parent / "roost"), "sim", "run", "quiet-week", "-o", "json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=REPOSITORY, env=fixed_environment(), stdout=subprocess.PIPE, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        verdict = msgspec.json.decode(done.stdout, type=Verdict)
    except msgspec.DecodeError as error:
        raise Wrong(f"the quiet week ended with {done.returncode}") from error
    if verdict.broken:
        say(f"    the quiet week broke a law: {verdict.broken}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    days = verdict.seconds / 86_400
    note = f"{days:.1f} virtual days, {verdict.coverage['commit.vm.created']:,} VMs created"
    yield at_most("week: CPU on one core", cpu_s, "s", sizes.goal(60), sizes.goal(30), note=note)
    yield at_least("week: virtual events per CPU second", verdict.events / cpu_s, "events/s", None)
    yield at_least("week: events", verdict.events, "events", None)
    yield _violations("week", ["quiet-week"] if verdict.broken else [])


def _violations(job: str, worlds: Sequence[str]) -> Result:
    """Return the row that counts the worlds of a job that broke a law, and names the first ones."""
    name = f"{job}: {_VIOLATIONS}"
    return at_most(name, len(worlds), _VIOLATIONS, 0.0, note=", ".join(worlds[:10]))


def mistake_rows(sizes: Sizes) -> Iterator[Result]:
    """Plant every mistake, or those in turn, and see in how many worlds a law breaks."""
    results: list[Found] = []
    planted = in_turn(names(), sizes.mistakes)
    if waiting := len(names()) - len(planted):
        say(f"    {waiting} mistakes wait for other commits (TURN= plants all of them)")
    for each in find_all(planted, range(sizes.mutant_worlds), _JOBS):
        results.append(each)
        say(f"    {each}")
        yield at_least(
            f"mistakes: {each.mistake}",
            each.found,
            "worlds",
            sizes.goal(1.0),
            note=f"of {each.worlds}; {each.law}" if each.found else f"of {each.worlds}",
        )
    named = [each for each in results if each.mistake in NAMED]
    found = sum(each.found > 0 for each in named)
    goal = sizes.goal(float(len(named)))
    yield at_least("mistakes: found of those that must be", found, "mistakes", goal)
    everything = sum(each.found > 0 for each in results)
    yield at_least("mistakes: found of all", everything, "mistakes", None, note=f"{len(results)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sim", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few worlds, no week, no goals")
    parser.add_argument("--only", metavar="ROW_PREFIX", default="", help="only rows so named")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file to write")
    options = parser.parse_args(arguments)
    sizes = SHORT if options.short else FULL
    prefix = options.only
    say_if_busy()
    try:
        results = run(named(jobs_of(sizes), prefix), prefix)
    except Wrong as problem:
        print(f"bench-sim: {problem}", file=sys.stderr)
        return 1
    if not results:
        print(f"bench-sim: no row begins with {prefix!r}", file=sys.stderr)
        return 2
    show(results, options.output, "simulated worlds" + (" (short)" if options.short else ""))
    return 1 if any(row.unit == _VIOLATIONS and row.value for row in results) else 0
