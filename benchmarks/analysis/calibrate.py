"""Count how often patterns hold on, and write the table that confidences are read from.

    python -m benchmarks.analysis.calibrate

Series come from the seeds `CALIBRATING`; the benchmark's reliability table uses those of `JUDGING`.
A cyclic pattern holds on when its profile, learnt before, tells the next cycle better than that
cycle's own level does. Any other holds on when it is found again in the series one third later.
"""

from pathlib import Path

import numpy as np

from benchmarks.analysis.synthetic import CALIBRATING, POINTS, STEP_S, Drawn, changing
from roost.analysis import calibration, profiles
from roost.analysis.kernels.folding import PHASES, fold

BINS = 8
TARGET = Path(calibration.__file__)


def held(drawn: Drawn, pattern: profiles.WorkloadPattern) -> bool:
    """Tell whether a pattern that was found in the known part holds on after it."""
    whole = np.concatenate([drawn.values, drawn.ahead])[None]
    if pattern.kind is profiles.PatternKind.CYCLIC:
        period = pattern.cycle_s / STEP_S
        upto = min(whole.shape[1], POINTS + int(period + 0.5))
        skill = np.zeros(1)
        fold(
            whole, np.zeros(1, np.int64), np.array([period]), np.array([upto]),
            np.zeros((1, PHASES)), np.zeros(PHASES), skill,
        )  # fmt: skip
        return bool(skill[0] > 0)
    later = profiles.profile_batch(whole[:, -POINTS:], 0, STEP_S)[0]
    return bool(later.of_kind(pattern.kind))


def outcomes(first: int, count: int) -> dict[str, list[tuple[float, float, bool]]]:
    """Return evidence, confidence and whether it held, of all patterns of many series, by kind."""
    drawn = [changing(np.random.default_rng(first + at)) for at in range(count)]
    found: dict[str, list[tuple[float, float, bool]]] = {}
    described = profiles.profile_batch(np.array([one.values for one in drawn]), 0, STEP_S)
    for one, profile in zip(drawn, described, strict=True):
        for pattern in profile.patterns:
            entry = (pattern.evidence, pattern.confidence, held(one, pattern))
            found.setdefault(pattern.kind.value, []).append(entry)
    return found


def table(entries: list[tuple[float, float, bool]]) -> tuple[list[float], list[float]]:
    """Return edges of evidence and the share that held at each, made to never fall."""
    ordered = sorted(entries)
    parts = np.array_split(np.arange(len(ordered)), min(BINS, max(1, len(ordered) // 20)))
    edges = [float(np.mean([ordered[at][0] for at in part])) for part in parts]
    # One hold and one miss more: a share of 20 out of 20 is not certainty.
    shares = [(sum(ordered[at][2] for at in part) + 1) / (len(part) + 2) for part in parts]
    weights = [len(part) for part in parts]
    at = 0
    while at + 1 < len(shares):
        if shares[at] > shares[at + 1]:  # pool neighbours that fall
            total = weights[at] + weights[at + 1]
            shares[at] = (shares[at] * weights[at] + shares[at + 1] * weights[at + 1]) / total
            edges[at] = (edges[at] * weights[at] + edges[at + 1] * weights[at + 1]) / total
            weights[at] = total
            del shares[at + 1], edges[at + 1], weights[at + 1]
            at = max(at - 1, 0)
        else:
            at += 1
    return edges, shares


def main() -> None:
    """Write the table into the package."""
    lines = []
    for kind, entries in sorted(outcomes(CALIBRATING, 3_000).items()):
        edges, shares = table(entries)
        numbers = [", ".join(f"{x:.3f}" for x in part) for part in (edges, shares)]
        lines.append(f'    "{kind}": (({numbers[0]},), ({numbers[1]},)),  # {len(entries)} seen')
    head = TARGET.read_text().split("TABLES:")[0]
    kind_of = "TABLES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {\n"
    TARGET.write_text(head + kind_of + "\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
