"""A site of real processes: `roost serve` and `roost agent` as an operator starts them.

Everything is found again by process id: killed, paused, continued, and ended at the latest with
the test. Ports lie below those that the system gives to outgoing connections, so that a server
which is down for a moment gets its own port back.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol, TypeVar

import httpx

from roost.agent.fencing.recipes import dismiss_guard
from roost.client import AsyncClient, Client, Patience
from roost.wire.bodies import CreateVM, DemandBody, DoctorBody, VMBody
from tests.databases import opened

T = TypeVar("T")

ROOST = Path(sys.executable).with_name("roost")
PATIENCE_S = 90.0  # much for what takes a second: other work may keep the machine busy
_FIRST_PORT, _PORTS = 20_000, 10_000
_ports = count(os.getpid() * 997 % _PORTS)  # neighbours by number begin far apart

#: Timers that make a test of silence take seconds; heartbeats stay far apart from the limits.
QUICK = {"heartbeat_s": 0.2, "suspect_s": 0.8, "offline_s": 1.6, "lease_s": 2.0}


def eventually(
    what: str, probe: Callable[[], T | None], within_s: float = PATIENCE_S, every_s: float = 0.05
) -> T:
    """Wait until a probe returns something true, and return that."""
    give_up_at = time.monotonic() + within_s
    pause = threading.Event()
    while True:
        found = probe()
        if found:
            return found
        assert time.monotonic() < give_up_at, f"waited {within_s} s in vain: {what}"
        pause.wait(every_s)


def free_port() -> int:
    """Return a port that nobody listens on now."""
    while True:
        port = _FIRST_PORT + next(_ports) % _PORTS
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Process:
    """One process with its log; it dies with the test run, however that ends."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self.log_path = log
        # On the main thread only: the signal comes when the thread that started it ends.
        words = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [*words, *command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                cwd=log.parent,
            )

    @property
    def pid(self) -> int:
        """Return its number."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return how it ended, None while it runs."""
        return self._process.poll()

    def log(self) -> str:
        """Return all it has said, in its earlier lives too."""
        return self.log_path.read_text(errors="replace")

    def signal(self, sign: signal.Signals) -> None:
        """Send a signal to it alone."""
        self._process.send_signal(sign)

    def kill(self) -> None:
        """End it without a word."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(PATIENCE_S)

    def pause(self) -> None:
        """Stop it where it stands."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)


class Server(Process):
    """A control plane."""

    def __init__(self, site: "Site", name: str, port: int, options: dict[str, object]) -> None:
        self.name, self.port, self.options = name, port, options
        self.url = f"{'https' if 'tls_cert' in options else 'http'}://127.0.0.1:{port}"
        words = [str(ROOST), "serve", "--listen", f"127.0.0.1:{port}"]
        words += ["--data", str(site.folder / "plane"), "--context", str(site.context)]
        words += _words(options)
        super().__init__(words, site.folder / f"{name}.log", site.environment)

    def is_ready(self) -> bool:
        """Say whether it answers and is ready."""
        assert self.exit_code is None, f"{self.name} has ended:\n{self.log()[-4000:]}"
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz", verify=False, timeout=5).status_code == 200
        return False


class Reachable(Protocol):
    """Where an agent or a client finds a control plane: itself, or a gate in front of it."""

    url: str


class Hosts(Process):
    """One agent process; with `count` above one it runs several hosts."""

    def __init__(
        self, site: "Site", name: str, servers: list[Reachable], options: dict[str, object]
    ) -> None:
        self.name, self.options, self.servers = name, options, servers
        self.folder = site.folder / "hosts" / name
        words = [*site.prefixes.get(name, ()), str(ROOST), "agent"]
        words += ["--name", name, "--data", str(self.folder)]
        for server in servers:
            words += ["--server", server.url]
        words += _words(options)
        super().__init__(words, site.folder / f"{name}.log", site.environment)


def _words(options: dict[str, object]) -> list[str]:
    words = []
    for key, value in options.items():
        name = f"--{key.replace('_', '-')}"
        words += [name] if value is True else [name, str(value)]
    return words


