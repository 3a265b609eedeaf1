"""Run the packing benchmark, print its table and write build/bench/packing.json.

Every row carries the value measured here, the goal it is held to and, where there is one, a
further aim. `met` is "aim", "goal" or "no"; a row without a goal is there for comparison ("-").
Exit code: 0 when every goal is met, 1 when one is missed, 2 when the data folder is missing.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from benchmarks.packing import huawei, openb, shipped
from benchmarks.packing.huawei_trace import Ints, load_episodes, load_vms, trimmed_mean

REPOSITORY = Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "build" / "bench" / "packing.json"
SEEDS = range(42, 52)

BALANCE_FIT_S = 220_063.0
# SPANE's three best models against balance fit, by number of servers. Published for its own test
# starts, which are not in the data folder: the ratio carries over as an aim, the seconds do not.
SPANE_RATIO = {
    3: 39_885 / 38_832,
    4: 37_750 / 37_829,
    5: 63_697 / 86_010,
    6: 53_693 / 62_644,
    8: 169_193 / 176_529,
}
PUBLISHED_GPU_PCT = {
    "default": {"BestFit": 93.08, "FGD": 95.39},
    "gpushare60": {"BestFit": 89.36, "FGD": 91.40},
    "gpuspec20": {"BestFit": 93.30, "FGD": 94.84},
}
#: Goals and aims of the engine as a server runs it, in % GPU and in seconds.
SHIPPED_GPU_PCT = {
    "default": (95.0, 95.39),
    "gpushare60": (91.0, 91.40),
    "gpuspec20": (94.84, 95.5),
}
SHIPPED_WAIT_S = (200_000.0, 190_000.0)
#: Requests before an episode that a server has counted, fewer than the ledger keeps account of.
REMEMBERED = 5_000
#: Pieces of the trace that confidence is stated by: an episode is far shorter than one.
BLOCKS = 20
# Other shuffles than the published ones, so a re-run is held to this distance from its mean.
SHUFFLE_TOLERANCE_PCT = 0.35


class Row(TypedDict):
    """One line of the table; `goal` and `aim` are in the row's unit."""

    row: str
    value: float
    unit: str
    goal: float | None
    aim: float | None
    met: str


def reproduced(row: str, value: float, unit: str, goal: float, tolerance: float) -> Row:
    """Build a row that must equal a published value within a tolerance."""
    met = "goal" if abs(value - goal) <= tolerance else "no"
    return Row(row=row, value=value, unit=unit, goal=goal, aim=None, met=met)


def beaten(
    row: str, value: float, unit: str, goal: float, aim: float, better: Callable[..., float]
) -> Row:
    """Build a row that must pass a goal in the direction of `better` (min or max)."""

    def passes(bar: float) -> bool:
        return value != bar and better(value, bar) == value

    met = "aim" if passes(aim) and passes(goal) else "goal" if passes(goal) else "no"
    return Row(row=row, value=value, unit=unit, goal=goal, aim=aim, met=met)


def compared(row: str, value: float, unit: str) -> Row:
    """Build a row without a goal."""
    return Row(row=row, value=value, unit=unit, goal=None, aim=None, met="-")


def huawei_rows(folder: Path) -> list[Row]:
    """Measure the published episodes and a hold-out set made by the same rule."""
    vms = load_vms(folder)
    episodes = load_episodes(folder)
    rows = []
    for name, policy in huawei.POLICIES.items():
        waits = huawei.run(vms, episodes, 5, policy)
        label = f"huawei 5 servers, {name}"
        value = round(trimmed_mean(waits), 1)
        if name in episodes.published:
            expected = episodes.published[name]
            differing = float(np.count_nonzero(waits != expected))
            rows.append(reproduced(label, value, "s", round(trimmed_mean(expected), 1), 0.0))
            rows.append(reproduced(f"{label}, episodes that differ", differing, "", 0.0, 0.0))
        else:
            aim = round(BALANCE_FIT_S * SPANE_RATIO[5], 1)
            rows.append(beaten(label, value, "s", BALANCE_FIT_S, aim, min))
        rows.append(compared(f"{label}, plain mean", round(float(waits.mean()), 1), "s"))
    # The fleet is empty and the mix is what the ledger would have kept: the requests before.
    waits = shipped.run_huawei(vms, episodes, 5, known=REMEMBERED)
    label = "huawei 5 servers, roost as shipped"
    rows.append(beaten(label, round(trimmed_mean(waits), 1), "s", *SHIPPED_WAIT_S, min))
    rows.append(compared(f"{label}, plain mean", round(float(waits.mean()), 1), "s"))
    # The published balance fit compares floats, whose rounding decides between servers that are
    # equally uneven; the engine is held to the same rule in exact arithmetic.
    exact = huawei.run(vms, episodes, 5, huawei.BALANCE_FIT_EXACT)
    waits = shipped.run_huawei(vms, episodes, 5, "balance_fit")
    differing = float(np.count_nonzero(waits != exact))
    label = "huawei 5 servers, balance_fit as shipped"
    rows.append(compared(label, round(trimmed_mean(waits), 1), "s"))
    rows.append(reproduced(f"{label}, episodes unlike the exact rule", differing, "", 0.0, 0.0))
    label = "huawei 5 servers, roost as shipped"
    waits = shipped.run_huawei(vms, episodes, 5)
    value = round(trimmed_mean(waits), 1)
    rows.append(compared(f"{label}, nothing asked before", value, "s"))
    for servers, ratio in SPANE_RATIO.items():
        # Starts used neither by the published episodes nor to choose the rules; the same trace,
        # though, so neighbouring episodes share VMs with those that were.
        fresh = huawei.make_episodes(vms, np.arange(29, 69_000, 50), servers)
        plain = huawei.run(vms, fresh, servers, huawei.BALANCE_FIT)
        base = trimmed_mean(plain)
        rows.append(compared(f"hold-out {servers} servers, balance fit", round(base, 1), "s"))
        for name in ("fragmentation", "fragmentation, whole slots"):
            waits = huawei.run(vms, fresh, servers, huawei.POLICIES[name])
            label = f"hold-out {servers} servers, {name}"
            aim = round(base * ratio, 1)
            rows.append(beaten(label, round(trimmed_mean(waits), 1), "s", round(base, 1), aim, min))
            gain, least = gain_by_blocks(fresh.starts, waits, plain)
            rows.append(compared(f"{label}, gain by blocks", gain, "%"))
            rows.append(compared(f"{label}, gain, 95% sure of", least, "%"))
    return rows


