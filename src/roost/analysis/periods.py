"""Periods of many series at once: lines of a spectrum, sharpened, and freed of overtones.

A batch is float64 [series, step], NaN for gaps. Per series: level and trend out, gaps as nothing,
a Hann window, a Fourier transform of twice the length, peaks far above the background around them
(so that noise with a memory has none), least squares for slow lines, and last the question which
lines are cycles of their own. ADR-0034 says why, `make bench-analysis` how often that is right.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from roost.analysis.grid import Floats

#: Periods that one series may have; further ones are weaker.
MOST_PERIODS = 4
#: Cycles that must have been seen: what came once may not come again.
LEAST_CYCLES = 2.0
LEAST_POINTS = 32
#: Peaks over the background: to be left out of it, to be a line, to be a period.
_STANDS_OUT, _LINE, _PERIOD = 16.0, 20.0, 42.0
#: Power of a period over that of the strongest line: a fifth of its amplitude.
_LEAST_SHARE = 0.04
#: What is asked beyond that of few cycles, in cycles: a walk at random has slow waves too.
_FEW_CYCLES = 3.0
_QUANTILE = 0.3
_SLOW_CYCLES = 40.0
_BLOCKS = 256
_CHUNK = 256


class Periods(NamedTuple):
    """Periods of a batch, [series, number], the strongest first, 0 where there is none.

    `steps` is the length of a cycle in steps (no whole number), `share` the part of the variation
    that its sine explains, `ratio` its power over the background: how far from chance it is.
    """

    steps: Floats
    share: Floats
    ratio: Floats


def find_periods(values: Floats) -> Periods:
    """Find the periods of every series of a batch."""
    series, points = values.shape
    found = Periods(*(np.zeros((series, MOST_PERIODS)) for _ in Periods._fields))
    if points < LEAST_POINTS:
        return found
    values = np.ascontiguousarray(values, dtype=np.float64)
    finder = _Finder(points)
    for begin in range(0, series, _CHUNK):
        some = slice(begin, begin + _CHUNK)
        finder.find(values[some], Periods(*(column[some] for column in found)))
    return found


class _Finder:
    """Finds periods in series of one length; its arrays are used again for every chunk."""

    def __init__(self, points: int) -> None:
        self._points = points
        self._length = 1 << int(np.ceil(np.log2(2 * points)))
        # The spectrum is of single precision: half the time, and far finer than any line.
        self._window: npt.NDArray[Any] = np.hanning(points).astype(np.float32)
        self._edges = _bands(self._length, points)
        self._size = -(-points // _BLOCKS)
        self._blocks = -(-points // self._size)

    def find(self, values: Floats, found: Periods) -> None:
        """Fill `found` with the periods of a chunk."""
        # Numba takes a moment to import: only those who ask for periods wait for it.
        from roost.analysis.kernels.cycles import fundamentals
        from roost.analysis.kernels.flattening import flatten
        from roost.analysis.kernels.lines import MOST_LINES, find_lines

        flat: npt.NDArray[Any] = np.zeros((len(values), self._length), np.float32)
        coarse, held = np.zeros((2, len(values), self._blocks))
        flatten(values, self._window, flat, coarse, held, self._size)
        bins = np.fft.rfft(flat, axis=1)
        power = bins.real**2 + bins.imag**2
        width = power.shape[1]
        lines = np.zeros((len(values), MOST_LINES, 3))
        scratch: npt.NDArray[Any] = np.zeros(width, np.float32)
        level: npt.NDArray[Any] = np.zeros(len(self._edges), np.float32)
        ratios = np.array([_STANDS_OUT, _LINE])
        per_cycle = self._length / self._points
        find_lines(power, self._edges, _QUANTILE, ratios, 2.2 * per_cycle, scratch, level, lines)
        lines[:, :, 0] /= per_cycle
        self._refine(coarse, held, lines)
        kept = np.zeros((len(values), MOST_PERIODS), np.int64)
        order = np.zeros(MOST_LINES, np.int64)
        fundamentals(lines, self._points, _PERIOD, _LEAST_SHARE, kept, order)
        self._report(lines, kept, held.sum(axis=1), found)

    def _refine(self, coarse: Floats, held: Floats, lines: Floats) -> None:
        from roost.analysis.kernels.refining import MOST_FITTED, UNKNOWNS, refine

        stretch = self._blocks * self._size / self._points
        basis, matrix = np.zeros((UNKNOWNS, self._blocks)), np.zeros((UNKNOWNS, UNKNOWNS))
        right = np.zeros(UNKNOWNS + 2 * MOST_FITTED)
        lines[:, :, 0] *= stretch
        refine(coarse, held, lines, _SLOW_CYCLES, 3, basis, matrix, right)
        lines[:, :, 0] /= stretch

    def _report(
        self, lines: Floats, kept: npt.NDArray[np.int64], known: Floats, found: Periods
    ) -> None:
        there = kept >= 0
        chosen = np.take_along_axis(lines, np.maximum(kept, 0)[:, :, None], axis=1)
        cycles = np.maximum(chosen[:, :, 0], 1e-9)
        there &= (cycles >= LEAST_CYCLES) & (
            chosen[:, :, 2] >= _PERIOD * (1 + _FEW_CYCLES / cycles)
        )
        power = np.where(there, chosen[:, :, 1], 0.0)
        order = np.argsort(-power, axis=1, kind="stable")
        there = np.take_along_axis(there, order, axis=1)
        chosen = np.take_along_axis(chosen, order[:, :, None], axis=1)
        cycles = np.where(there, chosen[:, :, 0], 1.0)
        found.steps[:] = np.where(there, self._points / cycles, 0.0)
        # A sine of amplitude a has half its square as variance, and this power at its peak.
        full = float(self._window.sum()) * known[:, None] / self._points
        amplitude = 2.0 * np.sqrt(np.where(there, chosen[:, :, 1], 0.0)) / np.maximum(full, 1.0)
        found.share[:] = np.minimum(0.5 * amplitude**2, 1.0)
        found.ratio[:] = np.where(there, chosen[:, :, 2], 0.0)


def _bands(length: int, points: int) -> npt.NDArray[np.int64]:
    """Return the edges of bands whose background is taken as one: wider with the frequency."""
    per_cycle, width = length / points, length // 2 + 1
    edges = [int(1.5 * per_cycle)]
    while edges[-1] < width:
        following = max(int(1.6 * edges[-1]), edges[-1] + int(8 * per_cycle))
        edges.append(width if width - following < 8 * per_cycle else following)
    return np.array(edges, dtype=np.int64)
