"""`roost serve`: one control-plane process, composed from real parts.

Clock, ids, store and sockets enter here and nowhere below. The server listens before the fleet is
loaded, so that probes get an answer; requests are refused until it is.
"""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import resource
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from roost import __version__
from roost.analysis.store import SeriesStore
from roost.api.app import build_app
from roost.api.limits import Limits
from roost.api.server import BACKLOG, Server, bind, build_server
from roost.app.folders import SERVER_KEPT, close_to_others
from roost.app.gettingready import GettingReady
from roost.app.jobs import job_settings
from roost.app.logs import set_up_logs
from roost.app.options import KEY_NAME, ServeOptions
from roost.base.backoff import BackOff
from roost.base.clock import Clock, RealClock
from roost.base.errors import InvalidRequest, Unavailable
from roost.base.ids import IdSource
from roost.base.private import (
    make_folder,
    open_beside,
    plain_environment,
    withdraw_process,
)
from roost.client.context import (
    LOCAL,
    Context,
    load_contexts,
    write_context,
    write_contexts,
)
from roost.control.plane import Plane, PlaneSettings
from roost.control.plans.continuouslimits import ContinuousLimits
from roost.control.survive.recover import RecoverLimits
from roost.control.timers import Timers
from roost.jobs.compose import job_parts
from roost.ledger.opening import open_store
from roost.ledger.store import Store
from roost.ledger.upkeep.base import LEAST_EVENTS, EventsKept
from roost.ledger.upkeep.retention import DAY_S
from roost.model.series import Kept
from roost.parts.sealedrows import unlock
from roost.parts.sealing import KeyFile
from roost.series.opening import open_series

log = logging.getLogger("roost.serve")
#: How long to wait before a database that is away is tried again.
_AGAIN = BackOff(1.0, 15.0)

#: Files that the process needs beside its connections: databases, logs, a fence command.
_OWN_FILES = 96


@dataclass(slots=True)
class Running:
    """A control plane that serves."""

    plane: Plane
    server: Server
    store: Store
    series: SeriesStore
    kernels: GettingReady
    admin_token: str | None  # when this start made it
    _serving: asyncio.Task[None] = field(repr=False)
    _keys: asyncio.Task[None] | None = field(default=None, repr=False)  # of the tokens' issuer

    async def wait(self) -> None:
        """Wait until the server has stopped."""
        await self._serving

    async def stop(self) -> None:
        """Stop serving, then everything else, in the order that loses nothing."""
        if self._keys is not None:
            self._keys.cancel()
        await self.kernels.stop()
        await self.plane.stop()
        self.server.should_exit = True
        await self._serving
        await self.series.close()
        await self.store.close()


def run_server(options: ServeOptions) -> None:
    """Serve until a signal says stop."""
    withdraw_process()
    set_up_logs(options.log_format, options.log_level)
    # The writer thread needs Python's lock for an instant after every statement; with the usual
    # 5 ms that it may have to wait for a busy event loop, a commit would take ten times as long.
    sys.setswitchinterval(0.0005)
    raise_file_limit()
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_serve(options))


