"""`roost agent`: the agents of one process, composed from real parts."""

import asyncio
import contextlib
import logging
import os
import platform
import signal
from pathlib import Path
from random import SystemRandom

import uvloop

from roost.agent.agent import Agent, AgentSettings
from roost.agent.drivers.base import Driver
from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.virtualloads import read_load
from roost.agent.drivers.virtualtraces import read_traces
from roost.agent.drivers.vmfiles import FolderVMs
from roost.agent.fencing.guard import boot_id
from roost.agent.fencing.recipes import FolderFences, GuardHandle, NoGuard, ProcessGuard
from roost.agent.store import FolderStore
from roost.agent.talk.join import join_once
from roost.agent.talk.probing import ProbeSettings
from roost.app.folders import AGENT_KEPT, close_to_others
from roost.app.logs import set_up_logs
from roost.app.options import AgentOptions
from roost.base.clock import RealClock
from roost.base.errors import InvalidRequest, RoostError
from roost.base.ids import IdSource
from roost.base.private import make_folder, withdraw_process
from roost.client.synchronous import Client
from roost.hostkit.talk.websocket import WebSocketTransport
from roost.wire.agentlink import DeviceInfo

log = logging.getLogger("roost.agent")

DRIVERS = ("virtual", "qemu")
_JOIN_TOGETHER = 16


def run_agents(options: AgentOptions) -> None:
    """Run one agent, or several virtual ones, until a signal says stop; VMs run on."""
    withdraw_process()
    check(options)
    set_up_logs(options.log_format, options.log_level)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_run(options))


async def _run(options: AgentOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    async with contextlib.AsyncExitStack() as parts:
        if options.count > 1:
            hosts = [one.name for one in one_by_one(options)]
            close_to_others(options.data, (), hosts)  # each closes its own folder in it
        agents = await _build_all(one_by_one(options), parts)
        await _run_until(stop, agents, options.name)


async def _run_until(stop: asyncio.Event, agents: list[Agent], name: str) -> None:
    tasks = [asyncio.create_task(agent.run()) for agent in agents]
    log.info("%s, of %s", "1 agent runs" if len(agents) == 1 else f"{len(agents)} agents run", name)
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait((waiting, *tasks), return_when=asyncio.FIRST_COMPLETED)
    for task in (waiting, *tasks):
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, RoostError):
            raise result
        if isinstance(result, Exception):
            raise result


def check(options: AgentOptions) -> None:
    """Refuse what cannot work, before the host joins."""
    if options.driver not in DRIVERS:
        raise InvalidRequest(
            f"unknown driver {options.driver!r}; known drivers: {', '.join(DRIVERS)}",
            driver=options.driver,
        )
    if options.count > 1 and options.driver != "virtual":
        raise InvalidRequest("only virtual hosts can be several in one process")
    if (options.probe_port or 0) + options.count - 1 >= 2**16:
        raise InvalidRequest(f"--probe-port {options.probe_port}: not so many ports follow it")
    if options.driver == "qemu":
        from roost.app.qemuchecks import check_qemu  # virtual hosts need none of it

        check_qemu(options.qemu)


def one_by_one(options: AgentOptions) -> list[AgentOptions]:
    """Return the options of each host: NAME alone, or NAME-01 and so on in folders of their own."""
    if options.count == 1:
        return [options]
    width = max(2, len(str(options.count)))
    zones = options.zone.split(",") if options.zone else [""]
    found = []
    for at in range(options.count):
        name = f"{options.name}-{at + 1:0{width}d}"
        found.append(
            AgentOptions(
                **{
                    **{f: getattr(options, f) for f in options.__slots__},
                    "name": name,
                    "data": options.data / name,
                    "zone": zones[at % len(zones)],
                    "count": 1,
                    "probe_port": options.probe_port and options.probe_port + at,
                }
            )
        )
    return found


