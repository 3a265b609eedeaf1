"""Every law is shown to notice an engine that is broken on purpose.

A property that was never seen red does not count. A mutant here breaks one thing, and a law must
fail within a few seeds; the same seeds pass on the engine as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from roost.base.errors import RoostError
from roost.base.units import GIB
from roost.fleet import fleet as fleet_module
from roost.fleet import outlook
from roost.fleet.assign import EMPTIEST
from roost.fleet.changes import ChangeLog
from roost.fleet.fleet import Fleet
from roost.fleet.groups import Groups
from roost.fleet.hosts import HostTable
from roost.fleet.labels import Labels
from roost.fleet.layout import CPU, Int64Array
from roost.fleet.projects import ProjectAccounts
from roost.fleet.vms import VMTable
from roost.model.constraints import LabelOperator, LabelTerm, Toleration
from roost.model.flow import PlaceRequest
from roost.model.reasons import Reason
from roost.model.resources import Demand
from roost.model.rules import Rule, RuleSet
from roost.placement import batching, rankings, selectors, tables
from roost.placement import engine as engine_module
from roost.placement.engine import Engine
from roost.placement.filtering import Filter
from roost.placement.filters.neighbours import spread
from roost.placement.kernels.domain_bits import WHERE
from roost.placement.kernels.keys import KEY_FREE
from roost.placement.kernels.ranking import P_KEY, Ranking, file_in_order, write_keys
from roost.placement.peaks import MOST_CHARGED, HostDays
from roost.placement.rankings import Rankings
from roost.placement.registry import FILTERS
from roost.placement.rules import binding, left, lines, parts
from roost.placement.rules import columns as rule_columns
from roost.placement.rules.binding import Binder
from roost.placement.rules.columns import RuleColumns
from roost.placement.rules.lines import Line
from roost.placement.rules.scoring import SoftRules
from roost.placement.selectors import Selectors
from roost.placement.strategies import STRATEGIES
from roost.placement.tables import TermsTables
from tests.builders import fleet_of, host
from tests.property import laws
from tests.property.laws import (
    apply_then_undo_is_identity,
    batch_equals_singles,
    columns_equal_singles,
    engine_equals_twin,
    explained_batch_equals_singles,
    filters_agree,
    long_lived_engine_equals_twin,
    snapshot_stands_apart,
)

Patch = pytest.MonkeyPatch
SEEDS = range(40)


# The laws, each at a size at which one seed takes a few hundredths of a second


def twin(seed: int, focus: str = "any") -> None:
    """Hosts enough for selectors with a bit, not only with a list."""
    engine_equals_twin(seed, 50, focus)


def changes(seed: int, focus: str = "any") -> None:
    """Hosts enough for selectors with a bit, steps enough to change them."""
    long_lived_engine_equals_twin(seed, 45, 60, focus, every=10)


def batches(seed: int) -> None:
    """Batches of mixed strategies."""
    batch_equals_singles(seed, 15, 25)


def explained_batches(seed: int) -> None:
    """Batches with runners-up."""
    explained_batch_equals_singles(seed, 15, 25)


def crowded_batches(seed: int) -> None:
    """Batches that meet selectors which are nearly full, so that they start again part way."""
    with Patch.context() as patch:
        patch.setattr(selectors, "_WORD_BITS", 12)
        patch.setattr(selectors, "_MOST_WORDS", 2)
        pair = laws.grown(seed, 15, 0, "attributes")
        asked = laws.requests(pair, 40)
        for start in range(0, len(asked), 4):
            pair.place_batch(asked[start : start + 4])


def columns(seed: int) -> None:
    """Columns, by the strategy that uses their seeds."""
    columns_equal_singles(seed, 15, 15, "random")


def filters(seed: int, focus: str = "any") -> None:
    """A few requests on a small fleet."""
    filters_agree(seed, 25, 3, focus)


def filters_of_few(seed: int) -> None:
    """Many requests on one or two hosts."""
    filters_agree(seed, 1 + seed % 2, 10)


def undo(seed: int) -> None:
    """Small fleets meet more of their own VMs again."""
    apply_then_undo_is_identity(seed, 8, 30)


def snapshots(seed: int) -> None:
    """Two ways from one snapshot."""
    snapshot_stands_apart(seed, 10, 15)


def ruled(seed: int, focus: str = "rules") -> None:
    """Few hosts, because the interpreter is asked about each; steps enough to change them."""
    long_lived_engine_equals_twin(seed, 12, 40, focus, every=4)


def foreseen(seed: int) -> None:
    """Predictions, expectations and pressure that change between decisions."""
    long_lived_engine_equals_twin(seed, 12, 40, "outlook", every=4)


def foreseen_filters(seed: int) -> None:
    """What pressure says of hosts, apart from where VMs go."""
    filters_agree(seed, 10, 3, "outlook")


def foreseen_undo(seed: int) -> None:
    """What was foreseen before the mark is foreseen again."""
    apply_then_undo_is_identity(seed, 8, 30, "outlook")


def ruled_filters(seed: int) -> None:
    """What rules say of hosts, apart from where VMs go."""
    filters_agree(seed, 10, 3, "rules")


def exact_floors(seed: int) -> None:
    """A host that has just less than a rule asks for is refused; drawn fleets seldom have one."""
    factor, least = 2 + seed % 5, 3_000 + 17 * seed
    rule = Rule("room", f"{factor} * host.free.cpu > {factor * (least - 1)}")
    hosts = [host("short", cpu_milli=least - 1), host("enough", cpu_milli=least)]
    engine = Engine(fleet_of(*hosts), "best_fit", rules=RuleSet((rule,), 1))
    assert engine.find(PlaceRequest("vm", Demand(1000, GIB))).host == "enough"


LAWS = (
    twin,
    exact_floors,
    changes,
    ruled,
    ruled_filters,
    foreseen,
    foreseen_filters,
    foreseen_undo,
    batches,
    explained_batches,
    crowded_batches,
    columns,
    filters,
    filters_of_few,
    undo,
    snapshots,
)


@dataclass(frozen=True)
class Mutant:
    """One broken part and the law that must notice it."""

    name: str
    law: Callable[[int], None]
    spoil: Callable[[Patch], None]

    def test(self) -> None:
        """Ask the law, seed after seed."""
        for seed in SEEDS:
            self.law(seed)


MUTANTS: list[Mutant] = []


def broken(law: Callable[[int], None]) -> Callable[[Callable[[Patch], None]], None]:
    """Register a function that breaks something; its docstring says what."""

    def register(spoil: Callable[[Patch], None]) -> None:
        MUTANTS.append(Mutant(spoil.__doc__ or "", law, spoil))

    return register


def nothing(*_: object, **__: object) -> None:
    """Stand in for a step that is forgotten."""


def use_filter(patch: Patch, reason: Reason, **changes: object) -> None:
    """Put a changed filter into the registry."""
    changed = [replace(each, **changes) if each.reason is reason else each for each in FILTERS]
    patch.setattr(laws, "FILTERS", tuple(changed))


def the_filter(reason: Reason) -> Filter:
    """Return one filter."""
    return next(each for each in FILTERS if each.reason is reason)


# What is foreseen


@broken(foreseen)
def _(patch: Patch) -> None:
    """a VM just placed does not count in the predicted load"""
    plainly(patch)
    patch.setattr(fleet_module, "expected_use", lambda demand, _: 0 * demand[:, :2])


@broken(foreseen)
def _(patch: Patch) -> None:
    """a host keeps the end of a VM that left"""
    patch.setattr(fleet_module, "settle_ends", lambda fleet: fleet.loose_ends.clear())


@broken(foreseen)
def _(patch: Patch) -> None:
    """a prediction is taken for one without the VMs that it counts"""
    patch.setattr(outlook, "_take_counted", nothing)


@broken(foreseen)
def _(patch: Patch) -> None:
    """rankings do not hear of predictions"""
    real = outlook.write_predicted

    def write_quietly(fleet, *told):
        head = fleet.changes.head
        real(fleet, *told)
        fleet.changes.head = head

    patch.setattr(fleet_module, "write_predicted", write_quietly)


@broken(foreseen)
def _(patch: Patch) -> None:
    """a batch forgets what is expected of its VMs"""
    patch.setattr(batching, "_expected_of", nothing)


@broken(foreseen)
def _keep_days(patch: Patch) -> None:
    """the day of a host is not summed again when VMs come and go"""
    real = HostDays.days

    def days(self: HostDays) -> Int64Array:
        if len(self._days) != self._fleet.hosts.count:
            return real(self)
        return self._days

    patch.setattr(HostDays, "days", days)


@broken(foreseen)
def _charge_own_peak(patch: Patch) -> None:
    """every host charges the VM's whole peak, whatever its neighbours do"""
    patch.setattr(
        HostDays, "charges", lambda self, day: np.full(len(self.days()), MOST_CHARGED, np.int64)
    )


