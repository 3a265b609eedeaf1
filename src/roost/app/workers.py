"""`roost worker`: the worker of one rented machine, composed from real parts."""

import asyncio
import contextlib
import logging
import signal
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

import uvloop

from roost import __version__
from roost.app.logs import set_up_logs
from roost.base.clock import RealClock
from roost.base.errors import InvalidRequest
from roost.base.ids import IdSource
from roost.base.private import make_folder, withdraw_process
from roost.hostkit.machine.limitgroups import LimitGroups
from roost.worker.attempts import AttemptParts
from roost.worker.capacity import Given, measure
from roost.worker.containers import find_engine
from roost.worker.notices import METADATA, notices_of
from roost.worker.plane import HttpPlane
from roost.worker.run.hearth import Hearth
from roost.worker.run.jobuser import JobUser, NoSuchUse, find_user, open_way
from roost.worker.store import WorkerStore
from roost.worker.worker import Worker, WorkerSettings

log = logging.getLogger("roost.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker runs."""

    machine: str
    servers: tuple[str, ...]
    data: Path
    join_token: str | None = None
    ca_file: str | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    notices: str = ""  # aws, azure, or only the file
    metadata: str = METADATA
    container_engine: str = ""
    container_options: tuple[str, ...] = ()
    grace_s: float = 5.0
    job_user: str = ""  # empty: jobs run as the worker's own
    log_format: str = "text"
    log_level: str = "info"


def run_worker(options: WorkerOptions) -> None:
    """Run a worker until it is told to leave or a signal says stop; then its jobs run on."""
    withdraw_process()
    set_up_logs(options.log_format, options.log_level)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_run(options))


async def _run(options: WorkerOptions) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    store = WorkerStore(make_folder(options.data))
    store.open()
    try:
        if store.credential() is None:
            await _join(options, store)
        await _work(options, store, stop)
    finally:
        store.close()


async def _join(options: WorkerOptions, store: WorkerStore) -> None:
    if options.join_token is None:
        raise InvalidRequest(
            f"machine {options.machine} has no credential in {options.data} and no join token",
            hint="Maybe set ROOST_JOIN_TOKEN; a provider gives it to a machine that it starts.",
        )
    plane = HttpPlane(options.servers, options.join_token, ca_file=options.ca_file)
    try:
        store.save_credential(await plane.join(options.machine, __version__))
    finally:
        await plane.close()


def _user_of_jobs(options: WorkerOptions) -> JobUser | None:
    if not options.job_user:
        return None
    try:
        user = find_user(options.job_user)
        open_way(options.data / "attempts", user)
    except NoSuchUse as error:
        raise InvalidRequest(f"--job-user: {error}") from error
    return user


async def _work(options: WorkerOptions, store: WorkerStore, stop: asyncio.Event) -> None:
    clock, random = RealClock(), SystemRandom()
    user = _user_of_jobs(options)
    groups = LimitGroups(f"worker-{options.machine}")
    engine = await find_engine(options.container_engine, options.container_options)
    given = Given(options.cpu_milli, options.memory_bytes, options.disk_bytes)
    capacity = await asyncio.to_thread(measure, given, options.data, groups, engine)
    log.info(
        "machine %s has %d millicores and %d bytes; limits by %s, containers by %s",
        options.machine,
        capacity.cpu_milli,
        capacity.memory_bytes,
        capacity.limits,
        capacity.containers or "nothing",
    )
    hearth = Hearth(options.data, groups)
    plane = HttpPlane(options.servers, store.credential() or "", ca_file=options.ca_file)
    worker = Worker(
        WorkerSettings(instance=IdSource(clock.wall_ms).new("worker")),
        plane=plane,
        store=store,
        parts=AttemptParts(hearth, groups, engine, clock, random, options.grace_s, user=user),
        capacity=capacity,
        notices=notices_of(options.notices, options.data, options.metadata),
        clock=clock,
        random=random,
    )
    working = asyncio.create_task(worker.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
        hearth.close()
        await plane.close()
        groups.close()
