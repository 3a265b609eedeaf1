"""Run the benchmark of the planner, print its table and write build/bench/planner.json.

Goals that were missed are listed but do not fail the run, because a busy machine misses goals too;
exit code 2 means that no row has the asked name. Every answer is checked before it is a row.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.engine.main import run
from benchmarks.engine.measuring import named, say_if_busy
from benchmarks.planner import costs, fleets, fragments, ganeti, roadef
from benchmarks.results import table, write_json

REPOSITORY = Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "build" / "bench" / "planner.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="benchmarks.planner", description=__doc__)
    parser.add_argument("--short", action="store_true", help="60 s for an instance, small fleets")
    parser.add_argument("--rows", default="", help="only jobs whose names begin so")
    parser.add_argument("--seconds", type=float, help="CPU seconds for an instance of roadef")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="public data")
    options = parser.parse_args(arguments)
    seconds = options.seconds or (60.0 if options.short else 300.0)
    every = [
        *fleets.jobs(short=options.short),
        *costs.jobs(OUTPUT.parent, short=options.short),
        *fragments.jobs(options.data),
        *ganeti.jobs(options.data),
        *roadef.jobs(options.data, seconds),
    ]
    chosen = named(every, options.rows)
    if not chosen:
        print(f"no row begins with {options.rows!r}", file=sys.stderr)
        return 2
    say_if_busy()
    results = run(chosen, "")
    Console().print(table("planner", results))
    write_json(OUTPUT, results)
    return 0
