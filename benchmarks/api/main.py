"""Run the API benchmark, print its table and write build/bench/api.json.

Exit code 0 means that every answer and every database was as it must be; goals that were missed
are listed but do not fail the run, because a busy machine misses goals too. 1 means that something
was wrong, 2 that no row has the asked name or that PostgreSQL was asked for and is not there.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from benchmarks.api import agents, creates, startup
from benchmarks.api.databases import (
    Databases,
    has_postgres,
    postgres_databases,
    sqlite_databases,
)
from benchmarks.api.measuring import FULL, SHORT, Sizes
from benchmarks.api.serving import REPOSITORY, ServerFailed
from benchmarks.api.verifying import Wrong
from benchmarks.engine.measuring import Job, named, say, say_if_busy
from benchmarks.results import Result, significant, table, write_json

OUTPUT = REPOSITORY / "build" / "bench" / "api.json"


def jobs_of(sizes: Sizes, databases: Databases, folder: Path) -> Iterator[Job]:
    """Return all jobs on one kind of database."""
    yield from creates.jobs(sizes, databases, folder)
    if sizes.full or databases.postgres is None:  # a short run saves the time
        yield from agents.jobs(sizes, databases, folder)
        yield from startup.jobs(sizes, databases, folder)


def run(jobs: Sequence[Job], prefix: str) -> list[Result]:
    """Measure one job after the other."""
    results: list[Result] = []
    for number, job in enumerate(jobs, 1):
        say(f"{number}/{len(jobs)} {job.name}")
        for result in job.run():
            if result.row.startswith(prefix):
                missed = f"  MISSED {significant(result.goal)}" if result.met is False else ""
                measured = f"{significant(result.value)} {result.unit}{missed}"
                say(f"    {result.row}: {result.note if result.value is None else measured}")
                results.append(result)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.api", description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes, no goals")
    parser.add_argument("--only", metavar="ROW_PREFIX", default="", help="only rows so named")
    parser.add_argument(
        "--postgres",
        choices=("auto", "yes", "no"),
        default="auto",
        help="rows on PostgreSQL too; auto: when this machine has it",
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file to write")
    options = parser.parse_args(arguments)
    if options.postgres == "yes" and not has_postgres():
        print("bench-api: PostgreSQL is not installed: apt-get install postgresql", file=sys.stderr)
        return 2
    sizes = SHORT if options.short else FULL
    # Ended from outside, it must still end what it has started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        results = measure(sizes, options.postgres, options.only)
    except (Wrong, ServerFailed) as problem:
        print(f"bench-api: {problem}", file=sys.stderr)
        return 1
    if not results:
        print(f"bench-api: no row begins with {options.only!r}", file=sys.stderr)
        return 2
    show(results, options.output, "roost API" + (" (short)" if options.short else ""))
    return 0


def measure(sizes: Sizes, postgres: str, prefix: str) -> list[Result]:
    """Make the databases, run the jobs that have rows so named, and remove everything again."""
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    say_if_busy()
    with ExitStack() as stack:
        # Not under /tmp, which may be memory: what is measured is a disk.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=OUTPUT.parent)))
        kinds = [stack.enter_context(sqlite_databases(folder))]
        if postgres != "no" and has_postgres():
            kinds.append(stack.enter_context(postgres_databases(folder)))
        jobs = [job for databases in kinds for job in jobs_of(sizes, databases, folder)]
        return run(named(jobs, prefix), prefix)


def show(results: Sequence[Result], output: Path, title: str) -> None:
    """Print the table and write the JSON file."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table(title, results))
    write_json(output, results)
    missed = [result for result in results if result.met is False]
    judged = sum(result.met is not None for result in results)
    console.print(f"{len(results)} rows, {judged - len(missed)} of {judged} goals met", end="")
    console.print(f"; written to {output}", highlight=False)
    for result in missed:
        value, goal = significant(result.value), significant(result.goal)
        console.print(f"[bold red]MISSED[/] {result.row}: {value} {result.unit}, goal {goal}")
