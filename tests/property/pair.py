"""A fleet with its engine, and the naive world beside it: every step is taken by both.

`Pair` is what the laws (laws.py) drive. A method does the same thing on both sides and fails with
an AssertionError where they disagree.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from roost.fleet.check import check
from roost.fleet.fleet import Fleet
from roost.fleet.layout import EMPTY_END, ENDS
from roost.fleet.outlook import expected_vector
from roost.model.flow import Answer, Placement, PlaceRequest, Rejection, RejectionCode
from roost.model.hosts import PRESSURES, Admin, Health, HostSpec
from roost.model.outlook import NEVER_S, Expected, Predicted, PredictionBasis
from roost.model.resources import BASE_RESOURCES, Demand, NumaMode
from roost.placement.batching import columns_of
from roost.placement.engine import Engine, seed_of
from roost.placement.nearness import HostNetwork
from roost.placement.rules.parts import How
from roost.topology.distances import Distances
from roost.topology.network import Network
from tests.naive import engine as naive
from tests.naive.assign import device_suits
from tests.naive.fleet import VM, Ask, Row, World
from tests.naive.numbers import SCORE_ONE, WEIGHT_ONE
from tests.naive.scores import SCORES, penalty
from tests.property import generators
from tests.property.generators import Climate

#: Strategies that break ties, and pick devices and cells, by a rule without a twin.
OWN_TIES = frozenset({"fragmentation"}) - SCORES.keys()


#: What projects may have; of the other one nobody has said anything.
QUOTAS = {"p1": {"cpu": 24_000, "vms": 9}}


class QuietEngine(Engine):
    """An engine that refuses without saying why: the laws here are about where VMs go."""

    def reject(self, request: PlaceRequest) -> Rejection:
        """Refuse."""
        code = RejectionCode.CONSTRAINTS_UNSATISFIED
        return Rejection(request.name, code, "", self.strategy_of(request).name, 0)


class Pair:
    """A real fleet and a naive one that must never disagree."""

    def __init__(self, climate: Climate, hosts: int) -> None:
        self.climate = climate
        self.fleet = Fleet()
        self.engine = QuietEngine(self.fleet)
        self.world = World()
        self.world.rules, self.world.clock = climate.rules, dict(climate.clock)
        self.engine.set_rules(climate.rules, dict(climate.clock))
        for project, quota in QUOTAS.items():
            self.world.quotas[project] = quota
            limits = [quota.get(name) for name in (*BASE_RESOURCES, "vms")]
            self.fleet.projects.set_quota(project, tuple(limits))
        self.cursor = -1
        self.marks: list[tuple[int, World]] = []
        for group in climate.groups:
            self.fleet.add_group(group)
            self.world.groups[group.name] = group
        for index in range(hosts):
            self.register(generators.host(climate, index))
        if "network" in climate.features:
            self.rewire(generators.network(climate, 0), generators.stream(climate.seed, "wires"))

    def rewire(self, network: Network | None, rng: Random) -> None:
        """Describe another network, or none."""
        self.world.network, self.world.saturated = network, frozenset()
        if network is None:
            self.engine.set_network(None)
            return
        if rng.random() < 0.4:
            behind = [name for name in network.hosts if rng.random() < 0.3]
            self.world.saturated = frozenset(behind)
        self.engine.set_network(HostNetwork(Distances(network), self.world.saturated))

    # Hosts

    def register(self, spec: HostSpec) -> None:
        """Add a host."""
        number = self.fleet.register(spec)
        assert number == self.world.registered, "a host number was used again"
        self.world.set_host(number, spec)

    def update(self, number: int, spec: HostSpec) -> None:
        """Replace what a host registered with."""
        self.fleet.update_host(spec)
        self.world.set_host(number, spec)

    def change(self, number: int, **changes: object) -> None:
        """Change a host's health, admin state or labels."""
        name = self.world.hosts[number].name
        if "health" in changes:
            self.fleet.set_health(name, changes["health"])
        if "admin" in changes:
            self.fleet.set_admin(name, changes["admin"])
        if "labels" in changes:
            self.fleet.set_labels(name, changes["labels"])
        self.world.set_host(number, replace(self.world.hosts[number], **changes))

    def remove_host(self, number: int) -> None:
        """Empty a host and take it away."""
        for vm in [vm for vm, what in self.world.vms.items() if what.host == number]:
            self.remove(vm)
        for hold in [hold for hold, (host, _) in self.world.holds.items() if host == number]:
            self.release(hold)
        self.fleet.remove_host(self.world.hosts[number].name)
        self.world.remove_host(number)

    # VMs and holds

    def put(self, request: PlaceRequest, number: int) -> None:
        """Put a VM on a host by hand, whether it fits or not."""
        fleet = self.fleet
        names = tuple(each if isinstance(each, str) else each.name for each in request.groups)
        vm = fleet.apply(
            request.name,
            number,
            fleet.vector(request.demand),
            self.engine.terms_number(request),
            fleet.groups.set_number(request.groups),
            expected=expected_vector(request.expected),
        )
        self.world.put(
            vm,
            VM(
                request.name,
                number,
                request.demand,
                request.constraints,
                names,
                expected=request.expected,
            ),
        )
        self.count(request.name, request.project, request.demand)

    def count(self, name: str, project: str, demand: Demand) -> None:
        """Count a VM among those of its project, or count it with other amounts."""
        self.fleet.count_vm(name, project, base_amounts(demand))
        self.world.counted[name] = (project, demand)

    def note_placed(self, request: PlaceRequest) -> None:
        """Count a VM that the engine has placed, which counts them where a rule reads it."""
        if self.engine.reads_projects:
            self.world.counted[request.name] = (request.project, request.demand)

    def remove(self, vm: int) -> None:
        """Take a VM off its host, for good."""
        name = self.world.vms[vm].name
        self.fleet.remove(vm)
        self.world.remove(vm)
        if name is not None:
            self.fleet.discount_vm(name)
            self.world.counted.pop(name, None)

    def resize(self, vm: int, demand: Demand) -> None:
        """Change a VM's amounts; devices and cells stay."""
        old = self.world.vms[vm]
        demand = replace(demand, devices=old.demand.devices, numa=old.demand.numa)
        self.fleet.resize(vm, self.fleet.vector(demand))
        self.world.put(vm, replace(old, demand=demand))
        if old.name in self.world.counted:
            self.count(old.name, self.world.counted[old.name][0], demand)

    def expect_of(self, vm: int, expected: Expected) -> None:
        """Change what is expected of a VM that has a name."""
        old = self.world.vms[vm]
        self.fleet.set_expected(old.name, expected)
        self.world.put(vm, replace(old, expected=expected))

    def predict(self, amounts: dict[int, tuple[int, int]], rng: Random) -> None:
        """Replace what is predicted of hosts, with all of their VMs counted or only some."""
        told, twin = {}, {}
        for number, (cpu, memory) in amounts.items():
            here = [vm for vm, what in self.world.vms.items() if what.host == number]
            named = [vm for vm in here if self.world.vms[vm].name is not None]
            some = None if rng.random() < 0.5 else [vm for vm in named if rng.random() < 0.5]
            names = None if some is None else (*(self.world.vms[vm].name for vm in some), "gone")
            told[self.world.hosts[number].name] = Predicted(cpu, memory, names)
            twin[number] = (cpu, memory), set(here if some is None else some)
        self.fleet.set_predicted(told, PredictionBasis(f"made of {len(told)}"))
        self.world.predict(twin)

    def hold(self, name: str, number: int, demand: Demand) -> None:
        """Keep capacity free on a host."""
        self.fleet.hold(name, self.world.hosts[number].name, demand)
        self.world.hold(name, number, demand)

    def release(self, name: str) -> None:
        """Give held capacity back."""
        self.fleet.release(name)
        self.world.release(name)

    # Questions

    def ask(
        self, request: PlaceRequest, runners_up: int = 0, cursor: int | None = None
    ) -> Placement | None:
        """Ask the engine and the twin; return the answer they agree on."""
        found = self.engine.find(request, runners_up=runners_up, cursor=cursor)
        start = self.cursor if cursor is None else cursor
        self.expect(found, self.engine, request, runners_up, start)
        return found

    def expect(
        self,
        found: Answer | None,
        engine: Engine,
        request: PlaceRequest,
        runners_up: int,
        cursor: int,
    ) -> naive.Choice | None:
        """Compare an answer with the twin's; a strategy without a twin is scored by `engine`."""
        strategy = engine.strategy_of(request).name
        scorer = None if strategy in SCORES else judged(engine, request, self.world)
        best = naive.ranked(self.world, request, strategy, cursor, 1 + runners_up, scorer)
        placed = found if isinstance(found, Placement) else None
        told = (strategy, request, cursor)
        assert (placed is not None) == bool(best), ("fits or not", placed, best, told)
        if placed is None:
            return None
        if strategy in OWN_TIES:
            return self._expect_among_the_best(placed, request, best[0])
        choice = best[0]
        assert placed.host_row == choice.host, ("host", placed, best, told)
        assert placed.score == choice.score, ("score", placed, best, told)
        assert placed.devices == choice.devices, ("devices", placed, best, told)
        assert placed.cells == choice.cells, ("cells", placed, best, told)
        assert placed.vm == request.name
        assert placed.host == self.world.hosts[choice.host].name
        assert placed.cursor == (choice.host if strategy == "round_robin" else cursor)
        if runners_up:
            self._expect_company(placed, best)
        return choice

    def _expect_among_the_best(
        self, placed: Placement, request: PlaceRequest, best: naive.Choice
    ) -> naive.Choice:
        """Compare an answer whose ties, devices and cells are the strategy's own business."""
        assert placed.score == best.score, ("score", placed, best)
        _, rows = naive.candidates(self.world, request)
        fitting = {row.number: row for row in rows}
        assert placed.host_row in fitting, ("host", placed)
        row = fitting[placed.host_row]
        demand = request.demand
        if demand.devices is not None:
            assert len(placed.devices) == demand.devices.count, placed
            for at in placed.devices:
                assert device_suits(row.spec.devices[at], row.device_free[at], demand.devices)
        assert len(placed.cells) == list(NumaMode).index(demand.numa), placed
        return naive.Choice(placed.host_row, placed.score, placed.devices, placed.cells)

    def _expect_company(self, placed: Placement, best: Sequence[naive.Choice]) -> None:
        names = [self.world.hosts[choice.host].name for choice in best[1:]]
        assert [each.host for each in placed.runners_up] == names, ("runners-up", placed, best)
        scores = [choice.score for choice in best[1:]]
        assert [each.score for each in placed.runners_up] == scores, ("runner scores", placed, best)
        assert sum(part.value for part in placed.breakdown) == placed.score, placed
        lead = 1.0 if not scores else min(1.0, max(0.0, (scores[0] - placed.score) / SCORE_ONE))
        assert placed.confidence == lead, placed

    def place(self, request: PlaceRequest) -> None:
        """Ask, and make the answer real on both sides."""
        found = self.ask(request)
        if found is not None:
            vm = self.engine.commit(request, found)
            choice = naive.Choice(found.host_row, found.score, found.devices, found.cells)
            naive.commit(self.world, vm, request, choice)
            self.note_placed(request)
            self.cursor = found.cursor
        assert self.engine.cursor == self.cursor

    def place_batch(self, requests: Sequence[PlaceRequest]) -> None:
        """Place a batch, and on the other side the same requests one by one."""
        rehearsal = self.rehearsal()
        answers = self.engine.place_batch(requests)
        assert len(answers) == len(requests)
        for request, answer in zip(requests, answers, strict=True):
            vm = self.fleet.vms.numbers.get(request.name, -1)
            self._replay(rehearsal, request, answer, vm)
        assert self.engine.cursor == self.cursor

    def place_columns(self, requests: Sequence[PlaceRequest], strategy: str) -> None:
        """Place requests as columns, and on the other side one by one."""
        requests = [settled(replace(each, strategy=strategy), self.engine) for each in requests]
        rehearsal = self.rehearsal()
        seeds = [seed_of(each) for each in requests]
        columns = columns_of(self.fleet, requests, seeds, self.engine.terms_number)
        decided = self.engine.place_columns(columns, strategy)
        vm = decided.first_vm
        for index, request in enumerate(requests):
            row = int(decided.row[index])
            answer = None
            if row >= 0:
                answer = Placement(
                    request.name,
                    self.fleet.hosts.names[row],
                    row,
                    strategy,
                    int(decided.score[index]),
                    _positions(int(decided.devices[index])),
                    _positions(int(decided.cells[index])),
                    cursor=row if strategy == "round_robin" else self.cursor,
                )
            self._replay(rehearsal, request, answer, vm, named=False)
            vm += row >= 0
        assert self.engine.cursor == self.cursor

    def _replay(
        self,
        rehearsal: Engine,
        request: PlaceRequest,
        answer: Answer | None,
        vm: int,
        *,
        named: bool = True,
    ) -> None:
        choice = self.expect(answer, rehearsal, request, 0, self.cursor)
        if choice is None:
            return
        single = rehearsal.find(request)
        assert single is not None
        assert single.host_row == choice.host, "batch and single disagree"
        rehearsal.commit(request, single)
        naive.commit(self.world, vm, request, choice)
        if named:
            self.note_placed(request)
        else:
            rehearsal.fleet.discount_vm(request.name)
            self.world.put(vm, replace(self.world.vms[vm], name=None))
        self.cursor = single.cursor

    def rehearsal(self) -> QuietEngine:
        """Return an engine on a snapshot, with the same cursor and mix."""
        engine = self.engine
        other = QuietEngine(
            self.fleet.snapshot(),
            mix=engine.mix,
            rules=engine.rules,
            clock=engine.clock,
            network=engine.network,
        )
        other.cursor = self.engine.cursor
        return other

    def fork(self) -> "Pair":
        """Return a pair on a snapshot that goes its own way from here."""
        other = Pair(self.climate, 0)
        other.engine = self.rehearsal()
        other.fleet = other.engine.fleet
        other.world = self.world.copy()
        other.cursor = self.cursor
        return other

    # Undo

    def mark(self) -> None:
        """Remember this state on both sides."""
        self.marks.append((self.fleet.mark(), self.world.copy()))

    def undo(self) -> None:
        """Go back to the last mark."""
        mark, world = self.marks.pop()
        self.fleet.undo(mark)
        self.world.restore(world)

    def keep(self) -> None:
        """Let go of the last mark."""
        self.fleet.keep(self.marks.pop()[0])

    # Books

    def check(self) -> None:
        """Check every invariant of the fleet, and its books against the world's."""
        check(self.fleet, over_capacity=self.world.over_capacity())
        self.compare_books()

    def compare_books(self) -> None:
        """Compare what both sides believe of every host, VM and hold."""
        self.fleet.settle_ends()
        fleet, arrays = self.fleet, self.fleet.hosts.arrays
        assert fleet.present_rows().tolist() == sorted(self.world.hosts), "hosts"
        alive = np.flatnonzero(fleet.vms.host[: fleet.vms.count] >= 0).tolist()
        where = {vm: (int(fleet.vms.host[vm]), fleet.vms.names.get(vm)) for vm in alive}
        assert where == {n: (vm.host, vm.name) for n, vm in self.world.vms.items()}, "VMs"
        assert fleet.holds.keys() == self.world.holds.keys(), "holds"
        for project in {project for project, _ in self.world.counted.values()} | QUOTAS.keys():
            used = tuple(self.world.used_by(project).values())
            assert fleet.projects.use(project) == used, project
        for row in self.world.rows():
            at, told = row.number, row.spec.name
            for column, name in enumerate(fleet.hosts.resources.values):
                assert arrays.capacity[at, column] == row.capacity.get(name, 0), (told, name)
                assert arrays.committed[at, column] == row.committed.get(name, 0), (told, name)
                assert arrays.headroom[at, column] == row.free(name), (told, name)
            assert arrays.vm_count[at] == row.vms, told
            base = row.predicted or (0, 0)
            predicted = [base[0] + row.use[0], base[1] + row.use[1], row.predicted is not None]
            assert arrays.predicted[at].tolist() == predicted, told
            ends = [NEVER_S if end is None else end for end in row.ends]
            column = len(fleet.hosts.resources) + ENDS
            assert arrays.headroom[at, column] == max(ends, default=EMPTY_END), told
            devices = [free for free in arrays.device_free[at].tolist() if free >= 0]
            assert devices == row.device_free, told
            cells = arrays.cell_free[at, : len(row.cell_free)].tolist()
            assert cells == row.cell_free, told
            spec = fleet.hosts.spec(at)
            assert replace(spec, extended=tuple(sorted(spec.extended))) == row.spec, told