@broken(foreseen)
def _(patch: Patch) -> None:
    """a host that comes under pressure goes on taking VMs"""
    patch.setattr(fleet_module, "refresh_pressed", nothing)


@broken(foreseen_filters)
def _(patch: Patch) -> None:
    """a host without a reading is under no pressure"""

    def column(question, rows):
        hosts = question.fleet.hosts
        return ~(hosts.pressure[rows] > hosts.pressure_bounds).any(axis=1)

    use_filter(patch, Reason.PRESSURE, column=column)


@broken(foreseen_undo)
def _(patch: Patch) -> None:
    """undo leaves the newer predictions"""
    patch.setattr(outlook, "_take_back", nothing)


@broken(foreseen_undo)
def _(patch: Patch) -> None:
    """a VM that undo puts back is expected nothing of"""
    real = VMTable.add

    def add(self, *what):
        return real(self, *what[:6], None if self._free else what[6])

    patch.setattr(VMTable, "add", add)


# Filters


@broken(filters)
def _(patch: Patch) -> None:
    """an exact fit of cpu does not fit"""

    def column(question, rows):
        arrays = question.fleet.hosts.arrays
        return arrays.committed[rows, CPU] + question.demand[CPU] < arrays.capacity[rows, CPU]

    use_filter(patch, Reason.CPU, column=column)


