"""What jobs need of the process that they run in: providers, where workers reach it, its name.

Providers are opened when a pool first needs them: most servers rent from one, and their SDKs take
long to import.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256

from roost.app.options import ServeOptions
from roost.base.errors import InvalidRequest
from roost.jobs.compose import JobSettings
from roost.ledger.store import Store
from roost.model.job import Account
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

    async def open(
        self, name: str, account: Account | None, credentials: Mapping[str, str]
    ) -> Provider:
        """Return a provider for an account."""
        opener = self._openers.get(name)
        if opener is None:
            raise InvalidRequest(f"there is no provider {name!r}", provider=name)
        return await opener(account, credentials)


def openers(options: ServeOptions) -> dict[str, Opener]:
    """Return how each provider is opened."""
    return {}


def job_settings(options: ServeOptions, url: Callable[[], str], store: Store) -> JobSettings:
    """Return what jobs need to know of this process."""
    database = options.database or str((options.data / "roost.db").resolve())
    # The same ledger is the same owner, whichever process asks and wherever it runs.
    owner = f"roost-{sha256(database.encode()).hexdigest()[:16]}"
    trusted = "" if options.tls_cert is None else options.tls_cert.read_text()
    return JobSettings(
        providers=InstalledProviders(openers(options)),
        server=lambda: (url(), trusted),
        owner=lambda: owner,
        outputs_to=(options.data / "outputs").resolve().as_uri(),
    )
