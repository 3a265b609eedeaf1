"""`roost serve`: options in, `roost.app.serve` runs."""

import gc
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from roost.app.options import ServeOptions
from roost.base.errors import InvalidRequest
from roost.base.units import parse_bytes
from roost.cli.words.opening import settings
from roost.cli.words.options import reports_errors
from roost.model.hosts import PRESSURES

DATA = Path.home() / ".local" / "share" / "roost"
_TIMERS = "Timers, in seconds"
_CLIENTS = "What one client may cost"
_SERIES = "What VMs and hosts use over time"
_JOBS = "What is kept of jobs"


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


class ContinuousMode(StrEnum):
    """What the server plans without being asked."""

    OFF = "off"
    RECOMMEND = "recommend"
    APPLY = "apply"


class LogLevel(StrEnum):
    """Which log lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


DataOption = Annotated[Path, typer.Option(metavar="DIR", help="Folder of what it keeps.")]
LogFormatOption = Annotated[LogFormat, typer.Option(help="How log lines look.")]
LogLevelOption = Annotated[LogLevel, typer.Option(help="Which log lines are written.")]


DatabaseOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        envvar="ROOST_DATABASE",
        help="sqlite:///PATH (default: roost.db in the data folder) or postgresql://...",
    ),
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="ROOST_KEY_FILE",
        help="Key of the database's secrets (default: roost.key in the data folder).",
    ),
]


def _timer(about: str, least: float = 0.05) -> Any:
    return typer.Option(min=least, metavar="S", help=about, rich_help_panel=_TIMERS)


def _bound(about: str, least: float = 0, metavar: str = "N") -> Any:
    return typer.Option(min=least, metavar=metavar, help=about, rich_help_panel=_CLIENTS)


def _days(what: str, panel: str = _SERIES, least: float = 1) -> Any:
    return typer.Option(
        min=least, max=36600, metavar="DAYS", help=f"How long {what} are kept.",
        rich_help_panel=panel,
    )  # fmt: skip


def _much(about: str) -> Any:
    return typer.Option(metavar="SIZE", help=about, rich_help_panel=_JOBS)


@reports_errors
def serve(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any.")
    ] = "127.0.0.1:7070",
    data: DataOption = DATA,
    database: DatabaseOption = None,
    key_file: KeyFileOption = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate; then it speaks https.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the certificate.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy in front of it speaks TLS.")
    ] = False,
    context: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Context file to write for commands on this machine (default: where they look).",
        ),
    ] = None,
    oidc: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take tokens of an OpenID Connect issuer, too: TOML with issuer, audience, roles.",
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Strategy of VMs that name none; else SCHEDULING_STRATEGY, else least_loaded.",
        ),
    ] = None,
    fence_command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Run with a silent host's name; exit code 0 proves that the host is off.",
        ),
    ] = None,
    fence_share: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Share of the hosts that the fence command may have switched off at a time.",
        ),
    ] = 0.1,
    recover_at_once: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="VMs restarted elsewhere at one look, every two seconds."
        ),
    ] = 100,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
    heartbeat_s: Annotated[float, _timer("How often agents are heard.")] = 5.0,
    suspect_s: Annotated[float, _timer("Silence after which a host is suspect.")] = 15.0,
    offline_s: Annotated[float, _timer("Silence after which a host is offline.")] = 60.0,
    lease_s: Annotated[float, _timer("How long a host may run VMs unheard, with a guard.")] = 60.0,
    worker_server: Annotated[
        str,
        typer.Option(
            metavar="URL",
            envvar="ROOST_WORKER_SERVER",
            help="Address at which rented machines reach this server (default: where it listens); "
            "local workers need none.",
        ),
    ] = "",
    worker_start_s: Annotated[
        float, _timer("How long a rented machine may take until its worker speaks.", 10)
    ] = 600.0,
    worker_silent_s: Annotated[
        # Workers poll every 5 s, and that they did is written every 5 s.
        float, _timer("Silence after which a worker's machine is given back.", 15)
    ] = 60.0,
    request_s: Annotated[float, _bound("For half a request to be whole.", 0.05, "S")] = 15.0,
    idle_s: Annotated[float, _bound("Between two requests of a connection.", 0.05, "S")] = 75.0,
    stalled_s: Annotated[float, _bound("That it may take nothing of an answer.", 0.05, "S")] = 15.0,
    strangers: Annotated[
        int, _bound("Connections of one address without a good token yet; 0: any number.")
    ] = 1000,
    readers: Annotated[int, _bound("Streams of events in all.", 1)] = 4096,
    token_readers: Annotated[int, _bound("Streams of events with one token.", 1)] = 256,
    token_rate: Annotated[
        float, _bound("Requests a second with one token; 0: any number.")
    ] = 20_000.0,
    address_rate: Annotated[
        float, _bound("Requests a second of one address without a token; 0: any number.")
    ] = 200.0,
    failure_rate: Annotated[
        float, _bound("Requests a second of one address with a wrong token; 0: any number.")
    ] = 20.0,
    rate_limits: Annotated[
        bool,
        typer.Option(
            "--rate-limits/--no-rate-limits",
            help="Whether the three rates hold.",
            rich_help_panel=_CLIENTS,
        ),
    ] = True,
    keep_events_days: Annotated[
        float, typer.Option(min=0.01, metavar="DAYS", help="How long events are kept.")
    ] = 90.0,
    keep_events: Annotated[
        int, typer.Option(min=1000, metavar="N", help="Events that are kept, however young.")
    ] = 500_000,
    keep_jobs_days: Annotated[float, _days("jobs that have ended", _JOBS, 0.01)] = 30.0,
    keep_jobs: Annotated[
        int,
        typer.Option(
            min=1000,
            metavar="N",
            help="Jobs that are kept of arrays that have ended, the newest.",
            rich_help_panel=_JOBS,
        ),
    ] = 1_000_000,
    keep_job_logs_days: Annotated[float, _days("logs of jobs", _JOBS, 0.01)] = 14.0,
    keep_job_logs: Annotated[str, _much("Logs of jobs that are kept, the newest.")] = "2GiB",
    outputs_to: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Store of outputs where jobs name none, reached by all machines (default: "
            "the data folder, for local workers).",
            rich_help_panel=_JOBS,
        ),
    ] = "",
    keep_outputs_days: Annotated[float, _days("outputs in the data folder", _JOBS, 0.01)] = 30.0,
    keep_outputs: Annotated[
        str, _much("Outputs that are kept in the data folder, the newest.")
    ] = "20GiB",
    keep_readings_days: Annotated[int, _days("readings of VMs and hosts")] = 7,
    keep_5m_days: Annotated[int, _days("readings rolled up by 5 minutes")] = 60,
    keep_1h_days: Annotated[int, _days("readings rolled up by the hour")] = 400,
    keep_1d_days: Annotated[int, _days("readings rolled up by the day")] = 3660,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A Prometheus whose series are shown instead of those kept here.",
            rich_help_panel=_SERIES,
        ),
    ] = None,
    prometheus_queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What to ask it for each figure: TOML, FIGURE = 'PROMQL'.",
            rich_help_panel=_SERIES,
        ),
    ] = None,
    search_limit: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=600.0,
            metavar="S",
            help="How long the exact search for an all-or-none batch takes at most, about.",
        ),
    ] = 5.0,
    pressure_bound: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RESOURCE=PERCENT",
            help="Hosts whose cpu, memory or io pressure (some, 10 s) is higher, or not known, "
            "take no VMs. Repeatable.",
        ),
    ] = None,
    overload_bound: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0.001,
            max=0.25,
            help="How often a host's cpu may be short at the level of promises that "
            "`roost analyze fleet` calls safe: 0.01 is one time in a hundred.",
        ),
    ] = 0.01,
    predict_quantile: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            min=0.55,
            max=0.99,
            help="Quantile at which the use of hosts and VMs is predicted: 0.9 is passed one time "
            "in ten.",
        ),
    ] = 0.9,
    predict_hours: Annotated[
        int,
        typer.Option(
            metavar="HOURS", min=1, max=24, help="How far ahead the use of hosts and VMs counts."
        ),
    ] = 4,
    continuous: Annotated[
        ContinuousMode,
        typer.Option(
            help="Look at the fleet now and then: recommend plans (kept as drafts), or apply "
            "them within limits.",
        ),
    ] = ContinuousMode.OFF,
    continuous_every: Annotated[
        float,
        typer.Option(min=10.0, max=86_400.0, metavar="S", help="Time between two such looks."),
    ] = 600.0,
    continuous_most: Annotated[
        int, typer.Option(min=1, max=500, metavar="N", help="Moves of one such plan.")
    ] = 20,
    continuous_day: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="Moves of all of them in a day.")
    ] = 200,
    members_priority: Annotated[
        int,
        typer.Option(
            min=-1_000_000,
            max=1_000_000,
            metavar="N",
            help="The greatest priority that a member may give a VM, by a class or by itself.",
        ),
    ] = 0,
    database_wait: Annotated[
        float,
        typer.Option(
            min=0.0, metavar="S", help="How long a start waits for a database that is away."
        ),
    ] = 300.0,
) -> None:
    """Run the control plane.

    The first start makes an admin token and a context file, so that commands on this machine find
    the server. Beyond loopback it needs TLS, or a proxy that has it.
    """
    if (tls_cert is None) != (tls_key is None):
        given, other = (
            ("--tls-key", "--tls-cert") if tls_cert is None else ("--tls-cert", "--tls-key")
        )
        raise InvalidRequest(f"{given} needs {other} beside it", hint=f"Maybe add {other} FILE.")
    if not heartbeat_s < suspect_s <= offline_s:
        raise InvalidRequest(
            f"heartbeat {heartbeat_s:g} s, suspect {suspect_s:g} s and offline {offline_s:g} s are "
            "not in this order",
            hint="Maybe --heartbeat-s 5 --suspect-s 15 --offline-s 60.",
        )
    if lease_s <= heartbeat_s:
        raise InvalidRequest(
            f"a lease of {lease_s:g} s ends before the next heartbeat, {heartbeat_s:g} s later",
            hint="Maybe --lease-s 60; several heartbeats must fit.",
        )
    if strategy is not None:
        from roost.placement.strategies import strategy_named

        strategy_named(strategy)
    # Nothing that is imported here is garbage; looking for it took a sixth of the time. The server
    # looks again when it has loaded its fleet.
    gc.disable()
    try:
        from roost.app.serve import run_server
        from roost.client.context import context_target

        run_server(
            ServeOptions(
                listen=listen,
                data=data,
                database=database,
                key_file=key_file,
                tls_cert=tls_cert,
                tls_key=tls_key,
                behind_proxy=behind_proxy,
                log_format=log_format.value,
                log_level=log_level.value,
                context=context or context_target(os.environ, Path.cwd()),
                strategy=strategy or settings().scheduling_strategy,
                fence_command=fence_command,
                fence_share=fence_share,
                recover_at_once=recover_at_once,
                heartbeat_s=heartbeat_s,
                suspect_s=suspect_s,
                offline_s=offline_s,
                lease_s=lease_s,
                worker_server=worker_server,
                worker_start_s=worker_start_s,
                worker_silent_s=worker_silent_s,
                request_s=request_s,
                idle_s=idle_s,
                stalled_s=stalled_s,
                strangers=strangers,
                readers=readers,
                token_readers=token_readers,
                rate_limits=rate_limits,
                token_rate=token_rate,
                address_rate=address_rate,
                failure_rate=failure_rate,
                keep_events_days=keep_events_days,
                keep_events=keep_events,
                keep_jobs_days=keep_jobs_days,
                keep_jobs=keep_jobs,
                keep_job_logs_days=keep_job_logs_days,
                keep_job_logs_bytes=parse_bytes(keep_job_logs, "--keep-job-logs"),
                outputs_to=outputs_to,
                keep_outputs_days=keep_outputs_days,
                keep_outputs_bytes=parse_bytes(keep_outputs, "--keep-outputs"),
                keep_readings_days=keep_readings_days,
                keep_5m_days=keep_5m_days,
                keep_1h_days=keep_1h_days,
                keep_1d_days=keep_1d_days,
                oidc=oidc,
                prometheus=prometheus,
                prometheus_queries=prometheus_queries,
                search_limit_s=search_limit,
                pressure_bounds=_pressure_bounds(pressure_bound or []),
                overload_bound=overload_bound,
                predict_quantile=predict_quantile,
                predict_hours=predict_hours,
                continuous=continuous.value,
                continuous_every_s=continuous_every,
                continuous_most=continuous_most,
                continuous_day=continuous_day,
                members_priority=members_priority,
                database_wait_s=database_wait,
            )
        )
    finally:
        gc.enable()


def _pressure_bounds(words: list[str]) -> dict[str, float]:
    """Return the bounds on pressure, by resource, in percent."""
    bounds = {}
    for word in words:
        resource, _, percent = word.partition("=")
        try:
            bound = float(percent)
        except ValueError:
            bound = -1.0
        if resource not in PRESSURES or not 0.0 <= bound <= 100.0:
            raise InvalidRequest(
                f"--pressure-bound {word!r} is not {', '.join(PRESSURES)} = 0 to 100",
                hint="Maybe --pressure-bound cpu=40.",
            )
        bounds[resource] = bound
    return bounds
