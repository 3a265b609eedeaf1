"""How many members of each group are in each fault domain.

One open-addressing hash table for all groups and scopes, as plain arrays so that the placement
kernels read and update the same memory: key = (group x 3 + scope) << 32 | domain. The entries of
one (group, scope) are chained, so "in which domains are the members" is a walk over those domains
alone. Entries whose count falls to zero stay until the table grows.
"""

from typing import NamedTuple

import numpy as np

from roost.base.errors import Conflict, InvalidRequest
from roost.fleet.interning import Interned
from roost.fleet.layout import Int64Array
from roost.model.groups import GroupSpec

EMPTY = -1
SCOPES = 3

#: Columns of `GroupArrays.info`.
RULE, SCOPE, HARD, MAX_SKEW, WEIGHT = range(5)


class GroupArrays(NamedTuple):
    """The group columns a decision reads and changes.

    | field | dtype, shape | meaning |
    |---|---|---|
    | keys | int64 [table] | (group x 3 + scope) << 32 | domain, or -1 |
    | counts | int64 [table] | members in that domain |
    | chain | int64 [table] | next entry of the same group and scope, or -1 |
    | heads | int64 [groups, 3] | first entry of each group and scope, or -1 |
    | info | int64 [groups, 5] | rule, scope, hard, max_skew, weight |
    | members | int64 [groups] | members in all |
    | used | int64 [1] | entries in the table |
    | set_start, set_groups | int64 [sets + 1], int64 [n] | the groups of each set |
    """

    keys: Int64Array
    counts: Int64Array
    chain: Int64Array
    heads: Int64Array
    info: Int64Array
    members: Int64Array
    used: Int64Array
    set_start: Int64Array
    set_groups: Int64Array


def find_entry(keys: Int64Array, key: int) -> int:
    """Return the entry that holds the key, or the empty one where it belongs.

    Compiled by the kernels as it stands. Multiplies in 32-bit halves so that Python's unbounded
    integers and the machine's agree.
    """
    mask = len(keys) - 1
    mixed = ((key >> 32) * 40503 + (key & 0xFFFFFFFF)) & 0x7FFFFFFF
    at = ((mixed * 2654435761) >> 15) & mask
    while keys[at] != EMPTY and keys[at] != key:
        at = (at + 1) & mask
    return at


