"""Run the benchmark of harm, print its table and write build/bench/hardening.json.

Exit code 0 means that nobody who did no harm was refused; goals that were missed are listed but do
not fail the run, because a busy machine misses goals too. 1 means that something was wrong, 2 that
no row has the asked name.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.api.main import run, show
from benchmarks.api.serving import REPOSITORY, ServerFailed
from benchmarks.api.verifying import Wrong
from benchmarks.engine.measuring import Job, named, say_if_busy
from benchmarks.hardening import agents, clients
from benchmarks.hardening.sizes import FULL, SHORT, Sizes

OUTPUT = REPOSITORY / "build" / "bench" / "hardening.json"


def jobs_of(sizes: Sizes, folder: Path) -> Iterator[Job]:
    """Return all jobs."""
    yield from clients.jobs(sizes, folder)
    yield from agents.jobs(sizes, folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hardening", description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes, no goals")
    parser.add_argument("--only", metavar="ROW_PREFIX", default="", help="only rows so named")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file to write")
    options = parser.parse_args(arguments)
    sizes = SHORT if options.short else FULL
    # Ended from outside, it must still end what it has started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    say_if_busy()
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Not under /tmp, which may be memory: creates wait for a disk.
        with tempfile.TemporaryDirectory(dir=OUTPUT.parent) as folder:
            results = run(named(jobs_of(sizes, Path(folder)), options.only), options.only)
    except (Wrong, ServerFailed) as problem:
        print(f"bench-hardening: {problem}", file=sys.stderr)
        return 1
    if not results:
        print(f"bench-hardening: no row begins with {options.only!r}", file=sys.stderr)
        return 2
    show(results, options.output, "harm" + (" (short)" if options.short else ""))
    return 0
