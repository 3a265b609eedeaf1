"""Terms and group sets made ready for the kernels.

A request's terms are compiled when they are first asked for: attribute rules become a selector's
mark or a list of hosts, preferences become marks with weights, spread rules get the domains they
compare. A row is compiled again when hosts' attributes changed since.
"""

from collections.abc import Hashable
from functools import partial

import numpy as np

from roost.base.errors import InvalidRequest
from roost.fleet.description import NUMA_NUMBERS, model_mask
from roost.fleet.fleet import Fleet
from roost.fleet.layout import BoolArray, Int32Array, Int64Array
from roost.model.constraints import BoundRule, Constraints, HostRequirements
from roost.model.groups import GroupRule
from roost.model.hosts import Scope, TaintEffect
from roost.placement.attributes import chosen, eligible, not_shunned, without_devices
from roost.placement.kernels.decide import Tables
from roost.placement.kernels.fit import (
    L_CAPACITY,
    L_COMMITTED,
    L_FREE,
    L_TOTAL,
    L_VMS,
    T_BIT,
    T_CANDIDATE_COUNT,
    T_CANDIDATES,
    T_COLUMNS,
    T_DEVICE_MEMORY,
    T_DEVICES,
    T_EXCLUDED,
    T_EXCLUDED_COUNT,
    T_FLOOR_COUNT,
    T_FLOORS,
    T_LINE_COUNT,
    T_LINES,
    T_MILLI,
    T_MODELS,
    T_NUMA,
    T_WISH_COUNT,
    T_WISHES,
    T_WORD,
)
from roost.placement.nearness import MOST_CHARGED as MOST_FAR
from roost.placement.nearness import SATURATED_WEIGHT, Nearness, is_bound
from roost.placement.peaks import MOST_CHARGED as MOST_ADDED
from roost.placement.peaks import HostDays
from roost.placement.question import Question
from roost.placement.rules.columns import RuleColumns
from roost.placement.rules.lines import Line
from roost.placement.rules.parts import How, anew, by_attributes, hard_parts
from roost.placement.rules.scoring import RANK_WEIGHT, Penalties, SoftRules
from roost.placement.selectors import Selector, Selectors

#: What a prefer-not taint charges, in hundredths of a score.
PREFER_NOT_WEIGHT = 50
#: What a host with devices charges a VM that asks for none: whoever needs them has nowhere else.
KEEP_DEVICES_WEIGHT = 100

_NEVER = -1
_MOST_LISTED = 2**20
_SOURCES = {
    "free": L_FREE,
    "committed": L_COMMITTED,
    "capacity": L_CAPACITY,
    "vms": L_VMS,
    "total": L_TOTAL,
}


