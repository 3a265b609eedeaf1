"""Rows on made series: periods, the reliability of confidence, classes."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from benchmarks.analysis import labelled
from benchmarks.analysis.calibrate import outcomes
from benchmarks.analysis.sizes import Sizes
from benchmarks.analysis.synthetic import JUDGING, periodic
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_least, at_most
from roost.analysis.classes import ORDER, probabilities
from roost.analysis.periods import find_periods

_WITHIN = 0.02


def matches(found: Sequence[float], true: Sequence[float]) -> int:
    """Count the true periods that have a found one within 2%, each used once."""
    left = list(true)
    for period in found:
        near = [one for one in left if abs(period - one) <= _WITHIN * one]
        if near:
            left.remove(near[0])
    return len(true) - len(left)


def periods(sizes: Sizes) -> Iterator[Result]:
    """Measure precision and recall on seeds that nothing was tuned on."""
    drawn = [periodic(np.random.default_rng(JUDGING + at)) for at in range(sizes.periodic)]
    steps = find_periods(np.array([one.values for one in drawn])).steps
    right = told = true = 0
    for row, one in zip(steps, drawn, strict=True):
        found = row[row > 0].tolist()
        right += matches(found, one.periods)
        told += len(found)
        true += len(one.periods)
    note = f"{sizes.periodic:,} series, {true:,} periods"
    yield at_least("period precision", right / max(told, 1), "", sizes.goal(0.95), note=note)
    yield at_least("period recall", right / max(true, 1), "", sizes.goal(0.95), note=note)


def reliability(sizes: Sizes) -> Iterator[Result]:
    """Measure how often patterns of each confidence held, over all kinds."""
    seen = [e for entries in outcomes(JUDGING, sizes.changing).values() for e in entries]
    edges = np.array([0.0, 0.5, 0.7, 0.8, 0.9, 1.01])
    off = []
    for low, high in pairwise(edges.tolist()):
        some = [(sure, held) for _, sure, held in seen if low <= sure < high]
        if some:
            said = float(np.mean([sure for sure, _ in some]))
            held = float(np.mean([held for _, held in some]))
            off.append((len(some), abs(said - held)))
            name = f"reliability: called {low:.1f} to {min(high, 1.0):.1f}"
            yield at_least(name, held, "held", None, note=f"{len(some)} patterns, said {said:.2f}")
    error = sum(n * e for n, e in off) / sum(n for n, _ in off)
    yield at_most("reliability: mean error of confidence", error, "", None)


def classes(sizes: Sizes) -> Iterator[Result]:
    """Measure the accuracy of classes, with the confusion matrix in the notes."""
    values, kinds = labelled.draw(JUDGING, sizes.labelled)
    told = probabilities(values, np.ones(len(values)), labelled.DAY).argmax(axis=1)
    matrix = np.zeros((len(ORDER), len(ORDER)), np.int64)
    np.add.at(matrix, (kinds, told), 1)
    yield at_least(
        "classes accuracy", float(np.mean(told == kinds)), "", sizes.goal(0.9),
        note=f"{len(kinds):,} series, made, none from a real fleet",
    )  # fmt: skip
    for kind, row in zip(ORDER, matrix, strict=True):
        others = ", ".join(
            f"{ORDER[at]} {n}" for at, n in enumerate(row) if n and ORDER[at] != kind
        )
        share = row[ORDER.index(kind)] / row.sum()
        yield at_least(
            f"classes accuracy: {kind}",
            share,
            "",
            None,
            note=f"also called: {others}" if others else "",
        )


def jobs(sizes: Sizes) -> list[Job]:
    """Return the jobs of this topic."""
    return [
        Job("period", lambda: periods(sizes)),
        Job("reliability", lambda: reliability(sizes)),
        Job("classes", lambda: classes(sizes)),
    ]