def gain_by_blocks(starts: Ints, waits: Ints, plain: Ints) -> tuple[float, float]:
    """Return by how many % waits are shorter than under the plain rule, and what is 95% sure.

    Neighbouring episodes share VMs, so each is no observation of its own. The trace is cut into
    BLOCKS pieces longer than an episode; what is sure is the lower end of a one-sided interval
    over them (block bootstrap, 2,000 draws of a fixed seed).
    """
    of = (starts - starts.min()) * BLOCKS // (starts.max() - starts.min() + 1)
    ours = np.array([waits[of == block].sum() for block in range(BLOCKS)], float)
    theirs = np.array([plain[of == block].sum() for block in range(BLOCKS)], float)
    drawn = np.random.default_rng(1).integers(0, BLOCKS, (2_000, BLOCKS))
    gains = 100 * (1 - ours[drawn].sum(axis=1) / theirs[drawn].sum(axis=1))
    whole = 100 * (1 - ours.sum() / theirs.sum())
    return round(float(whole), 1), round(float(np.quantile(gains, 0.05)), 1)


def openb_rows(folder: Path, seeds: Sequence[int]) -> list[Row]:
    """Measure the three pod lists, mean over the seeds."""
    rows = []
    for name, published in PUBLISHED_GPU_PCT.items():
        workload = openb.load(folder, name)
        for label, policy in openb.POLICIES.items():
            figures = [openb.run(workload, policy, seed)[0] for seed in seeds]
            value = round(float(np.mean(figures)), 2)
            row = f"openb {name}, {label}"
            if label in published:
                bar = published[label]
                rows.append(reproduced(row, value, "% GPU", bar, SHUFFLE_TOLERANCE_PCT))
            else:
                goal, aim = published["BestFit"], published["FGD"]
                rows.append(beaten(row, value, "% GPU", goal, aim, max))
        own = [shipped.run_openb(workload, seed) for seed in seeds]
        goal, aim = SHIPPED_GPU_PCT[name]
        label = f"openb {name}, roost as shipped"
        rows.append(beaten(label, round(float(np.mean(own)), 2), "% GPU", goal, aim, max))
        for strategy in ("best_fit", "dot_product"):
            figure = shipped.run_openb(workload, seeds[0], strategy)
            rows.append(compared(f"openb {name}, {strategy} as shipped", round(figure, 2), "% GPU"))
    return rows


def run(data: Path, seeds: Sequence[int] = SEEDS) -> list[Row]:
    """Measure everything; `data` must hold huawei-east1 and openb."""
    return huawei_rows(data / "huawei-east1") + openb_rows(data / "openb", seeds)


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out as text."""

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:,.2f}"

    lines = [f"{'row':<58} {'value':>12} {'goal':>12} {'aim':>12} {'unit':<6} met"]
    for row in rows:
        figures = " ".join(f"{number(row[key]):>12}" for key in ("value", "goal", "aim"))
        lines.append(f"{row['row']:<58} {figures} {row['unit']:<6} {row['met']}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, run, print, write the JSON file."""
    parser = argparse.ArgumentParser(description="Placement benchmarks on public traces.")
    parser.add_argument("--data", type=Path, required=True, help="folder with huawei-east1, openb")
    parser.add_argument("--out", type=Path, default=OUTPUT, help="JSON file to write")
    options = parser.parse_args(arguments)
    missing = [name for name in ("huawei-east1", "openb") if not (options.data / name).is_dir()]
    if missing:
        print(
            f"bench-packing: no {' and no '.join(missing)} folder under {options.data}\n"
            "Maybe set DATA to the folder that holds the benchmark data.",
            file=sys.stderr,
        )
        return 2
    began = time.perf_counter()
    rows = run(options.data)
    print(table(rows))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=2) + "\n")
    print(f"{len(rows)} rows in {time.perf_counter() - began:.0f} s, written to {options.out}")
    return 1 if any(row["met"] == "no" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
