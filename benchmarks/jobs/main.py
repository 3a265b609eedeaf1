"""Run the benchmark of jobs, print its table and write build/bench/jobs.json.

Answers are checked before they are timed; goals that were missed are listed and do not fail the
run, because a busy machine misses goals too.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.engine.measuring import say_if_busy
from benchmarks.jobs.local import JOBS, local_rows
from benchmarks.jobs.mix import CASES, cheapest_mix_row
from benchmarks.jobs.planning import plan_row, submit_row
from benchmarks.results import table, write_json

OUTPUT = Path(__file__).resolve().parents[2] / "build" / "bench" / "jobs.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="benchmarks.jobs", description=__doc__)
    parser.add_argument(
        "--short", action="store_true", help="fewer jobs, and a few cases of the mix"
    )
    options = parser.parse_args(arguments)
    say_if_busy()
    results = [
        *local_rows(1000 if options.short else JOBS),
        plan_row(),
        submit_row(),
        cheapest_mix_row(5 if options.short else CASES),
    ]
    Console().print(table("jobs", results))
    write_json(OUTPUT, results)
    return 0
