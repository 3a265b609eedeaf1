"""Group members per fault domain: may a domain take one more, and what does a soft rule cost."""

from roost.fleet.groups import (
    EMPTY,
    HARD,
    MAX_SKEW,
    RULE,
    SCOPE,
    SCOPES,
    WEIGHT,
    GroupArrays,
    find_entry,
)
from roost.fleet.layout import HostArrays, Int64Array
from roost.model.groups import GroupRule
from roost.model.hosts import Scope
from roost.placement.kernels.compiling import kernel
from roost.placement.kernels.keys import SCORE_ONE

AFFINITY = int(GroupRule.AFFINITY)
ANTI_AFFINITY = int(GroupRule.ANTI_AFFINITY)
SPREAD = int(GroupRule.SPREAD)
HOST_SCOPE = int(Scope.HOST)

#: Weights are hundredths of a whole score.
WEIGHT_ONE = SCORE_ONE // 100

#: A soft rule is charged for at most so many members, so that no penalty can overflow.
MOST_CHARGED = 16

entry_of = kernel(find_entry)


@kernel
def members_in(groups: GroupArrays, group: int, scope: int, domain: int) -> int:
    """Return the group's members in one fault domain; none where the domain is unknown."""
    if domain < 0:
        return 0
    at = entry_of(groups.keys, (group * SCOPES + scope) << 32 | domain)
    return groups.counts[at] if groups.keys[at] != EMPTY else 0


@kernel
def add_member(groups: GroupArrays, group: int, domains: Int64Array, amount: int) -> None:
    """Change the member counts in a host's three fault domains; the table must have room."""
    groups.members[group] += amount
    for scope in range(SCOPES):
        domain = domains[scope]
        if domain < 0:
            continue
        key = (group * SCOPES + scope) << 32 | domain
        at = entry_of(groups.keys, key)
        if groups.keys[at] == EMPTY:
            groups.keys[at] = key
            groups.counts[at] = 0
            groups.chain[at] = groups.heads[group, scope]
            groups.heads[group, scope] = at
            groups.used[0] += 1
        groups.counts[at] += amount


@kernel
def fewest_members(
    groups: GroupArrays, group: int, eligible: Int64Array, eligible_count: int
) -> int:
    """Return the smallest member count over the eligible domains of the group's scope.

    `eligible[domain]` is positive where a domain has a host that may take the VM. Only occupied
    domains are walked: if there are fewer of them than eligible ones, the smallest count is 0.
    """
    scope = groups.info[group, SCOPE]
    occupied = 0
    fewest = 2**62
    at = groups.heads[group, scope]
    while at != EMPTY:
        domain = groups.keys[at] & 0xFFFFFFFF
        if groups.counts[at] > 0 and domain < len(eligible) and eligible[domain] > 0:
            occupied += 1
            fewest = min(fewest, groups.counts[at])
        at = groups.chain[at]
    return fewest if occupied >= eligible_count and occupied > 0 else 0


@kernel
def group_allows(hosts: HostArrays, groups: GroupArrays, group: int, fewest: int, row: int) -> bool:
    """Say whether a hard group rule lets one more member onto this host.

    A host whose rack or zone is unknown cannot prove anything, so a hard rule refuses it.
    """
    scope = groups.info[group, SCOPE]
    domain = hosts.domain[row, scope]
    if domain < 0:
        return False
    rule = groups.info[group, RULE]
    if rule == AFFINITY and groups.members[group] == 0:
        return True
    count = members_in(groups, group, scope, domain)
    if rule == AFFINITY:
        return count > 0
    if rule == ANTI_AFFINITY:
        return count == 0
    return count + 1 - fewest <= groups.info[group, MAX_SKEW]


@kernel
def group_penalty(hosts: HostArrays, groups: GroupArrays, group: int, fewest: int, row: int) -> int:
    """Return what a soft group rule charges this host, in score."""
    scope = groups.info[group, SCOPE]
    domain = hosts.domain[row, scope]
    rule = groups.info[group, RULE]
    weight = groups.info[group, WEIGHT] * WEIGHT_ONE
    if domain < 0:
        return weight
    count = members_in(groups, group, scope, domain)
    if rule == AFFINITY:
        return weight if count == 0 and groups.members[group] > 0 else 0
    if rule == ANTI_AFFINITY:
        return weight * min(count, MOST_CHARGED)
    return weight * min(max(0, count - fewest), MOST_CHARGED)


@kernel
def groups_allow(
    hosts: HostArrays, groups: GroupArrays, chosen: Int64Array, fewest: Int64Array, row: int
) -> bool:
    """Say whether every hard rule among the chosen groups allows this host."""
    for position in range(len(chosen)):
        group = chosen[position]
        if groups.info[group, HARD] and not group_allows(
            hosts, groups, group, fewest[position], row
        ):
            return False
    return True


@kernel
def groups_penalty(
    hosts: HostArrays, groups: GroupArrays, chosen: Int64Array, fewest: Int64Array, row: int
) -> int:
    """Return what the soft rules among the chosen groups charge this host."""
    total = 0
    for position in range(len(chosen)):
        group = chosen[position]
        if not groups.info[group, HARD]:
            total += group_penalty(hosts, groups, group, fewest[position], row)
    return total