def base_amounts(demand: Demand) -> tuple[int, int, int]:
    """Return what a project is charged with for a VM."""
    return demand.cpu_milli, demand.memory_bytes, demand.disk_bytes


def judged(engine: Engine, request: PlaceRequest, world: World) -> naive.Scorer:
    """Return a scorer that looks a host up in the engine's whole-fleet scores."""
    column = engine.scores(request)
    soft = naive.charges(world.rows(), world.ask(request))

    def score(row: Row, ask: Ask) -> int:
        charged = penalty(row, ask) + WEIGHT_ONE * soft[row.number]
        return int(column[row.number]) - charged

    return score


def _positions(mask: int) -> tuple[int, ...]:
    return tuple(at for at in range(64) if mask // 2**at % 2)


# Random steps


def step(pair: Pair, number: object, without: frozenset[str] = frozenset()) -> None:
    """Take one random step on both sides."""
    rng = generators.stream(pair.climate.seed, "step", number)
    names = [name for name in STEPS if name not in without]
    if "outlook" not in pair.climate.features:
        names = [name for name in names if name not in FORESEEING]
    if "network" not in pair.climate.features:
        names = [name for name in names if name not in WIRING]
    name = rng.choices(names, [STEPS[name][0] for name in names])[0]
    STEPS[name][1](pair, number, rng)


def any_strategy(rng: Random) -> str:
    """Return the name of a strategy."""
    return rng.choice(tuple(naive.CELL_RULES))


def _request(pair: Pair, number: object, rng: Random) -> PlaceRequest:
    return replace(generators.request(pair.climate, number), strategy=any_strategy(rng))


def _host(pair: Pair, rng: Random) -> int:
    return rng.choice(sorted(pair.world.hosts))


def _ask(pair: Pair, number: object, rng: Random) -> None:
    cursor = rng.choice((None, rng.randint(-1, pair.world.registered + 1)))
    pair.ask(_request(pair, number, rng), rng.choice((0, 0, 1, 3, 16)), cursor)


def _place(pair: Pair, number: object, rng: Random) -> None:
    pair.place(_request(pair, number, rng))


def settled(request: PlaceRequest, engine: Engine) -> PlaceRequest:
    """Return the request without what is computed for every decision: columns refuse that."""
    anew = [
        rule.name
        for rule in engine.terms_of(request).rules
        if any(
            part.how is How.ANEW or (part.how is How.AMOUNTS and not rule.hard)
            for part in rule.parts.conjuncts
        )
    ]
    request = replace(request, lifted=(*request.lifted, *anew), talks=(), day=None)
    predicate = request.constraints.predicate
    if predicate is None or predicate.stable:
        return request
    return replace(request, constraints=replace(request.constraints, predicate=None))


def _place_batch(pair: Pair, number: object, rng: Random) -> None:
    strategies = [any_strategy(rng) for _ in range(2)]
    count = rng.randint(1, 12)
    requests = [_request(pair, f"{number}-{index}", rng) for index in range(count)]
    pair.place_batch([replace(each, strategy=rng.choice(strategies)) for each in requests])


def _place_columns(pair: Pair, number: object, rng: Random) -> None:
    requests = [_request(pair, f"{number}-{i}", rng) for i in range(rng.randint(1, 12))]
    pair.place_columns(requests, any_strategy(rng))


def _put(pair: Pair, number: object, rng: Random) -> None:
    asked = generators.request(pair.climate, number)
    bare = replace(asked.demand, devices=None, numa=NumaMode.ANY)
    if pair.world.hosts:
        pair.put(replace(asked, demand=bare), _host(pair, rng))


def _remove(pair: Pair, number: object, rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 5))):
        if pair.world.vms:
            pair.remove(rng.choice(sorted(pair.world.vms)))


