"""Arithmetic of holds: how much a host must keep free, of its holds and the claims that matter.

    load(t) = claims that live at t + what is left at t of each owner's holds
    held    = the greatest load from now on - claims that live now

A VM that lives for ever fits where committed + held + demand <= capacity, so the claim path has one
sum more to compare and knows no time. A VM that ends, or that draws on a hold, sees more: `held` of
its life, without its owner's. Claims that neither end nor draw are the same at all times and are
left out on both sides.

Extended resources, devices and NUMA cells are counters of a host (`model/kept.py`), each of which
is one sum more. A unit keeps certain devices and cells, so nothing but sums is compared. A counter
that no hold keeps is not summed: claims alone only ever become less.

The units of a reservation on a host differ in nothing but their ids: holds with the same owner and
windows are one of their sum, and so are claims with the same end and owner. What is gone through is
then windows and kinds of claims, not units times windows: it is done in write transactions.

A claim whose end has passed is still there and counts as one that never ends: what must be held
grows then, and is written when its host is settled next. But for such claims time only takes away:
what was `held` a while ago is at least what is `owed` now.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from roost.ledger.schema.amounts import LIMITS
from roost.ledger.schema.rows import ClaimRow, HoldRow
from roost.model.kept import NOTHING_KEPT, Counters, Kept, counters_in_order

#: Amounts in the order of `LIMITS`; while they are summed, those of counters after them.
Limits = tuple[int, ...]

NO_LIMITS: Limits = (0,) * len(LIMITS)

#: The end of a window, or of a life, that has none.
FOREVER = 2**62

Window = tuple[int, int | None]

#: By moment, whose holds or claims change then, and by how much: what is held, what is claimed.
_Steps = dict[int, list[tuple[str | None, Limits, Limits]]]

_counters: msgspec.json.Decoder[dict[str, int]] = msgspec.json.Decoder(dict[str, int])
_windows: msgspec.json.Decoder[tuple[Window, ...]] = msgspec.json.Decoder(tuple[Window, ...])


class Held(NamedTuple):
    """A hold as numbers: whose it is, how much, and when (an end may be `FOREVER`)."""

    owner: str
    limits: Limits
    windows: tuple[tuple[int, int], ...]
    counters: Counters = ()

    @classmethod
    def of(cls, row: HoldRow) -> "Held":
        """Return the numbers of a row."""
        windows = _filled_windows_of(row.windows)
        return cls(row.owner, row.limits, windows, read_counters(row.counters))


class Living(NamedTuple):
    """A claim that ends, or draws on its owner's holds, as numbers."""

    limits: Limits
    until_ms: int
    draws_on: str | None
    counters: Counters = ()

    @classmethod
    def of(cls, claim: ClaimRow) -> "Living":
        """Return the numbers of a claim."""
        until = FOREVER if claim.until_ms is None else claim.until_ms
        counters = read_counters(claim.counters)
        return cls((*claim.amounts, 1), until, claim.draws_on, counters)


def read_counters(text: str | None) -> Counters:
    """Read the counters of a hold or a claim."""
    return counters_in_order(_counters.decode(text)) if text else ()


def windows_of(text: str) -> tuple[Window, ...]:
    """Read the windows of a hold."""
    return _windows.decode(text)


@lru_cache(maxsize=256)  # the units of a reservation have the same
def _filled_windows_of(text: str) -> tuple[tuple[int, int], ...]:
    return ends_filled(windows_of(text))


def ends_filled(windows: Iterable[Window]) -> tuple[tuple[int, int], ...]:
    """Return windows whose ends are all numbers."""
    return tuple((start, FOREVER if end is None else end) for start, end in windows)


def held_on(
    holds: Sequence[Held],
    claims: Sequence[Living],
    now_ms: int,
    until_ms: int | None = None,
    but: str | None = None,
) -> Kept:
    """Return what a host must keep free from now on.

    With an end it is what must be kept free of a VM that lives until then; `but` is the owner whose
    holds are free to it.
    """
    if not holds:
        return NOTHING_KEPT
    end = FOREVER if until_ms is None else until_ms
    if not claims and all(
        start >= end or stop <= now_ms for hold in holds for start, stop in hold.windows
    ):
        return NOTHING_KEPT  # nothing of it is in this life
    names = counters_held(holds)
    holds, claims = with_counters(holds, claims, names)
    now = greatest = (0,) * (len(NO_LIMITS) + len(names))
    for at, alive, load in _loads(_steps(holds, claims, now_ms, end), but):
        if at >= end:
            break
        if at <= now_ms:
            now, greatest = alive, load
        else:
            greatest = tuple(map(max, greatest, load))
    return kept_of([max(0, most - here) for most, here in zip(greatest, now, strict=True)], names)


def counters_held(holds: Iterable[Held]) -> tuple[str, ...]:
    """Return the counters that some of these holds keep, in order."""
    return tuple(sorted({name for hold in holds for name, _ in hold.counters}))


def with_counters(
    holds: Sequence[Held], claims: Sequence[Living], names: Sequence[str]
) -> tuple[Sequence[Held], Sequence[Living]]:
    """Return the same with the amounts of some counters behind the others, in this order."""
    if not names:
        return holds, claims
    return (
        [hold._replace(limits=_wide(hold.limits, hold.counters, names)) for hold in holds],
        [claim._replace(limits=_wide(claim.limits, claim.counters, names)) for claim in claims],
    )


def _wide(limits: Limits, counters: Counters, names: Sequence[str]) -> Limits:
    amounts = dict(counters)
    return (*limits, *(amounts.get(name, 0) for name in names))


