"""Amounts, misses and fixes in plain words, as a person reads them."""

from collections.abc import Sequence

from roost.base.timestamps import timestamp
from roost.base.units import MIB, format_bytes, format_cpu
from roost.model.flow import FixKind
from roost.model.reasons import Reason
from roost.model.resources import BASE_RESOURCES, WHOLE_DEVICE, Demand, NumaMode
from roost.wire.bodies import (
    AfterMovesBody,
    FixBody,
    ForeseenBody,
    IdleBody,
    NearestMissBody,
    PlacementBody,
    PredictedBody,
    ReasonBody,
    RuleRefusalBody,
    ShortageBody,
)

#: One whole score, as `roost.placement.strategies` says; said again because importing that loads
#: the engine. A test holds the two to each other.
SCORE_ONE = 10 * 2**30

#: What a refused host lacks, by reason.
REASONS: dict[str, str] = {
    Reason.NOT_ONLINE: "not online",
    Reason.NOT_OPEN: "cordoned, draining or in maintenance",
    Reason.INVENTORY_UNKNOWN: "inventory unknown, so taken for full",
    Reason.PRESSURE: "under more pressure than its bound, or not measured",
    Reason.NOT_PINNED: "not one of the pinned hosts",
    Reason.EXCLUDED: "excluded by the request",
    Reason.LABELS: "labels do not match",
    Reason.TAINT: "a taint is not tolerated",
    Reason.ARCHITECTURE: "another architecture",
    Reason.DRIVER: "another driver",
    Reason.CAPABILITY: "a capability is missing",
    Reason.ZONE: "another zone",
    Reason.RACK: "another rack",
    Reason.SITE: "another site",
    Reason.PREDICATE: "the constraint is not satisfied",
    Reason.RULE: "a rule does not hold",
    Reason.RULE_ERROR: "a rule ends in an error",
    Reason.LATENCY: "too far from a VM that it must be near to",
    Reason.BANDWIDTH: "too little bandwidth to a VM that it must reach",
    Reason.AFFINITY: "away from its group",
    Reason.ANTI_AFFINITY: "its group is there already",
    Reason.SPREAD: "its group would be spread unevenly",
    Reason.MAX_VMS: "as many VMs as it may have",
    Reason.CPU: "not enough cpu",
    Reason.MEMORY: "not enough memory",
    Reason.DISK: "not enough disk",
    Reason.EXTENDED: "not enough of an extended resource",
    Reason.HELD: "the room is held by a reservation or a move",
    Reason.DEVICE: "no suitable GPU is free",
    Reason.NUMA: "no NUMA cell has room",
}


def reason(count: ReasonBody) -> str:
    """Return what hosts lack; of a rule, its name and the part that does not hold."""
    said = REASONS.get(count.reason, "")
    return ": ".join(filter(None, (said, count.rule, count.part)))


def refused_by(refusal: RuleRefusalBody) -> str:
    """Return which rule refused a host, with the host's own values or the error."""
    values = ", ".join(f"{path} is {value}" for path, value in refusal.values.items())
    return f"rule {refusal.rule}: {refusal.part} ({refusal.error or values})"


#: What is counted in pieces, beside the extended resources, which go by their own names.
_PIECES = {"devices": "GPU", "vms": "VM slot", "numa_cells": "NUMA cell"}


def amount(resource: str, number: int) -> str:
    """Return an amount of a resource with its unit."""
    if resource == "cpu":
        return f"{format_cpu(number)} {'core' if number == 1000 else 'cores'}"
    return format_bytes(number) if resource in BASE_RESOURCES else str(number)


def score(value: int) -> str:
    """Return a fixed-point score as a decimal number."""
    return f"{value / SCORE_ONE:.4f}"


def why(found: PlacementBody) -> str:
    """Return why a placement went where it did, as a sentence."""
    if found.breakdown and len(found.breakdown) > 1:
        terms = " + ".join(f"{score(term.value)} {term.name}" for term in found.breakdown)
        said = f"{found.strategy} gave it the lowest score, {score(found.score)} = {terms}"
    else:
        said = f"{found.strategy} gave it the lowest score, {score(found.score)}"
    if found.relaxed:
        said += (
            f"; it had waited so long that {' and '.join(found.relaxed)} no longer refused hosts"
        )
    gaps = [(each.host, each.score - found.score) for each in found.runners_up]
    equal = " and ".join(host for host, gap in gaps if not gap)
    behind = " and ".join(f"{host} ({score(gap)} behind)" for host, gap in gaps if gap)
    if equal:
        said += f", as {equal} would have, and ties go to the lower host number"
    return f"{said}; next came {behind}" if behind else said


def predicted(found: PredictedBody) -> str:
    """Return what is predicted of a host, with its intervals as far as known."""
    return ", ".join(
        f"{_about(resource, most)}{_interval(resource, interval)}"
        for resource, most, interval in (
            ("cpu", found.cpu_milli, found.cpu_milli_range),
            ("memory", found.memory_bytes, found.memory_bytes_range),
        )
    )


