"""In which rack and zone a host is, as bits of its first mark: what affinity is looked up by.

A VM that must join others in their zone passes over all hosts elsewhere. Asking each of them is
what takes long, so a block of the ranking knows by these bits which racks and zones it has hosts
in, and is passed over as a whole. Domains share bits when there are many: a bit too many costs a
look at a host, never an answer.
"""

from typing import cast

import numpy as np

from roost.fleet.groups import EMPTY, HARD, RULE, SCOPE, GroupArrays
from roost.fleet.layout import Int64Array
from roost.model.hosts import Scope
from roost.placement.kernels.compiling import inlined, kernel
from roost.placement.kernels.tally import AFFINITY

#: The word of the marks that holds the bits.
WHERE = 0

#: The bits of racks come first, then those of zones, and one that every host has.
RACK_BITS, ZONE_BITS = 41, 21
SOMEWHERE = 1 << 62

#: Matches every host.
ANYWHERE = -1

RACK_SCOPE, ZONE_SCOPE = int(Scope.RACK), int(Scope.ZONE)


def domain_bits(domain: Int64Array) -> Int64Array:
    """Return the word of each host, given its row of `HostArrays.domain`."""
    rack, zone = domain[:, RACK_SCOPE], domain[:, ZONE_SCOPE]
    rack_bit = np.where(rack >= 0, 1 << rack % RACK_BITS, 0)
    zone_bit = np.where(zone >= 0, 1 << RACK_BITS + zone % ZONE_BITS, 0)
    return cast(Int64Array, SOMEWHERE | rack_bit | zone_bit)


@inlined
def domain_bit(scope: int, domain: int) -> int:
    """Return the bit of one rack or zone."""
    if scope == RACK_SCOPE:
        return 1 << domain % RACK_BITS
    return 1 << RACK_BITS + domain % ZONE_BITS


@kernel
def company(groups: GroupArrays, chosen: Int64Array, scope: int) -> int:
    """Return the bits of the racks or zones that the chosen groups leave to a new member.

    Only hard affinity to members that are there is looked at.
    """
    mask = ANYWHERE
    for position in range(len(chosen)):
        group = chosen[position]
        if (
            groups.info[group, RULE] == AFFINITY
            and groups.info[group, SCOPE] == scope
            and groups.info[group, HARD]
            and groups.members[group] > 0
        ):
            occupied = 0
            at = groups.heads[group, scope]
            while at != EMPTY:
                if groups.counts[at] > 0:
                    occupied |= domain_bit(scope, groups.keys[at] & 0xFFFFFFFF)
                at = groups.chain[at]
            mask &= occupied
    return mask