def _resize(pair: Pair, number: object, rng: Random) -> None:
    if pair.world.vms:
        pair.resize(rng.choice(sorted(pair.world.vms)), generators.demand(pair.climate, rng))


def _hold(pair: Pair, number: object, rng: Random) -> None:
    if pair.world.hosts:
        demand = generators.demand(pair.climate, rng)
        demand = replace(demand, devices=None, numa=NumaMode.ANY)
        pair.hold(f"hold-{number}", _host(pair, rng), demand)


def _release(pair: Pair, number: object, rng: Random) -> None:
    if pair.world.holds:
        pair.release(rng.choice(sorted(pair.world.holds)))


def _measure(pair: Pair, number: object, rng: Random) -> None:
    """What is measured is read by rules, and changes no other answer."""
    if pair.world.hosts:
        host = _host(pair, rng)
        measured = {"cpu": rng.randint(0, 9999), "memory": rng.randint(0, 99)}
        pair.fleet.set_used(pair.world.hosts[host].name, measured.items())
        pair.world.set_used(host, measured)


def _rewire(pair: Pair, number: object, rng: Random) -> None:
    if not pair.marks:  # undoing is about the fleet
        pair.rewire(rng.choice((None, generators.network(pair.climate, rng.randint(0, 3)))), rng)