class TermsTables:
    """Compiled terms, lists, spread domains and group sets."""

    def __init__(
        self, fleet: Fleet, selectors: Selectors, rules: RuleColumns, near: Nearness
    ) -> None:
        self._fleet = fleet
        self._selectors = selectors
        self._rules = rules
        self._near = near
        self._days = HostDays(fleet)
        # What distance and peaks charge all hosts, by what charges and slot.
        self._charged: dict[tuple[str, int], Int64Array] = {}
        self._slot = 0  # where the terms that are compiled put that
        self.soft = SoftRules(rules)
        self._penalties: dict[Hashable, Penalties] = {}  # of all hosts, by the soft rules
        self._charged_at: dict[Hashable, int] = {}  # head of the attribute log
        self._digits: dict[Hashable, int] = {}  # of those penalties, the most there were
        self._anew: list[bool] = []  # by terms number
        self._compiled_at: list[int] = []  # head of the attribute log, by terms number
        self._spread_at: list[int] = []
        self._spreading: dict[int, bool] = {}  # by number of the group set
        self._rule_changes = 0  # of the groups, when that was found out
        self._lists_used = 0
        self._eligible_used = 0
        self.tables = Tables(
            terms=np.zeros((8, T_COLUMNS), np.int64),
            lists=np.zeros(64, np.int64),
            spread=np.zeros((8, len(Scope), 3), np.int64),
            eligible=np.zeros(64, np.int64),
        )

    @property
    def most_groups(self) -> int:
        """Return how many groups the largest set has, at least 1."""
        return self._fleet.groups.most_in_set

    def ready(self, number: int, group_set: int) -> None:
        """Make terms and a group set usable by the kernels."""
        if number >= len(self._compiled_at):
            self._grow(number + 1)
        head = self._fleet.attribute_changes.head
        if self._compiled_at[number] != head:
            self._compile(number)
            self._compiled_at[number] = self._good_until(number, head)
        if group_set and self._spread_at[number] != head and self._spreads(group_set):
            self._compare_domains(number)
            self._spread_at[number] = self._good_until(number, head)

    def ready_all(self, pairs: set[tuple[int, int]]) -> None:
        """Make many pairs of terms and group set usable at the same time."""
        for _ in range(3):  # starting again part way takes back what was ready before
            generation = self._selectors.generation
            for number, group_set in sorted(pairs):
                self.ready(number, group_set)
                terms = self._fleet.terms[number]
                self._slot += bool(terms.talks) or terms.day is not None
            self._slot = 0
            if generation == self._selectors.generation:
                return
        raise InvalidRequest(f"too many different rules in one batch: {len(pairs)}")

    def _good_until(self, number: int, head: int) -> int:
        """Return the head to note for what was just compiled: none if it is to be done again."""
        return _NEVER if self._depends_on_amounts(number) else head

    def _depends_on_amounts(self, number: int) -> bool:
        for new in range(len(self._anew), number + 1):
            terms = self._fleet.terms[new]
            predicate = terms.constraints.predicate
            restless = predicate is not None and not predicate.stable
            restless |= bool(terms.talks) or terms.day is not None
            self._anew.append(restless or anew(terms))
        return self._anew[number]

    def is_restless(self, number: int) -> bool:
        """Say whether terms must be compiled anew for every decision."""
        return self._depends_on_amounts(number)

    def refuse_restless(self, numbers: Int32Array) -> None:
        """Refuse terms whose predicate would have to be evaluated between two decisions."""
        for number in np.unique(numbers).tolist():
            if self._depends_on_amounts(number):
                raise InvalidRequest(
                    "a condition that is computed for every decision cannot be in columns"
                )

    def _grow(self, count: int) -> None:
        missing = count - len(self._compiled_at)
        self._compiled_at += [_NEVER] * missing
        self._spread_at += [_NEVER] * missing
        old = self.tables
        if count > len(old.terms):
            capacity = max(count, 2 * len(old.terms))
            terms = np.zeros((capacity, T_COLUMNS), np.int64)
            terms[: len(old.terms)] = old.terms
            spread = np.zeros((capacity, len(Scope), 3), np.int64)
            spread[: len(old.spread)] = old.spread
            self.tables = old._replace(terms=terms, spread=spread)

    def _compile(self, number: int) -> None:
        if self._selectors.full() or self._lists_used > _MOST_LISTED:
            self._start_again()
        terms = self._fleet.terms[number]
        row = self.tables.terms[number]
        row[:] = 0
        row[T_NUMA] = NUMA_NUMBERS[terms.numa]
        if terms.devices is not None:
            row[T_DEVICES] = terms.devices.count
            row[T_MILLI] = terms.devices.milli
            row[T_DEVICE_MEMORY] = terms.devices.memory_bytes
            row[T_MODELS] = model_mask(self._fleet, terms.devices.models)
        self._compile_rules(row, terms)
        self._compile_wishes(row, terms)
        if terms.rules:
            self._compile_amounts(row, terms)

    def _question(self, terms: HostRequirements) -> Question:
        nothing = np.zeros(len(self._fleet.hosts.resources), np.int64)
        return Question(self._fleet, nothing, terms, (), eligible, self._rules, self._near)

    def _compile_amounts(self, row: Int64Array, terms: HostRequirements) -> None:
        """Write what hard rules ask of amounts: floors for the index, inequalities for the rest."""
        floors: dict[int, int] = {}
        lines: list[Line] = []
        for _, part in hard_parts(terms):
            for line in part.lines if part.how is How.AMOUNTS else ():
                if line.floor is None:
                    lines.append(line)
                    continue
                resource, least = line.floor
                column = self._fleet.hosts.resources.find(resource)
                floors[column] = max(least, floors.get(column, least))
        if floors:
            self._list(row, T_FLOORS, np.array(sorted(floors.items()), np.int64).ravel())
            row[T_FLOOR_COUNT] = len(floors)
        if lines:
            self._list(row, T_LINES, np.array([n for line in lines for n in self._line(line)]))
            row[T_LINE_COUNT] = len(lines)

    def _line(self, line: Line) -> list[int]:
        """Return an inequality as `lines_hold` reads it."""
        numbers = [len(line.terms), line.bound]
        for (source, resource), factor in line.terms:
            column = self._fleet.hosts.resources.find(resource) if resource else 0
            numbers += [_SOURCES[source], column, factor]
        return numbers

    def _compile_rules(self, row: Int64Array, terms: HostRequirements) -> None:
        constraints = terms.constraints
        row[T_WORD], row[T_CANDIDATE_COUNT] = -1, -1
        question = self._question(terms)
        if constraints.pinned:
            rows = self._named(constraints.pinned)
            self._list(row, T_CANDIDATES, rows[chosen(question, rows)])
        elif self._selects(terms):
            selector = self._selector(terms, question)
            if selector.bit >= 0:
                row[T_WORD], row[T_BIT] = selector.word, selector.shift
            else:
                self._list(row, T_CANDIDATES, selector.rows)
        if constraints.excluded:
            self._list(row, T_EXCLUDED, self._named(constraints.excluded))
        assert T_EXCLUDED_COUNT == T_EXCLUDED + 1

    def _selects(self, terms: HostRequirements) -> bool:
        if any(part.how is not How.AMOUNTS for _, part in hard_parts(terms)):
            return True
        if any(map(is_bound, terms.talks)):
            return True
        constraints = terms.constraints
        bare = Constraints(
            pinned=constraints.pinned,
            excluded=constraints.excluded,
            preferences=constraints.preferences,
            near=constraints.near,
        )
        return constraints != bare or len(self._fleet.hosts.taint_sets) > 1

    def _selector(self, terms: HostRequirements, question: Question) -> Selector:
        constraints = terms.constraints
        key: Hashable = (
            constraints.labels,
            constraints.tolerations,
            constraints.architecture,
            constraints.driver,
            constraints.capabilities,
            constraints.zones,
            constraints.racks,
            constraints.sites,
            constraints.predicate,
            tuple(part.expr for _, part in hard_parts(terms) if part.how is not How.AMOUNTS),
            tuple(filter(is_bound, terms.talks)),
        )
        restless = constraints.predicate is not None and not constraints.predicate.stable
        restless |= any(map(is_bound, terms.talks))  # partners move
        if restless or any(part.how is How.ANEW for _, part in hard_parts(terms)):
            self._selectors.evaluate_again(key)
        return self._selectors.get(key, lambda rows: chosen(question, rows), listed=True)

    def _named(self, names: tuple[str, ...]) -> Int64Array:
        known = self._fleet.hosts.rows
        return np.array(sorted(known[name] for name in set(names) if name in known), np.int64)

    def _compile_wishes(self, row: Int64Array, terms: HostRequirements) -> None:
        wishes: list[int] = []
        labels = self._fleet.hosts.labels
        for preference in terms.constraints.preferences:
            term = preference.term
            column = partial(labels.matches, term)
            selector = self._selectors.get(("wish", term), column, listed=False)
            wishes += [selector.word, selector.shift, preference.weight]
        shunning = any(
            taint.effect is TaintEffect.PREFER_NOT
            for taints in self._fleet.hosts.taint_sets.values
            for taint in taints
        )
        if shunning:
            question = self._question(terms)
            selector = self._selectors.get(
                ("prefer-not", terms.constraints.tolerations),
                lambda rows: not_shunned(question, rows),
                listed=False,
            )
            wishes += [selector.word, selector.shift, PREFER_NOT_WEIGHT]
        if self._keeps_devices(terms):
            plain = partial(without_devices, self._fleet.hosts)
            selector = self._selectors.get(("without devices",), plain, listed=False)
            wishes += [selector.word, selector.shift, KEEP_DEVICES_WEIGHT]
        soft = tuple(rule for rule in terms.rules if not rule.hard)
        if soft:
            wishes += self._soft_wishes(soft)
        if terms.talks and self._near.network is not None:
            now = self._near.charges(terms.talks)
            wishes += self._charge_wishes("far", now, MOST_FAR)
        if terms.day is not None:
            wishes += self._charge_wishes("peaks", self._days.charges(terms.day), MOST_ADDED)
        if self._shuns_uplinks():
            selector = self._selectors.get(("uplinks",), self._free_uplink, listed=False)
            wishes += [selector.word, selector.shift, SATURATED_WEIGHT]
        if wishes:
            self._list(row, T_WISHES, np.array(wishes, np.int64))
            row[T_WISH_COUNT] = len(wishes) // 3

    def _keeps_devices(self, terms: HostRequirements) -> bool:
        """Say whether devices are to be kept for others: some host has any, and no VM asks here."""
        return terms.devices is None and self._fleet.hosts.arrays.device_free.shape[1] > 0

    def devices_charge(self, number: int, row: int) -> int:
        """Return what a host charges these terms for its devices, in hundredths of a score."""
        if not self._keeps_devices(self._fleet.terms[number]):
            return 0
        plain = without_devices(self._fleet.hosts, np.array([row]))[0]
        return 0 if plain else KEEP_DEVICES_WEIGHT

    # Distance

    def _shuns_uplinks(self) -> bool:
        return self._near.network is not None and bool(self._near.network.saturated)

    def _free_uplink(self, rows: Int64Array) -> BoolArray:
        return ~self._near.is_saturated(rows)

    def uplink_charge(self, row: int) -> int:
        """Return what a host charges for its uplink, in hundredths of a score."""
        return SATURATED_WEIGHT if self._near.is_saturated(np.array([row]))[0] else 0

    def distance_charge(self, number: int, row: int) -> int:
        """Return what a host charges these terms for its distance, in hundredths of a score."""
        talks = self._fleet.terms[number].talks
        return int(self._near.charges(talks)[row]) if talks else 0

    def peaks_charge(self, number: int, row: int) -> int:
        """Return what a host charges these terms for peaks they share, in hundredths of a score."""
        day = self._fleet.terms[number].day
        return int(self._days.charges(day)[row]) if day is not None else 0

    def _charge_wishes(self, what: str, now: Int64Array, most: int) -> list[int]:
        """Return what all hosts charge as marks with weights, one for each binary digit of it.

        Every VM has charges of its own, and marks are few: all VMs use the same ones, which say
        what holds for the one that is decided. Terms that are ready together have slots.
        """
        slot = what, self._slot
        before, self._charged[slot] = self._charged.get(slot), now
        changed = np.arange(len(now))
        if before is not None and len(before) == len(now):
            changed = np.flatnonzero(before != now)
        wishes: list[int] = []
        for digit in range(most.bit_length()):
            key = (*slot, digit)
            column = partial(self._without_charge, slot, digit)
            selector = self._selectors.get(key, column, listed=False)
            self._selectors.look_again(key, changed)
            wishes += [selector.word, selector.shift, 1 << digit]
        return wishes

    def _without_charge(self, slot: tuple[str, int], digit: int, rows: Int64Array) -> BoolArray:
        without: BoolArray = self._charged[slot][rows] >> digit & 1 == 0
        return without

    def _soft_wishes(self, rules: tuple[BoundRule, ...]) -> list[int]:
        """Return what soft rules charge as marks with weights: one for each binary digit of it.

        A host has the mark of a digit that its penalty does not have.
        """
        changed = self._charge_hosts(rules)
        now = self._penalties[rules]
        wishes: list[int] = []
        for what, most, unit in (
            ("charged", now.charged.max(initial=0), 1),
            ("rank", now.rank.max(initial=0), RANK_WEIGHT),
        ):
            # A digit that nobody has for a while still needs its marks when it comes back.
            # At least one, so that a rule counts as one even while nobody is charged.
            digits = max(int(most).bit_length(), self._digits.get((rules, what), 1))
            self._digits[rules, what] = digits
            for digit in range(digits):
                key = ("soft", rules, what, digit)
                selector = self._selectors.get(
                    key, partial(self._without_digit, rules, what, digit), listed=False
                )
                self._selectors.look_again(key, changed)
                wishes += [selector.word, selector.shift, unit << digit]
        return wishes

    def _charge_hosts(self, rules: tuple[BoundRule, ...]) -> Int64Array:
        """Bring what soft rules charge every host up to date; return the hosts where it changed."""
        log, count = self._fleet.attribute_changes, self._fleet.hosts.count
        before, seen = self._penalties.get(rules), self._charged_at.get(rules, _NEVER)
        self._charged_at[rules] = log.head
        present = self._fleet.present_rows()
        if before is not None and len(before) == count and by_attributes(rules):
            rows = log.since(seen)
            if rows is not None:  # nobody's rank depends on them: theirs is all that changed
                rows = np.intersect1d(rows, present)
                before.charged[rows] = self.soft.penalties(rules, rows).charged
                return rows
        now = self.soft.penalties(rules, present).spread(present, count)
        self._penalties[rules] = now
        if before is None:
            return np.arange(count)
        old = np.full(count, _NEVER, np.int64)
        old[: len(before)] = before[np.arange(len(before))]
        return np.flatnonzero(old != now[np.arange(count)])

    def _without_digit(
        self, rules: tuple[BoundRule, ...], what: str, digit: int, rows: Int64Array
    ) -> BoolArray:
        amounts: Int64Array = getattr(self._penalties[rules], what)[rows]
        without: BoolArray = amounts >> digit & 1 == 0
        return without

    def charges(self, number: int, row: int) -> tuple[list[tuple[str, int]], int]:
        """Return what each soft rule charges a host, and what they charge by priority besides.

        In hundredths of a score, as of the last decision with these terms.
        """
        soft = tuple(rule for rule in self._fleet.terms[number].rules if not rule.hard)
        if not soft:
            return [], 0
        rows = np.array([row])
        each = [(rule.name, int(self.soft.hundredths(rule, rows)[0])) for rule in soft]
        charged = sum(amount for _, amount in each)
        return each, int(self._penalties[soft][rows][0]) - charged

    def _list(self, row: Int64Array, column: int, values: Int64Array) -> None:
        """Put values into the pool; the row gets their start and number."""
        end = self._lists_used + len(values)
        lists = self.tables.lists
        if end > len(lists):
            lists = np.zeros(2 * end, np.int64)
            lists[: len(self.tables.lists)] = self.tables.lists
            self.tables = self.tables._replace(lists=lists)
        lists[self._lists_used : end] = values
        row[column], row[column + 1] = self._lists_used, len(values)
        self._lists_used = end

    def _spreads(self, group_set: int) -> bool:
        if self._rule_changes != self._fleet.groups.rule_changes:
            self._rule_changes = self._fleet.groups.rule_changes
            self._spreading.clear()
        known = self._spreading.get(group_set)
        if known is None:
            groups = self._fleet.groups
            known = self._spreading[group_set] = any(
                groups.specs[group].rule is GroupRule.SPREAD
                for group in groups.set_members(group_set)
            )
        return known

    def _compare_domains(self, number: int) -> None:
        """Count, per fault domain, the hosts that these terms may use."""
        if self._eligible_used > _MOST_LISTED * 4:
            self._start_again()
            self._compile(number)
        rows = self._fleet.present_rows()
        rows = rows[eligible(self._question(self._fleet.terms[number]), rows)]
        for scope in Scope:
            domain = self._fleet.hosts.arrays.domain[rows, scope]
            hosts = np.bincount(domain[domain >= 0])
            end = self._eligible_used + len(hosts)
            pool = self.tables.eligible
            if end > len(pool):
                pool = np.zeros(2 * end, np.int64)
                pool[: len(self.tables.eligible)] = self.tables.eligible
                self.tables = self.tables._replace(eligible=pool)
            pool[self._eligible_used : end] = hosts
            domains = np.count_nonzero(hosts)
            self.tables.spread[number, scope] = (self._eligible_used, len(hosts), domains)
            self._eligible_used = end

    def _start_again(self) -> None:
        self._selectors.clear()
        self._penalties.clear()
        self._charged_at.clear()
        self._digits.clear()
        self._charged.clear()
        self._lists_used = self._eligible_used = 0
        self._compiled_at = [_NEVER] * len(self._compiled_at)
        self._spread_at = [_NEVER] * len(self._spread_at)
