"""Breaks kernels on purpose and says which law noticed; run with the compiler off.

    NUMBA_DISABLE_JIT=1 python -m tests.property.broken_kernels

A compiled kernel cannot be changed from outside, a plain one can. Blocks hold four hosts here and
runs two blocks, so that a fleet of sixty has all that a fleet of thousands has. Prints one line of
JSON per mutant: its name, and the seed that gave it away.
"""

import json
import sys

import pytest

from roost.base.errors import InvariantBroken
from roost.fleet.groups import EMPTY
from roost.placement.kernels import (
    bounded,
    charging,
    domain_bits,
    fit,
    keys,
    least_loss,
    ranking,
    scores,
    search,
    tally,
)
from roost.placement.kernels.ranking import B_BOUNDS, B_SIZE, B_STALE, E_ROW, M_LENGTHS
from tests.property.filing import small_blocks
from tests.property.laws import long_lived_engine_equals_twin

SEEDS = range(12)
AS_IT_IS = "the kernels as they are"


def change_everywhere(patch: pytest.MonkeyPatch, old: object, new: object) -> None:
    """Replace a kernel, or a constant, in every module that has imported it."""
    found = 0
    for name, module in list(sys.modules.items()):
        if name.startswith("roost."):
            for key, value in list(vars(module).items()):
                if value is old:
                    patch.setattr(module, key, new)
                    found += 1
    assert found, old


def tighten_short(made, headroom, marks, block):
    """Leave the last host of a block out of its bounds."""
    ranking.clear_bounds(made, block, headroom.shape[1])
    for entry in range(max(1, made.bounds[block, B_SIZE] - 1)):
        ranking.raise_block(made, headroom, marks, block, made.entries[block, entry, E_ROW])
    made.bounds[block, B_STALE] = 0


def seek_behind(made, which, key, row, *, seek=ranking.seek):
    """Find the block after the right one."""
    return min(seek(made, which, key, row) + 1, max(0, made.meta[M_LENGTHS + which] - 1))


def room_to_spare(headroom, ask, row):
    """Refuse an exact fit."""
    return all(
        headroom[row, ask.columns[at]] > ask.least[at] for at in range(ask.counts[fit.A_EXACT])
    )


def keep_low(*_):
    """Do not raise a run over a host that came into it."""


def drop_quietly(made, which, position, columns, *, tighten=ranking.tighten_runs_from):
    """Shift the blocks and leave the bounds of the runs where they were."""
    del tighten
    free = made.meta[ranking.M_FREE_BLOCKS]
    made.sequence[ranking.CLASSES, free] = made.sequence[which, position]
    made.meta[ranking.M_FREE_BLOCKS] += 1
    made.meta[M_LENGTHS + which] -= 1
    for at in range(position, made.meta[M_LENGTHS + which]):
        made.sequence[which, at] = made.sequence[which, at + 1]


def too_dear(bounds, block, marks_at, ask):
    """Charge a block more than its cheapest host pays."""
    return tally.WEIGHT_ONE * ask.terms[fit.T_WISH_COUNT] * 100


def occupied_only(groups, group, eligible, eligible_count):
    """Take the emptiest occupied domain for the emptiest domain."""
    counts = []
    at = groups.heads[group, groups.info[group, tally.SCOPE]]
    while at != EMPTY:
        if groups.counts[at] > 0:
            counts.append(groups.counts[at])
        at = groups.chain[at]
    return min(counts, default=0)


def later_wins(total, row, best, best_row, cursor):
    """Let the higher number win a tie."""
    return best_row == search.NOWHERE or total < best or (total == best and row > best_row)


def covers_less(made, block, ask, marks_at):
    """Pass over blocks whose bounds fit exactly."""
    return all(
        made.bounds[block, B_BOUNDS + ask.columns[at]] > ask.least[at]
        for at in range(ask.counts[fit.A_ALL])
    ) and search_covers(made, block, ask, marks_at)


