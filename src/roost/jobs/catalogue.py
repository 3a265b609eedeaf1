"""What providers offer, as far as it was asked lately: types and prices for planning and checks.

Asking a cloud takes seconds, so the planner never does: `refresh` keeps the answers, and says why
when there is none. Opened providers are kept here too, one for each account.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest, NotFound, RoostError
from roost.ledger.schema.jobtables import account_secrets, accounts
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_row
from roost.model.job import Account, MachineType, Pool
from roost.parts.sealing import Seal
from roost.providers.base import Provider

log = logging.getLogger("roost.jobs")

#: How long an answer is used, and after how long one that failed is asked for again.
FRESH_S, AGAIN_S = 300.0, 15.0
#: How long a provider may take to say what it offers: whoever submits jobs waits for it.
ANSWER_S = 30.0

#: Makes a provider from its name, an account (None: it needs none) and the account's credentials.
Opener = Callable[[str, Account | None, Mapping[str, str]], Awaitable[Provider]]


class Providers(Protocol):
    """Where providers come from: `app` knows which there are."""

    def names(self) -> Sequence[str]:
        """Return the names of all providers that are installed."""

    def without_account(self) -> Sequence[str]:
        """Return the names of those that rent to a pool which names no account."""

    async def open(
        self, name: str, account: Account | None, credentials: Mapping[str, str]
    ) -> Provider:
        """Return a provider for an account."""


@dataclass(slots=True)
class _Offer:
    types: tuple[MachineType, ...]
    trouble: str
    until: float


class Catalogue:
    """Providers by account, and what they offer."""

    def __init__(self, store: Store, clock: Clock, seal: Seal, providers: Providers) -> None:
        self._store, self._clock, self._seal, self._providers = store, clock, seal, providers
        self._open: dict[tuple[str, str], tuple[int, Provider]] = {}
        self._offers: dict[tuple[str, str], _Offer] = {}

    def names(self) -> Sequence[str]:
        """Return the names of the providers that there are."""
        return self._providers.names()

    def without_account(self) -> Sequence[str]:
        """Return the names of the providers that need no account."""
        return self._providers.without_account()

    async def provider(self, name: str, account: str) -> Provider:
        """Return the provider of a pool, opened with its account as it is now."""
        key = (name, account)
        if name not in self._providers.names():
            raise InvalidRequest(
                f"there is no provider {name!r}; there are {', '.join(self._providers.names())}",
                provider=name,
            )
        row: Account | None = None
        credentials: dict[str, str] = {}
        version = 0
        if account:
            row, credentials, version = await self._store.read(lambda c: self._account(c, account))
        known = self._open.get(key)
        if known is not None and known[0] == version:
            return known[1]
        opened = await self._providers.open(name, row, credentials)
        self._open[key] = version, opened
        if known is not None:
            await known[1].close()
            self._offers.pop(key, None)
        return opened

    def _account(self, connection: Connection, name: str) -> tuple[Account, dict[str, str], int]:
        row = find_row(connection, accounts, {"name": name})
        if row is None:
            raise NotFound(f"there is no account {name!r}", account=name)
        return (
            account_of(row),
            open_credentials(connection, self._seal, name),
            int(row["version"]),
        )

    def types(self, pool: Pool, now: float) -> tuple[tuple[MachineType, ...], str]:
        """Return the types that a pool may rent, as known, and what is wrong with its provider."""
        offer = self._offers.get((pool.provider, pool.account))
        if offer is None:
            return (), ""
        return tuple(each for each in offer.types if may_rent(pool, each)), offer.trouble

    async def refresh(self, name: str, account: str) -> tuple[MachineType, ...]:
        """Ask a provider what it offers unless that is known; nothing when it does not answer."""
        key, now = (name, account), self._clock.monotonic()
        offer = self._offers.get(key)
        if offer is not None and now < offer.until:
            return offer.types
        try:
            async with asyncio.timeout(ANSWER_S):
                provider = await self.provider(name, account)
                types = tuple(await provider.machine_types())
            self._offers[key] = _Offer(types, "", now + FRESH_S)
            return types
        except RoostError as error:
            said = error.message
        except TimeoutError:
            said = f"{name} has not said for {ANSWER_S:.0f} s what it offers"
        except Exception as error:
            # Whatever an SDK throws: offers of other accounts are asked for all the same.
            log.exception("%s does not say what it offers", name)
            # Its words may hold what the account is opened with: they are for the log alone.
            said = f"an error that nobody expected: {type(error).__name__}; the log has more"
        types = offer.types if offer is not None else ()
        self._offers[key] = _Offer(types, said, self._clock.monotonic() + AGAIN_S)
        return types

    async def forget_others(self, accounts: Collection[tuple[str, str]]) -> None:
        """Close the providers of accounts that are not among these: they were deleted."""
        alone = {(name, "") for name in self.without_account()}
        for key in self._open.keys() - set(accounts) - alone:
            _, provider = self._open.pop(key)
            await provider.close()
        for key in self._offers.keys() - set(accounts) - alone:
            del self._offers[key]

    async def close(self) -> None:
        """Close all providers; machines stay."""
        for _, provider in self._open.values():
            await provider.close()
        self._open.clear()


def may_rent(pool: Pool, kind: MachineType) -> bool:
    """Say whether a pool may have machines of a type."""
    if pool.types and kind.name not in pool.types:
        return False
    return not pool.regions or not kind.regions or bool(set(pool.regions) & set(kind.regions))


def regions_for(pool: Pool, kind: MachineType) -> tuple[str, ...]:
    """Return where a pool's machine of a type may be, as the pool names it; empty: anywhere."""
    allowed = tuple(each for each in pool.regions if not kind.regions or each in kind.regions)
    return allowed or ("",)


def account_of(row: Mapping[str, object]) -> Account:
    """Return an account from its row."""
    options: dict[str, str] = msgspec.json.decode(str(row["options"]))
    return Account(
        name=str(row["name"]),
        provider=str(row["provider"]),
        project=str(row["project"]),
        options=tuple(sorted(options.items())),
    )


def open_credentials(connection: Connection, seal: Seal, name: str) -> dict[str, str]:
    """Return an account's credentials, opened; they go nowhere but to its provider."""
    row = find_row(connection, account_secrets, {"account": name})
    if row is None:
        return {}
    found: dict[str, str] = msgspec.json.decode(seal.open(f"account/{name}", row["secret"]))
    return found
