"""The process of one batch row: load a fleet, place everything in one call, report as JSON."""

import hashlib
import json
import pickle
import sys
from pathlib import Path

from benchmarks.engine.batch import BATCH_SEED
from benchmarks.engine.fleets import CONTINUOUS, FLAVORED, empty_fleet
from benchmarks.engine.measuring import timed
from roost.placement.engine import Engine


def peak_mib() -> float:
    """Return the most memory this process has used.

    Not `ru_maxrss`: a child inherits that from the process that started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def main(path: str, workload_name: str, strategy: str, count: int) -> None:
    """Place `count` requests and print what it took."""
    workload = {each.name: each for each in (FLAVORED, CONTINUOUS)}[workload_name]
    small = empty_fleet(16).snapshot()  # loads the kernels, which is a row of its own
    Engine(small).place_columns(workload.columns(small, 4, seed=0), strategy)
    with Path(path).open("rb") as file:
        fleet = pickle.load(file)
    engine = Engine(fleet)
    columns = workload.columns(fleet, count, BATCH_SEED)
    before = peak_mib()
    with timed() as span:
        answers = engine.place_columns(columns, strategy)
    peak = peak_mib()
    placed = answers.row[answers.row >= 0]
    report = {
        "cpu_s": span.cpu_s,
        "wall_s": span.wall_s,
        "before_mib": before,
        "peak_mib": peak,
        "placed": len(placed) / count,
        "digest": hashlib.sha256(placed.astype("<i4").tobytes()).hexdigest(),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
