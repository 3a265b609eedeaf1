"""Run the agent benchmark, print its table and write build/bench/agent.json.

Exit code 0 means that every guest, counter and ledger was as it must be; goals that were missed are
listed but do not fail the run, because a busy machine misses goals too. 1 means that something was
wrong, 2 that no row has the asked name. Rows that need QEMU are skipped where it is missing.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.agent import boots, crowd, memory, moves
from benchmarks.agent.hosts import QemuHosts
from benchmarks.agent.sizes import FULL, SHORT, Sizes
from benchmarks.api.main import run, show
from benchmarks.api.serving import REPOSITORY, ServerFailed
from benchmarks.api.verifying import Wrong
from benchmarks.engine.measuring import Job, named, say_if_busy
from benchmarks.results import Result
from roost.base.errors import RoostError

OUTPUT = REPOSITORY / "build" / "bench" / "agent.json"


def jobs_of(sizes: Sizes, folder: Path, hosts: QemuHosts) -> Iterator[Job]:
    """Return all jobs; those with guests come last, for their hosts stay until the end."""
    yield from crowd.jobs(sizes, folder)
    yield from memory.jobs(sizes, folder, hosts)
    yield from boots.jobs(sizes, folder, hosts)
    yield from moves.jobs(sizes, folder, hosts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few runs, no goals")
    parser.add_argument("--only", metavar="ROW_PREFIX", default="", help="only rows so named")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file to write")
    options = parser.parse_args(arguments)
    # Ended from outside, it must still end what it has started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        results = measure(SHORT if options.short else FULL, options.only)
    except (Wrong, ServerFailed, RoostError) as problem:
        print(f"bench-agent: {problem}", file=sys.stderr)
        return 1
    if not results:
        print(f"bench-agent: no row begins with {options.only!r}", file=sys.stderr)
        return 2
    show(results, options.output, "roost agent" + (" (short)" if options.short else ""))
    return 0


def measure(sizes: Sizes, prefix: str) -> list[Result]:
    """Run the jobs that have rows so named, and remove everything again."""
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    say_if_busy()
    # Not under /tmp, which may be memory: agents and ledger write to a disk.
    with (
        tempfile.TemporaryDirectory(dir=OUTPUT.parent) as folder,
        QemuHosts(Path(folder) / "hosts") as hosts,
    ):
        jobs = jobs_of(sizes, Path(folder), hosts)
        return run(named(jobs, prefix), prefix)
