"""The stages of demos: a control plane and its hosts in one folder, virtual ones here.

Each is a process of its own, started by the same command that anybody would type, so what is
killed is really killed. Whoever leaves the stage, however, leaves nothing behind that runs.

    FOLDER/demo.lock      one demo at a time
    FOLDER/context.json   for `roost` in a second terminal, while the demo runs
    FOLDER/demo/          database, admin token, logs; made anew each time
    FOLDER/demo/hosts/    what the agents keep; removed at the end
    FOLDER/demo/machines/ workers of pools with the provider `local`, if anybody makes one
"""

import asyncio
import fcntl
import os
import shlex
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar, NoReturn, TypeVar

from roost.agent.drivers.vmfiles import FolderVMs
from roost.api.server import bind
from roost.app.childprocess import Child, end_guards, end_machines, guards_below
from roost.base.clock import Clock
from roost.base.errors import Conflict, Unavailable
from roost.client.context import Context, load_context

LOOPBACK = "127.0.0.1"
#: Ports that are tried after the one that was asked for.
MORE_PORTS = 100

ZONES = ("north", "south", "west")
HOSTS = 20
VICTIM, VICTIM_ZONE = f"host-{HOSTS}", ZONES[(HOSTS - 1) % len(ZONES)]
#: Short, so that nobody has to wait; in seconds, with what is usual beside it.
TIMERS = {"heartbeat": (1, 5), "suspect": (3, 15), "offline": (6, 60), "lease": (6, 60)}

#: Kernels are compiled at the first start on a machine; a slow one gets this long.
READY_LIMIT_S = 600.0
_PROGRESS_S = 10.0
_LISTENS, _COMPILES = "roost listens on ", "compiling kernels"