async def _build_all(several: list[AgentOptions], parts: contextlib.AsyncExitStack) -> list[Agent]:
    """Compose all agents, some side by side: joining is mostly waiting for the ledger."""
    free = asyncio.Semaphore(_JOIN_TOGETHER)

    async def build(one: AgentOptions) -> Agent:
        async with free:
            return await build_agent(one, parts)

    return list(await asyncio.gather(*map(build, several)))


async def build_agent(options: AgentOptions, parts: contextlib.AsyncExitStack) -> Agent:
    """Compose the agent of one host, joined to its control plane.

    What the agent does not close itself is closed by `parts`, after it.
    """
    close_to_others(options.data, AGENT_KEPT)
    clock, random = RealClock(), SystemRandom()
    driver = await _driver(options, clock, parts)  # before a join token is used up
    store = FolderStore(options.data, boot=boot_id())
    if store.credential() is None:
        token = options.join_token
        if token is None:
            token = await asyncio.to_thread(_join_token, options)
        await join_once(store, options.servers, options.name, token, ca_file=options.ca_file)
    settings = AgentSettings(
        name=options.name,
        servers=options.servers,
        zone=options.zone,
        rack=options.rack,
        site=options.site,
        labels=options.labels,
        architecture=platform.machine() if options.driver == "qemu" else "x86_64",
        reserve=_reserve(options),
        ratio_milli={"cpu_milli": options.overcommit_cpu_milli},
        start_alone_after_s=options.start_alone_after_s,
        stop_grace_s=options.stop_grace_s,
        max_destroy=options.max_destroy,
        probe=_probe(options),
    )
    return Agent(
        settings,
        clock=clock,
        transport=WebSocketTransport(ca_file=options.ca_file),
        driver=driver,
        store=store,
        random=random,
        ids=IdSource(clock.wall_ms),
        guard=_guard(options, clock),
    )


async def _driver(
    options: AgentOptions, clock: RealClock, parts: contextlib.AsyncExitStack
) -> Driver:
    fences = FolderFences(options.data)
    if options.driver == "qemu":
        from roost.app.qemuagents import qemu_driver

        return await qemu_driver(options, clock=clock, fences=fences, parts=parts)
    traces = {}
    if options.load_trace is not None:
        traces = await asyncio.to_thread(read_traces, options.load_trace)
    return VirtualDriver(
        VirtualSettings(
            cpu_milli=options.cpu_milli or 1000 * (os.cpu_count() or 1),
            memory_bytes=options.memory_bytes or _memory_bytes(),
            disk_bytes=options.disk_bytes or _disk_bytes(options.data),
            devices=tuple(DeviceInfo(gpu.model) for gpu in options.gpus for _ in range(gpu.count)),
            boot_s=options.boot_s,
            load=read_load(options.load, traces),
            traces=traces,
        ),
        clock=clock,
        vms=FolderVMs(options.data / "vms"),
        fences=fences,
    )


def _reserve(options: AgentOptions) -> dict[str, int]:
    """Return what was said to be kept; of what was not, the driver keeps what it finds right."""
    kept = options.reserve_memory_bytes
    return {} if kept is None else {"memory_bytes": kept}


def _probe(options: AgentOptions) -> ProbeSettings | None:
    port = options.probe_port
    return None if port is None else ProbeSettings(options.probe_address, port)


def _guard(options: AgentOptions, clock: RealClock) -> GuardHandle:
    if not options.fence_guard and options.watchdog is None:
        return NoGuard()
    return ProcessGuard(options.data, clock=clock, watchdog=options.watchdog)


def _join_token(options: AgentOptions) -> str:
    """Make a join token with the token of the context; for a control plane on this machine."""
    if options.token is None:
        raise InvalidRequest(
            f"host {options.name!r} has not joined yet",
            hint="Maybe give --join-token; roost token join makes one.",
        )
    with Client(options.servers[0], options.token, ca_file=options.ca_file) as client:
        secret = client.create_join_token(host=options.name).secret
    assert secret is not None
    return secret


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _disk_bytes(folder: Path) -> int:
    make_folder(folder)
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize
