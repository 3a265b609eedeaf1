"""Filing: readings of one subject into chunks and roll-ups. Pure.

Chunks of a resolution cover periods of one length, so that a reading belongs to exactly one. New
readings are merged into the raw chunks they fall into; every bucket that they, or the rate of the
reading behind them, can have changed is made anew from raw readings. Of a day whose raw readings
are gone already, only buckets that are missing are made.
"""

from collections.abc import Iterator, Mapping, Sequence

from roost.model.series import DAY_MS, HOUR_MS, Columns, Resolution
from roost.series.codec import Packed, pack, pack_table
from roost.series.columns import (
    MOST_GAP_MS,
    NOTHING,
    merge,
    replaced,
    roll_up,
    span,
    thinned,
    with_rates,
)
from roost.series.shelf import Chunk

#: What one chunk covers.
PERIODS = {
    Resolution.RAW: 4 * HOUR_MS,
    Resolution.FIVE_MINUTES: DAY_MS,
    Resolution.HOUR: 16 * DAY_MS,
    Resolution.DAY: 512 * DAY_MS,
}
#: Readings of one raw chunk: one each second. Of more, the last of each second stay.
MOST_ROWS = 14_400


def floor(at_ms: int, length_ms: int) -> int:
    """Return where the period of a moment begins."""
    return at_ms - at_ms % length_ms


def periods(resolution: Resolution, first_ms: int, until_ms: int) -> range:
    """Return where the chunks begin that a span touches."""
    length = PERIODS[resolution]
    return range(floor(first_ms, length), max(until_ms, first_ms + 1), length)


def pack_columns(columns: Columns, resolution: Resolution) -> bytes:
    """Return columns as the bytes of a chunk."""
    packing = pack if resolution is Resolution.RAW else pack_table
    return packing(dict(columns.figures), {"at_ms": columns.at_ms})


def unpack_columns(data: bytes, wanted: Sequence[str] | None = None) -> Columns:
    """Return the columns of a chunk, or some of them."""
    packed = Packed(data)
    figures = packed.columns(packed.names if wanted is None else wanted)
    return Columns(packed.moments("at_ms"), figures)


def needed(new: Columns) -> list[tuple[str, int, int]]:
    """Return the chunks that filing new readings has to know: resolution, first and until."""
    first, last = int(new.at_ms[0]), int(new.at_ms[-1])
    day, end = floor(first, DAY_MS), floor(last + MOST_GAP_MS, DAY_MS) + DAY_MS
    found = []
    for resolution in Resolution:
        begin = day - MOST_GAP_MS if resolution is Resolution.RAW else day
        begins = periods(resolution, begin, end)
        found.append((resolution.value, begins.start, begins.stop))
    return found


def file_readings(subject: int, new: Columns, there: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks that take the place of those that are there, with new readings in them."""
    return [
        Chunk(subject, resolution.value, begin, pack_columns(columns, resolution))
        for (resolution, begin), columns in filed(new, there, tuple(Resolution)).items()
    ]


def filed(
    new: Columns, there: Sequence[Chunk], wanted: Sequence[Resolution]
) -> dict[tuple[Resolution, int], Columns]:
    """Return what the periods of some resolutions hold once new readings are in them."""
    chunks: Mapping[tuple[str, int], Columns] = {
        (chunk.resolution, chunk.begin_ms): unpack_columns(chunk.data) for chunk in there
    }
    first, last = int(new.at_ms[0]), int(new.at_ms[-1])
    made: dict[tuple[Resolution, int], Columns] = {}
    raw = dict(_of(chunks, Resolution.RAW))
    had = {floor(begin, DAY_MS) for begin in raw}
    for begin in periods(Resolution.RAW, first, last + 1):
        part = span(new, begin, begin + PERIODS[Resolution.RAW])
        if len(part):
            raw[begin] = thinned(merge([raw.get(begin, NOTHING), part]), MOST_ROWS)
            if Resolution.RAW in wanted:
                made[Resolution.RAW, begin] = raw[begin]
    rolled = {floor(int(at), DAY_MS) for at in _joined(chunks, Resolution.DAY).at_ms}
    # A day that is rolled up and has no raw readings any more keeps what it has.
    closed = rolled - had
    whole = with_rates(merge([raw[begin] for begin in sorted(raw)]))
    for resolution in wanted:
        if resolution is not Resolution.RAW:
            old = _of(chunks, resolution)
            for begin, columns in _roll(resolution, whole, old, (first, last), closed):
                made[resolution, begin] = columns
    return made


def _roll(
    resolution: Resolution,
    whole: Columns,
    old: Mapping[int, Columns],
    touched: tuple[int, int],
    closed: set[int],
) -> Iterator[tuple[int, Columns]]:
    """Yield the periods of a resolution in which some buckets are made anew."""
    bucket, length = resolution.bucket_ms, PERIODS[resolution]
    begin, end = floor(touched[0], bucket), floor(touched[1] + MOST_GAP_MS, bucket) + bucket
    new = roll_up(span(whole, begin, end), bucket)
    days = [
        (max(begin, day), min(end, day + DAY_MS), day in closed)
        for day in range(floor(begin, DAY_MS), end, DAY_MS)
    ]
    for period in periods(resolution, begin, end):
        part = span(new, period, period + length)
        if not len(part):
            continue
        missing = merge([span(part, first, until) for first, until, shut in days if shut])
        anew = merge([span(part, first, until) for first, until, shut in days if not shut])
        spans = [(first, until) for first, until, shut in days if not shut]
        # Of what is missing in a closed day, buckets that are there win: they come later.
        yield period, merge([missing, replaced(old.get(period, NOTHING), anew, spans)])


def _of(chunks: Mapping[tuple[str, int], Columns], resolution: Resolution) -> dict[int, Columns]:
    return {begin: found for (name, begin), found in chunks.items() if name == resolution.value}


def _joined(chunks: Mapping[tuple[str, int], Columns], resolution: Resolution) -> Columns:
    found = _of(chunks, resolution)
    return merge([found[begin] for begin in sorted(found)])
