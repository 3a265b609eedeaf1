"""Run the engine benchmark, print its table and write build/bench/engine.json.

Exit code 0 means that every answer agreed with the plain scan; goals that were missed are listed
but do not fail the run, because a busy machine misses goals too. 1 means that an answer differed,
2 that no row has the asked name.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.engine import batch, churn, decision, growth, questions, rules, startup
from benchmarks.engine.checking import AnswersDiffer, check_batch
from benchmarks.engine.fleets import FLAVORED, empty_fleet, requests_of
from benchmarks.engine.measuring import FULL, SHORT, Job, Sizes, named, say
from benchmarks.results import Result, significant, table, write_json
from roost.placement.engine import Engine
from roost.placement.mix import mix_of
from roost.placement.strategies import STRATEGIES

REPOSITORY = Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "build" / "bench" / "engine.json"
TOPICS = (startup, batch, decision, growth, rules, churn, questions)


def chosen_jobs(sizes: Sizes, prefix: str) -> list[Job]:
    """Return the jobs that have rows whose names begin with the prefix."""
    jobs = [job for topic in TOPICS for job in topic.jobs(sizes)]
    return named(jobs, prefix)


#: What the plain scan does not know: nothing is predicted in these fleets.
_FORESEEN = ("metrics_based", "lifetime_aware")


def load_kernels() -> None:
    """Compile the engine and the scan, or load them from the cache, before anything is timed."""
    say("loading the kernels; the first time they are compiled, which takes a minute or two")
    for strategy in STRATEGIES:
        if strategy in _FORESEEN:
            continue
        fleet = empty_fleet(16).snapshot()
        columns = FLAVORED.columns(fleet, 20, seed=0)
        engine = Engine(fleet, strategy)
        check_batch("first decisions", engine, strategy, columns, mix=mix_of(fleet))
        engine.find(requests_of(fleet, columns, "one")[0])


def run(jobs: Sequence[Job], prefix: str) -> list[Result]:
    """Measure one job after the other."""
    results: list[Result] = []
    for number, job in enumerate(jobs, 1):
        say(f"{number}/{len(jobs)} {job.name}")
        for result in job.run():
            if result.row.startswith(prefix):
                missed = f"  MISSED {significant(result.goal)}" if result.met is False else ""
                say(f"    {result.row}: {significant(result.value)} {result.unit}{missed}")
                results.append(result)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a tenth of the size, no size goals")
    parser.add_argument("--only", metavar="ROW_PREFIX", default="", help="only rows so named")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file to write")
    options = parser.parse_args(arguments)
    jobs = chosen_jobs(SHORT if options.short else FULL, options.only)
    if not jobs:
        print(f"bench-engine: no row begins with {options.only!r}", file=sys.stderr)
        return 2
    try:
        load_kernels()
        results = run(jobs, options.only)
    except AnswersDiffer as problem:
        print(f"bench-engine: answers differ: {problem}", file=sys.stderr)
        return 1
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table("roost engine" + (" (short)" if options.short else ""), results))
    write_json(options.output, results)
    missed = [result for result in results if result.met is False]
    judged = sum(result.met is not None for result in results)
    console.print(f"{len(results)} rows, {judged - len(missed)} of {judged} goals met", end="")
    console.print(f"; written to {options.output}", highlight=False)
    for result in missed:
        value, goal = significant(result.value), significant(result.goal)
        console.print(f"[bold red]MISSED[/] {result.row}: {value} {result.unit}, goal {goal}")
    return 0
