"""`roost agent`: the agents of one process, composed from real parts."""

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path
from random import SystemRandom

import uvloop

from roost.agent.agent import Agent, AgentSettings
from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import FolderVMs
from roost.agent.fencing import FolderFences, GuardHandle, NoGuard, ProcessGuard
from roost.agent.guard import boot_id
from roost.agent.join import join_once
from roost.agent.store import FolderStore
from roost.agent.websocket import WebSocketTransport
from roost.app.logs import set_up_logs
from roost.app.options import AgentOptions
from roost.base.clock import RealClock
from roost.base.errors import InvalidRequest, RoostError
from roost.base.ids import IdSource
from roost.client.synchronous import Client
from roost.wire.agentlink import DeviceInfo

log = logging.getLogger("roost.agent")


def run_agents(options: AgentOptions) -> None:
    """Run one agent, or several virtual ones, until a signal says stop; VMs run on."""
    set_up_logs(options.log_format, options.log_level)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_run(options))


async def _run(options: AgentOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    agents = [await build_agent(each) for each in one_by_one(options)]
    tasks = [asyncio.create_task(agent.run()) for agent in agents]
    log.info("%d agents run, of %s", len(agents), options.name)
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait((waiting, *tasks), return_when=asyncio.FIRST_COMPLETED)
    for task in (waiting, *tasks):
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, RoostError):
            raise result
        if isinstance(result, Exception):
            raise result


def one_by_one(options: AgentOptions) -> list[AgentOptions]:
    """Return the options of each host: NAME alone, or NAME-01 and so on in folders of their own."""
    if options.count == 1:
        return [options]
    if options.driver != "virtual":
        raise InvalidRequest("only virtual hosts can be several in one process")
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
                }
            )
        )
    return found


async def build_agent(options: AgentOptions) -> Agent:
    """Compose the agent of one host, joined to its control plane."""
    if options.driver != "virtual":
        raise InvalidRequest(
            f"unknown driver {options.driver!r}; known drivers: virtual", driver=options.driver
        )
    clock, random = RealClock(), SystemRandom()
    store = FolderStore(options.data, boot=boot_id())
    if store.credential() is None:
        token = options.join_token
        if token is None:
            token = await asyncio.to_thread(_join_token, options)
        await join_once(store, options.servers, options.name, token, ca_file=options.ca_file)
    driver = VirtualDriver(
        VirtualSettings(
            cpu_milli=options.cpu_milli or 1000 * (os.cpu_count() or 1),
            memory_bytes=options.memory_bytes or _memory_bytes(),
            disk_bytes=options.disk_bytes or _disk_bytes(options.data),
            devices=tuple(DeviceInfo(gpu.model) for gpu in options.gpus for _ in range(gpu.count)),
            boot_s=options.boot_s,
        ),
        clock=clock,
        random=random,
        vms=FolderVMs(options.data / "vms"),
        fences=FolderFences(options.data),
    )
    settings = AgentSettings(
        name=options.name,
        servers=options.servers,
        zone=options.zone,
        rack=options.rack,
        site=options.site,
        labels=options.labels,
        reserve={"memory_bytes": options.reserve_memory_bytes},
        ratio_milli={"cpu_milli": options.overcommit_cpu_milli},
        max_destroy=options.max_destroy,
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
    folder.mkdir(parents=True, exist_ok=True)
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize
