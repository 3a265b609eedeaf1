"""Rows on real series: forecasts of Bitbrains VMs beside statsforecast's models.

Days 1 to 11 are known, origins every 6 hours on days 12 to 14, horizons of 1 and 24 hours, season
288. MASE is the mean absolute error over that of the seasonal naive model within days 1 to 11.
The oracles take seconds for each series and origin, so a part of the series is forecast by them,
the same part that roost is compared on, and what they said is kept in build/bench.
"""

import csv
import gzip
import time
import warnings
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np

from benchmarks.analysis.sizes import Sizes
from benchmarks.analysis.synthetic import Floats
from benchmarks.engine.measuring import Job, say
from benchmarks.results import Result, at_least, at_most, skipped
from roost.analysis.forecasting import RANGE_ENDS, Forecast, forecast_batch
from roost.analysis.grid import filled

DAY = 288
KNOWN = 11 * DAY
HORIZONS = (12, 288)
KEPT = Path(__file__).resolve().parents[2] / "build" / "bench" / "analysis-oracles.npz"
FILES = ("cpu_pct_aug01-14.csv.gz", "mem_mb_aug01-14.csv.gz")


def read_table(path: Path) -> Floats:
    """Return a file's values, [step, VM]; NaN where nothing was read."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.reader(file))[1:]
    return np.array([[float(cell) if cell else np.nan for cell in row[1:]] for row in rows])


def load(data: Path) -> tuple[Floats, int]:
    """Return all series that vary in days 1 to 11, and how many do not."""
    columns: list[Floats] = []
    for name in FILES:
        columns.extend(read_table(data / "bitbrains-rnd" / name).T)
    varies = [c for c in columns if np.nanmin(c[:KNOWN]) < np.nanmax(c[:KNOWN])]
    return np.array(varies), len(columns) - len(varies)


def oracles(
    values: Floats, rows: list[int], origins: list[int]
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Return forecasts [series, origin, 288] of each oracle, and CPU seconds per forecast."""
    from statsforecast.models import MSTL, AutoETS, SeasonalNaive

    models = {
        "SeasonalNaive": SeasonalNaive(season_length=DAY),
        # With a season of 288 three series took over two minutes of CPU: only forms without season.
        "AutoETS": AutoETS(season_length=DAY, model="ZZN"),
        "MSTL": MSTL(season_length=DAY),
    }
    kept = dict(np.load(KEPT)) if KEPT.exists() else {}
    told, cost = {}, {}
    for name, model in models.items():
        said, spent = np.zeros((len(rows), len(origins), DAY)), []
        for at, row in enumerate(rows):
            for number, origin in enumerate(origins):
                past = filled(values[row : row + 1, :origin])[0]
                key = f"{name}-{sha256(past.tobytes()).hexdigest()[:24]}"
                if key not in kept:
                    began = time.process_time()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        mean = model.forecast(y=past, h=DAY)["mean"]
                    kept[key] = np.append(mean, time.process_time() - began)
                said[at, number] = kept[key][:DAY]
                spent.append(float(kept[key][DAY]))
            if at % 5 == 4:
                say(f"{name}: {at + 1} of {len(rows)} series")
        told[name], cost[name] = said, float(np.median(spent))
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(KEPT, **kept)
    return told, cost


def mase(values: Floats, told: Floats, origin: int, horizon: int) -> Floats:
    """Return the scaled error of each series over a horizon."""
    past = filled(values[:, :KNOWN])
    scale = np.abs(past[:, DAY:] - past[:, :-DAY]).mean(axis=1)
    actual = values[:, origin : origin + horizon]
    return np.asarray(np.nanmean(np.abs(actual - told[:, :horizon]), axis=1) / scale)


def rows_of(data: Path, sizes: Sizes) -> Iterator[Result]:
    """Measure forecasts of all origins."""
    if not (data / "bitbrains-rnd").is_dir():
        why = f"no bitbrains-rnd under {data}. Maybe set DATA to the folder of public data."
        yield from (skipped(f"forecast {what}", "", why) for what in ("MASE ratio", "speed"))
        yield skipped("interval coverage", "", why)
        return
    values, constant = load(data)
    origins = list(range(KNOWN, values.shape[1] - HORIZONS[0] + 1, 72))[:: sizes.origin_every]
    forecast_batch(values[:2, :KNOWN], DAY)
    told = {}
    began = time.process_time()
    for origin in origins:
        told[origin] = forecast_batch(values[:, :origin], DAY)
    ours_s = (time.process_time() - began) / (len(origins) * len(values))
    rows = list(range(0, len(values), sizes.oracle_every))
    say(f"oracles: {len(rows)} series, {len(origins)} origins (kept ones are not run again)")
    said, cost = oracles(values, rows, origins)
    errors: dict[str, list[float]] = {}
    for number, origin in enumerate(origins):
        for horizon in HORIZONS:
            if origin + horizon > values.shape[1]:
                continue
            mine = mase(values[rows], told[origin].point[rows], origin, horizon)
            errors.setdefault(f"roost {horizon}", []).append(float(mine.mean()))
            for name, forecasts in said.items():
                theirs = mase(values[rows], forecasts[:, number], origin, horizon)
                errors.setdefault(f"{name} {horizon}", []).append(float(theirs.mean()))
    mean = {
        name: float(np.mean([np.mean(errors[f"{name} {h}"]) for h in HORIZONS]))
        for name in ("roost", *said)
    }
    best = min(said, key=lambda name: mean[name])
    note = f"{len(rows)} of {len(values)} series, {constant} constant left out; best: {best}"
    yield at_most("forecast MASE ratio", mean["roost"] / mean[best], "", sizes.goal(1.0), note=note)
    for name in ("roost", *said):
        parts = ", ".join(f"{h // 12} h {np.mean(errors[f'{name} {h}']):.3f}" for h in HORIZONS)
        yield at_most(f"forecast MASE: {name}", mean[name], "", None, note=parts)
    note = f"{1e3 * ours_s:.2f} ms of CPU a series beside {1e3 * cost[best]:.0f} ms of {best}"
    yield at_least("forecast speed", cost[best] / ours_s, "x", sizes.goal(100), note=note)
    yield from coverage(values, told, origins, sizes)


def coverage(
    values: Floats, told: dict[int, Forecast], origins: list[int], sizes: Sizes
) -> Iterator[Result]:
    """Measure how many values lie in the 90% intervals, by range of steps ahead."""
    begin = 0
    hits = points = 0
    for end in RANGE_ENDS[RANGE_ENDS <= DAY]:
        inside = known = 0
        for origin in origins:
            actual = values[:, origin + begin : origin + int(end)]
            there = np.isfinite(actual)
            width = actual.shape[1]
            low = told[origin].low[:, begin : begin + width]
            high = told[origin].high[:, begin : begin + width]
            inside += int(((actual >= low) & (actual <= high) & there).sum())
            known += int(there.sum())
        yield at_least(f"interval coverage: to {end / 12:g} h", inside / known, "", None)
        begin, hits, points = int(end), hits + inside, points + known
    value = hits / points
    low, high = 0.88, 0.92
    note = "90% intervals, goal 0.88 to 0.92"
    yield Result(
        "interval coverage", value, "", sizes.goal(0.9), None,
        low <= value <= high if sizes.full else None, note=note,
    )  # fmt: skip


def jobs(data: Path, sizes: Sizes) -> list[Job]:
    """Return the jobs of this topic."""
    return [Job("forecast", lambda: rows_of(data, sizes))]