class Stage(ABC):
    """The processes of a demo, and what they keep: a control plane, and agents by host."""

    #: Hosts whose agents are started again when somebody kills them after the tour; so much later.
    comes_back: ClassVar[tuple[str, ...]] = ()
    back_s: ClassVar[float] = 30.0
    #: More words for `roost serve`.
    serve_options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, folder: Path, clock: Clock, say: Callable[[str], None]) -> None:
        self.folder = folder / "demo"
        self.context_file = folder / "context.json"
        self.hosts_folder = self.folder / "hosts"
        self.machines_folder = self.folder / "machines"
        self.commands: list[str] = []  # as anybody would type them
        #: Whether the control plane found no compiled kernels, and compiles them beside its work.
        self.compiles = False
        self._clock, self._say = clock, say
        self._environment = _environment(self.context_file)
        self._server: Child | None = None
        self._agents: dict[str, Child] = {}

    @property
    def context(self) -> Context:
        """Return where the control plane is, and the admin's token."""
        return load_context(self.context_file)

    # Starting

    async def start_server(self, port: int) -> None:
        """Start the control plane on a port, or on the next that is free, and wait for it."""
        began = self._clock.monotonic()
        ready, compiling = asyncio.Event(), asyncio.Event()

        def told(line: str) -> None:
            if _COMPILES in line:
                compiling.set()
                self.compiles = True
                self._say(
                    "compiling kernels beside the demo: once on a machine, about five minutes"
                )
            elif _LISTENS in line:
                ready.set()

        timers = [word for name, (s, _) in TIMERS.items() for word in (f"--{name}-s", str(s))]
        listen = f"{LOOPBACK}:{free_port(port)}"
        self._server = await self._start(
            "the control plane", "serve",
            "--listen", listen, "--data", str(self.folder), "--context", str(self.context_file),
            "--strategy", "least_loaded", *timers, *self.serve_options, told=told,
        )  # fmt: skip
        waiting = asyncio.create_task(ready.wait())
        ended = asyncio.create_task(self._server.wait())
        try:
            while not ready.is_set():
                await asyncio.wait(
                    (waiting, ended), timeout=_PROGRESS_S, return_when=asyncio.FIRST_COMPLETED
                )
                if ended.done():
                    raise self._server.fail()
                waited = self._clock.monotonic() - began
                if not ready.is_set():
                    self._say_progress(waited, compiling.is_set())
        finally:
            waiting.cancel()
            ended.cancel()
            await asyncio.gather(waiting, ended, return_exceptions=True)

    def _say_progress(self, waited_s: float, compiling: bool) -> None:
        if waited_s > READY_LIMIT_S:
            raise Unavailable(
                f"the control plane is not ready after {READY_LIMIT_S:g} s",
                hint=f"Maybe {self.log} tells more.",
            )
        doing = "compiling kernels" if compiling else "starting"
        self._say(f"{doing} ... {waited_s:.0f} s")

    async def _start(
        self, name: str, *arguments: str, told: Callable[[str], None] = lambda _: None
    ) -> Child:
        here = f"{Path.cwd()}/"
        self.commands.append(shlex.join(("roost", *arguments)).replace(here, ""))
        kept = "serve.log" if arguments[0] == "serve" else f"agent-{arguments[2]}.log"
        return await Child.start(name, arguments, self.folder / kept, self._environment, told)

    # While it runs

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the environment in which `roost` finds this control plane."""
        return self._environment

    @property
    def log(self) -> Path:
        """Return the log of the control plane."""
        return self.folder / "serve.log"

    @abstractmethod
    async def start_host(self, name: str) -> None:
        """Start the agent of a host that may be killed, or start it again."""

    def agent_pid(self, host: str) -> int:
        """Return the process id of an agent."""
        return self._agents[host].pid

    async def kill_agent(self, host: str) -> None:
        """Kill the agent of one host with SIGKILL."""
        await self._agents.pop(host).kill()

    def check_agents(self) -> None:
        """Raise when an agent has ended by itself: nobody need wait for it then."""
        for child in self._agents.values():
            if child.has_ended:
                raise child.fail()

    async def serve(self) -> NoReturn:
        """Serve until cancelled. Hosts of `comes_back` may be killed again and again, no other."""
        while True:
            ended = await self._first_to_end()
            host = next((name for name, each in self._agents.items() if each is ended), None)
            if host is None or host not in self.comes_back:
                raise ended.fail()
            self._say(f"the agent of {host} has ended; it starts again in {self.back_s:g} s")
            await self._clock.sleep(self.back_s)
            await self.start_host(host)
            self._say(f"the agent of {host} runs again, as {self.agent_pid(host)}")

    async def _first_to_end(self) -> Child:
        children = [child for child in (self._server, *self._agents.values()) if child is not None]
        waiting = {asyncio.create_task(child.wait()): child for child in children}
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return waiting[done.pop()]
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    # The end

    async def end(self) -> None:
        """End every process: agents, their guards, the control plane, then workers it rented."""
        await asyncio.gather(*(child.end() for child in self._agents.values()))
        await self._end_vms()
        # A guard whose folder is gone leaves by itself, even one that was just being started.
        await asyncio.to_thread(shutil.rmtree, self.hosts_folder, ignore_errors=True)
        await end_guards(self.hosts_folder)
        if self._server is not None:
            await self._server.end()
        await end_machines(self.machines_folder, self._clock)

    async def clear(self) -> None:
        """End what a demo that was killed outright has left running."""
        await self._end_vms()
        await end_guards(self.hosts_folder)
        await end_machines(self.machines_folder, self._clock)

    @abstractmethod
    async def _end_vms(self) -> None:
        """End the VMs, where they are processes."""


class VirtualStage(Stage):
    """A control plane and twenty virtual hosts; all but one share a process."""

    comes_back: ClassVar[tuple[str, ...]] = (VICTIM,)  # recovery takes 12 s

    async def start_others(self) -> None:
        """Start the agents of all hosts but the one that will be killed, in one process."""
        zones = ",".join(ZONES)
        self._agents["host"] = await self._start(
            "the agents", "agent", "--name", "host", "--count", str(HOSTS - 1), "--zone", zones,
            "--data", str(self.hosts_folder), *self._host_options(),
        )  # fmt: skip

    async def start_host(self, name: str = VICTIM) -> None:
        """Start the agent of the host that will be killed, or start it again."""
        self._agents[name] = await self._start(
            f"the agent of {name}", "agent", "--name", name, "--zone", VICTIM_ZONE,
            "--fence-guard", "--data", str(self.hosts_folder / name), *self._host_options(),
        )  # fmt: skip

    async def _end_vms(self) -> None:
        """Leave virtual VMs alone: they are no processes."""

    def _host_options(self) -> tuple[str, ...]:
        size = ("--cpu", "16", "--memory", "64GiB", "--disk", "1TiB", "--boot-s", "0.5")
        return ("--server", self.context.server, *size)

    @property
    def guard_pids(self) -> list[int]:
        """Return the process ids of the fence guards."""
        return guards_below(self.hosts_folder)

    async def running_copies(self) -> Counter[str]:
        """Return on how many hosts each VM runs, as the hosts have it on disk."""
        found: Counter[str] = Counter()
        for folder in sorted(self.hosts_folder.iterdir()):
            vms = await FolderVMs(folder / "vms").all()
            found.update(vm.id for vm in vms if vm.state in ("starting", "running"))
        return found


S = TypeVar("S", bound=Stage)


@asynccontextmanager
async def stage(
    make: Callable[[Path, Clock, Callable[[str], None]], S],
    folder: Path,
    clock: Clock,
    say: Callable[[str], None],
) -> AsyncIterator[S]:
    """Yield an empty stage in a folder; everything on it has ended when this is left."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "demo.lock"):
        made = make(folder, clock, say)
        with _lent_context(made):
            await made.clear()
            if made.folder.exists():
                await asyncio.to_thread(shutil.rmtree, made.folder)
            made.folder.mkdir()
            try:
                yield made
            finally:
                await made.end()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Conflict(
                f"another demo runs in {path.parent}",
                hint="Maybe end it with Ctrl-C, or start this one in another folder.",
            ) from error
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _lent_context(stage: Stage) -> Iterator[None]:
    """Give the context file back as it was, unless somebody else has written it meanwhile."""
    path, token_file = stage.context_file, stage.folder / "admin-token"
    before = path.read_bytes() if path.is_file() else None
    if before is not None and _speaks_of(before, token_file):
        before = None  # left by a demo that was killed outright
    try:
        yield
    finally:
        if path.is_file() and _speaks_of(path.read_bytes(), token_file):
            if before is None:
                path.unlink()
            else:
                path.write_bytes(before)


def _speaks_of(context: bytes, token_file: Path) -> bool:
    return token_file.is_file() and token_file.read_bytes().strip() in context


def _environment(context_file: Path) -> Mapping[str, str]:
    """Return this environment without what would lead `roost` to another control plane."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROOST_")}
    return {**kept, "ROOST_CONTEXT": str(context_file)}


def free_port(wanted: int) -> int:
    """Return the first port from the wanted one on that nobody listens on."""
    for port in range(wanted, min(wanted + MORE_PORTS, 65535) + 1):
        try:
            bind(LOOPBACK, port).close()
        except Unavailable:
            continue
        return port
    raise Unavailable(
        f"no port from {wanted} on is free", hint="Maybe --port names another.", port=wanted
    )
