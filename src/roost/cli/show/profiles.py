"""What was learnt of a VM, as a person reads it: words first, then the picture."""

from rich.console import Group, RenderableType
from rich.text import Text

from roost.base.timestamps import timestamp
from roost.cli.show import sentences
from roost.cli.show.drawing import pictures
from roost.cli.show.fleetreports import amount
from roost.cli.show.tables import labelled, table
from roost.wire.profiles import (
    BottleneckBody,
    CleaningBody,
    ForecastBody,
    LifetimeBody,
    MovingTogetherBody,
    PatternBody,
    ProfileBody,
    ResourceProfileBody,
    SharedPeaksBody,
    SizingBody,
)

_CLASSES = {
    "diurnal_service": "a service that follows the day",
    "batch": "batch work",
    "idle": "idle",
    "steady_database": "steady, as a database is",
    "growing": "growing",
    "spiky": "spiky",
}
_STEPS_A_DAY = 288
#: What is waited for, as profiles call it; another resource that peaks along holds nothing up.
_WAITING = tuple(f"waiting for {each}" for each in ("cpu", "io", "memory"))
#: Resources that VMs ask for amounts of.
_SIZED = ("cpu", "memory")


def profile(body: ProfileBody, resource: str, width: int) -> RenderableType:
    """Return a VM's profile; the picture is of one resource."""
    parts: list[RenderableType] = [
        Text.assemble((body.name, "bold"), f"  ({body.project}; {body.vm})"),
        labelled("class", _class(body)),
    ]
    listed = table("", "read", "patterns", "stability", "asked", "advice")
    for name, found in body.resources.items():
        if not found.points and name not in _SIZED:
            listed.add_row(Text(name, style="bold"), "not read", "-", "-", "-", "-")
            continue
        listed.add_row(
            Text(name, style="bold"),
            _read(found),
            "\n".join(map(_pattern, found.patterns)) or "none found",
            f"{found.stability:.2f}",
            sentences.amount(name, found.sizing.asked) if name in _SIZED else "-",
            _advice(name, found.sizing) if name in _SIZED else "-",
        )
    parts += [Text(""), listed]
    if body.cleaning is not None:
        parts.append(labelled("readings", _readings(body.cleaning)))
    if body.lifetime is not None:
        parts.append(labelled("lifetime", _lifetime(body.lifetime)))
    if body.zombie.zombie:
        days = f"{body.zombie.days_seen:.0f} days"
        parts.append(labelled("zombie", f"{days} without work, traffic or rhythm: is it needed?"))
    parts += [labelled("together", _together(each)) for each in body.together]
    parts += [
        labelled("bottleneck" if each.resource in _WAITING else "at peaks", _bottleneck(each))
        for each in body.bottlenecks
    ]
    if body.peaks_with is not None:
        parts.append(labelled("peaks with", _peaks_with(body.peaks_with)))
    shown = body.resources.get(resource)
    if shown is None:
        parts += [Text(""), Text(f"this server tells nothing of {resource}", style="yellow")]
    else:
        parts += [Text(""), *_picture(body, resource, shown, width)]
    return Group(*parts)


def _read(found: ResourceProfileBody) -> str:
    words = f"{found.points / _STEPS_A_DAY:.1f} days"
    if not found.points or not found.gaps:
        return words
    return f"{words}\n{_length(found.gaps * 86_400 / _STEPS_A_DAY)} missing"


def _readings(found: CleaningBody) -> str:
    dropped = _counts(
        (found.not_finite, "no number"),
        (found.negative, "negative"),
        (found.jumps, "of another time"),
    )
    repaired = _counts(
        (found.duplicates, "sent twice"),
        (found.out_of_order, "out of order"),
        (found.resets, "where counters began anew"),
    )
    words = f"{found.samples:,} kept of the week"
    if not dropped and not repaired:
        return f"{words}, none dropped or repaired"
    return "; ".join(
        filter(None, (words, dropped and f"dropped {dropped}", repaired and f"repaired {repaired}"))
    )


def _lifetime(found: LifetimeBody) -> str:
    shares = (("one in ten", found.early_s), ("half", found.half_s), ("nine in ten", found.late_s))
    ends = [f"{who} in {_length(left)}" for who, left in shares if left is not None]
    words = f"{_length(found.age_s)} old; of such VMs {', '.join(ends) or 'most go on'}"
    return f"{words}{' are gone' if ends else ''} ({found.seen} seen of this age)"