def _about(resource: str, number: int) -> str:
    """Return an amount in words; of memory no more than whole MiB, for it is foreseen."""
    return amount(resource, -(-number // MIB) * MIB if resource == "memory" else number)


def _interval(resource: str, interval: tuple[int, int] | None) -> str:
    if interval is None:
        return ""
    low, high = (_about(resource, each) for each in interval)
    return "" if low == high else f" ({low} to {high})"


def foreseen(found: ForeseenBody) -> str:
    """Return what a placement by predictions went by."""
    said = "nothing" if found.host is None else predicted(found.host)
    share = "" if found.quantile_milli is None else f", passed {_one_in(found.quantile_milli)}"
    until = "" if found.until_s is None else f" until {timestamp(1000 * found.until_s)}"
    return f"{said}{until}{share}; basis {found.digest[:19]}"


def _one_in(quantile_milli: int) -> str:
    times = round(1000 / max(1, 1000 - quantile_milli))
    return f"one time in {times}"


def demand(asked: Demand) -> str:
    """Return a demand in a few words."""
    words = [amount("cpu", asked.cpu_milli), amount("memory", asked.memory_bytes)]
    if asked.disk_bytes:
        words.append(f"{amount('disk', asked.disk_bytes)} disk")
    words += [f"{number} {name}" for name, number in asked.extended]
    if asked.devices is not None:
        models = " or ".join(asked.devices.models) or "GPU"
        share = "" if asked.devices.milli == WHOLE_DEVICE else f" at {asked.devices.milli}/1000"
        words.append(f"{asked.devices.count} x {models}{share}")
    if asked.numa is not NumaMode.ANY:
        words.append("in one NUMA cell" if asked.numa is NumaMode.ONE_CELL else "over two cells")
    return ", ".join(words)


def shortage(missing: ShortageBody) -> str:
    """Return what is missing: "2 GiB of memory", "1 core", "3 GPUs"."""
    resource, short = missing.resource, amount(missing.resource, missing.short)
    if resource in BASE_RESOURCES:
        return short if resource == "cpu" else f"{short} of {resource}"
    plural = "s" if missing.short != 1 and resource in _PIECES else ""
    return f"{short} {_PIECES.get(resource, resource)}{plural}"


def shortages(missing: Sequence[ShortageBody]) -> str:
    """Return all that is missing."""
    return " and ".join(shortage(each) for each in missing)


def have_and_need(missing: ShortageBody) -> str:
    """Return what there is and what is asked: "memory 12 GiB of 16 GiB"."""
    resource = missing.resource
    named = f"{_PIECES[resource]}s" if resource in _PIECES else resource
    return f"{named} {amount(resource, missing.free)} of {amount(resource, missing.need)}"


def hosts(count: int) -> str:
    """Return a number of hosts."""
    return f"{count} host{'' if count == 1 else 's'}"


def nearest_miss(miss: NearestMissBody) -> str:
    """Return the nearest miss as a sentence."""
    others = f" (the same on {hosts(miss.hosts)})" if miss.hosts > 1 else ""
    return f"short by {shortages(miss.shortages)} on {miss.host}{others}"


def after_moves(found: AfterMovesBody) -> str:
    """Return after which moves a VM would fit, and where."""
    moves = ", ".join(f"{each.name} to {each.target}" for each in found.moves)
    counted = "1 move" if len(found.moves) == 1 else f"{len(found.moves)} moves"
    return f"fits on {found.host} after {counted}: {moves}"


def idle(kept: IdleBody) -> str:
    """Return who keeps room without running, how much, and how it is freed."""
    given = (("cpu", kept.cpu_milli), ("memory", kept.memory_bytes), ("disk", kept.disk_bytes))
    room = " and ".join(
        amount(name, number) + ("" if name == "cpu" else f" of {name}")
        for name, number in given
        if number
    )
    if not kept.vm:
        which = "1 other VM" if kept.count == 1 else f"{kept.count} other VMs"
        return f"{which} on {kept.host}, not running: {room}"
    return f"{kept.vm} on {kept.host} is {kept.state}: {room}; free it with `{kept.remedy}`"


def fix(change: FixBody) -> str:
    """Return one change after which the VM fits."""
    match change.kind:
        case FixKind.UNCORDON:
            return f"uncordon {change.host}"
        case FixKind.LIFT_RULE:
            return f"lift the rule {change.rule!r}; it then goes to {change.host}"
        case FixKind.FREE:
            return f"free {shortages(change.shortages)} on {change.host}"
        case FixKind.BRING_ONLINE:
            return f"bring {change.host} online"
        case _:  # of a newer server
            return f"{change.kind} on {change.host}"
