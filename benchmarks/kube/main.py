"""Run the Kubernetes benchmark, print its table and write build/bench/kube.json.

Exit code 0 means that every pod and every VM was placed as its rule says; goals that were missed
are listed but do not fail the run, because a busy machine misses goals too. 1 means that something
was wrong, 2 that no row has the asked name or that the programs are not built.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.api.main import run, show
from benchmarks.api.serving import REPOSITORY, ServerFailed
from benchmarks.api.verifying import Wrong
from benchmarks.engine.measuring import named, say_if_busy
from benchmarks.kube import scheduler
from benchmarks.kube.measuring import FULL, SHORT, Sizes
from benchmarks.kube.side import Side
from benchmarks.results import Result, write_json
from roost.base.errors import RoostError
from roost.kube.cluster.tools import missing_tools, tools_version

OUTPUT = REPOSITORY / "build" / "bench" / "kube.json"
NOTES = """
kube-scheduler: real {version}, with API server and etcd (fsync on), all on this machine's cores.
  Pods are there before it starts; the window is from the first to the last bound. It writes each
  binding through the API server to etcd. As it comes it samples nodes (42 % of 1,000, 10 % of
  5,000) and takes the best of those; with percentageOfNodesToScore 100 it looks at all.
engine: in this process, no server and no disk: what deciding costs, not what a service does. It
  always gives the exact best of all hosts. Ratios to it compare unlike things, on purpose.
durable API: the fair comparison. HTTP, decision and commit to disk in one; what creating the pods
  costs Kubernetes before its window opens is not counted against it.
Ratios are over kube-scheduler as it comes, by its rate and, which other work disturbs less, by CPU.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kube", description=__doc__)
    parser.add_argument("--short", action="store_true", help="1,000 nodes, few pods, no goals")
    parser.add_argument("--only", metavar="ROW_PREFIX", default="", help="only rows so named")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="JSON file to write")
    options = parser.parse_args(arguments)
    if missing := missing_tools():
        print(f"bench-kube: not built: {', '.join(missing)}; make kube-tools", file=sys.stderr)
        return 2
    # Ended from outside, it must still end what it has started.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        results = measure(SHORT if options.short else FULL, options.only, options.output)
    except (Wrong, ServerFailed, RoostError) as problem:
        print(f"bench-kube: {problem}", file=sys.stderr)
        return 1
    if not results:
        print(f"bench-kube: no row begins with {options.only!r}", file=sys.stderr)
        return 2
    title = "roost beside kube-scheduler" + (" (short)" if options.short else "")
    show(results, options.output, title)
    print(NOTES.format(version=tools_version()))
    return 0


def measure(sizes: Sizes, prefix: str, output: Path) -> list[Result]:
    """Run the cases that have rows so named, one cluster after the other."""
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    say_if_busy()
    results: list[Result] = []
    for nodes in sizes.nodes:
        with ExitStack() as stack:
            # Not under /tmp, which may be memory: what is measured syncs to a disk.
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=OUTPUT.parent)))
            opening = partial(scheduler.cluster_of, folder / "cluster", nodes, fsync=True)
            side = Side(sizes, nodes, folder, lambda: stack.enter_context(opening()))  # noqa: B023
            for job in named(list(side.jobs()), prefix):
                results += run([job], prefix)
                write_json(output, results)  # a run that is ended half way keeps what it has
    return results
