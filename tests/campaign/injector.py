"""Does the faults to a site, and ends them. On the main thread alone: it starts processes.

It is also what an operator's supervisor is: a process that ended by itself is started again, and
that is written down.
"""

import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.campaign.faults import Fault, Shape, struck
from tests.campaign.proxy import WAYS, Gate, Way
from tests.databases import PostgresServer
from tests.system.processes import Hosts, Server, Site

_SLOW_S = 0.3
_LOCK_PATIENCE_S = 5.0


class Injector:
    """Holds what can be broken."""

    def __init__(
        self,
        site: Site,
        shape: Shape,
        gates: dict[tuple[str, str], Gate],
        database: PostgresServer | Path,
        say: Callable[[str], None],
    ) -> None:
        self.planes: dict[str, Server] = {}
        self.agents: dict[str, Hosts] = {}
        self.done: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()  # processes that ended by themselves
        self._site, self._shape, self._gates = site, shape, gates
        self._database, self._say = database, say
        self._lock: sqlite3.Connection | None = None
        self._down: set[str] = set()  # killed, and to be started again
        self._struck: set[str] = set()

    def begin(self, fault: Fault) -> bool:
        """Break something; False when its victim has another fault still: the machine was slow."""
        hit = set(struck(fault, self._shape))
        if hit & self._struck:
            self._say(f"{fault}: not done, the fault before it has not ended")
            return False
        self._struck |= hit
        self._say(str(fault))
        self.done[fault.kind] += 1
        self._begin(fault)
        return True

    def _begin(self, fault: Fault) -> None:
        match fault.kind:
            case "kill_plane" | "kill_agent":
                self._down.add(fault.on)
                self._process(fault.on).kill()
            case "freeze_plane" | "freeze_agent":
                self._process(fault.on).pause()
            case "cut" | "cut_clients":
                for gate in self._gates_of(fault):
                    gate.shut(*_ways(fault))
            case "slow":
                for gate in self._gates_of(fault):
                    gate.slow(_SLOW_S)
            case "reset" | "reset_clients":
                for gate in self._gates_of(fault):
                    gate.reset()
            case "restart_database":
                how = signal.SIGINT if fault.how == "fast" else signal.SIGQUIT
                self._postgres.stop(how)
            case "cut_database":
                self._postgres.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
            case "lock_database":
                self._lock_file()

    def end(self, fault: Fault) -> None:
        """Mend it."""
        self._struck -= set(struck(fault, self._shape))
        match fault.kind:
            case "kill_plane":
                self._down.discard(fault.on)
                self._start_plane(fault.on)
            case "kill_agent":
                self._down.discard(fault.on)
                self._start_agent(fault.on)
            case "freeze_plane" | "freeze_agent":
                self._process(fault.on).resume()
            case "cut" | "cut_clients" | "slow":
                for gate in self._gates_of(fault):
                    if fault.how.endswith("reset"):
                        gate.reset()
                    gate.open()
            case "restart_database":
                assert self._postgres.start()
            case "lock_database":
                self.unlock_file()

    def supervise(self) -> None:
        """Start again what has ended by itself."""
        for name, plane in self.planes.items():
            if name not in self._down and plane.exit_code is not None:
                self._note_end(name, plane.exit_code)
                self._start_plane(name)
        for name, agent in self.agents.items():
            if name not in self._down and agent.exit_code is not None:
                self._note_end(name, agent.exit_code)
                self._start_agent(name)

    def _note_end(self, name: str, code: int) -> None:
        self._say(f"{name} ended by itself with exit code {code}")
        self.ended[name] += 1

    # Processes

    def _process(self, name: str) -> Server | Hosts:
        return self.planes[name] if name in self.planes else self.agents[name]

    def _start_plane(self, name: str) -> None:
        self.planes[name] = self._site.serve_again(self.planes[name], ready=False)

    def _start_agent(self, name: str) -> None:
        self.agents[name] = self._site.hosts_again(self.agents[name])

    # The network

    def _gates_of(self, fault: Fault) -> list[Gate]:
        pairs = (link.partition(">") for link in struck(fault, self._shape))
        return [self._gates[visitor, plane] for visitor, _, plane in pairs]

    # The database

    @property
    def _postgres(self) -> PostgresServer:
        assert isinstance(self._database, PostgresServer)
        return self._database

    def _lock_file(self) -> None:
        """Hold the right to write, as somebody does who works on the file by hand."""
        assert isinstance(self._database, Path)
        connection = sqlite3.connect(self._database, timeout=_LOCK_PATIENCE_S, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            connection.close()
            self._say(f"the database could not be locked: {error}")
        else:
            self._lock = connection

    def unlock_file(self) -> None:
        """Give the right to write back."""
        if self._lock is not None:
            self._lock.rollback()
            self._lock.close()
            self._lock = None


def _ways(fault: Fault) -> tuple[Way, ...]:
    return tuple(way for way in WAYS if fault.how.startswith((way, "both")))
