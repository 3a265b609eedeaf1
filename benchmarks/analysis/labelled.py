"""Labelled series: cpu of VMs of six classes as part of their capacity, made with much variety."""

import numpy as np

from benchmarks.analysis.synthetic import Floats, noise_like, wave

KINDS = ("diurnal_service", "batch", "idle", "steady_database", "growing", "spiky")
DAY = 288
POINTS = 7 * DAY


def labelled(rng: np.random.Generator, kind: int) -> Floats:
    """Draw a week of one class, in parts of capacity, with noise, gaps and now and then a shift."""
    time = np.arange(POINTS, dtype=np.float64)
    noise = noise_like(rng, POINTS)
    name = KINDS[kind]
    if name == "diurnal_service":
        size = rng.uniform(0.05, 0.4)
        shape = ("sine", "day", "square")[int(rng.integers(3))]
        week = 1 - rng.uniform(0, 0.7) * ((time // DAY + rng.integers(7)) % 7 >= 5)
        values = rng.uniform(0.03, 0.2) + size * (1 + wave(shape, time / DAY + rng.random())) * week
        values += rng.uniform(0.05, 0.6) * size * noise
    elif name == "batch":
        every = rng.choice([DAY / 24, DAY / 12, DAY / 4, DAY / 2, DAY])
        runs = ((time + rng.integers(DAY)) % every) / every < rng.uniform(0.08, 0.35)
        values = rng.uniform(0.0, 0.05) + rng.uniform(0.4, 0.95) * runs + 0.02 * noise
    elif name == "idle":
        values = rng.uniform(0.0, 0.015) + rng.uniform(0.0005, 0.006) * np.abs(noise)
    elif name == "steady_database":
        level = rng.uniform(0.12, 0.8)
        values = level * (1 + rng.uniform(0.01, 0.15) * noise)
        values += rng.uniform(0, 0.05) * level * wave("sine", time / DAY)
    elif name == "growing":
        level = rng.uniform(0.05, 0.3)
        growth = rng.uniform(0.6, 2.5) * level * (time / POINTS) ** rng.uniform(0.7, 1.5)
        values = level + growth + rng.uniform(0.01, 0.15) * level * noise
    else:
        bursts = rng.random(POINTS) < rng.uniform(0.004, 0.03)
        length = int(rng.integers(1, 5))
        bursts = np.convolve(bursts, np.ones(length), mode="full")[:POINTS] > 0
        values = rng.uniform(0.02, 0.12) * (1 + 0.3 * np.abs(noise))
        values = values + bursts * rng.uniform(0.3, 0.9, POINTS)
    values = np.clip(values, 0.0, 1.0)
    values[rng.random(POINTS) < 0.03] = np.nan
    return np.asarray(values)


def draw(first: int, each: int) -> tuple[Floats, np.ndarray]:
    """Draw `each` series of every class from seeds that begin at `first`."""
    rows, kinds = [], []
    for kind in range(len(KINDS)):
        for at in range(each):
            rows.append(labelled(np.random.default_rng([first, kind, at]), kind))
            kinds.append(kind)
    return np.array(rows), np.array(kinds)
