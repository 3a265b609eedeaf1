"""Engine and plain scan side by side: nothing is timed whose answers differ.

Every comparison also times the scan, because the same run on the same machine is the only
baseline worth having.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.engine.measuring import timed
from benchmarks.engine.plain_scan import PlainScan
from roost.model.flow import PlaceRequest
from roost.placement.batching import RequestColumns
from roost.placement.engine import Engine
from roost.placement.mix import Mix


class Seconds(NamedTuple):
    """CPU seconds per decision of the scan and of the engine, for the same requests."""

    plain: float
    engine: float


class AnswersDiffer(Exception):
    """The engine's answer is not that of the full scan."""


def check_batch(
    what: str,
    engine: Engine,
    strategy: str,
    columns: RequestColumns,
    *,
    mix: Mix | None = None,
) -> Seconds:
    """Let both place and commit these requests, and return what that took."""
    plain = PlainScan(engine.fleet.snapshot(), strategy, mix)
    plain.cursor = engine.cursor
    plain.ready(columns)
    with timed() as plain_span:
        expected = plain.answer(columns, commit=True)
    with timed() as engine_span:
        answers = engine.place_columns(columns, strategy)
    differ = np.flatnonzero((answers.row != expected.row) | (answers.score != expected.score))
    if len(differ):
        at = int(differ[0])
        raise AnswersDiffer(
            f"{what}: {len(differ)} of {len(columns)} decisions differ; number {at} went to "
            f"({answers.row[at]}, {answers.score[at]}), the scan says "
            f"({expected.row[at]}, {expected.score[at]})"
        )
    mine, theirs = engine.fleet.hosts.arrays, plain.fleet.hosts.arrays
    for name in ("committed", "vm_count", "cell_free"):
        if not np.array_equal(getattr(mine, name), getattr(theirs, name)):
            raise AnswersDiffer(f"{what}: the hosts' {name} differ after the same decisions")
    return Seconds(plain_span.cpu_s / len(columns), engine_span.cpu_s / len(columns))


def check_finds(
    what: str,
    engine: Engine,
    plain: PlainScan,
    requests: Sequence[PlaceRequest],
    columns: RequestColumns,
) -> None:
    """Compare single decisions; `plain` looks at the engine's own fleet and changes nothing."""
    plain.cursor = engine.cursor
    expected = plain.place(columns, commit=False)
    for index, request in enumerate(requests):
        placement = engine.find(request)
        row = -1 if placement is None else placement.host_row
        if row != expected.row[index] or (placement and placement.score != expected.score[index]):
            raise AnswersDiffer(
                f"{what}: {request.name} went to {placement}, the scan says "
                f"({expected.row[index]}, {expected.score[index]})"
            )


def time_plain(plain: PlainScan, columns: RequestColumns) -> float:
    """Return the scan's CPU seconds per decision when nothing is committed."""
    plain.ready(columns)
    with timed() as span:
        plain.answer(columns, commit=False)
    return span.cpu_s / len(columns)
