"""What jobs need of the process that they run in: providers, where workers reach it, its name.

Providers are opened when a pool first needs them: most servers rent from one, and their SDKs take
long to import.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from roost.app.openproviders import open_azure, open_roost
from roost.app.options import ServeOptions
from roost.base.clock import Clock
from roost.base.errors import InvalidRequest
from roost.base.units import GIB
from roost.jobs.compose import JobSettings
from roost.jobs.detecting import Patience
from roost.jobs.keeping import KeptJobs
from roost.model.job import Account, Launch, MachineType
from roost.providers.base import Provider

#: Makes a provider for an account, with its credentials.
Opener = Callable[[Account | None, Mapping[str, str]], Awaitable[Provider]]


class InstalledProviders:
    """The providers of this server, by name."""

    def __init__(self, openers: Mapping[str, Opener]) -> None:
        self._openers = openers

    def names(self) -> Sequence[str]:
        """Return the names of all providers that are installed."""
        return tuple(self._openers)

    def without_account(self) -> Sequence[str]:
        """Return the names of those that rent to a pool which names no account."""
        return tuple(name for name in ("local",) if name in self._openers)

    async def open(
        self, name: str, account: Account | None, credentials: Mapping[str, str]
    ) -> Provider:
        """Return a provider for an account."""
        opener = self._openers.get(name)
        if opener is None:
            raise InvalidRequest(f"there is no provider {name!r}", provider=name)
        return await opener(account, credentials)


def openers(options: ServeOptions, clock: Clock, url: Callable[[], str]) -> dict[str, Opener]:
    """Return how each provider is opened; `url` is where this server listens."""

    async def local(account: Account | None, credentials: Mapping[str, str]) -> Provider:
        from roost.providers.local import LocalProvider

        folder = (options.data / "machines").resolve()

        def command(launch: Launch, data: Path) -> tuple[Sequence[str], Mapping[str, str]]:
            # Where other machines find this server may lead nowhere from itself.
            here = replace(launch.bootstrap, server=url())
            return worker_command(replace(launch, bootstrap=here), data)

        return LocalProvider(folder, command, LOCAL_TYPES, clock=clock)

    async def aws(account: Account | None, credentials: Mapping[str, str]) -> Provider:
        if account is None:
            raise InvalidRequest("a pool of aws needs an account: roost account create")
        # In a thread: its SDK takes a second to import, and everybody would wait for it.
        return await asyncio.to_thread(_open_aws, account, credentials, clock)

    return {"local": local, "aws": aws, "azure": open_azure, "roost": open_roost}


def _open_aws(account: Account, credentials: Mapping[str, str], clock: Clock) -> Provider:
    from roost.providers.aws.account import AwsCredentials, read_account
    from roost.providers.aws.provider import AwsProvider

    keys = AwsCredentials(
        credentials.get("access_key"),
        credentials.get("secret_key"),
        credentials.get("session_token"),
    )
    return AwsProvider(read_account(dict(account.options)), keys, clock=clock)


#: Sizes of workers on this machine. A price is there so that costs can be seen and compared.
LOCAL_TYPES = tuple(
    MachineType(f"local-{cores}", 1000 * cores, cores * GIB, 10 * cores * GIB, 10_000 * cores)
    for cores in (1, 2, 4, 8)
)


def worker_command(launch: Launch, data: Path) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return the command line of a worker on this machine; its token is no word of it."""
    told, kind = launch.bootstrap, launch.type
    words = [
        sys.executable, "-m", "roost.cli.main", "worker",
        "--machine", told.machine, "--server", told.server, "--data", str(data),
        "--cpu", f"{kind.cpu_milli}m", "--memory", f"{kind.memory_bytes}B",
        "--disk", f"{kind.disk_bytes}B",
    ]  # fmt: skip
    variables = {"ROOST_JOIN_TOKEN": told.join_token}
    if told.ca_pem:
        authority = data.parent / "ca.pem"
        authority.write_text(told.ca_pem)
        variables["ROOST_CA_FILE"] = str(authority)
    return words, variables


def job_settings(options: ServeOptions, url: Callable[[], str], clock: Clock) -> JobSettings:
    """Return what jobs need to know of this process."""
    trusted = "" if options.tls_cert is None else options.tls_cert.read_text()
    outputs = (options.data / "outputs").resolve()
    return JobSettings(
        providers=InstalledProviders(openers(options, clock, url)),
        server=lambda: (options.worker_server or url(), trusted),
        outputs_to=options.outputs_to or outputs.as_uri(),
        outputs_are_shared=bool(options.outputs_to),
        outputs=outputs,
        patience=Patience(worker_s=options.worker_start_s, silent_s=options.worker_silent_s),
        kept=KeptJobs(
            days=options.keep_jobs_days,
            most=options.keep_jobs,
            logs_days=options.keep_job_logs_days,
            logs_bytes=options.keep_job_logs_bytes,
            outputs_days=options.keep_outputs_days,
            outputs_bytes=options.keep_outputs_bytes,
        ),
    )