@broken(filters)
def _(patch: Patch) -> None:
    """the limit of VMs is off by one"""

    def column(question, rows):
        hosts = question.fleet.hosts
        return hosts.arrays.headroom[rows, len(hosts.resources)] >= 0

    use_filter(patch, Reason.MAX_VMS, column=column)


@broken(filters)
def _(patch: Patch) -> None:
    """the last label term is forgotten"""
    real = the_filter(Reason.LABELS)

    def column(question, rows):
        asked = question.terms.constraints
        shorter = replace(asked, labels=asked.labels[:-1])
        return real.column(
            replace(question, terms=replace(question.terms, constraints=shorter)), rows
        )

    use_filter(patch, Reason.LABELS, column=column)


@broken(filters)
def _(patch: Patch) -> None:
    """the held filter does not apply"""
    use_filter(patch, Reason.HELD, applies=lambda question: False)


@broken(filters)
def _(patch: Patch) -> None:
    """a host without the label does not satisfy not-in"""
    real = LabelTerm.matches

    def matches(self, labels):
        if self.operator is LabelOperator.NOT_IN and self.key not in labels:
            return False
        return real(self, labels)

    patch.setattr(LabelTerm, "matches", matches)


@broken(filters)
def _(patch: Patch) -> None:
    """a toleration covers every value of its key"""
    patch.setattr(Toleration, "covers", lambda self, key, _: self.key in ("", key))


@broken(filters_of_few)
def _(patch: Patch) -> None:
    """the taint of a fleet with one set of taints is ignored"""
    real = HostTable.__init__

    def init(self, *rest):
        real(self, *rest)
        self.taint_sets = type(self.taint_sets)()

    patch.setattr(HostTable, "__init__", init)


