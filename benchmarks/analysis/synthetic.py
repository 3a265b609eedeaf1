"""Synthetic series with known truth: what detection is tuned, calibrated and judged on.

Everything comes from the generator handed in. Tuning, calibration, training and judging use seeds
from separate ranges, so that nothing is judged on what it was made with.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Seeds for constants chosen by hand, for the calibration table, for classes, and for judging.
TUNING, CALIBRATING, TRAINING, JUDGING = 1_000, 2_000, 3_000, 50_000

POINTS = 2_016
STEP_S = 300
SHAPES = ("sine", "day", "pulse", "square", "saw")


@dataclass(frozen=True, slots=True)
class Drawn:
    """A synthetic series, and the periods (in steps) that were put into it."""

    values: Floats
    periods: tuple[float, ...]
    ahead: Floats


def wave(shape: str, phase: Floats) -> Floats:
    """Return a cycle of standard deviation 0.71 (a sine of amplitude 1) at phases in cycles."""
    turn = phase - np.floor(phase)
    if shape == "sine":
        return np.asarray(np.sin(2 * np.pi * turn))
    if shape == "day":
        raw = np.exp(3 * np.cos(2 * np.pi * turn)) / np.exp(3)
    elif shape == "pulse":
        raw = (turn < 0.15).astype(np.float64)
    elif shape == "square":
        raw = (turn < 0.5).astype(np.float64)
    else:
        raw = turn
    spread = float(raw.std()) or 1.0
    return np.asarray((raw - raw.mean()) / spread * np.sqrt(0.5))


def separated(rng: np.random.Generator, count: int, points: int) -> list[float]:
    """Draw periods of 3 cycles at least that a spectrum of so many points can tell apart."""
    chosen: list[float] = []
    while len(chosen) < count:
        period = float(np.exp(rng.uniform(np.log(8.0), np.log(points / 3.0))))
        cycles = points / period
        if all(abs(cycles - points / other) > 3.0 for other in chosen):
            chosen.append(period)
    return chosen


def noise_like(rng: np.random.Generator, points: int) -> Floats:
    """Draw noise of standard deviation about 1: white, or with a memory of a few steps."""
    white = rng.standard_normal(points)
    if rng.random() < 0.5:
        return white
    memory = rng.uniform(0.2, 0.9)
    out = np.empty(points)
    level = 0.0
    for at in range(points):
        level = memory * level + white[at] * np.sqrt(1 - memory**2)
        out[at] = level
    return out


def periodic(rng: np.random.Generator, *, points: int = POINTS, ahead: int = POINTS // 3) -> Drawn:
    """Draw a series for the period rows: a fifth without any, else one to three periods.

    Noise up to the amplitude of the smallest cycle, trend, 10% gaps. `ahead` further points without
    gaps follow, to see whether what was found holds on.
    """
    total = points + ahead
    time = np.arange(total, dtype=np.float64)
    count = 0 if rng.random() < 0.2 else int(rng.integers(1, 4))
    periods = separated(rng, count, points)
    values = np.full(total, rng.uniform(5, 50))
    amplitudes = rng.uniform(0.6, 1.6, count)
    for period, amplitude in zip(periods, amplitudes, strict=True):
        shape = SHAPES[int(rng.integers(len(SHAPES)))] if rng.random() < 0.5 else "sine"
        values += amplitude * wave(shape, time / period + rng.random())
    least = float(amplitudes.min()) if count else 1.0
    values += rng.uniform(0.05, 1.0) * least * noise_like(rng, total)
    values += rng.uniform(-2, 2) * time / points
    known = values[:points].copy()
    known[rng.random(points) < 0.1] = np.nan
    return Drawn(known, tuple(sorted(periods)), values[points:])


def changing(rng: np.random.Generator) -> Drawn:
    """Draw a series that may be anything, and may stop being it: for confidence.

    Half are those of the period rows; others walk at random, grow, burst, stand still or shift. A
    quarter change their work somewhere in the last third of what is known or after it.
    """
    ahead = POINTS // 3
    total = POINTS + ahead
    kind = rng.random()
    if kind < 0.5:
        drawn = periodic(rng)
        values = np.concatenate([drawn.values, drawn.ahead])
        periods = drawn.periods
    else:
        periods = ()
        noise = rng.standard_normal(total)
        if kind < 0.6:
            values = 50 + np.cumsum(noise) * rng.uniform(0.05, 0.5)
        elif kind < 0.7:
            values = 20 + np.linspace(0, rng.uniform(2, 40), total) + noise * rng.uniform(0.2, 6)
        elif kind < 0.8:
            bursts = rng.random(total) < rng.uniform(0.005, 0.05)
            values = 5 + 0.5 * np.abs(noise) + bursts * rng.uniform(10, 60)
        elif kind < 0.9:
            values = 30 + noise * rng.uniform(0.01, 3)
        else:
            values = 20 + noise * rng.uniform(0.2, 2)
            values[int(rng.uniform(0.2, 0.8) * POINTS) :] += rng.uniform(-15, 15)
    if rng.random() < 0.25:
        at = int(rng.uniform(0.66, 1.1) * POINTS)
        values[at:] = np.nanmean(values[:at]) + rng.standard_normal(total - at) * np.nanstd(values)
    return Drawn(values[:POINTS], periods, values[POINTS:])
