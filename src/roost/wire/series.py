"""Series in the HTTP API: what is asked for, what is told, and what is brought in.

Columns, not a body for each point: `at_ms` has the moments, and every figure a list as long. What
is not known is null. Figures and their names are in docs/reference/samples.md.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from roost.wire.bodies import Name, Reply, Request
from roost.wire.queries import Query

#: Moments of one import, and figures of it.
MOST_IMPORTED, MOST_FIGURES = 100_000, 64
#: Numbers of one answer: moments times figures. What is more comes with `next_ms`.
MOST_TOLD = 200_000
#: No series is older or younger than 1970 or the year 2255.
MOST_MS = 9 * 10**12

Moment = Annotated[int, Meta(ge=0, le=MOST_MS)]
Figure = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z0-9_.]+$")]
Value = Annotated[float, Meta(ge=0.0, le=1e18)]
ResolutionWord = Literal["raw", "5m", "1h", "1d"]


class Span(Query):
    """Which part of a series; the last hour when nothing is said."""

    figure: Annotated[
        list[Figure], Meta(max_length=MOST_FIGURES, description="Only these; repeatable.")
    ] = field(default_factory=list)
    resolution: Annotated[
        ResolutionWord, Meta(description="Readings as they came, or rolled up.")
    ] = "raw"
    since_ms: Annotated[Moment, Meta(description="From this moment on.")] | None = None
    until_ms: Annotated[Moment, Meta(description="Up to, and without, this one.")] | None = None


class VMSpan(Span):
    """Which part of a VM's series, and which project its name belongs to."""

    project: (
        Annotated[Name, Meta(description="Where to look for a name; `default` when left out.")]
        | None
    ) = None


class SeriesBody(Reply):
    """A part of the series of one VM or host, in columns.

    Of roll-ups `at_ms` is where each begins, and figures are named with what they are of it:
    `cpu_milli.mean`, `cpu_milli.max`, `cpu_milli.p95`. `next_ms` is where to go on, if anywhere.
    """

    kind: Literal["vm", "host"]
    name: str
    resolution: ResolutionWord
    at_ms: list[int]
    figures: dict[str, list[float | None]]
    next_ms: int | None = None


class ImportSeries(Request):
    """Readings of one VM (by id or name) or host that were made elsewhere."""

    kind: Literal["vm", "host"]
    name: Name
    at_ms: Annotated[list[Moment], Meta(min_length=1, max_length=MOST_IMPORTED)]
    figures: Annotated[
        dict[Figure, Annotated[list[Value | None], Meta(max_length=MOST_IMPORTED)]],
        Meta(min_length=1, max_length=MOST_FIGURES),
    ]
    project: Name | None = None


class ImportedBody(Reply):
    """How many readings were kept, and how many had nothing that could be."""

    kept: int
    left_out: int
