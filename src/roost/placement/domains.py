"""Group members per fault domain, as columns over the fleet."""

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.groups import EMPTY
from roost.fleet.layout import BoolArray, Int64Array
from roost.model.groups import GroupRule
from roost.model.hosts import Scope
from roost.placement.question import Question


def hard_groups(question: Question, rule: GroupRule) -> tuple[int, ...]:
    """Return the request's groups that enforce this rule."""
    specs = question.fleet.groups.specs
    return tuple(
        group for group in question.groups if specs[group].hard and specs[group].rule is rule
    )


def occupied_domains(fleet: Fleet, group: int) -> dict[int, int]:
    """Return the group's members by fault domain of its scope, occupied domains only."""
    return members_by_domain(fleet, group, fleet.groups.specs[group].scope)


def members_by_domain(fleet: Fleet, group: int, scope: Scope) -> dict[int, int]:
    """Return the group's members by fault domain of any scope, occupied domains only."""
    arrays = fleet.groups.arrays
    members = {}
    at = int(arrays.heads[group, scope])
    while at != EMPTY:
        if arrays.counts[at] > 0:
            members[int(arrays.keys[at]) & 0xFFFFFFFF] = int(arrays.counts[at])
        at = int(arrays.chain[at])
    return members


def members_per_host(fleet: Fleet, group: int, rows: Int64Array) -> tuple[Int64Array, BoolArray]:
    """Return the members in each host's domain, and whether that domain is known."""
    domain = fleet.hosts.arrays.domain[rows, fleet.groups.specs[group].scope]
    known = domain >= 0
    counts = np.zeros(max(fleet.hosts.count, int(domain.max(initial=0)) + 1), np.int64)
    for each, members in occupied_domains(fleet, group).items():
        if each < len(counts):
            counts[each] = members
    return np.where(known, counts[domain], 0), known


def fewest_members(question: Question, group: int) -> int:
    """Return the smallest member count over the domains that have an eligible host."""
    fleet = question.fleet
    rows = fleet.present_rows()
    domain = fleet.hosts.arrays.domain[rows, fleet.groups.specs[group].scope]
    domains = np.unique(domain[question.eligible(question, rows) & (domain >= 0)])
    occupied = occupied_domains(fleet, group)
    return min((occupied.get(each, 0) for each in domains.tolist()), default=0)