search_covers = search.block_covers


def stays_member(groups, group, domains, amount, *, add=tally.add_member):
    """Count a VM that leaves as one that comes."""
    add(groups, group, domains, abs(amount))


def bit_of_a_rack(scope, domain):
    """Take a zone for a rack."""
    return 1 << domain % domain_bits.RACK_BITS


def hopes_for_less(aim, most_free, first_key, *, least=bounded.least_score):
    """Leave memory out of what a block promises at best."""
    return least(aim._replace(memory=0, both=0), most_free, first_key)


def never_lower(made, block):
    """Take every block for one of higher numbers."""
    return search.MOST


def floors_too_high(ask, mix, *, write=least_loss.write_floors):
    """Count what a request takes at least twice."""
    by_amounts = write(ask, mix)
    mix.floors[:] *= 2
    return by_amounts


def even_cells(hosts, row):
    """Take all cells for equally free."""
    return 0


def as_if_idle(kind, hosts, row):
    """Take a host of which nothing is predicted for one that has only its VMs' use."""
    return keys.predicted_share(hosts, row, 0) + keys.predicted_share(hosts, row, 1)


def ends_as_it_likes(last_end, vm_end):
    """Put a host of any end into the first tier."""
    return 0


#: An hour more than all others on a host counts as nothing.
AN_HOUR_FREE = (scores.TIER_SLACKS[1], *scores.TIER_SLACKS[1:])


MUTANTS: dict[str, tuple[object, object, str]] = {
    "tightening forgets the last host of a block": (ranking.tighten_block, tighten_short, "none"),
    "seeking finds the next block": (ranking.seek, seek_behind, "none"),
    "an exact fit does not fit": (fit.has_room, room_to_spare, "none"),
    "runs are not raised over new hosts": (ranking.raise_run, keep_low, "none"),
    "runs keep their bounds when blocks shift": (ranking.drop_block, drop_quietly, "none"),
    "a block is taken for dearer than it is": (search.least_penalty, too_dear, "attributes"),
    "spread looks at occupied domains only": (tally.fewest_members, occupied_only, "groups"),
    "the higher number wins a tie in a list": (search.better, later_wins, "predicates"),
    "a block with an exact fit is passed over": (search.block_covers, covers_less, "none"),
    "a charge leaves the ratio columns": (charging.refresh_host_ratios, keep_low, "none"),
    "who leaves a group stays its member": (tally.add_member, stays_member, "groups"),
    "a block promises too little of a dot product": (bounded.least_score, hopes_for_less, "none"),
    "a tie is lost to a lower number": (bounded.lowest_row, never_lower, "none"),
    "what a request takes is overstated": (least_loss.write_floors, floors_too_high, "none"),
    "cells are ranked as if they were even": (keys.imbalance, even_cells, "cells"),
    "a host without prediction counts as idle": (keys.predicted_load, as_if_idle, "outlook"),
    "an hour longer is not longer": (scores.TIER_SLACKS, AN_HOUR_FREE, "outlook"),
    "a named host is of the first tier": (scores.tier_of, ends_as_it_likes, "outlook"),
    "affinity takes zones for racks": (domain_bits.domain_bit, bit_of_a_rack, "groups"),
}


def caught(name: str) -> int | None:
    """Return the first seed with which the law fails on a mutant."""
    old, new, focus = MUTANTS.get(name, (search.draw, search.draw, "any"))
    with pytest.MonkeyPatch.context() as patch:
        small_blocks(patch)
        change_everywhere(patch, old, new)
        for seed in SEEDS:
            try:
                long_lived_engine_equals_twin(seed, 60, 60, focus, every=30)
            except (AssertionError, InvariantBroken):
                return seed
    return None


if __name__ == "__main__":
    for each in (*MUTANTS, AS_IT_IS):
        print(json.dumps([each, caught(each)]), flush=True)
