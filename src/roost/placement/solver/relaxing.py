"""The smallest set of rules, groups and constraints without which a batch fits: a minimal conflict.

One is tried before two are, so that the first set that is found is the smallest. Then the answer
is held against the search itself: without all of them the batch fits, and with any one of them put
back it does not. Where the effort is over before that, it is named as not checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from roost.model.flow import PlaceRequest
from roost.placement.effort import Effort
from roost.placement.engine import Engine
from roost.placement.greedy import place_in_turn
from roost.placement.solver.problem import classes_of, kept_hosts, narrowed
from roost.placement.solver.program import NONE, SOLVED, Program
from roost.placement.solver.restrictions import Restriction, liftable, without
from roost.placement.solver.searching import MOST_SEATS, helped_rules, search

#: Restrictions that are tried alone.
_MOST_ALONE = 16
#: Sets up to this size are looked for one after the other; the next try lifts anything.
_MOST_ONE_BY_ONE = 4
#: What a step may take of the effort that is left.
_HALF, _QUARTER = 1 / 2, 1 / 4


@dataclass(frozen=True, slots=True)
class Conflict:
    """What must be lifted so that a batch fits; nothing of it can stay.

    Empty: the amounts alone do not fit, whatever is lifted. `checked`: all fit without them, each
    was put back, and the batch was proven not to fit then. `smallest`: no other set is smaller.
    """

    restrictions: tuple[Restriction, ...]
    checked: bool
    smallest: bool


def conflict_of(
    engine: Engine,
    requests: Sequence[PlaceRequest],
    effort: Effort | None = None,
    core: Sequence[int] = (),
) -> Conflict | None:
    """Return what keeps a batch that does not fit from fitting; None if it was not found out.

    `core`: VMs that do not fit by themselves, if that is known; the search is shorter then.
    """
    effort, guess = effort or Effort(), None
    if core and len(core) < len(requests):
        found = _smallest(engine, [requests[at] for at in core], effort.part(_HALF))
        if found is not None:
            chosen, smallest = found
            if not chosen:
                return Conflict((), checked=True, smallest=smallest)
            guess = _checked(engine, requests, chosen, effort.part(_HALF), smallest=smallest)
            if guess is not None and guess.checked:
                return guess
    found = _smallest(engine, requests, effort.part(_HALF))
    if found is None:
        return guess
    chosen, smallest = found
    if not chosen:
        return Conflict((), checked=smallest, smallest=smallest)
    return _checked(engine, requests, chosen, effort, smallest=smallest) or guess


def _smallest(
    engine: Engine, requests: Sequence[PlaceRequest], effort: Effort
) -> tuple[list[Restriction], bool] | None:
    """Return as little as CP-SAT found that lets a batch fit, and whether nothing smaller does."""
    if effort.is_over():
        return None
    classes = classes_of(engine, requests)
    able = liftable(engine, requests, classes)
    if not able.possible.any(axis=1).all():
        return [], True
    marks = np.zeros((able.possible.shape[1], 0), np.int64)
    if able.lifts.blocked:
        marks = np.stack(list(able.lifts.blocked.values()), axis=1).astype(np.int64)
    hosts = kept_hosts(engine.fleet, classes, able.possible, marks)
    whole = int(able.possible[:, [row for equal in hosts for row in equal]].sum()) <= MOST_SEATS
    possible = able.possible
    if not whole:
        possible = narrowed(engine.fleet, classes, possible, MOST_SEATS // len(classes))
    # Each alone first: the plain search for a batch without it is far quicker than a program that
    # has to choose, and most conflicts are one rule.
    for each in able.restrictions[:_MOST_ALONE]:
        if _fits(engine, without(requests, [each]), effort.part(_QUARTER))[0]:
            return [each], True
    # Where others may make a rule true, these programs lift it without need.
    proven = whole and not any(helped_rules(vm, classes) for vm in classes)
    least = 2 if len(able.restrictions) <= _MOST_ALONE else 1
    for most in (*range(least, _MOST_ONE_BY_ONE + 1), len(able.restrictions)):
        if effort.is_over():
            return None
        lifts = replace(able.lifts, most=min(most, len(able.restrictions)))
        program = Program(engine, classes, hosts, possible, lifts)
        status = program.solve(effort.part(_HALF))
        proven &= program.complete
        if status == SOLVED:
            chosen = [able.restrictions[at] for at in program.lifted()]
            return chosen, proven and most <= _MOST_ONE_BY_ONE
        if status != NONE:
            proven = False
        if most >= len(able.restrictions):
            break
    return ([], True) if proven else None


def _checked(
    engine: Engine,
    requests: Sequence[PlaceRequest],
    chosen: list[Restriction],
    effort: Effort,
    *,
    smallest: bool,
) -> Conflict | None:
    """Put each restriction back: what can stay does, and all others must be proven needed."""
    first = effort.part(_HALF)
    fits, _ = _fits(engine, without(requests, chosen), first)
    if not fits:
        return Conflict(tuple(chosen), checked=False, smallest=False) if first.is_over() else None
    checked = True
    for each in list(chosen):
        rest = [other for other in chosen if other is not each]
        if not rest:  # nothing is lifted then, and that is known not to fit
            continue
        fits, proven = _fits(engine, without(requests, rest), effort.part(_HALF))
        if fits:
            chosen = rest
        else:
            checked &= proven
    return Conflict(tuple(chosen), checked, smallest)


def _fits(engine: Engine, requests: Sequence[PlaceRequest], effort: Effort) -> tuple[bool, bool]:
    """Say whether a batch fits, and whether a no is proven."""
    if effort.is_over():
        return False, False
    begun, _ = place_in_turn(engine, requests, explain=False)
    if len(begun) == len(requests):
        return True, True
    found = search(engine, requests, effort)
    return found.placements is not None, found.proven
