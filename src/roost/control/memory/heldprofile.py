"""What a host must hold, by how long a VM lives: reckoned once, then looked up.

`holdsums.held_on` goes through all windows and claims for one end. A profile does so for every end
at once, and is good until the next of its moments comes; of what is held up to each of them it
keeps the few where that grows.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from roost.fleet.layout import Int64Array
from roost.ledger.claims.holdsums import (
    FOREVER,
    NO_LIMITS,
    Held,
    Living,
    counters_held,
    kept_of,
    merged_claims,
    merged_holds,
    with_counters,
)
from roost.model.kept import NOTHING_KEPT, Kept

_Windows = tuple[tuple[int, int], ...]


class HeldProfile(NamedTuple):
    """What is held of VMs that end after each of some moments, as long as now is within a span."""

    from_ms: int
    before_ms: int  # windows begin or end then, or claims do: it must be made anew
    moments: tuple[int, ...]
    held: tuple[Kept, ...]

    def holds_at(self, now_ms: int) -> bool:
        """Say whether it is still true at a moment."""
        return self.from_ms <= now_ms < self.before_ms

    def until(self, end_ms: int) -> Kept:
        """Return what must be held of a VM that lives until then."""
        return self.held[max(0, bisect_left(self.moments, end_ms) - 1)]


def profile_of(
    holds: Sequence[Held], claims: Sequence[Living], now_ms: int, but: str | None = None
) -> HeldProfile:
    """Reckon what a host must hold from now on; `but` is the owner whose holds are left out."""
    names = counters_held(holds)
    holds, claims = with_counters(holds, claims, names)
    kept = [hold for hold in merged_holds(holds) if hold.owner != but]
    claims = merged_claims(claims)
    if not kept:
        return HeldProfile(now_ms, FOREVER, (now_ms,), (NOTHING_KEPT,))
    steps = [_steps(hold.windows) for hold in kept]
    ends = [claim.until_ms if claim.until_ms > now_ms else FOREVER for claim in claims]
    moments = np.unique(np.concatenate([*(each.ravel() for each in steps), [now_ms, *ends]]))
    moments = moments[moments >= now_ms]
    alive = np.zeros((len(moments), len(NO_LIMITS) + len(names)), np.int64)
    drawn: dict[str | None, Int64Array] = {}
    for claim, end in zip(claims, ends, strict=True):
        span = slice(0, int(np.searchsorted(moments, end)))
        alive[span] += claim.limits
        if claim.draws_on is not None and claim.draws_on != but:
            drawn.setdefault(claim.draws_on, np.zeros_like(alive))[span] += claim.limits
    # What nobody draws on adds up, whoever owns it.
    whose: dict[str | None, Int64Array] = {}
    for hold, windows in zip(kept, steps, strict=True):
        owner = hold.owner if hold.owner in drawn else None
        changes = whose.setdefault(owner, np.zeros_like(alive))
        coming = np.maximum(windows[windows[:, 1] > now_ms], now_ms)
        np.add.at(changes, np.searchsorted(moments, coming[:, 0]), hold.limits)
        np.subtract.at(changes, np.searchsorted(moments, coming[:, 1]), hold.limits)
    load = alive.copy()
    for owner, changes in whose.items():
        left = changes.cumsum(axis=0)
        load += left if owner is None else np.maximum(0, left - drawn[owner])
    held = np.maximum(0, np.maximum.accumulate(load) - alive[0])
    grows = np.flatnonzero(np.r_[True, (held[1:] != held[:-1]).any(axis=1)])
    return HeldProfile(
        now_ms,
        int(moments[1]) if len(moments) > 1 else FOREVER,
        tuple(moments[grows].tolist()),
        tuple(kept_of(each, names) for each in held[grows].tolist()),
    )


@lru_cache(maxsize=4096)  # the units of a reservation have the same
def _steps(windows: _Windows) -> Int64Array:
    return np.array(windows, np.int64).reshape(-1, 2)