def _peaks_with(found: SharedPeaksBody) -> str:
    others = [each.name for each in found.vms]
    more = found.count - 1 - len(others)
    names = f"{', '.join(others)}{f' and {more} more' if more > 0 else ''}"
    when = f"at {found.peak_hour:02}:00Z, correlation {found.correlation:.2f}"
    return f"{names} ({when}; by the fleet report of {timestamp(found.origin_ms)[:16]}Z)"


def _counts(*counts: tuple[int, str]) -> str:
    return ", ".join(f"{count:,} {words}" for count, words in counts if count)


def _together(pair: MovingTogetherBody) -> str:
    moves = "with" if pair.correlation > 0 else "against"
    words = f"{pair.second} moves {moves} {pair.first} (correlation {pair.correlation:.2f}"
    return f"{words}, {_length(pair.lag_s)} later)" if pair.lag_s else f"{words})"


def _bottleneck(found: BottleneckBody) -> str:
    return (
        f"when {found.peaking} peaks, {found.resource} is {found.excess:.1f} deviations above its "
        f"usual, and among its highest in {found.share:.0%} of the peaks"
    )


def _class(body: ProfileBody) -> str:
    if body.workload_class is None:
        return "not known: less than a day was read"
    words = _CLASSES.get(body.workload_class, body.workload_class)
    return f"{words} (probability {body.class_probability:.2f})"


def _pattern(pattern: PatternBody) -> str:
    words = pattern.kind.replace("_", " ")
    if pattern.cycle_s:
        words += f" every {_length(pattern.cycle_s)}"
    elif pattern.peaks_s:
        words += f" at {timestamp(1000 * pattern.peaks_s[0])}"
    if pattern.cycle_s and pattern.peaks_s:
        words += f", high at {timestamp(1000 * pattern.peaks_s[0])[11:16]}"
    return f"{words} ({pattern.confidence:.2f})"


def _length(seconds: float) -> str:
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86_400 else f"{seconds / 86_400:.1f} days"


def _advice(resource: str, sizing: SizingBody) -> str:
    if sizing.advised is None or sizing.saving is None:
        return "none yet: less than a day was read"
    saving = abs(sizing.saving)
    if sizing.asked == 0 or saving < 0.1 * sizing.asked:
        return "as it is"
    words = f"{amount(resource, sizing.advised)}, {amount(resource, saving)} "
    risk = 0.0 if sizing.risk is None else sizing.risk
    return f"{words}{'less' if sizing.saving > 0 else 'more'}; short {100 * risk:.1f}% of the time"


def _picture(
    body: ProfileBody, resource: str, found: ResourceProfileBody, width: int
) -> list[Text]:
    ahead = found.forecast
    if not found.points and not any(each is not None for each in ahead.point):
        return [Text("nothing was read of it in the last week", style="yellow")]
    lines = pictures.draw(
        found.past,
        ahead.point,
        ahead.low,
        ahead.high,
        width=max(40, width - 16),
        label=lambda value: amount(resource, value),
    )
    past_h, ahead_h = (len(each) * body.step_s / 3600 for each in (found.past, ahead.point))
    head = (
        f"{resource}: the last {past_h:.0f} h, and {ahead_h:.0f} h ahead"
        f" from {timestamp(body.origin_ms)[:16]}Z by {ahead.model}"
    )
    legend = Text.assemble(
        ("█", "cyan"), " used   ", ("●", "yellow"), " most likely   ", ("░", "magenta"),
        f" where {body.coverage:.0%} will lie",
    )  # fmt: skip
    if None in ahead.high:
        legend.append("; without a band too little is known to tell one", style="dim")
    return [Text(head, style="bold"), *lines, legend, *_errors(resource, ahead)]


def _errors(resource: str, ahead: ForecastBody) -> list[Text]:
    """Return how far off such forecasts were, where they could be tried on the past."""
    if ahead.model.startswith("cold_start"):
        return [Text("by what VMs like it do: its own past is too short", style="yellow")]
    tried = [
        f"{amount(resource, each.error)} up to {_length(each.until_s)} ahead"
        for each in ahead.models
        if each.error is not None
    ]
    return [Text(f"off by {', '.join(tried)} on average in the past")] if tried else []
