"""`roost serve`: options in, `roost.app.serve` runs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from roost.app.options import ServeOptions
from roost.base.errors import InvalidRequest
from roost.cli.options import reports_errors

_DATA = Path.home() / ".local" / "share" / "roost"


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """Which log lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


DataOption = Annotated[Path, typer.Option(metavar="DIR", help="Folder of what it keeps.")]
LogFormatOption = Annotated[LogFormat, typer.Option(help="How log lines look.")]
LogLevelOption = Annotated[LogLevel, typer.Option(help="Which log lines are written.")]


@reports_errors
def serve(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any.")
    ] = "127.0.0.1:7070",
    data: DataOption = _DATA,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="sqlite:///PATH (default: roost.db in the data folder) or postgresql://...",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate; then it speaks https.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the certificate.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy in front of it speaks TLS.")
    ] = False,
    log_format: LogFormatOption = LogFormat.TEXT,
    log_level: LogLevelOption = LogLevel.INFO,
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
    from roost.app.serve import run_server

    run_server(
        ServeOptions(
            listen=listen,
            data=data,
            database=database,
            tls_cert=tls_cert,
            tls_key=tls_key,
            behind_proxy=behind_proxy,
            log_format=log_format.value,
            log_level=log_level.value,
        )
    )
