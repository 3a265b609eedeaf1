"""A VM's series and its forecast as a PNG file, drawn by matplotlib where that is installed."""

from collections.abc import Callable, Sequence
from pathlib import Path

from roost.base.errors import InvalidRequest
from roost.base.timestamps import timestamp
from roost.wire.profiles import ProfileBody


def write_png(path: Path, body: ProfileBody, resource: str, label: Callable[[float], str]) -> None:
    """Write the picture of one resource to a file."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidRequest(
            "PNG files need matplotlib, which is not installed",
            hint="Maybe pip install 'roost[pictures]', or use a .svg file.",
        ) from error
    found = body.resources[resource]
    ahead = found.forecast
    hours = body.step_s / 3600
    past = [hours * (at - len(found.past)) for at in range(len(found.past))]
    to_come = [hours * at for at in range(len(ahead.point))]
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(
        to_come, _numbers(ahead.low), _numbers(ahead.high), alpha=0.4, color="#edae49",
        label=f"where {body.coverage:.0%} will lie",
    )  # fmt: skip
    axes.plot(past, _numbers(found.past), color="#1f6f8b", label="used")
    axes.plot(to_come, _numbers(ahead.point), color="#d1495b", label="most likely")
    axes.set_ylim(bottom=0.0)
    axes.yaxis.set_major_formatter(lambda value, _: label(max(0.0, value)))
    axes.set_title(f"{body.name}: {resource}, the last days and {ahead.model} ahead")
    axes.set_xlabel(f"hours from {timestamp(body.origin_ms)[:16]}Z")
    axes.legend(loc="upper left")
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise InvalidRequest(f"cannot write {str(path)!r}: {error.strerror}") from error


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if each is None else each for each in values]
