"""The one function that decides where a VM goes.

`Engine` joins a fleet with what is derived from it for speed (rankings, selectors, compiled
terms) and answers requests exactly as a scan of all hosts with all filters would. It belongs to
the thread that owns the fleet; a long question asks an engine on `fleet.snapshot()`.

    place          one request; nothing changes
    commit         make a placement real
    place_batch    K requests, with the meaning of place and commit K times
    place_columns  the same for requests that are already columns

All-or-nothing groups are in group.py, counting in capacity.py, explaining in explain.py.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from roost.base.errors import Conflict, FleetUnavailable, InvalidRequest
from roost.fleet.assign import mask_of, positions
from roost.fleet.fleet import Fleet
from roost.fleet.layout import BASE, CPU, DISK, MEMORY, UNKNOWN, Int32Array, Int64Array
from roost.fleet.outlook import expected_vector, prediction
from roost.model.constraints import NO_TERMS, HostRequirements
from roost.model.flow import Answer, Placement, PlaceRequest, Rejection, RunnerUp, ScoreTerm
from roost.model.outlook import NOTHING_EXPECTED, Foreseen
from roost.model.rules import NO_CHOICE, NO_RULES, RuleSet
from roost.placement.asked import Asked
from roost.placement.attributes import question as ask
from roost.placement.batching import DecisionColumns, RequestColumns, columns_of
from roost.placement.kernels.charging import Charger
from roost.placement.kernels.decide import (
    COMMIT,
    DRY,
    O_CELL_RULE,
    O_COMMIT,
    O_CURSOR,
    O_NEXT,
    O_RUNNERS,
    O_SCORE,
    O_SEARCH,
    OPTIONS,
    UNTIL_REFUSAL,
    Batch,
    Decisions,
    Scratch,
    judge,
)
from roost.placement.kernels.directory import Bundles, Directory
from roost.placement.kernels.fit import A_COUNTS
from roost.placement.kernels.fragments import MixArrays
from roost.placement.kernels.keys import SCORE_ONE
from roost.placement.kernels.ranking import M_FREE_BLOCKS, Ranking, rebuild
from roost.placement.kernels.running import running
from roost.placement.kernels.scan import PARTS
from roost.placement.kernels.search import MOST, NOWHERE
from roost.placement.kernels.tally import WEIGHT_ONE
from roost.placement.mix import NO_MIX, Mix, mix_of
from roost.placement.nearness import HostNetwork, Nearness
from roost.placement.question import Question
from roost.placement.rankings import Rankings
from roost.placement.rejecting import reject
from roost.placement.rules.binding import Binder, Bound
from roost.placement.rules.columns import RuleColumns
from roost.placement.selectors import Selectors
from roost.placement.strategies import (
    DEFAULT_STRATEGY,
    Strategy,
    strategy_named,
    weighted_strategy,
)
from roost.placement.tables import TermsTables

#: More runners-up than this are not looked for.
MOST_RUNNERS = 16
#: Why a host was chosen: the parts of its score, who would have been next, how sure that is.
Why = tuple[tuple[ScoreTerm, ...], tuple[RunnerUp, ...], float | None]
UNEXPLAINED: Why = ((), (), None)
_NO_ROWS = np.zeros(0, np.int64)


#: Terms beyond one for each placed VM; with more, all are numbered anew.
MOST_TERMS = 8_192


def seed_of(request: PlaceRequest) -> int:
    """Return the request's seed; one without takes it from its name."""
    if request.seed is not None:
        return request.seed & (2**62 - 1)
    digest = hashlib.blake2b(request.name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


class Engine:
    """Decides for one fleet."""

    def __init__(
        self,
        fleet: Fleet | None,
        default_strategy: str = DEFAULT_STRATEGY,
        mix: Mix | None = None,
        rules: RuleSet = NO_RULES,
        clock: Mapping[str, int] | None = None,
        network: HostNetwork | None = None,
    ) -> None:
        if fleet is None:
            raise FleetUnavailable("the fleet is not loaded")
        self.fleet = fleet
        fleet.charger = Charger(fleet)
        self.default_strategy = strategy_named(default_strategy).name
        self.cursor = -1  # where round_robin goes on when no cursor is passed in
        self.mix = mix
        self.asked: Asked | None = None  # where the mix is learnt from, unless it was given
        self._mix_arrays: MixArrays | None = None
        self._digest: tuple[Mix | None, str] = (None, "")
        self._mix_ranking: Ranking | None = None  # whose stamps say which losses still hold
        self._rankings = Rankings(fleet)
        self._selectors = Selectors(fleet, self._rankings)
        self._rule_columns = RuleColumns(fleet)
        self._binder = Binder(fleet, rules, clock)
        self._near = Nearness(fleet, network)
        self._terms = self._new_tables()
        self._terms_of = fleet.terms_generation
        # One decision reuses these, because allocating them anew would cost more than deciding.
        self._out = new_answers(1)
        self._scratch: dict[int, Scratch] = {}
        self._terms_number = np.zeros(1, np.int32)
        self._set_number = np.zeros(1, np.int32)
        self._seed = np.zeros(1, np.int64)
        self._expected = np.array([UNKNOWN], np.int64)
        self._demand = np.zeros((1, len(fleet.hosts.resources)), np.int64)
        self._changed = np.zeros(64, np.int64)
        self._directories: dict[tuple[str, int, int], Directory] = {}

    def strategy_of(self, request: PlaceRequest) -> Strategy:
        """Return the strategy a request asks for, that of its policy, or the default."""
        if request.policy:
            choice = self.rules.choices.get(request.policy, NO_CHOICE)
            name = request.strategy or choice.strategy or self.default_strategy
            return weighted_strategy(name, choice.weights)
        return strategy_named(request.strategy or self.default_strategy)

    def _new_tables(self) -> TermsTables:
        return TermsTables(self.fleet, self._selectors, self._rule_columns, self._near)

    # The network

    @property
    def network(self) -> HostNetwork | None:
        """Return what is known of the network between hosts."""
        return self._near.network

    def set_network(self, network: HostNetwork | None) -> None:
        """Replace what is known of the network; VMs stay where they are."""
        self._near = Nearness(self.fleet, network)
        self._selectors.clear()
        self._terms = self._new_tables()
        self._directories.clear()
        self.fleet.version += 1

    # Rules

    @property
    def rules(self) -> RuleSet:
        """Return the rules that bind requests."""
        return self._binder.rules

    @property
    def clock(self) -> Mapping[str, int]:
        """Return the time as rules read it."""
        return self._binder.clock

    def set_rules(self, rules: RuleSet, clock: Mapping[str, int] | None = None) -> None:
        """Replace the rules, and the time as they read it; a broken rule is refused.

        VMs stay where they are. Whoever asks next is bound by the new rules.
        """
        self._binder = Binder(self.fleet, rules, clock)
        self.fleet.version += 1

    def terms_of(self, request: PlaceRequest) -> HostRequirements:
        """Return what a request asks of hosts, with the rules that bind it."""
        if not self._binder.binds:
            return request.terms
        return self._bound(request).terms

    def terms_number(self, request: PlaceRequest) -> int:
        """Return the fleet's number of what a request asks of hosts, rules included."""
        if self._binder.binds:
            return self._bound(request).number
        return 0 if request.terms is NO_TERMS else self.fleet.terms.number(request.terms)

    def _bound(self, request: PlaceRequest) -> Bound:
        bound = self._binder.bound(request, self.default_strategy)
        if bound.restless:
            self._rule_columns.known = self._binder.known(request)
        return bound

    def _begin(self) -> None:
        """Begin a decision: terms that are too many are numbered anew, before any is looked up."""
        fleet = self.fleet
        if len(fleet.terms) > MOST_TERMS + fleet.vms.alive:
            fleet.renumber_terms()
        if self._terms_of != fleet.terms_generation:
            self._terms_of = fleet.terms_generation
            self._terms = self._new_tables()
            self._binder.forget()
            self._directories.clear()

    def is_restless(self, request: PlaceRequest) -> bool:
        """Say whether hosts must be judged anew for every decision of a request."""
        return self._terms.is_restless(self.terms_number(request))

    def question(self, request: PlaceRequest) -> Question:
        """Return a request as filters are asked about it."""
        terms = self.terms_of(request)
        return ask(self.fleet, request, terms, self._rule_columns, self._near)

    # One request

    def place(
        self, request: PlaceRequest, *, runners_up: int = 2, cursor: int | None = None
    ) -> Answer:
        """Return where the VM should go, or why it can go nowhere; nothing changes.

        Without runners-up the placement has no score breakdown and no confidence either: the
        quickest answer to "where".
        """
        placement = self.find(request, runners_up=runners_up, cursor=cursor)
        if placement is None:
            return self.reject(request)
        return placement

    def find(
        self, request: PlaceRequest, *, runners_up: int = 0, cursor: int | None = None
    ) -> Placement | None:
        """Return where the VM should go, or None; a refusal is not explained."""
        self._begin()
        strategy = self.strategy_of(request)
        start = self.cursor if cursor is None else cursor
        runners_up = min(runners_up, MOST_RUNNERS)
        self._ready(request, strategy)
        row = self._decide_one(strategy, start, runners_up)
        if row < 0:
            return None
        out = self._out
        score, devices, cells = out.score.item(0), out.devices.item(0), out.cells.item(0)
        why = UNEXPLAINED
        if runners_up:
            runners = self._runners(out.runner_row.tolist(), out.runner_score.tolist(), runners_up)
            terms, parts = self._terms_number.item(0), out.parts.tolist()
            breakdown = self._breakdown(strategy, terms, row, score, parts)
            why = breakdown, runners, _confidence(score, runners)
        return Placement(
            request.name,
            self.fleet.hosts.names[row],
            row,
            strategy.name,
            score,
            positions(devices) if devices else (),
            positions(cells) if cells else (),
            *why,
            row if strategy.turns else start,
            foreseen=self._foreseen(strategy, row),
            mix=self._mix_digest(strategy),
        )

    def _runners(
        self, rows: Sequence[int], scores: Sequence[int], count: int
    ) -> tuple[RunnerUp, ...]:
        """Return who would have been next, of so many that were looked for."""
        names = self.fleet.hosts.names
        return tuple(
            RunnerUp(names[rows[place]], scores[place])
            for place in range(count)
            if rows[place] >= 0
        )

    def _foreseen(self, strategy: Strategy, row: int) -> Foreseen | None:
        """Return what was foreseen of a host, if the strategy goes by it and there is anything."""
        if not self._reads_predictions(strategy):
            return None
        return Foreseen(self.fleet.basis, prediction(self.fleet, row))

    def _reads_predictions(self, strategy: Strategy) -> bool:
        return (strategy.foresees or strategy.reads_ends) and bool(self.fleet.basis.digest)

    def _ready(self, request: PlaceRequest, strategy: Strategy) -> None:
        """Put a request into the arrays of one decision."""
        fleet, demand = self.fleet, request.demand
        if demand.extended:
            vector = fleet.vector(demand)
            if len(vector) != self._demand.shape[1]:
                self._demand = np.zeros((1, len(vector)), np.int64)
            self._demand[0] = vector
        else:
            width = len(fleet.hosts.resources)
            if self._demand.shape[1] != width:
                self._demand = np.zeros((1, width), np.int64)
            vector = self._demand
            vector[0, CPU], vector[0, MEMORY] = demand.cpu_milli, demand.memory_bytes
            vector[0, DISK] = demand.disk_bytes
            if width > BASE:
                vector[0, BASE:] = 0
        terms = self.terms_number(request)
        group_set = fleet.groups.set_number(request.groups) if request.groups else 0
        self._terms.ready(terms, group_set)
        self._terms_number[0] = terms
        self._set_number[0] = group_set
        expected = request.expected
        self._expected[0] = UNKNOWN if expected is NOTHING_EXPECTED else expected_vector(expected)
        if strategy.draws:
            self._seed[0] = seed_of(request)

    def _decide_one(self, strategy: Strategy, cursor: int, runners_up: int) -> int:
        """Decide the request in the arrays; return its row, the rest is in the answer arrays."""
        if strategy.reads_ends:
            self.fleet.settle_ends()
        self._selectors.ensure_rows()
        marks, hosts = self._selectors.marks, self.fleet.hosts.arrays
        ranking, changed = self._rankings.current(strategy.key, marks)
        if len(changed) > len(self._changed):
            self._changed = np.zeros(2 * len(changed), np.int64)
        self._changed[: len(changed)] = changed
        directory = self._directory_for(strategy, runners_up, ranking)
        directory.bundles.options[O_CURSOR] = cursor
        if directory.decide(len(changed)) == 0:  # the ranking ran out of blocks
            rebuild(ranking, hosts, marks)
            directory.decide(0)
        return self._out.row.item(0)

    def _directory_for(self, strategy: Strategy, runners_up: int, ranking: Ranking) -> Directory:
        """Return where the arrays of one decision are; they are the same from call to call."""
        hosts, groups = self.fleet.hosts.arrays, self.fleet.groups.arrays
        marks, tables = self._selectors.marks, self._terms.tables
        mix = self._mix_for(strategy, ranking)
        key = (strategy.name, strategy.key, runners_up)
        known = self._directories.get(key)
        if (
            known is not None
            and (at := known.bundles).hosts is hosts
            and at.marks is marks
            and at.groups is groups
            and at.ranking is ranking
            and at.tables is tables
            and at.mix is mix
            and len(at.scratch.fewest) == self.fleet.groups.most_in_set
            and at.batch.demand is self._demand
            and at.batch.changed is self._changed
        ):
            return known
        batch = self._one(self._changed)
        options = self._options_for(strategy, NOWHERE, runners_up, DRY)
        scratch = self._scratch_for(runners_up)
        directory = self._directories[key] = Directory(
            Bundles(hosts, marks, groups, ranking, tables, batch, self._out, options, mix, scratch)
        )
        return directory

    def _one(self, changed: Int64Array) -> Batch:
        """Return the arrays of one request as a batch."""
        return Batch(
            self._demand,
            self._terms_number,
            self._set_number,
            self._seed,
            self._expected,
            changed,
        )

    def find_again(self, demand: Int64Array, terms: int, group_set: int) -> int:
        """Return where one more VM like one of the fleet's would go by default; -1 is nowhere."""
        self._ready_again(demand, terms, group_set, 0, None)
        return self._decide_one(strategy_named(self.default_strategy), self.cursor, 0)

    def _ready_again(
        self,
        demand: Int64Array,
        terms: int,
        group_set: int,
        seed: int,
        expected: Int64Array | None,
    ) -> None:
        """Put a VM that is in the fleet's numbers into the arrays of one decision."""
        self._terms.ready(terms, group_set)
        if self._demand.shape[1] != len(demand):
            self._demand = np.zeros((1, len(demand)), np.int64)
        self._demand[0] = demand
        self._terms_number[0], self._set_number[0], self._seed[0] = terms, group_set, seed
        self._expected[0] = UNKNOWN if expected is None else expected

    def commit(self, request: PlaceRequest, placement: Placement) -> int:
        """Make a placement real and return the VM's number."""
        fleet = self.fleet
        number = fleet.apply(
            request.key or request.name,
            placement.host_row,
            fleet.vector(request.demand),
            self.terms_number(request),
            fleet.groups.set_number(request.groups) if request.groups else 0,
            mask_of(placement.devices),
            mask_of(placement.cells),
            expected_vector(request.expected),
        )
        if strategy_named(placement.strategy).turns:
            self.cursor = placement.cursor
        self.count(request)
        return number

    def count(self, request: PlaceRequest) -> None:
        """Count a VM that was placed among those of its project, where a rule reads that."""
        if self._binder.reads_projects:
            demand = request.demand
            amounts = (demand.cpu_milli, demand.memory_bytes, demand.disk_bytes)
            self.fleet.count_vm(request.key or request.name, request.project, amounts)

    @property
    def reads_projects(self) -> bool:
        """Say whether some rule reads what projects have."""
        return self._binder.reads_projects

    def reject(self, request: PlaceRequest) -> Rejection:
        """Say why no host fits."""
        return reject(self, request)

    def scores(self, request: PlaceRequest) -> Int64Array:
        """Return every host's score for a request, by row; NO_FIT where it does not fit."""
        strategy = self.strategy_of(request)
        self._ready(request, strategy)
        if strategy.reads_ends:
            self.fleet.settle_ends()
        self._selectors.ensure_rows()
        scores = np.zeros(self.fleet.hosts.count, np.int64)
        running(judge)(
            self.fleet.hosts.arrays,
            self._selectors.marks,
            self.fleet.groups.arrays,
            self._terms.tables,
            self._one(_NO_ROWS),
            strategy.score,
            self._mix_for(strategy),
            self._scratch_for(0),
            scores,
        )
        return scores

    def _breakdown(
        self, strategy: Strategy, number: int, row: int, score: int, parts: Sequence[int]
    ) -> tuple[ScoreTerm, ...]:
        """Return the addends of a score: its parts, and what terms of that number charge a host.

        What no part explains stands under the strategy's name.
        """
        cpu, memory, disk, devices, penalty = parts
        terms = []
        if cpu or memory or disk:
            terms += [ScoreTerm("cpu", cpu), ScoreTerm("memory", memory), ScoreTerm("disk", disk)]
        if devices:
            terms.append(ScoreTerm("devices", devices))
        rest = score - penalty - cpu - memory - disk - devices
        if rest:
            terms.append(ScoreTerm(strategy.rest, rest))
        if not penalty and number == 0:  # terms without rules
            return tuple(terms)
        rules, ranked = self._terms.charges(number, row)
        charged = [ScoreTerm(f"rule {name}", each * WEIGHT_ONE) for name, each in rules]
        if ranked:
            charged.append(ScoreTerm("priority of rules", ranked * WEIGHT_ONE))
        if kept := self._terms.devices_charge(number, row):
            charged.append(ScoreTerm("devices kept for others", kept * WEIGHT_ONE))
        if far := self._terms.distance_charge(number, row):
            charged.append(ScoreTerm("distance to talkers", far * WEIGHT_ONE))
        if added := self._terms.peaks_charge(number, row):
            charged.append(ScoreTerm("peaks shared", added * WEIGHT_ONE))
        if self._terms.uplink_charge(row):
            charged.append(
                ScoreTerm("saturated uplink", self._terms.uplink_charge(row) * WEIGHT_ONE)
            )
        penalty -= sum(each.value for each in charged)
        if penalty:
            terms.append(ScoreTerm("preferences", penalty))
        return (*terms, *(each for each in charged if each.value))

    # Many requests

    def place_batch(
        self,
        requests: Sequence[PlaceRequest],
        reject: Callable[[PlaceRequest], Rejection] | None = None,
        *,
        runners_up: int = 0,
    ) -> list[Answer]:
        """Place and commit each in turn; one that fits nowhere is answered and left out.

        `reject` explains a refusal; who has explained the same before may answer from memory.
        With runners-up the placements say why, as `find` does.
        """
        explain = reject or self.reject
        runners_up = min(runners_up, MOST_RUNNERS)
        self._begin()
        self._check_batch(requests)
        answers: list[Answer] = []
        for (strategy, alone), run in groupby(requests, key=self._batch_key):
            rest = list(run)
            if runners_up and (alone or self._reads_predictions(strategy)):
                answers += [self._place_explained(each, explain, runners_up) for each in rest]
                continue
            while rest:
                placements = self._place_until_refusal(rest, strategy, runners_up)
                answers += placements
                rest = rest[len(placements) :]
                if rest:  # explained against the fleet as the request saw it
                    answers.append(explain(rest.pop(0)))
        return answers

    def _place_explained(
        self,
        request: PlaceRequest,
        explain: Callable[[PlaceRequest], Rejection],
        runners_up: int,
    ) -> Answer:
        """Place and commit one whose reasons must be read before it is charged."""
        placement = self.find(request, runners_up=runners_up)
        if placement is None:
            return explain(request)
        self.commit(request, placement)
        return placement

    def _batch_key(self, request: PlaceRequest) -> tuple[Strategy, str]:
        """Return what requests must share to be decided in one call of the kernel.

        A condition that depends on amounts is evaluated before the call, so it stands alone.
        """
        predicate = request.constraints.predicate
        alone = predicate is not None and not predicate.stable
        alone |= bool(request.talks) or request.day is not None
        alone |= self._binder.binds and self._bound(request).restless
        return self.strategy_of(request), request.key or request.name if alone else ""

    def _check_batch(self, requests: Sequence[PlaceRequest]) -> None:
        """Refuse a broken batch before anything changes."""
        seen: set[str] = set()
        for request in requests:
            key = request.key or request.name
            if key in seen:
                raise Conflict(f"VM {request.name!r} is in the batch twice", vm=request.name)
            if key in self.fleet.vms.numbers:
                raise Conflict(f"VM {request.name!r} is already placed", vm=request.name)
            seen.add(key)
            self.strategy_of(request)
            if request.groups:
                self.fleet.groups.set_number(request.groups)

    def _place_until_refusal(
        self, requests: list[PlaceRequest], strategy: Strategy, runners_up: int
    ) -> list[Placement]:
        seeds = [seed_of(request) for request in requests] if strategy.draws else []
        columns = columns_of(self.fleet, requests, seeds, self.terms_number)
        cursor = self.cursor
        out = self._place_all(columns, strategy, UNTIL_REFUSAL, runners_up)
        done = int(np.count_nonzero(out.row >= 0))
        whys = self._whys(columns, out, strategy, runners_up, done) if runners_up else None
        self._adopt(columns, out, strategy, [r.key or r.name for r in requests[:done]])
        placements = []
        names, called, mix = self.fleet.hosts.names, strategy.name, self._mix_digest(strategy)
        decided = (each[:done].tolist() for each in (out.row, out.score, out.devices, out.cells))
        for request, row, score, devices, cells in zip(requests[:done], *decided, strict=True):
            cursor = row if strategy.turns else cursor
            placements.append(
                Placement(
                    request.name,
                    names[row],
                    row,
                    called,
                    score,
                    positions(devices) if devices else (),
                    positions(cells) if cells else (),
                    *(UNEXPLAINED if whys is None else next(whys)),
                    cursor,
                    foreseen=self._foreseen(strategy, row),
                    mix=mix,
                )
            )
            self.count(request)
        return placements

    def _whys(
        self,
        columns: RequestColumns,
        out: Decisions,
        strategy: Strategy,
        runners_up: int,
        done: int,
    ) -> Iterator[Why]:
        """Yield why each of the first answers of a batch is what it is."""
        parts = out.parts.reshape(-1, PARTS)[:done].tolist()
        rows = out.runner_row.reshape(-1, runners_up)[:done].tolist()
        scores = out.runner_score.reshape(-1, runners_up)[:done].tolist()
        decided = (each[:done].tolist() for each in (columns.terms, out.row, out.score))
        for at, (terms, row, score) in enumerate(zip(*decided, strict=True)):
            runners = self._runners(rows[at], scores[at], runners_up)
            breakdown = self._breakdown(strategy, terms, row, score, parts[at])
            yield breakdown, runners, _confidence(score, runners)

    def place_columns(
        self, columns: RequestColumns, strategy: str | Strategy | None = None
    ) -> DecisionColumns:
        """Place and commit requests that are already columns; refused ones get row -1."""
        if not isinstance(strategy, Strategy):
            strategy = strategy_named(strategy or self.default_strategy)
        resources = len(self.fleet.hosts.resources)
        if columns.demand.shape[1] != resources:
            raise InvalidRequest(
                f"the demand has {columns.demand.shape[1]} columns, the fleet {resources} resources"
            )
        self._terms.refuse_restless(columns.terms)
        out = self._place_all(columns, strategy, COMMIT)
        first = self._adopt(columns, out, strategy, None)
        return DecisionColumns(out.row, out.score, out.devices, out.cells, first)

    def _place_all(
        self, columns: RequestColumns, strategy: Strategy, commit: int, runners_up: int = 0
    ) -> Decisions:
        self._ready_terms(columns.terms, columns.group_set)
        out = new_answers(len(columns), len(columns) * runners_up)
        self._run(
            columns.demand,
            columns.terms,
            columns.group_set,
            columns.seed,
            columns.expectations(),
            strategy,
            out,
            commit=commit,
            cursor=self.cursor,
            runners_up=runners_up,
        )
        return out

    def _ready_terms(self, terms: Int32Array, group_set: Int32Array) -> None:
        # Terms and group sets are small numbers: one key for both makes finding the pairs quick.
        sets = len(self.fleet.groups.sets())
        keys = np.unique(terms.astype(np.int64) * sets + group_set)
        self._terms.ready_all({divmod(key, sets) for key in keys.tolist()})

    def _adopt(
        self,
        columns: RequestColumns,
        out: Decisions,
        strategy: Strategy,
        names: list[str] | None,
    ) -> int:
        """Enter what the kernel has charged into the VM columns."""
        placed = out.row >= 0
        pick = slice(None) if placed.all() else np.flatnonzero(placed)
        first = self.fleet.adopt(
            names,
            out.row[pick],
            columns.demand[pick],
            columns.terms[pick],
            columns.group_set[pick],
            out.devices[pick],
            out.cells[pick],
            columns.expectations()[pick],
        )
        self._rankings.is_current(strategy.key)
        return first

    # The kernel

    def _run(
        self,
        demand: Int64Array,
        terms: Int32Array,
        group_set: Int32Array,
        seed: Int64Array,
        expected: Int64Array,
        strategy: Strategy,
        out: Decisions,
        *,
        commit: int,
        cursor: int,
        runners_up: int = 0,
    ) -> None:
        if strategy.reads_ends:
            self.fleet.settle_ends()
        self._selectors.ensure_rows()
        marks = self._selectors.marks
        if commit:
            memberships = int(np.count_nonzero(group_set)) * self._terms.most_groups
            self.fleet.groups.reserve(3 * memberships)
        ranking, changed = self._rankings.current(strategy.key, marks)
        options = self._options_for(strategy, cursor, runners_up, commit)
        hosts = self.fleet.hosts.arrays
        directory = Directory(
            Bundles(
                hosts,
                marks,
                self.fleet.groups.arrays,
                ranking,
                self._terms.tables,
                Batch(
                    np.ascontiguousarray(demand, np.int64),
                    np.ascontiguousarray(terms, np.int32),
                    np.ascontiguousarray(group_set, np.int32),
                    np.ascontiguousarray(seed, np.int64),
                    np.ascontiguousarray(expected, np.int64),
                    changed,
                ),
                out,
                options,
                self._mix_for(strategy, ranking),
                self._scratch_for(runners_up),
            )
        )
        to_refile = len(changed)
        while True:
            answered = directory.decide(to_refile)
            if answered == len(terms) or ranking.meta[M_FREE_BLOCKS] > 1:
                break
            rebuild(ranking, hosts, marks)  # it ran out of blocks part way
            options[O_NEXT] = answered
            to_refile = 0
        if commit and strategy.turns:
            self.cursor = int(options[O_CURSOR])

    def _options_for(
        self, strategy: Strategy, cursor: int, runners_up: int, commit: int
    ) -> Int64Array:
        options = np.zeros(OPTIONS, np.int64)
        options[O_SEARCH] = strategy.search
        options[O_SCORE] = strategy.score
        options[O_CELL_RULE] = strategy.cell_rule
        options[O_COMMIT] = commit
        options[O_CURSOR] = cursor
        options[O_RUNNERS] = runners_up
        return options

    def _scratch_for(self, runners_up: int) -> Scratch:
        columns, groups = self.fleet.hosts.arrays.headroom.shape[1], self._terms.most_groups
        scratch = self._scratch.get(runners_up)
        if scratch is None or len(scratch.columns) != columns or len(scratch.fewest) != groups:
            scratch = self._scratch[runners_up] = Scratch(
                columns=np.zeros(columns, np.int64),
                least=np.zeros(columns, np.int64),
                counts=np.zeros(A_COUNTS, np.int64),
                fewest=np.zeros(groups, np.int64),
                skip=np.zeros(runners_up, np.int64),
            )
        return scratch

    def mix_now(self) -> Mix | None:
        """Return the mix that the next decision would go by; None: that of the fleet's VMs."""
        if self.asked is not None and len(self.asked):
            mix = self.asked.mix()
            if mix is not self.mix:
                self.mix, self._mix_arrays = mix, None
        return self.mix

    def _mix_for(self, strategy: Strategy, ranking: Ranking | None = None) -> MixArrays:
        """Return the mix in the fleet's numbers; losses are kept for the ranking that is given."""
        if not strategy.needs_mix:
            return NO_MIX
        mix = self.mix_now()
        if mix is None:
            mix = self.mix = mix_of(self.fleet)
        if ranking is None:
            return self._mix_arrays or mix.arrays(self.fleet)
        if self._mix_arrays is None or self._mix_ranking is not ranking:
            self._mix_arrays = mix.arrays(self.fleet, len(ranking.place))
            self._mix_ranking = ranking
        return self._mix_arrays

    def _mix_digest(self, strategy: Strategy) -> str:
        """Return which mix was gone by, if the strategy looks at one."""
        if not strategy.needs_mix or self.mix is None:
            return ""
        if self._digest[0] is not self.mix:
            self._digest = (self.mix, self.mix.digest)
        return self._digest[1]


#: The score of a host that does not fit.
NO_FIT = MOST


def new_answers(count: int, runners: int = MOST_RUNNERS) -> Decisions:
    """Return empty answers for so many requests, with room for so many runners-up in all."""
    return Decisions(
        row=np.full(count, -1, np.int32),
        score=np.zeros(count, np.int64),
        devices=np.zeros(count, np.int64),
        cells=np.zeros(count, np.int64),
        runner_row=np.full(runners, -1, np.int64),
        runner_score=np.zeros(runners, np.int64),
        parts=np.zeros(count * PARTS, np.int64),
        ends=np.zeros(count, np.int64),
    )


def _confidence(score: int, runners: tuple[RunnerUp, ...]) -> float:
    if not runners:
        return 1.0
    return max(0.0, min(1.0, (runners[0].score - score) / SCORE_ONE))