@broken(partial(filters, focus="groups"))
def _(patch: Patch) -> None:
    """the spread filter thinks that the emptiest domain is always empty"""
    patch.setattr(spread, "fewest_members", lambda question, group: 0)


# What is derived from the fleet


@broken(partial(filters, focus="groups"))
def _(patch: Patch) -> None:
    """spread rules compare domains whose hosts take no VMs"""
    patch.setattr(tables, "eligible", tables.chosen)


@broken(changes)
def _(patch: Patch) -> None:
    """selectors forget to look at hosts whose attributes changed"""
    patch.setattr(Selectors, "_update", nothing)


@broken(partial(changes, focus="groups"))
def _(patch: Patch) -> None:
    """where hosts are is looked at once and never again"""
    real = Selectors._locate

    def locate(self, rows):
        if not self.marks[:, WHERE].any():
            real(self, rows)

    patch.setattr(Selectors, "_locate", locate)


@broken(changes)
def _(patch: Patch) -> None:
    """terms are compiled once and never again"""
    real = TermsTables._compile

    def compile_once(self, number):
        seen = self.__dict__.setdefault("seen", set())
        if number not in seen:
            real(self, number)
        seen.add(number)

    patch.setattr(TermsTables, "_compile", compile_once)


@broken(partial(changes, focus="predicates"))
def _(patch: Patch) -> None:
    """an unstable predicate is kept like a stable one"""
    patch.setattr(TermsTables, "_depends_on_amounts", lambda self, number: False)


@broken(changes)
def _(patch: Patch) -> None:
    """rankings forget the hosts that changed"""
    real = Rankings.current

    def current(self, kind, marks):
        return real(self, kind, marks)[0], np.zeros(0, np.int64)

    patch.setattr(Rankings, "current", current)


@broken(changes)
def _(patch: Patch) -> None:
    """the change log loses a row"""
    real = ChangeLog.since

    def since(self, seen):
        rows = real(self, seen)
        return rows if rows is None or len(rows) < 2 else rows[:-1]

    patch.setattr(ChangeLog, "since", since)


@broken(changes)
def _(patch: Patch) -> None:
    """a host that gained a mark does not raise the bounds above it"""
    patch.setattr(Rankings, "mark_rows", nothing)


@broken(changes)
def _(patch: Patch) -> None:
    """a new selector does not raise the bounds"""
    patch.setattr(Rankings, "mark_all", nothing)


@broken(changes)
def _(patch: Patch) -> None:
    """a batch by one strategy makes every ranking count as current"""

    def is_current(self, kind):
        for each in self._seen:
            self._seen[each] = self._fleet.changes.head

    patch.setattr(Rankings, "is_current", is_current)


@broken(changes)
def _(patch: Patch) -> None:
    """new labels are not noted as a change of attributes"""
    real = Fleet.set_labels

    def set_labels(self, name, labels):
        log, self.attribute_changes = self.attribute_changes, ChangeLog()
        real(self, name, labels)
        self.attribute_changes = log

    patch.setattr(Fleet, "set_labels", set_labels)


@broken(crowded_batches)
def _(patch: Patch) -> None:
    """terms that were ready are not made ready again when the selectors start again"""

    def ready_all(self, pairs):
        for number, group_set in sorted(pairs):
            self.ready(number, group_set)

    patch.setattr(TermsTables, "ready_all", ready_all)


# The books: as the fleet keeps them itself, for what an engine lends it is compiled


def plainly(patch: Patch) -> None:
    """Let no engine lend the fleet its compiled charge."""
    patch.setattr(engine_module, "Charger", lambda fleet: None)


@broken(changes)
def _(patch: Patch) -> None:
    """groups do not count their members"""
    plainly(patch)
    patch.setattr(Fleet, "count_groups", nothing)


@broken(changes)
def _(patch: Patch) -> None:
    """groups count their members in the wrong kind of domain"""
    plainly(patch)
    real = Groups.add
    patch.setattr(
        Groups, "add", lambda self, group, domains, by: real(self, group, domains[::-1], by)
    )


