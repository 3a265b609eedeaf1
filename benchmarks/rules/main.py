"""Run the benchmark of rules, print its table and write build/bench/rules.json.

Exit code 0 means that every answer agreed with the plain interpreter; goals that were missed are
listed but do not fail the run, because a busy machine misses goals too. 1 means that an answer
differed, 2 that no row has the asked name.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.engine.checking import AnswersDiffer
from benchmarks.engine.main import run
from benchmarks.engine.measuring import FULL, SHORT, Job, Sizes, named, say_if_busy
from benchmarks.results import table, write_json
from benchmarks.rules import compiling, decisions, policies, preempting, reserving, solving

REPOSITORY = Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "build" / "bench" / "rules.json"
TOPICS = (compiling, decisions, policies, preempting, reserving, solving)


def chosen_jobs(sizes: Sizes, prefix: str) -> list[Job]:
    """Return the jobs that have rows whose names begin with the prefix."""
    return named((job for topic in TOPICS for job in topic.jobs(sizes)), prefix)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="benchmarks.rules", description=__doc__)
    parser.add_argument("--short", action="store_true", help="small fleets only")
    parser.add_argument("--rows", default="", help="only rows whose names begin so")
    options = parser.parse_args(arguments)
    jobs = chosen_jobs(SHORT if options.short else FULL, options.rows)
    if not jobs:
        print(f"no row begins with {options.rows!r}", file=sys.stderr)
        return 2
    say_if_busy()
    try:
        results = run(jobs, options.rows)
    except AnswersDiffer as differ:
        print(differ, file=sys.stderr)
        return 1
    Console().print(table("rules", results))
    write_json(OUTPUT, results)
    return 0
