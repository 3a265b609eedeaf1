"""One run: real processes, clients, faults drawn from a seed; then calm, and the judge.

    network and database -> `roost serve` -> `roost agent`, with fence guards
    clients ask | faults come and go | every VM file is watched      (for so many seconds)
    calm: all faults end -> everything comes to rest -> laws, `roost doctor`

Everything here ends: each wait has a limit, and what is started dies with the run. A package beside
tests/system, not in it: the judge, the draws and the network have quick tests that belong to every
change; only the short run itself is a test of the system.
"""

import heapq
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from roost.client import Client
from roost.wire.bodies import EventBody, QuotaBody
from tests.campaign.clients import LIMITED, LIMITED_CPU, LIMITED_VMS, Clients
from tests.campaign.ending import Ending, read_ending
from tests.campaign.faults import Fault, Shape, draw_faults
from tests.campaign.history import History
from tests.campaign.injector import Injector
from tests.campaign.laws import violations
from tests.campaign.proxy import Gate, Network
from tests.campaign.rest import unrest
from tests.campaign.watch import Watch
from tests.databases import PostgresServer, running_postgres
from tests.system.processes import Site, eventually

#: Leases end within the run. A host is called offline long before its lease is over: whoever took
#: that for a proof would be seen. Fencing takes 10 to 12 s here, half of it the guard's own limit.
TIMERS = {"heartbeat_s": 0.5, "suspect_s": 1.5, "offline_s": 2, "lease_s": 5}
#: Agent processes, with so many hosts each: some lose several hosts at once, some one.
AGENTS = {"trio": 3, "pair": 2, "lone": 1, "solo": 1}
CORES = 8
HOST = {"cpu": str(CORES), "memory": "64GiB", "disk": "1000GiB", "boot_s": 0.05}
PLANES = {"sqlite": ("plane",), "postgresql": ("first", "second")}
#: How long everything may take to come to rest once the faults have ended.
CALM_S = 180.0
_FEWEST_LOOKS = 100
#: Events that none of these faults may bring about: no database here ever goes back in time.
_NEVER = Counter({"ledger.restored": 1})

Say = Callable[[str], None]


class Verdict(Struct):
    """How a run went."""

    broken: list[str]
    requests: dict[str, Counter[str]]  # answers by what was asked
    faults: Counter[str]
    ended: Counter[str]  # processes that ended by themselves
    at_rest_s: float  # after the faults
    looks: int  # at all VM files
    vms: int  # at the end
    events: Counter[str]  # by kind