def _predict(pair: Pair, number: object, rng: Random) -> None:
    hosts = [host for host in pair.world.hosts if rng.random() < 0.7]
    pair.predict({host: generators.predicted(rng) for host in hosts}, rng)


def _expect(pair: Pair, number: object, rng: Random) -> None:
    named = sorted(vm for vm, what in pair.world.vms.items() if what.name is not None)
    for _ in range(3 if named else 0):
        pair.expect_of(rng.choice(named), generators.expected(rng))


def _press(pair: Pair, number: object, rng: Random) -> None:
    """Measure pressure on a few hosts, and now and then set the bounds or lift them."""
    for _ in range(rng.choice((1, 3, 20)) if pair.world.hosts else 0):
        host, pressure = _host(pair, rng), generators.pressure(rng)
        used = pair.world.used.get(host, {})
        pair.fleet.set_measured(pair.world.hosts[host].name, used, pressure)
        pair.world.set_pressure(host, pressure)
    if rng.random() < 0.5:
        bounds = {name: 20.0 for name in PRESSURES if rng.random() < 0.3}
        pair.fleet.set_pressure_bounds(bounds)
        pair.world.set_bounds(bounds)


def _register(pair: Pair, number: object, rng: Random) -> None:
    taken = {spec.name for spec in pair.world.hosts.values()}
    spec = generators.host(pair.climate, rng.randint(0, pair.world.registered + 2), 1)
    if spec.name not in taken:
        pair.register(spec)


