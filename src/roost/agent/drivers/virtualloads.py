"""Loads that virtual VMs pretend to have: a pattern in words, and how busy it is at a moment.

    "daily:mean=0.4,peak=14" --read_load--> Load --level--> share of its cpu that a VM wants now

Everything is a function of the VM's id and the time on the wall, and of nothing that is remembered:
the same VM is equally busy at the same moment on whichever host it is, after any restart, and in
every replay. What the share comes to in bytes and packets is in `virtualsampling.py`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any, Final

from roost.agent.drivers.virtualtraces import Trace
from roost.base.errors import InvalidRequest

#: The label by which a VM says its load, and how long that may be.
LABEL: Final = "load"
MOST_LABEL: Final = 253

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
#: The first Monday of 1970, where weeks are counted from.
_MONDAY_MS = 4 * _DAY_MS
#: How long one draw of noise holds, and how long one slot of a bursty load is.
NOISE_MS, _SLOT_MS = 15_000, 300_000


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a VM is over time; shares are of what it asked for, 0 to 1, hours are UTC."""

    pattern: str = "steady"
    mean: float = 0.3
    amplitude: float = 0.25  # how far a cycle leaves the mean; how much growth and bursts add
    peak: float = 14.0  # hour of the day; of a weekly cycle, hours since Monday began
    weekend: float = 1.0  # what is left of the cpu on Saturday and Sunday
    days: float = 14.0  # a growing load begins anew after so many
    bursts: float = 0.1  # share of the time that a bursty load is in a burst
    noise: float = 0.2  # how far a reading strays, as a share of itself
    memory: float = 0.6
    name: str = ""  # of the trace


STEADY = Load()


def _steady(load: Load, vm_id: str, at_ms: int) -> float:
    return load.mean


def _daily(load: Load, vm_id: str, at_ms: int) -> float:
    return _cycle(load, at_ms / _HOUR_MS, 24.0)


def _weekly(load: Load, vm_id: str, at_ms: int) -> float:
    return _cycle(load, (at_ms - _MONDAY_MS) / _HOUR_MS, 168.0)


def _cycle(load: Load, hours: float, period: float) -> float:
    return load.mean + load.amplitude * math.cos(math.tau * (hours - load.peak) / period)


def _growing(load: Load, vm_id: str, at_ms: int) -> float:
    return load.mean + load.amplitude * _grown(load, vm_id, at_ms)


def _grown(load: Load, vm_id: str, at_ms: int) -> float:
    """Return how far the growth is, 0 to 1; VMs begin at different times."""
    began = drawn(vm_id, "growing", 0)[0]
    return (at_ms / (load.days * _DAY_MS) + began) % 1.0


def _bursty(load: Load, vm_id: str, at_ms: int) -> float:
    chance, height = drawn(vm_id, "burst", at_ms // _SLOT_MS)[:2]
    return load.mean + (load.amplitude * (0.5 + 0.5 * height) if chance < load.bursts else 0.0)


_Level = Callable[[Load, str, int], float]
#: Every pattern that needs no file, and what it is where nothing else is said.
_PATTERNS: dict[str, tuple[_Level, Load]] = {
    "steady": (_steady, Load("steady", noise=0.3)),
    "daily": (_daily, Load("daily")),
    "weekly": (_weekly, Load("weekly", peak=60.0)),
    "growing": (_growing, Load("growing", mean=0.2, amplitude=0.6, memory=0.3)),
    "bursty": (_bursty, Load("bursty", mean=0.05, amplitude=0.9)),
    "idle": (_steady, Load("idle", mean=0.01, amplitude=0.0, memory=0.1)),
}
TRACE: Final = "trace"
PATTERNS: Final = (*_PATTERNS, TRACE)
#: What a number may be, where that is not 0 to 1.
_MOST = {"peak": 168.0, "days": 3660.0}


def read_load(text: str, traces: Mapping[str, Trace]) -> Load:
    """Return the load that `PATTERN` or `PATTERN:KEY=VALUE,...` means."""
    if len(text) > MOST_LABEL:
        raise InvalidRequest(f"a load of {len(text)} characters is longer than {MOST_LABEL}")
    pattern, _, rest = text.partition(":")
    if pattern not in PATTERNS:
        raise InvalidRequest(f"no load {pattern!r}: there are {', '.join(PATTERNS)}")
    load = Load(TRACE, noise=0.0) if pattern == TRACE else _PATTERNS[pattern][1]
    known = {each.name for each in fields(Load)} - {"pattern"}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key not in known or not equals:
            raise InvalidRequest(f"{part!r} of the load {text!r} is no KEY=VALUE of a load")
        given: Any = value if key == "name" else _number(key, value)
        load = replace(load, **{key: given})
    if load.days <= 0:
        raise InvalidRequest(f"days of the load {text!r} must be above 0")
    if pattern == TRACE and load.name not in traces:
        raise InvalidRequest(
            f"no trace {load.name!r} on this host", hint="Maybe start its agent with --load-trace."
        )
    return load


def _number(key: str, text: str) -> float:
    most = _MOST.get(key, 1.0)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= most:  # NaN is not
        raise InvalidRequest(f"{key} {text!r} of a load is not a number from 0 to {most:g}")
    return value


def level(load: Load, vm_id: str, at_ms: int, traces: Mapping[str, Trace]) -> float:
    """Return the share of its cpu that a VM wants at a moment, 0 to 1."""
    if load.pattern == TRACE:
        wanted = traces[load.name].at(at_ms)
    else:
        wanted = _PATTERNS[load.pattern][0](load, vm_id, at_ms)
    if (at_ms - _MONDAY_MS) // _DAY_MS % 7 >= 5:
        wanted *= load.weekend
    astray = 2.0 * drawn(vm_id, "cpu", at_ms // NOISE_MS)[0] - 1.0
    return min(1.0, max(0.0, wanted * (1.0 + load.noise * astray)))


def memory_level(load: Load, vm_id: str, at_ms: int) -> float:
    """Return the share of its memory that a VM holds; only a growing load changes it much."""
    grown = load.amplitude * _grown(load, vm_id, at_ms) if load.pattern == "growing" else 0.0
    astray = 2.0 * drawn(vm_id, "memory", at_ms // NOISE_MS)[0] - 1.0
    return min(1.0, max(0.0, (load.memory + grown) * (1.0 + 0.05 * astray)))


def drawn(vm_id: str, what: str, slot: int) -> tuple[float, float, float, float]:
    """Return four numbers from 0 to 1 that belong to a VM, a purpose and a slot of time."""
    digest = blake2b(f"{what} {slot} {vm_id}".encode(), digest_size=16).digest()
    a, b, c, d = (int.from_bytes(digest[at : at + 4], "big") / 2**32 for at in (0, 4, 8, 12))
    return a, b, c, d