class Groups:
    """The group registry and its member counts."""

    __slots__ = (
        "_by_name", "_last", "_last_number", "_sets", "arrays", "most_in_set", "rule_changes",
        "specs",
    )  # fmt: skip

    def __init__(self) -> None:
        self.specs: list[GroupSpec] = []  # by number; only an undone group's is given out again
        self.rule_changes = 0  # grows when a number that was known gets another rule
        self._by_name: dict[str, int] = {}
        self._sets: Interned[tuple[int, ...]] = Interned()
        self._sets.number(())
        self.most_in_set = 1  # groups in the largest set, or 1
        # The set that was asked for last: what is placed is then charged.
        self._last: tuple[GroupSpec | str, ...] = ()
        self._last_number = 0
        self.arrays = GroupArrays(
            keys=np.full(64, EMPTY, np.int64),
            counts=np.zeros(64, np.int64),
            chain=np.full(64, EMPTY, np.int64),
            heads=np.full((8, SCOPES), EMPTY, np.int64),
            info=np.zeros((8, 5), np.int64),
            members=np.zeros(8, np.int64),
            used=np.zeros(1, np.int64),
            set_start=np.zeros(16, np.int64),
            set_groups=np.zeros(16, np.int64),
        )

    def __len__(self) -> int:
        return len(self.specs)

    def find(self, name: str) -> int:
        """Return the number of the group with this name, or -1."""
        return self._by_name.get(name, -1)

    def register(self, spec: GroupSpec) -> int:
        """Return the group's number; a known name must bring the same rule."""
        known = self._by_name.get(spec.name)  # comparing is much quicker than hashing a rule
        if known is not None:
            if self.specs[known] == spec:
                return known
            raise Conflict(
                f"group {spec.name!r} is {self.specs[known]}, not {spec}", group=spec.name
            )
        number = self._by_name[spec.name] = len(self.specs)
        self.specs.append(spec)
        if number >= len(self.arrays.info):
            self._grow_groups(2 * number)
        self._write_rule(number, spec)
        return number

    def change_rule(self, spec: GroupSpec) -> None:
        """Give the group of this name another rule; members are counted in every scope already."""
        number = self._by_name[spec.name]
        self.specs[number] = spec
        self._write_rule(number, spec)
        self.rule_changes += 1

    def forget(self, name: str) -> None:
        """Free a group's name.

        Its number stays with what is still counted under it, such as a VM that is proposed and
        will lose; a later group of the same name gets a new one.
        """
        del self._by_name[name]
        self._last, self._last_number = (), 0

    def forget_from(self, number: int) -> None:
        """Forget the groups from this number on, which have no member: what defined them is undone.

        Their numbers are given out again, to groups that may have another rule.
        """
        if number >= len(self.specs):
            return
        for spec in self.specs[number:]:
            if self._by_name.get(spec.name, -1) >= number:
                del self._by_name[spec.name]
        del self.specs[number:]
        self._last, self._last_number = (), 0
        self.rule_changes += 1

    def known(self) -> list[GroupSpec]:
        """Return the groups that have a name, in the order of their numbers."""
        return [self.specs[number] for number in sorted(self._by_name.values())]

    def _write_rule(self, number: int, spec: GroupSpec) -> None:
        self.arrays.info[number] = (
            spec.rule,
            spec.scope,
            spec.hard,
            spec.max_skew,
            spec.weight,
        )

    def set_number(self, groups: tuple[GroupSpec | str, ...]) -> int:
        """Return the number of this set of groups, registering groups that bring their rule."""
        if groups is self._last:
            return self._last_number
        if not groups:
            return 0
        numbers = []
        for group in groups:
            if isinstance(group, GroupSpec):
                numbers.append(self.register(group))
                continue
            number = self._by_name.get(group, -1)
            if number < 0:
                raise InvalidRequest(f"unknown group {group!r}", group=group)
            numbers.append(number)
        self._last_number = self.set_of_numbers(tuple(numbers))
        self._last = groups
        return self._last_number

    def set_members(self, set_number: int) -> tuple[int, ...]:
        """Return the groups in a set."""
        return self._sets[set_number]

    def sets(self) -> list[tuple[int, ...]]:
        """Return every set of groups in the order of its number."""
        return self._sets.values

    def set_of_numbers(self, numbers: tuple[int, ...]) -> int:
        """Return the number of the set of these group numbers."""
        members = numbers if len(numbers) == 1 else tuple(sorted(set(numbers)))
        number = self._sets.find(members)
        return number if number >= 0 else self._add_set(members)

    def _add_set(self, members: tuple[int, ...]) -> int:
        number = self._sets.number(members)
        start, pool = self.arrays.set_start, self.arrays.set_groups
        first = int(start[number])
        end = first + len(members)
        if number + 1 >= len(start):
            start = _longer(start, 2 * len(start))
        if end > len(pool):
            pool = _longer(pool, 2 * end)
        start[number + 1] = end
        pool[first:end] = members
        if start is not self.arrays.set_start or pool is not self.arrays.set_groups:
            self.arrays = self.arrays._replace(set_start=start, set_groups=pool)
        self.most_in_set = max(self.most_in_set, len(members))
        return number

    def count(self, group: int, scope: int, domain: int) -> int:
        """Return the group's members in one fault domain."""
        if domain < 0:
            return 0
        keys = self.arrays.keys
        at = find_entry(keys, (group * SCOPES + scope) << 32 | domain)
        return int(self.arrays.counts[at]) if keys[at] != EMPTY else 0

    def add(self, group: int, domains: Int64Array, amount: int) -> None:
        """Change the group's member count by `amount` in a host's three fault domains."""
        self.reserve(SCOPES)
        arrays = self.arrays
        arrays.members[group] += amount
        for scope in range(SCOPES):
            domain = int(domains[scope])
            if domain < 0:
                continue
            key = (group * SCOPES + scope) << 32 | domain
            at = find_entry(arrays.keys, key)
            if arrays.keys[at] == EMPTY:
                arrays.keys[at] = key
                arrays.counts[at] = 0
                arrays.chain[at] = arrays.heads[group, scope]
                arrays.heads[group, scope] = at
                arrays.used[0] += 1
            arrays.counts[at] += amount

    def reserve(self, entries: int) -> None:
        """Make room for so many new entries, dropping those that count nothing."""
        table = self.arrays
        if (int(table.used[0]) + entries) * 2 <= len(table.keys):
            return
        live = np.flatnonzero((table.keys != EMPTY) & (table.counts != 0))
        size = 64
        while size < 4 * (len(live) + entries):
            size *= 2
        keys = np.full(size, EMPTY, np.int64)
        counts = np.zeros(size, np.int64)
        chain = np.full(size, EMPTY, np.int64)
        heads = np.full_like(table.heads, EMPTY)
        for entry in live.tolist():
            key = int(table.keys[entry])
            at = find_entry(keys, key)
            keys[at] = key
            counts[at] = table.counts[entry]
            group, scope = divmod(key >> 32, SCOPES)
            chain[at] = heads[group, scope]
            heads[group, scope] = at
        table.used[0] = len(live)
        self.arrays = table._replace(keys=keys, counts=counts, chain=chain, heads=heads)

    def _grow_groups(self, capacity: int) -> None:
        old = self.arrays
        heads = np.full((capacity, SCOPES), EMPTY, np.int64)
        heads[: len(old.heads)] = old.heads
        info = np.zeros((capacity, 5), np.int64)
        info[: len(old.info)] = old.info
        members = np.zeros(capacity, np.int64)
        members[: len(old.members)] = old.members
        self.arrays = old._replace(heads=heads, info=info, members=members)

    def copy(self) -> "Groups":
        """Return an independent copy."""
        other = Groups()
        other.specs = list(self.specs)
        other.rule_changes = self.rule_changes
        other._by_name = dict(self._by_name)
        other._sets = self._sets.copy()
        other.most_in_set = self.most_in_set
        other.arrays = GroupArrays(*(array.copy() for array in self.arrays))
        return other


def _longer(array: Int64Array, length: int) -> Int64Array:
    longer = np.zeros(length, np.int64)
    longer[: len(array)] = array
    return longer