def raise_file_limit() -> None:
    """Allow as many open files as the machine does: every agent keeps a connection open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(options: ServeOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    waiting = asyncio.create_task(stop.wait())
    # Almost nothing that a start makes is garbage; with 100,000 VMs looking for it took a second.
    gc.disable()
    starting = asyncio.create_task(start(options))
    await asyncio.wait((waiting, starting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        log.info("stopped before it was ready")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    running = starting.result()
    # What is loaded now stays: the collector need not look at it again and again, nor once, for
    # of a start with 100,000 VMs it found 2,000 objects, while nobody was answered.
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)
    log.info("roost listens on %s (docs at %s/api/v1/docs)", running.server.url, running.server.url)
    serving = asyncio.create_task(running.wait())
    await asyncio.wait((waiting, serving), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await running.stop()
    await asyncio.gather(waiting, serving, return_exceptions=True)


async def start(
    options: ServeOptions, settings: PlaneSettings | None = None, *, warm: bool = True
) -> Running:
    """Open the ledger, listen, load the fleet and make the kernels ready."""
    host, port = parse_listen(options)
    clock = RealClock()
    ids = IdSource(clock.wall_ms)
    close_to_others(options.data, SERVER_KEPT)
    database = options.database or f"sqlite:///{options.data / 'roost.db'}"
    store = await open_patiently(
        lambda: open_store(database, clock, ids), clock, options.database_wait_s
    )
    plan = settings or plane_settings(options)
    # Opened when it is first used: a process starts, and places VMs, without it.
    series = open_series(database, plan.series)
    reader = None
    if options.prometheus is not None:
        # Its HTTP client is seldom needed, and takes a tenth of a second to import.
        from roost.app.prometheus import prometheus_reader

        reader = prometheus_reader(options.prometheus, options.prometheus_queries)
    try:
        key_file = KeyFile(options.key_file or options.data / KEY_NAME)
        seal = await unlock(store, key_file, clock.wall_ms())
        plane = Plane(
            store,
            clock,
            ids,
            plan,
            _fence_command(options.fence_command),
            seal,
            series,
            reader,
            bring=job_parts(job_settings(options, lambda: server.url, clock)),
        )
        issuer = None
        if options.oidc is not None:
            from roost.app.oidc import Issuer, http_fetch, read_issuer

            believed = read_issuer(options.oidc)
            issuer = Issuer(believed, clock, http_fetch(believed.ca_file))
            plane.access.foreign = issuer
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        app = build_app(
            plane, clock=clock, ids=ids, meter=plane.telemetry, limits=client_limits(options, files)
        )
        app.prepare()
        server = build_server(
            app,
            plane,
            host,
            port,
            tls_cert=options.tls_cert,
            tls_key=options.tls_key,
            behind_proxy=options.behind_proxy,
            backlog=_backlog(files),
        )
        socket = bind(host, port)
    except BaseException:
        await series.close()
        await store.close()
        raise
    serving = asyncio.create_task(server.serve(sockets=[socket]))
    kernels = GettingReady(clock, lambda: plane.roster.fleet.hosts.count)
    try:
        await server.wait_up()
        token_file = options.data / "admin-token"
        token = await plane.access.ensure_admin(lambda text: write_secret(token_file, text))
        if options.context is not None:
            tell_command_line(options.context, server.url, token_file, options.tls_cert)
        await plane.start(kernels.begin if warm else None)
    except BaseException:
        await kernels.stop()
        await plane.stop()
        server.should_exit = True
        await serving
        await series.close()
        await store.close()
        raise
    keys = None if issuer is None else asyncio.create_task(issuer.run())
    return Running(plane, server, store, series, kernels, token, serving, keys)


async def open_patiently(
    open_once: Callable[[], Awaitable[Store]], clock: Clock, most_s: float
) -> Store:
    """Open the ledger; while its database is away, say so and try again for so many seconds.

    After a power failure the database may come back later than this process.
    """
    give_up_at, attempt = clock.monotonic() + most_s, 0
    while True:
        try:
            return await open_once()
        except Unavailable as error:
            wait_s = min(_AGAIN.wait_s(attempt), give_up_at - clock.monotonic())
            if wait_s <= 0:
                raise
            left_s = give_up_at - clock.monotonic()
            log.warning("waiting for the database, for %.0f s more: %s", left_s, error.message)
            await clock.sleep(wait_s)
            attempt += 1


def plane_settings(options: ServeOptions) -> PlaneSettings:
    """Return what the options say about the plane; shorter timers make everything quicker."""
    timers = Timers(
        heartbeat_s=options.heartbeat_s,
        lease_s=options.lease_s,
        suspect_s=options.suspect_s,
        offline_s=options.offline_s,
        flush_s=min(1.0, options.heartbeat_s / 5),
        watch_s=min(2.0, options.suspect_s / 5),
        singleton_s=min(15.0, max(2.0, options.suspect_s)),
    )
    limits = RecoverLimits(options.fence_share, options.recover_at_once)
    kept = EventsKept(
        seconds=round(options.keep_events_days * DAY_S), most=max(LEAST_EVENTS, options.keep_events)
    )
    return PlaneSettings(
        release=__version__,
        strategy=options.strategy,
        timers=timers,
        recover=limits,
        events=kept,
        search_limit_s=options.search_limit_s,
        members_priority=options.members_priority,
        pressure_bounds=options.pressure_bounds,
        overload_bound=options.overload_bound,
        predict_quantile=options.predict_quantile,
        predict_hours=options.predict_hours,
        continuous=ContinuousLimits(
            mode=options.continuous,  # type: ignore[arg-type]
            every_s=options.continuous_every_s,
            most=options.continuous_most,
            day=options.continuous_day,
        ),
        series=Kept(
            options.keep_readings_days,
            options.keep_5m_days,
            options.keep_1h_days,
            options.keep_1d_days,
        ),
    )


def client_limits(options: ServeOptions, files: int) -> Limits:
    """Return what the options say about one client, within what the process may open."""
    return Limits(
        request_s=options.request_s,
        idle_s=options.idle_s,
        stalled_s=options.stalled_s,
        strangers=options.strangers,
        connections=max(16, files - _backlog(files) - _OWN_FILES),
        readers=options.readers,
        token_readers=options.token_readers,
        token_rate=options.token_rate if options.rate_limits else 0.0,
        address_rate=options.address_rate if options.rate_limits else 0.0,
        failure_rate=options.failure_rate if options.rate_limits else 0.0,
    )


def _backlog(files: int) -> int:
    """Return how many connections may wait to be accepted: all of them may be, in one go."""
    return max(16, min(BACKLOG, files // 8))


def parse_listen(options: ServeOptions) -> tuple[str, int]:
    """Return host and port; refuse to speak in the clear to other machines."""
    host, _, port = options.listen.rpartition(":")
    host = host.strip("[]")
    if not port.isdigit() or not host or int(port) > 65535:
        raise InvalidRequest(
            f"cannot listen on {options.listen!r}", hint="Maybe 127.0.0.1:7070 or [::1]:7070."
        )
    if (options.tls_cert is None) != (options.tls_key is None):
        raise InvalidRequest("--tls-cert and --tls-key go together")
    for path in (options.tls_cert, options.tls_key):
        if path is not None and not path.is_file():
            raise InvalidRequest(f"no file {str(path)!r}")
    if not (_is_loopback(host) or options.tls_cert or options.behind_proxy):
        raise InvalidRequest(
            f"{options.listen} can be reached by other machines, and tokens would travel in the "
            "clear",
            hint="Maybe give --tls-cert and --tls-key, or say --behind-proxy if one adds TLS.",
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _fence_command(command: str | None) -> Callable[[str], Awaitable[bool]] | None:
    if command is None:
        return None
    words = shlex.split(command)

    async def run(host: str) -> bool:
        """Run the command with the host's name; only exit code 0 is a proof."""
        process = await asyncio.create_subprocess_exec(*words, host, env=plain_environment())
        try:
            return await asyncio.wait_for(process.wait(), 60) == 0
        except TimeoutError:
            process.kill()
            await process.wait()
            return False

    return run


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    make_folder(path.parent)
    beside, file = open_beside(path)
    with file:
        file.write(f"{text}\n".encode())
        file.flush()
        os.fsync(file.fileno())  # what it opens may be committed right after
    beside.replace(path)


def tell_command_line(path: Path, server: str, token_file: Path, ca: Path | None) -> None:
    """Write the file from which the command line knows server and token.

    A file that names a server on another machine is somebody's way to that server: it is kept. In
    a file with several contexts this server is the one called `local`.
    """
    if not token_file.is_file():
        return
    token = token_file.read_text().strip()
    made = Context(server=server, token=token, ca_file=str(ca) if ca else None)
    known = load_contexts(path) if path.is_file() else None
    if known is None or (known.single is not None and _is_here(known.single.server)):
        write_context(path, made)
    elif known.single is not None:
        log.info("%s names another machine's server and is kept", path)
    elif (mine := known.contexts.get(LOCAL)) is not None and not _is_here(mine.server):
        log.info("the context %r of %s names another machine's server and is kept", LOCAL, path)
    else:
        write_contexts(path, known.put(LOCAL, made, use=False))
        if known.current not in (None, LOCAL):
            log.info("commands go by the context %r of %s; this server is in it as %r",
                     known.current, path, LOCAL)  # fmt: skip


def _is_here(server: str) -> bool:
    return _is_loopback(urlsplit(server).hostname or "")