def _remove_host(pair: Pair, number: object, rng: Random) -> None:
    if pair.world.hosts:
        pair.remove_host(_host(pair, rng))


def _state(pair: Pair, number: object, rng: Random) -> None:
    if pair.world.hosts:
        states = {"health": Health.ONLINE, "admin": Admin.OPEN}
        if rng.random() < 0.5:
            states["health"] = rng.choice(tuple(Health))
            states["admin"] = rng.choice(tuple(Admin))
        pair.change(_host(pair, rng), **states)


def _labels(pair: Pair, number: object, rng: Random) -> None:
    for _ in range(rng.choice((1, 1, 20)) if pair.world.hosts else 0):
        pair.change(_host(pair, rng), labels=generators.labels(rng))


def _update(pair: Pair, number: object, rng: Random) -> None:
    if pair.world.hosts:
        at = _host(pair, rng)
        index = int(pair.world.hosts[at].name.removeprefix("host-"))
        pair.update(at, generators.host(pair.climate, index, rng.randint(0, 5)))


def _mark(pair: Pair, number: object, rng: Random) -> None:
    if len(pair.marks) < 2:
        pair.mark()


def _undo(pair: Pair, number: object, rng: Random) -> None:
    if pair.marks:
        pair.undo()


def _keep(pair: Pair, number: object, rng: Random) -> None:
    if pair.marks:
        pair.keep()