class Site:
    """All processes of one test, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.context = folder / "context.json"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "SCHEDULING_"))}
        self.environment = kept | {"ROOST_CONTEXT": str(self.context)}
        self.processes: list[Process] = []
        #: Words before the command of a host's agent, by its name: to run it elsewhere.
        self.prefixes: dict[str, list[str]] = {}

    @property
    def server(self) -> Server:
        """Return the control plane that was started last."""
        return [each for each in self.processes if isinstance(each, Server)][-1]

    # Processes

    def serve(self, name: str = "plane", *, ready: bool = True, **options: object) -> Server:
        """Start a control plane and wait until it is ready."""
        server = Server(self, name, free_port(), options)
        self.processes.append(server)
        if ready:
            eventually(f"{name} is ready", server.is_ready)
        return server

    def serve_again(self, dead: Server, *, ready: bool = True) -> Server:
        """Start a control plane anew where another was."""
        server = Server(self, dead.name, dead.port, dead.options)
        self.processes.append(server)
        if ready:
            eventually(f"{server.name} is ready again", server.is_ready)
        return server

    def hosts(self, name: str, *servers: Reachable, wait: bool = True, **options: object) -> Hosts:
        """Start the agent of a host, or of several, and wait until they are online."""
        amounts = {"cpu": "16", "memory": "64GiB", "disk": "1000GiB", "boot_s": 0.05}
        agent = Hosts(self, name, list(servers), amounts | options)
        self.processes.append(agent)
        if wait:
            self.wait_online(servers[0], name, int(str(options.get("count", 1))))
        return agent

    def hosts_again(self, dead: Hosts) -> Hosts:
        """Start an agent anew where another was."""
        agent = Hosts(self, dead.name, dead.servers, dead.options)
        self.processes.append(agent)
        return agent

    def wait_online(self, server: Reachable, prefix: str, number: int) -> None:
        """Wait until so many hosts of a name are online."""
        with self.client(server) as client:

            def online() -> bool:
                found = [h for h in client.all_hosts() if h.name.startswith(prefix)]
                return sum(h.health == "online" for h in found) >= number

            eventually(f"{number} hosts {prefix} are online", online)

    def roost(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one command of the command line."""
        return subprocess.run(
            [str(ROOST), *words],
            env=self.environment | {"COLUMNS": "160", "NO_COLOR": "1"},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def end(self) -> None:
        """End everything that was started, guards and workers of local machines too."""
        for process in self.processes:
            if process.exit_code is None:
                process.kill()
        for worker in workers_in(self.folder / "plane" / "machines"):
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        for sign in (self.folder / "hosts").rglob("guard.json"):
            dismiss_guard(sign.parent, force=True)

    # Talking to it

    @property
    def token(self) -> str:
        """Return the admin's token."""
        return str(json.loads(self.context.read_text())["token"])

    def client(self, server: Reachable, token: str | None = None, **options: object) -> Client:
        """Return a client that waits for a server to come back."""
        return Client(server.url, token or self.token, patience=_patience(options))

    def async_client(
        self, server: Reachable, *, timeout_s: float = 60.0, **options: object
    ) -> AsyncClient:
        """Return a client for asyncio."""
        patience = _patience(options)
        return AsyncClient(server.url, self.token, patience=patience, timeout_s=timeout_s)

    def doctor(self, *servers: Server) -> None:
        """Let every control plane examine the ledger, and demand that nothing is wrong."""
        for server in servers:
            with self.client(server) as client:
                assert_healthy(client.doctor())


def _patience(options: dict[str, object]) -> Patience:
    seconds = float(str(options.get("patience_s", PATIENCE_S)))
    return Patience(seconds, seconds)


def assert_healthy(report: DoctorBody) -> None:
    """Demand that the doctor found nothing broken; hosts may be off."""
    assert not report.findings, [f"{each.check}: {each.message}" for each in report.findings]
    assert sum(report.checked.values()) > 0


async def examine(url: str) -> DoctorBody:
    """Examine a database directly, without any control plane."""
    from tests.examining import doctor

    async with opened(url) as store:
        return await doctor(store)


def small(
    name: str, cpu: float = 0.1, memory: str = "64MiB", disk: str = "1GiB", **more: object
) -> CreateVM:
    """Return a small VM to create."""
    demand = DemandBody(cpu=cpu, memory=memory, disk=disk)
    return CreateVM(name=name, demand=demand, **more)  # type: ignore[arg-type]


def all_vms(client: Client) -> dict[str, VMBody]:
    """Return every VM by id."""
    return {vm.id: vm for vm in client.all_vms()}


def all_settled(client: Client) -> dict[str, VMBody]:
    """Wait until every VM is as it is wanted, and return them all."""

    def settled() -> dict[str, VMBody] | None:
        found = all_vms(client)
        wanted = {"running": "running", "stopped": "stopped"}
        done = all(wanted.get(vm.desired) == vm.state for vm in found.values())
        return found if done and found else None

    return eventually("all VMs are as they are wanted", settled, every_s=0.2)


def workers_in(folder: Path) -> list[int]:
    """Return the processes that have a machine's folder on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in words:
                found.append(int(entry.name))
    return found