def kept_of(wide: Sequence[int], names: Sequence[str]) -> Kept:
    """Return amounts, with those of some counters behind the others, as what is kept."""
    limits, rest = wide[: len(NO_LIMITS)], wide[len(NO_LIMITS) :]
    return Kept.of(limits, counters_in_order(dict(zip(names, rest, strict=True))) if rest else ())


def owed(holds: Sequence[Held], claims: Sequence[Living], now_ms: int) -> Kept:
    """Return what a host must hold at the least, whenever it was settled with these rows.

    A claim whose end has passed was to be gone by now: its room is promised to what comes.
    """
    over = [claim for claim in claims if claim.until_ms <= now_ms]
    least = held_on(holds, [claim for claim in claims if claim.until_ms > now_ms], now_ms)
    for claim in over:
        taken = dict(claim.counters)
        left = {name: max(0, amount - taken.get(name, 0)) for name, amount in least.counters}
        least = Kept.of(_left(least.limits, claim.limits), counters_in_order(left))
    return least


def held_during(
    holds: Sequence[Held],
    claims: Sequence[Living],
    now_ms: int,
    windows: Sequence[tuple[int, int]],
) -> Kept:
    """Return the greatest load in some windows, less that of the claims of now.

    It is below 0 where claims end before: so much more could be kept there then.
    """
    of_claims = {name for claim in claims for name, _ in claim.counters}
    names = tuple(sorted({*counters_held(holds), *of_claims}))
    holds, claims = with_counters(holds, claims, names)
    steps = _steps(holds, claims, now_ms)
    # What is loaded changes at steps alone: it is greatest at one of them, or when a window begins.
    asked = sorted((max(start, now_ms), stop) for start, stop in windows if stop > now_ms)
    for start, _ in asked:
        steps[start] += ()
    now = (0,) * (len(NO_LIMITS) + len(names))
    greatest: Limits | None = None
    window = 0
    for at, alive, load in _loads(steps):
        if at <= now_ms:
            now = alive
        while window < len(asked) and asked[window][1] <= at:
            window += 1
        if window < len(asked) and asked[window][0] <= at:
            greatest = load if greatest is None else tuple(map(max, greatest, load))
    if greatest is None:
        return NOTHING_KEPT
    return kept_of([most - here for most, here in zip(greatest, now, strict=True)], names)


def merged_holds(holds: Iterable[Held]) -> list[Held]:
    """Merge holds with the same owner and windows into one of their sum; of limits alone."""
    sums: dict[tuple[str, tuple[tuple[int, int], ...]], Limits] = {}
    for owner, limits, windows, _ in holds:
        key = (owner, windows)
        sums[key] = _plus(sums[key], limits) if key in sums else limits
    return [Held(owner, limits, windows) for (owner, windows), limits in sums.items()]


def merged_claims(claims: Iterable[Living]) -> list[Living]:
    """Merge claims that end together and draw on the same owner; of limits alone."""
    sums: dict[tuple[int, str | None], Limits] = {}
    for limits, until_ms, draws_on, _ in claims:
        key = (until_ms, draws_on)
        sums[key] = _plus(sums[key], limits) if key in sums else limits
    return [Living(limits, until_ms, draws_on) for (until_ms, draws_on), limits in sums.items()]


def _steps(
    holds: Iterable[Held], claims: Iterable[Living], now_ms: int, end: int = FOREVER
) -> _Steps:
    """Return what changes from now on, by moment; what begins at the end or after may be out."""
    steps: _Steps = defaultdict(list)
    none: Limits = ()
    for owner, limits, windows, _ in merged_holds(holds):
        back, none = _negative(limits), none or (0,) * len(limits)
        for start, stop in windows:
            if stop <= now_ms or start >= end:
                continue
            steps[max(start, now_ms)].append((owner, limits, none))
            steps[stop].append((owner, back, none))
    for limits, until_ms, draws_on, _ in merged_claims(claims):
        none = none or (0,) * len(limits)
        steps[now_ms].append((draws_on, none, limits))
        if now_ms < until_ms < end:  # else it is over and still there
            steps[until_ms].append((draws_on, none, _negative(limits)))
    return steps


def _loads(steps: _Steps, but: str | None = None) -> Iterator[tuple[int, Limits, Limits]]:
    """Yield moments in time, the claims that live from each on, and the load.

    That is those claims, and what is left of each owner's holds; those of `but` are left out.
    """
    kept: dict[str, Limits] = {}
    drawn: dict[str, Limits] = {}
    width = next((len(more) for found in steps.values() for _, more, _ in found), len(NO_LIMITS))
    left = alive = none = (0,) * width
    for at in sorted(steps):
        for owner, more, claimed in steps[at]:
            alive = _plus(alive, claimed)
            if owner is None or owner == but:
                continue
            before = _left(kept.get(owner, none), drawn.get(owner, none))
            kept[owner] = _plus(kept.get(owner, none), more)
            drawn[owner] = _plus(drawn.get(owner, none), claimed)
            after = _left(kept[owner], drawn[owner])
            left = tuple(s + b - a for s, b, a in zip(left, after, before, strict=True))
        yield at, alive, _plus(left, alive)


def _left(kept: Limits, drawn: Limits) -> Limits:
    return tuple(max(0, k - d) for k, d in zip(kept, drawn, strict=True))


def _plus(one: Limits, other: Limits) -> Limits:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _negative(limits: Limits) -> Limits:
    return tuple(-amount for amount in limits)
