"""What the rules of groups say of one VM's move, alone or in exchange for another's."""

from roost.placement.kernels.compiling import int64
from roost.planner.kernels.compiling import kernel
from roost.planner.kernels.tables import FORBIDDEN, Facts, State
from roost.planner.problem import APART, EVEN, TOGETHER, WIDE

_RULE, _LEVEL, _BOUND, _WEIGHT = range(4)


@kernel
def in_domain(facts: Facts, state: State, group: int, domain: int) -> int:
    """Return how many members of a group are in a domain of the group's level."""
    at = facts.count_at[group]
    if at >= 0:
        return state.counts[at + domain]
    level = facts.groups[group, _LEVEL]
    count = 0
    for member in range(facts.member_start[group], facts.member_start[group + 1]):
        host = state.place[facts.members[member]]
        if host >= 0 and facts.domain[host, level] == domain:
            count += 1
    return count


@kernel
def belongs(facts: Facts, vm: int, group: int) -> bool:
    """Say whether a VM is in a group."""
    for at in range(facts.group_start[vm], facts.group_start[vm + 1]):
        if facts.group_of[at] == group:
            return True
    return False


@kernel
def unevenness(facts: Facts, state: State, group: int, less: int, more: int) -> int:
    """Return how far the fullest domain of a group is above the emptiest after a move.

    `less` and `more` are the domains that lose and win a member, -1 for none.
    """
    fewest, most = FORBIDDEN, 0
    for domain in range(facts.domains[facts.groups[group, _LEVEL]]):
        count = in_domain(facts, state, group, domain)
        if domain == less:
            count -= 1
        if domain == more:
            count += 1
        fewest = min(fewest, count)
        most = max(most, count)
    return most - fewest


@kernel
def needs_broken(
    facts: Facts, state: State, group: int, less: int, more: int, without: int
) -> bool:
    """Say whether a member that goes from one domain to another leaves a need unmet.

    `without` is a VM that leaves the domain `more` at the same time, or -1.
    """
    for at in range(facts.need_start[group], facts.need_start[group + 1]):
        needed = int64(facts.need[at])
        count = in_domain(facts, state, needed, more)
        if without >= 0 and belongs(facts, without, needed):
            count -= 1
        if count <= 0 and needed != group:
            return True
    if facts.serve_start[group] == facts.serve_start[group + 1]:
        return False
    if less < 0 or in_domain(facts, state, group, less) > 1:
        return False
    for at in range(facts.serve_start[group], facts.serve_start[group + 1]):
        needing = int64(facts.serve[at])
        if needing != group and in_domain(facts, state, needing, less) > 0:
            return True
    return False


@kernel
def rules_delta(facts: Facts, state: State, vm: int, source: int, target: int, other: int) -> int:
    """Return the change of cost by groups when a VM moves, `FORBIDDEN` if a hard rule refuses.

    `other` is the VM that goes the opposite way at the same time, or -1. A group that both are in
    does not change.
    """
    delta = 0
    for at in range(facts.group_start[vm], facts.group_start[vm + 1]):
        group = int64(facts.group_of[at])
        level = facts.groups[group, _LEVEL]
        less = int64(facts.domain[source, level])
        more = int64(facts.domain[target, level])
        if less == more or (other >= 0 and belongs(facts, other, group)):
            continue
        if more < 0:
            return FORBIDDEN
        rule = facts.groups[group, _RULE]
        bound = facts.groups[group, _BOUND]
        weight = facts.groups[group, _WEIGHT]
        worse = 0
        if rule == APART:
            if in_domain(facts, state, group, more) >= bound:
                worse += 1
            if weight != 0 and less >= 0 and in_domain(facts, state, group, less) > bound:
                worse -= 1
        elif rule == WIDE or rule == TOGETHER:
            wider = 0
            if in_domain(facts, state, group, more) == 0:
                wider += 1
            if less >= 0 and in_domain(facts, state, group, less) == 1:
                wider -= 1
            if rule == TOGETHER:
                worse = wider
            elif wider != 0:
                before = max(0, bound - state.spread[group])
                worse = max(0, bound - state.spread[group] - wider) - before
        elif rule == EVEN:
            before = max(0, unevenness(facts, state, group, int64(-1), int64(-1)) - bound)
            worse = max(0, unevenness(facts, state, group, less, more) - bound) - before
        if worse > 0 and weight == 0:
            return FORBIDDEN
        delta += weight * worse
        if needs_broken(facts, state, group, less, more, other):
            return FORBIDDEN
    return delta