@broken(changes)
def _(patch: Patch) -> None:
    """a VM is not charged to its devices"""
    plainly(patch)
    real = fleet_module.charge
    patch.setattr(
        fleet_module,
        "charge",
        lambda arrays, row, demand, expected, milli, _, cells, sign: real(
            arrays, row, demand, expected, milli, 0, cells, sign
        ),
    )


@broken(changes)
def _(patch: Patch) -> None:
    """a VM is not charged to its NUMA cells"""
    plainly(patch)
    real = fleet_module.charge
    patch.setattr(
        fleet_module,
        "charge",
        lambda arrays, row, demand, expected, milli, devices, _, sign: real(
            arrays, row, demand, expected, milli, devices, 0, sign
        ),
    )


@broken(changes)
def _(patch: Patch) -> None:
    """what is held stays free"""

    def held(self, row, amount):
        self.hosts.held[row] += amount

    patch.setattr(Fleet, "_held", held)


@broken(changes)
def _(patch: Patch) -> None:
    """a charge leaves the ratio columns as they were"""
    plainly(patch)
    patch.setattr(fleet_module, "refresh_ratio_columns", nothing)


# Strategies


@broken(twin)
def _(patch: Patch) -> None:
    """worst fit walks the ranking of best fit"""
    wrong = replace(STRATEGIES["worst_fit"], key=KEY_FREE)
    patch.setitem(STRATEGIES, "worst_fit", wrong)


@broken(partial(twin, focus="cells"))
def _(patch: Patch) -> None:
    """best fit takes the emptiest NUMA cell"""
    wrong = replace(STRATEGIES["best_fit"], cell_rule=EMPTIEST)
    patch.setitem(STRATEGIES, "best_fit", wrong)


@broken(twin)
def _(patch: Patch) -> None:
    """ties go to the highest host number"""

    def backwards(ranking: Ranking, hosts, marks) -> None:
        write_keys(ranking, hosts)
        rows = np.flatnonzero(hosts.takes)[::-1]
        order = rows[np.argsort(ranking.place[rows, P_KEY], kind="stable")]
        file_in_order(ranking, hosts, marks, order)

    patch.setattr(rankings, "rebuild", backwards)


@broken(twin)
def _(patch: Patch) -> None:
    """a runner-up is left out"""
    real = Engine.find

    def find(self, request, *, runners_up=0, cursor=None):
        found = real(self, request, runners_up=runners_up, cursor=cursor)
        return found and found._replace(runners_up=found.runners_up[1:])

    patch.setattr(Engine, "find", find)


@broken(twin)
def _(patch: Patch) -> None:
    """a prefer-not taint costs half as much"""
    patch.setattr(tables, "PREFER_NOT_WEIGHT", 25)


# Many requests


@broken(batches)
def _(patch: Patch) -> None:
    """a batch begins its turn at the first host"""
    real = Engine._place_until_refusal

    def place(self, requests, strategy, runners_up):
        self.cursor = -1
        return real(self, requests, strategy, runners_up)

    patch.setattr(Engine, "_place_until_refusal", place)


@broken(batches)
def _(patch: Patch) -> None:
    """a batch ends at its first refusal"""
    real = Engine._place_until_refusal

    def place(self, requests, strategy, runners_up):
        placed = real(self, requests, strategy, runners_up)
        del requests[len(placed) + 1 :]
        return placed

    patch.setattr(Engine, "_place_until_refusal", place)


@broken(explained_batches)
def _(patch: Patch) -> None:
    """a batch charges a VM before it is said why it went there"""
    patch.setattr(Engine, "_reads_predictions", lambda self, strategy: False)
    patch.setattr(Engine, "_batch_key", lambda self, request: (self.strategy_of(request), ""))


@broken(explained_batches)
def _(patch: Patch) -> None:
    """every request of a batch is told the runners-up of the last"""
    real = Engine._whys

    def whys(self, *given):
        found = list(real(self, *given))
        return iter([(parts, found[-1][1], sure) for parts, _, sure in found])

    patch.setattr(Engine, "_whys", whys)