class Run:
    """One run in its folder, from start to verdict."""

    def __init__(
        self,
        seed: int,
        seconds: float,
        database: str,
        folder: Path,
        say: Say,
        calm_s: float = CALM_S,
    ) -> None:
        self.calm_s = calm_s
        self.seed, self.seconds, self.folder = seed, seconds, folder
        self.shape = Shape(PLANES[database], tuple(AGENTS), database)
        self.site = Site(folder)
        self.history = History()
        self.say: Say = lambda words: say(f"{self.history.now():8.2f} s  {words}")
        self.gates: dict[tuple[str, str], Gate] = {}
        self.calm_at = 0.0

    def run(self) -> Verdict:
        """Start everything, break it, let it come to rest, and judge."""
        with ExitStack() as stack:
            stack.callback(self.site.end)
            url, database = stack.enter_context(self._database())
            network = stack.enter_context(Network())
            self.injector = Injector(self.site, self.shape, self.gates, database, self.say)
            stack.callback(self.injector.unlock_file)
            self._start(url, network)
            watch = Watch(self.folder / "hosts", 1000 * CORES)
            stack.callback(watch.stop)
            watch.start()
            doors = {plane: self.gates["clients", plane] for plane in self.shape.planes}
            with Clients(self.site, doors, self.history, seed=self.seed):
                self._break_things(draw_faults(self.seed, self.seconds, self.shape))
            return self._judge(url, watch)

    @contextmanager
    def _database(self) -> Iterator[tuple[str, PostgresServer | Path]]:
        if self.shape.database == "sqlite":
            path = self.folder / "roost.db"
            yield f"sqlite:///{path}", path
            return
        with running_postgres() as postgres:
            yield postgres.new_database(), postgres

    # The site

    def _start(self, url: str, network: Network) -> None:
        planes = self.shape.planes
        for name in planes:
            server = self.site.serve(name, database=url, **TIMERS)
            self.injector.planes[name] = server
            for visitor in ("clients", *AGENTS):
                self.gates[visitor, name] = network.gate(server.port)
        for at, (name, count) in enumerate(AGENTS.items()):
            turn = at % len(planes)
            ways = [self.gates[name, plane] for plane in planes[turn:] + planes[:turn]]
            self.injector.agents[name] = self.site.hosts(
                name, *ways, wait=False, count=count, fence_guard=True, max_destroy=1000, **HOST
            )
        first = self.injector.planes[planes[0]]
        for name, count in AGENTS.items():
            self.site.wait_online(first, name, count)
        with self.site.client(first) as client:
            eventually("all guards run", lambda: all(host.guard for host in client.all_hosts()))
            client.create_project(LIMITED, QuotaBody(vms=LIMITED_VMS, cpu=LIMITED_CPU))
        hosts = sum(AGENTS.values())
        self.say(f"{len(planes)} control planes, {len(AGENTS)} agents with {hosts} hosts: online")

    def _break_things(self, faults: list[Fault]) -> None:
        """Begin and end faults at their times; at the end, end all that are left."""
        injector, began = self.injector, self.history.now()
        pause = threading.Event()
        ends: list[tuple[float, int, Fault]] = []
        rest = list(enumerate(faults))
        while (now := self.history.now() - began) < self.seconds:
            while ends and ends[0][0] <= now:
                injector.end(heapq.heappop(ends)[2])
            if rest and rest[0][1].at <= now:
                number, fault = rest.pop(0)
                if injector.begin(fault):
                    heapq.heappush(ends, (now + fault.for_s, number, fault))
            injector.supervise()
            pause.wait(0.02)
        for _, _, fault in sorted(ends):
            injector.end(fault)
        self.calm_at = self.history.now()
        self.say("calm: all faults have ended")

    # The verdict

    def _judge(self, url: str, watch: Watch) -> Verdict:
        injector, until = self.injector, self.history.now() + self.calm_s
        for name in self.shape.planes:
            eventually(f"{name} is ready", lambda: self._is_ready(name))  # noqa: B023
        with ExitStack() as stack:
            planes = {
                name: stack.enter_context(self.site.client(plane))
                for name, plane in injector.planes.items()
            }
            ending, left = self._come_to_rest(url, planes, until)
            at_rest_s = self.history.now() - self.calm_at
            self.say(f"at rest after {at_rest_s:.1f} s" if not left else "NOT at rest")
            events = Counter(event.kind for event in _events(planes[self.shape.planes[0]]))
        watch.stop()
        broken = [
            *(f"never at rest: {why}" for why in left),
            *violations(self.history, ending),
            *(f"two copies execute: {double}" for double in watch.doubles),
            *watch.full,
            *(f"{kind} happened, and nobody restored anything" for kind in events & _NEVER),
            *(["the watch hardly looked"] if watch.looks < _FEWEST_LOOKS else []),
            *(f"agent {name} ended by itself" for name in injector.ended if name in AGENTS),
            *self._doctor(),
        ]
        return Verdict(
            broken=broken,
            requests=self.history.answers(),
            faults=injector.done,
            ended=injector.ended,
            at_rest_s=at_rest_s,
            looks=watch.looks,
            vms=len(ending.vms),
            events=events,
        )

    def _is_ready(self, plane: str) -> bool:
        self.injector.supervise()
        server = self.injector.planes[plane]
        return server.exit_code is None and server.is_ready()

    def _come_to_rest(
        self, url: str, planes: dict[str, Client], until: float
    ) -> tuple[Ending, list[str]]:
        """Wait until everything is as it is wanted; return how it stands, and what is not."""
        pause = threading.Event()
        while True:
            self.injector.supervise()
            ending = read_ending(url, self.folder / "hosts", planes)
            left = unrest(ending)
            if not left or self.history.now() > until:
                return ending, left
            pause.wait(0.5)

    def _doctor(self) -> Iterator[str]:
        for name, plane in self.injector.planes.items():
            said = self.site.roost("doctor", "--server", plane.url, "--token", self.site.token)
            if said.returncode:
                words = said.stdout + said.stderr
                yield f"roost doctor at {name} ended with {said.returncode}: {words}"


def _events(client: Client) -> Iterator[EventBody]:
    since = 0
    while page := client.list_events(since=since, limit=1000).events:
        yield from page
        since = page[-1].seq
