"""Run the benchmark of the analysis, print its table and write build/bench/analysis.json.

Goals that were missed are listed but do not fail the run, because a busy machine misses goals too;
exit code 2 means that no row has the asked name. What tunes, calibrates and trains has other seeds
and days than what is judged here.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.analysis import (
    bitbrains,
    consolidation,
    fleets,
    judging,
    levels,
    lifetimes,
    peaks,
    store,
)
from benchmarks.analysis.sizes import FULL, SHORT
from benchmarks.engine.main import run
from benchmarks.engine.measuring import named, say_if_busy
from benchmarks.results import table, write_json

REPOSITORY = Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "build" / "bench" / "analysis.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="benchmarks.analysis", description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer series")
    parser.add_argument("--rows", default="", help="only jobs whose names begin so")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="public data")
    options = parser.parse_args(arguments)
    sizes = SHORT if options.short else FULL
    every = [
        *judging.jobs(sizes),
        *fleets.jobs(sizes),
        *store.jobs(sizes),
        *bitbrains.jobs(options.data, sizes),
        *levels.jobs(options.data, sizes),
        *peaks.jobs(options.data, sizes),
        *lifetimes.jobs(options.data, sizes),
        *consolidation.jobs(options.data, sizes),
    ]
    chosen = named(every, options.rows)
    if not chosen:
        print(f"no row begins with {options.rows!r}", file=sys.stderr)
        return 2
    say_if_busy()
    results = run(chosen, "")
    Console().print(table("analysis", results))
    write_json(OUTPUT, results)
    return 0