@broken(batches)
def _(patch: Patch) -> None:
    """a batch gives each request the seed of another"""
    real = engine_module.columns_of
    patch.setattr(
        engine_module,
        "columns_of",
        lambda fleet, requests, seeds, *rest: real(fleet, requests, seeds[::-1], *rest),
    )


@broken(columns)
def _(patch: Patch) -> None:
    """what a batch of columns changed is not noted"""
    real = Fleet.adopt

    def adopt(self, names, rows, *rest):
        log, self.changes = self.changes, ChangeLog()
        first = real(self, names, rows[:0], *(each[:0] for each in rest))
        self.changes = log
        return first

    patch.setattr(Fleet, "adopt", adopt)


# Rules


@broken(ruled_filters)
def _(patch: Patch) -> None:
    """a rule that ends in an error holds"""
    patch.setattr(rule_columns, "ERROR", rule_columns.HOLDS)


@broken(ruled_filters)
def _(patch: Patch) -> None:
    """an error beside a no is the first to be said"""
    real = RuleColumns._all

    def join(self, columns, rows):
        found = real(self, columns, rows)
        return np.where(np.any([each == -1 for each in columns], axis=0), -1, found)

    patch.setattr(RuleColumns, "_all", join)


@broken(ruled)
def _(patch: Patch) -> None:
    """floors and inequalities are not compiled"""
    patch.setattr(TermsTables, "_compile_amounts", nothing)


@broken(ruled)
def _(patch: Patch) -> None:
    """an inequality is asked without its bound"""
    real = TermsTables._line
    patch.setattr(TermsTables, "_line", lambda self, line: real(self, replace(line, bound=0)))


@broken(exact_floors)
def _(patch: Patch) -> None:
    """a floor is rounded down"""

    def floor(line):
        return line.terms[0][0][1], line.bound // line.terms[0][1]

    real = Line.floor
    patch.setattr(Line, "floor", property(lambda line: real.fget(line) and floor(line)))


@broken(ruled)
def _(patch: Patch) -> None:
    """a greater-than is taken for at-least"""
    real = lines.lines_of

    def lines_of(node):
        if getattr(node, "operator", "") == ">":
            node = replace(node, operator=">=")
        return real(node)

    patch.setattr(parts, "lines_of", lines_of)
    patch.setattr(rule_columns, "lines_of", lines_of)


@broken(ruled)
def _(patch: Patch) -> None:
    """a kept column does not learn of changed labels"""
    real = RuleColumns._kept_column

    def kept(self, expr, patterns):
        column = self._kept.get(expr)
        if column is not None and len(column.values) >= self.fleet.hosts.count:
            return column.values
        return real(self, expr, patterns)

    patch.setattr(RuleColumns, "_kept_column", kept)


@broken(ruled)
def _(patch: Patch) -> None:
    """what is to be computed anew is kept"""
    patch.setattr(TermsTables, "_depends_on_amounts", lambda self, number: False)


@broken(ruled)
def _(patch: Patch) -> None:
    """what a decision knows of the fleet is that of the first decision"""
    real = Binder.known

    def known(self, request):
        return self.__dict__.setdefault("first", {**real(self, request)})

    patch.setattr(Binder, "known", known)


@broken(ruled)
def _(patch: Patch) -> None:
    """VMs that are placed are not counted in their projects"""
    patch.setattr(Engine, "count", nothing)


@broken(ruled)
def _(patch: Patch) -> None:
    """a project without a quota has one that is never reached"""
    patch.setattr(ProjectAccounts, "quota", lambda self, project: (2**40,) * 4)


@broken(ruled)
def _(patch: Patch) -> None:
    """VMs with other labels are of the same class"""
    real = Binder._told_apart

    def told_apart(self, project):
        return [each for each in real(self, project) if each != "labels"] or ["project"]

    patch.setattr(Binder, "_told_apart", told_apart)