def _snapshot(pair: Pair, number: object, rng: Random) -> None:
    """A snapshot answers as the fleet does, and what happens to it does not touch the fleet."""
    other = pair.rehearsal()
    request = _request(pair, number, rng)
    pair.expect(other.find(request), other, request, 0, pair.cursor)
    other.place_batch([_request(pair, f"{number}-{index}", rng) for index in range(5)])
    for name in list(other.fleet.hosts.rows)[:3]:
        other.fleet.set_labels(name, ())
    pair.compare_books()


#: Steps that go back in time.
TIMELY = frozenset({"mark", "undo", "keep"})

#: Steps about what is foreseen or measured, for climates in which it is.
FORESEEING = frozenset({"predict", "expect", "press"})

#: Steps about the network, for climates with one.
WIRING = frozenset({"rewire"})

STEPS = {
    "ask": (40, _ask),
    "place": (25, _place),
    "place_batch": (3, _place_batch),
    "place_columns": (3, _place_columns),
    "put": (2, _put),
    "remove": (10, _remove),
    "resize": (3, _resize),
    "hold": (2, _hold),
    "release": (1, _release),
    "measure": (1, _measure),
    "predict": (4, _predict),
    "expect": (4, _expect),
    "press": (4, _press),
    "rewire": (2, _rewire),
    "register": (3, _register),
    "remove_host": (1, _remove_host),
    "state": (4, _state),
    "labels": (4, _labels),
    "update": (4, _update),
    "mark": (4, _mark),
    "undo": (2, _undo),
    "keep": (1, _keep),
    "snapshot": (1, _snapshot),
}
