"""Rows: one batch onto a fleet without VMs, in a process of its own so that its memory counts.

The worker (batch_worker.py) places everything in one call. Here the same requests are placed in
pieces, some of them compared with the plain scan; a digest shows that both came to the same hosts.
"""

import hashlib
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.engine.checking import AnswersDiffer, check_batch
from benchmarks.engine.fleets import CONTINUOUS, FLAVORED, Workload, empty_fleet
from benchmarks.engine.measuring import Job, Sizes
from benchmarks.results import Result, at_most
from roost.placement.engine import Engine

STRATEGIES = ("least_loaded", "best_fit", "first_fit")
BATCH_SEED = 2
_SAMPLE = 300
_RUNS = 2
_GOAL_S, _AIM_S = 5.0, 3.0
_GOAL_MIB, _AIM_MIB = 512.0, 256.0


def jobs(sizes: Sizes) -> Iterator[Job]:
    """Return one job per strategy and kind of sizes."""
    for workload, count in ((FLAVORED, sizes.batch_vms), (CONTINUOUS, sizes.continuous_vms)):
        for strategy in STRATEGIES:
            name = f"batch {strategy}, {workload.name}"
            yield Job(name, partial(_batch, name, sizes, workload, strategy, count))


def _batch(
    name: str, sizes: Sizes, workload: Workload, strategy: str, count: int
) -> Iterator[Result]:
    plain_s, expected = _in_pieces(name, sizes.many, workload, strategy, count)
    runs = _RUNS if sizes.full else 1
    reports = [_in_worker(sizes.many, workload, strategy, count) for _ in range(runs)]
    if any(each["digest"] != expected for each in reports):
        raise AnswersDiffer(f"{name}: one batch and the same requests in pieces differ")
    report = min(reports, key=lambda each: each["cpu_s"])
    size = f"{sizes.many:,} hosts x {count:,} VMs"
    each = report["cpu_s"] / count
    yield at_most(
        f"{name}: CPU",
        report["cpu_s"],
        "s",
        sizes.goal(_GOAL_S),
        sizes.goal(_AIM_S),
        ratio=each / plain_s,
        note=f"{size}, {each * 1e6:.2f} us each, {report['placed']:.1%} placed, "
        f"wall {report['wall_s']:.2f} s",
    )
    yield at_most(
        f"{name}: peak memory",
        report["peak_mib"],
        "MiB",
        sizes.goal(_GOAL_MIB),
        sizes.goal(_AIM_MIB),
        note=f"{report['before_mib']:.0f} MiB before the batch",
    )


def _in_pieces(
    name: str, hosts: int, workload: Workload, strategy: str, count: int
) -> tuple[float, str]:
    """Place the batch with samples checked at its start and near its end.

    Returns the plain scan's seconds per decision and a digest of where the VMs went.
    """
    fleet = empty_fleet(hosts).snapshot()
    columns = workload.columns(fleet, count, BATCH_SEED)
    engine = Engine(fleet)
    late = count * 9 // 10
    check_batch(f"{name}, first", engine, strategy, columns.part(0, _SAMPLE))
    engine.place_columns(columns.part(_SAMPLE, late), strategy)
    sample = columns.part(late, late + _SAMPLE)
    plain_s = check_batch(f"{name}, late", engine, strategy, sample).plain
    engine.place_columns(columns.part(late + _SAMPLE, count), strategy)
    placed = fleet.vms.host[: fleet.vms.count]
    return plain_s, hashlib.sha256(placed.astype("<i4").tobytes()).hexdigest()


def _in_worker(hosts: int, workload: Workload, strategy: str, count: int) -> dict[str, Any]:
    """Place the batch in one call in a fresh process, which gets the fleet as a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.pickle"
        with path.open("wb") as file:
            pickle.dump(empty_fleet(hosts), file, protocol=pickle.HIGHEST_PROTOCOL)
        arguments = [str(path), workload.name, strategy, str(count)]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.engine.batch_worker", *arguments],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    report: dict[str, Any] = json.loads(done.stdout)
    return report