@broken(ruled)
def _(patch: Patch) -> None:
    """a scope is not looked at"""
    patch.setattr(binding, "covers", lambda rule, request: True)


@broken(partial(ruled, focus="soft rules"))
def _(patch: Patch) -> None:
    """a shortfall is not graded"""

    def gaps(self, expr, one, other, patterns, rows):
        return np.where(self._columns.judge(expr, patterns, rows) == 1, 0, 1000)

    patch.setattr(SoftRules, "_gaps", gaps)


@broken(partial(ruled, focus="soft rules"))
def _(patch: Patch) -> None:
    """all priorities are one"""
    real = SoftRules.penalties

    def penalties(self, rules, rows):
        return real(self, [replace(each, priority=0) for each in rules], rows)

    patch.setattr(SoftRules, "penalties", penalties)


@broken(partial(ruled, focus="soft rules"))
def _(patch: Patch) -> None:
    """penalties that changed are not marked again"""
    patch.setattr(Selectors, "look_again", nothing)


# Undo and snapshot


@broken(undo)
def _(patch: Patch) -> None:
    """undo skips the last change"""
    real = Fleet.undo

    def skip(self, mark):
        del self._undo[-1:]
        real(self, mark)

    patch.setattr(Fleet, "undo", skip)


@broken(undo)
def _(patch: Patch) -> None:
    """undo takes changes back in the order in which they were made"""

    def forwards(self, mark):
        taken, self._undo = self._undo[mark:], self._undo[:mark]
        marks, self._marks = self._marks, 0
        for take_back in taken:
            take_back()
        self._marks = marks - 1

    patch.setattr(Fleet, "undo", forwards)


@broken(undo)
def _(patch: Patch) -> None:
    """a resize cannot be undone"""
    real = Fleet.resize

    def resize(self, number, demand):
        marks, self._marks = self._marks, 0
        real(self, number, demand)
        self._marks = marks

    patch.setattr(Fleet, "resize", resize)


@broken(undo)
def _(patch: Patch) -> None:
    """rows of a batch that was undone are used before older ones"""
    patch.setattr(VMTable, "forget_from", nothing)


@broken(snapshots)
def _(patch: Patch) -> None:
    """a snapshot shares the group counts"""
    patch.setattr(Groups, "copy", lambda self: self)


@broken(undo)
def _(patch: Patch) -> None:
    """a VM that is taken back still counts in its project"""
    real = Fleet.count_vm

    def count_vm(self, key, project, amounts):
        marks, self._marks = self._marks, 0
        real(self, key, project, amounts)
        self._marks = marks

    patch.setattr(Fleet, "count_vm", count_vm)


@broken(snapshots)
def _(patch: Patch) -> None:
    """a snapshot shares what projects have"""
    patch.setattr(ProjectAccounts, "copy", lambda self: self)


@broken(snapshots)
def _(patch: Patch) -> None:
    """a snapshot shares the labels"""
    patch.setattr(Labels, "copy", lambda self: self)


@broken(snapshots)
def _(patch: Patch) -> None:
    """a snapshot shares what is held"""
    real = HostTable.copy

    def copy(self):
        other = real(self)
        other.held = self.held
        return other

    patch.setattr(HostTable, "copy", copy)


# The tests


@pytest.mark.turns(3)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_engine_is_noticed(mutant: Mutant, monkeypatch: Patch) -> None:
    # What a broken engine makes of rules must not be remembered for those that come after it.
    monkeypatch.setattr(left, "_REMEMBERED", left.Remembered())
    mutant.spoil(monkeypatch)

    def all_seeds() -> None:
        mutant.test()

    with pytest.raises((AssertionError, RoostError, KeyError)):
        all_seeds()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_engine_as_it_is_passes_with_the_same_seeds(law: Callable[[int], None]) -> None:
    for seed in list(SEEDS)[:10]:
        law(seed)


def test_every_law_has_a_mutant_that_it_notices() -> None:
    noticed = {getattr(mutant.law, "func", mutant.law) for mutant in MUTANTS}
    assert noticed == set(LAWS)
