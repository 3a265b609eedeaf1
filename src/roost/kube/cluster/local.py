"""A Kubernetes control plane with fake nodes on loopback, for laptops, tests and benchmarks.

    FOLDER/cluster.json   what was started: processes by id, ports, version
    FOLDER/kubeconfig     for kubectl and everything else; holds an admin's key
    FOLDER/pki/           the authority and what it signed
    FOLDER/etcd/          the data
    FOLDER/logs/          what each process wrote

Each part is the real program (`make kube-tools`). Only the kubelets are missing; KWOK plays them.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from roost.base.clock import Clock, RealClock
from roost.base.errors import Conflict, NotFound, RoostError, Unavailable
from roost.kube.base.client import NODES, PODS, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.failures import unreachable
from roost.kube.base.objects import Object
from roost.kube.cluster import processes
from roost.kube.cluster.nodes import NodePool, is_ready
from roost.kube.cluster.parts import (
    API,
    CONTROLLERS,
    ETCD,
    KWOK,
    LOOPBACK,
    SCHEDULER,
    Setup,
    State,
    flags,
    kubeconfig_of,
    write_files,
    write_kubeconfig,
    write_scheduler_configuration,
)
from roost.kube.cluster.tools import tool, tools_version

DEFAULT_NAME = "roost"

#: A part that is not ready by then has failed. A loaded machine needs some seconds.
READY_S = 90.0
_LOOK_S = 0.05


class PartStatus(Struct):
    """One part as it is now."""

    name: str
    pid: int
    alive: bool
    log: str


class Status(Struct, kw_only=True):
    """A cluster as it is now."""

    name: str
    folder: str
    version: str
    server: str
    kubeconfig: str
    parts: list[PartStatus]
    ready: bool = False
    nodes: int = 0
    nodes_ready: int = 0
    pods: int = 0
    problem: str = ""


def clusters_folder() -> Path:
    """Return where local clusters are kept."""
    if chosen := os.environ.get("ROOST_KUBE_HOME"):
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "roost" / "kube"


class LocalCluster:
    """One control plane in one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self.kubeconfig = kubeconfig_of(folder)
        self._clock, self._say = clock or RealClock(), say

    @classmethod
    def named(cls, name: str = DEFAULT_NAME, **more: Any) -> "LocalCluster":
        """Return the cluster of a name, which may not be there yet."""
        return cls(clusters_folder() / name, **more)

    @property
    def exists(self) -> bool:
        """Say whether it was started and not taken down."""
        return (self.folder / "cluster.json").exists()

    @property
    def state(self) -> State:
        """Return what was started; NotFound when nothing was."""
        try:
            return msgspec.json.decode((self.folder / "cluster.json").read_bytes(), type=State)
        except FileNotFoundError:
            raise NotFound(
                f"there is no cluster in {self.folder}", hint="Maybe `roost kube up` starts one."
            ) from None

    # Up

    async def up(self, setup: Setup | None = None, *, attached: bool = False) -> State:
        """Start everything and wait until it answers; a cluster that is up is a Conflict.

        What is attached ends with this process; otherwise it runs until `down`.
        """
        setup = setup or Setup()
        programs = {part: tool(part) for part in setup.parts}
        with self._locked():
            if self.exists:
                if any(each.is_alive for each in self.state.processes.values()):
                    raise Conflict(
                        f"the cluster in {self.folder} is up already",
                        hint="Maybe `roost kube down` first, or another --name.",
                    )
                self._remove()
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            for name in ("pki", "logs"):
                (self.folder / name).mkdir(exist_ok=True)
            ports = free_ports("etcd", "etcd-peer", API, SCHEDULER, CONTROLLERS, KWOK)
            state = State(
                version=tools_version(),
                server=f"https://{LOOPBACK}:{ports[API]}",
                ports=ports,
                setup=setup,
            )
            self._write_state(state)
            write_files(self.folder, state)
            try:
                for part in setup.parts:
                    self._launch(state, part, str(programs[part]), attached=attached)
                    if part == API:
                        self._say("waiting for the API server")
                        await self._wait_ready(state)
                await self._add_nodes(setup.pools)
                for part in setup.parts:
                    if part in (SCHEDULER, CONTROLLERS):
                        await self._wait_healthy(state, part)
            except BaseException:
                await processes.end(list(state.processes.values())[::-1], self._clock)
                raise
        return state

    async def _add_nodes(self, pools: Sequence[NodePool]) -> None:
        if not pools:
            return
        self._say(f"adding {sum(pool.count for pool in pools)} nodes")
        async with await self.connect() as kube:
            await add_nodes(kube, pools)

    async def connect(self, *, patience_s: float = 20.0) -> Kube:
        """Return a session as its admin."""
        return await Kube.open(self.kubeconfig, patience_s=patience_s, clock=self._clock)

    # Down

    async def down(self, *, keep: bool = False) -> None:
        """End every process and remove the folder, or keep it for its logs."""
        with self._locked():
            if self.exists:
                running = list(self.state.processes.values())[::-1]
                await processes.end(running, self._clock)
            if not keep:
                self._remove()

    def _remove(self) -> None:
        for path in self.folder.iterdir():
            if path.name == "lock":
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    # Single parts

    async def stop_part(self, part: str, *, crash: bool = False) -> None:
        """End one part, or kill it."""
        process = self.state.processes[part]
        if crash:
            await processes.kill(process, self._clock)
        else:
            await processes.end([process], self._clock)

    async def start_part(self, part: str, *, attached: bool = False) -> None:
        """Start one part again, as it was, and wait until it answers."""
        state = self.state
        if state.processes[part].is_alive:
            raise Conflict(f"{part} runs already")
        self._launch(state, part, str(tool(part)), attached=attached)
        if part == API:
            await self._wait_ready(state)
        elif part in (SCHEDULER, CONTROLLERS):
            await self._wait_healthy(state, part)

    async def reconfigure_scheduler(self, changes: Object, *, attached: bool = False) -> None:
        """Start the scheduler again with another configuration."""
        await self.stop_part(SCHEDULER)
        state = self.state
        state.setup.scheduler = changes
        write_scheduler_configuration(self.folder, state)
        self._write_state(state)
        await self.start_part(SCHEDULER, attached=attached)

    # How it is

    async def status(self) -> Status:
        """Return how every part is, asking the API server when it runs."""
        state = self.state
        status = Status(
            name=self.folder.name,
            folder=str(self.folder),
            version=state.version,
            server=state.server,
            kubeconfig=str(self.kubeconfig),
            parts=[
                PartStatus(each.name, each.pid, each.is_alive, each.log)
                for each in state.processes.values()
            ],
        )
        try:
            async with await self.connect(patience_s=0.0) as kube:
                await kube.call("GET", "/readyz")
                nodes = (await kube.list(NODES)).items
                pods = (await kube.list(PODS)).items
        except RoostError as error:
            status.problem = error.message
            return status
        status.ready = all(part.alive for part in status.parts)
        status.nodes, status.pods = len(nodes), len(pods)
        status.nodes_ready = sum(is_ready(node) for node in nodes)
        return status

    async def _wait_ready(self, state: State) -> None:
        async with await self.connect(patience_s=0.0) as kube:
            await self._wait_for(state, (ETCD, API), lambda: kube.call("GET", "/readyz"))

    async def _wait_healthy(self, state: State, part: str) -> None:
        trusted = ssl.create_default_context(cafile=self.folder / "pki" / "ca.crt")
        url = f"https://{LOOPBACK}:{state.ports[part]}/healthz"

        async def ask() -> None:
            try:
                async with session.get(url, ssl=trusted) as answer:
                    if answer.status != 200:
                        raise Unavailable(f"HTTP {answer.status}")
            except (aiohttp.ClientError, OSError) as error:
                raise unreachable(error, url) from error

        async with aiohttp.ClientSession() as session:
            await self._wait_for(state, (part,), ask)

    async def _wait_for(
        self, state: State, parts: Sequence[str], ask: Callable[[], Awaitable[object]]
    ) -> None:
        """Ask until there is an answer; a part that has ended will never give one."""
        deadline = self._clock.monotonic() + READY_S
        while True:
            for part in parts:
                if not (process := state.processes[part]).is_alive:
                    raise Unavailable(
                        f"{part} ended: {processes.tail(process)}",
                        hint=f"Maybe {process.log} tells more.",
                    )
            try:
                await ask()
                return
            except RoostError as error:
                if self._clock.monotonic() > deadline:
                    raise Unavailable(
                        f"{parts[-1]} is not ready after {READY_S:g} s: {error.message}",
                        hint=f"Maybe {state.processes[parts[-1]].log} tells more.",
                    ) from error
            await self._clock.sleep(_LOOK_S)

    # Files and commands

    def _launch(self, state: State, part: str, program: str, *, attached: bool) -> None:
        command = [program, *flags(part, self.folder, state)]
        log = self.folder / "logs" / f"{part}.log"
        state.processes[part] = processes.start(part, command, log, attached=attached)
        self._write_state(state)

    def write_kubeconfig(
        self, path: Path, user: str, groups: Sequence[str] = (), *, expired: bool = False
    ) -> Path:
        """Write the kubeconfig of a user in some groups."""
        pki, server = self.folder / "pki", self.state.server
        return write_kubeconfig(path, pki, server, user, groups, expired=expired)

    def _write_state(self, state: State) -> None:
        path = self.folder / "cluster.json"
        beside = path.with_suffix(".new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
        beside.rename(path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    f"another command is starting or stopping the cluster in {self.folder}"
                ) from None
            yield


async def add_nodes(kube: Kube, pools: Sequence[NodePool]) -> None:
    """Create the nodes of some pools, those that are not there; many at a time."""
    nodes = [node for pool in pools for node in pool.nodes()]
    await each_of(nodes, lambda node: kube.ensure(NODES, node))


@asynccontextmanager
async def local_cluster(
    folder: Path, setup: Setup | None = None, **more: Any
) -> AsyncIterator[LocalCluster]:
    """Run a cluster for as long as the block lasts."""
    cluster = LocalCluster(folder, **more)
    await cluster.up(setup, attached=True)
    try:
        yield cluster
    finally:
        with contextlib.suppress(FileNotFoundError):
            await cluster.down()


def free_ports(*names: str) -> dict[str, int]:
    """Return a free port for each name; held until all are found, so that none comes twice."""
    held = []
    try:
        for _ in names:
            opened = socket.socket()
            opened.bind((LOOPBACK, 0))
            held.append(opened)
        return {name: each.getsockname()[1] for name, each in zip(names, held, strict=True)}
    finally:
        for each in held:
            each.close()
