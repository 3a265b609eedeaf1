"""Pictures as SVG text: a series with its forecast, and a week's hours as a heat map.

Plain text without scripts, links or fonts of its own, so that a file shows the same everywhere and
goes into a report as it is. Names of users' things are escaped.
"""

from collections.abc import Callable, Sequence
from html import escape

from roost.base.timestamps import timestamp
from roost.wire.profiles import ProfileBody
from roost.wire.reports import HourBody

Values = Sequence[float | None]

_WIDTH, _HEIGHT = 900, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 20, 40, 40
_PAST, _AHEAD, _BAND = "#1f6f8b", "#d1495b", "#edae49"
_CELL = 26
_DAY_MS = 86_400_000


def forecast(body: ProfileBody, resource: str, label: Callable[[float], str]) -> str:
    """Return a VM's past and forecast of one resource as an SVG document."""
    found = body.resources[resource]
    ahead = found.forecast
    steps = max(2, len(found.past) + len(ahead.point))
    known = [each for each in (*found.past, *ahead.point, *ahead.high) if each is not None]
    top = 1.1 * (max(known, default=0.0) or 1.0)

    def spot(step: float, value: float) -> str:
        x = _LEFT + step / (steps - 1) * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    begin = len(found.past)
    parts = [_title(f"{body.name}: {resource}, the last days and {ahead.model} ahead")]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = spot(0, share * top).split(",")
        parts.append(
            f'<line x1="{x}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end">'
            f"{escape(label(share * top))}</text>"
        )
    for at in range(0, steps, 144):
        moment = body.origin_ms + 1000 * body.step_s * (at - begin)
        x = spot(at, 0.0).split(",")[0]
        parts.append(
            f'<text x="{x}" y="{_HEIGHT - 14}" text-anchor="middle">'
            f"{timestamp(moment)[5:16].replace('T', ' ')}</text>"
        )
    parts += _band(ahead.low, ahead.high, begin, spot)
    parts += [
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        for values, first, colour in ((found.past, 0, _PAST), (ahead.point, begin, _AHEAD))
        for line in _lines(values, first, spot)
    ]
    x, y = spot(begin, top).split(",")
    parts.append(
        f'<line x1="{x}" y1="{y}" x2="{x}" y2="{_HEIGHT - _BOTTOM}" stroke="#888" '
        'stroke-dasharray="4 3"/>'
    )
    parts.append(_legend(f"where {body.coverage:.0%} will lie"))
    return _document(_WIDTH, _HEIGHT, parts)


def heat_map(hours: Sequence[HourBody], resource: str) -> str:
    """Return the hours of a week as an SVG document: a row for each day (UTC), darker is busier."""
    days = sorted({hour.at_ms // _DAY_MS for hour in hours})
    width, height = _LEFT + 24 * _CELL + _RIGHT, _TOP + len(days) * _CELL + 10
    parts = [_title(f"{resource} used of all hosts, by hour (UTC)")]
    parts += [
        f'<text x="{_LEFT + hour * _CELL}" y="{_TOP - 6}">{hour:02}</text>'
        for hour in range(0, 24, 3)
    ]
    for row, day in enumerate(days):
        y = _TOP + row * _CELL
        name = timestamp(day * _DAY_MS)[:10]
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 17}" text-anchor="end">{name}</text>')
    for each in hours:
        share = each.cpu if resource == "cpu" else each.memory
        row, column = days.index(each.at_ms // _DAY_MS), each.at_ms % _DAY_MS // 3_600_000
        said = "not read" if share is None else f"{share:.0%}"
        parts.append(
            f'<rect x="{_LEFT + column * _CELL}" y="{_TOP + row * _CELL}" width="{_CELL - 2}" '
            f'height="{_CELL - 2}" fill="{_heat(share)}"><title>{timestamp(each.at_ms)[:16]}Z: '
            f"{said}</title></rect>"
        )
    return _document(width, height, parts)


def _heat(share: float | None) -> str:
    """Return a colour from pale to dark red; grey where nothing was read."""
    if share is None:
        return "#eeeeee"
    part = min(1.0, max(0.0, share))
    red, green, blue = (
        round(low + part * (high - low)) for low, high in ((255, 128), (247, 0), (236, 38))
    )
    return f"#{red:02x}{green:02x}{blue:02x}"


def _band(low: Values, high: Values, begin: int, spot: Callable[[float, float], str]) -> list[str]:
    """Return an area for each run of steps that have both bounds."""
    runs: list[list[tuple[int, float, float]]] = [[]]
    for at, (below, above) in enumerate(zip(low, high, strict=True)):
        if below is None or above is None:
            runs.append([])
        else:
            runs[-1].append((begin + at, below, above))
    areas = []
    for run in filter(None, runs):
        edge = [spot(at, above) for at, _, above in run]
        edge += [spot(at, below) for at, below, _ in reversed(run)]
        points = " ".join(edge)
        areas.append(f'<polygon points="{points}" fill="{_BAND}" fill-opacity="0.45"/>')
    return areas


def _lines(values: Values, first: int, spot: Callable[[float, float], str]) -> list[str]:
    """Return the runs of known values as points."""
    lines: list[list[str]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            lines.append([])
        else:
            lines[-1].append(spot(first + at, value))
    return [" ".join(line) for line in lines if line]


def _title(text: str) -> str:
    return f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(text)}</text>'


def _legend(band: str) -> str:
    signs = ((_PAST, "used"), (_AHEAD, "most likely"), (_BAND, band))
    return "".join(
        f'<rect x="{_LEFT + 130 * at}" y="26" width="12" height="8" fill="{colour}"/>'
        f'<text x="{_LEFT + 130 * at + 17}" y="34">{escape(words)}</text>'
        for at, (colour, words) in enumerate(signs)
    )


def _document(width: int, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">'
        f'<rect width="{width}" height="{height}" fill="white"/>{"".join(parts)}</svg>\n'
    )
