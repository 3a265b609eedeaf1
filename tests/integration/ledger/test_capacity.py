"""Capacity against a plain twin: any sequence of charges, releases, resizes, holds and sets.

The twin adds and compares in Python what the ledger adds and compares in SQL. After each step both
have the same sums; a step that is refused changes nothing, and no sum ever grows past its limit.
"""

import asyncio
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import select, text

from roost.ledger.claims import capacity
from roost.ledger.claims.capacity import (
    CLEANUP,
    RUN,
    charge,
    charge_project,
    charge_projects,
    claim_id,
    hold_instead,
    release,
    resize_claim,
    set_capacity,
    uncharge_project,
)
from roost.ledger.claims.proposals import Verdict
from roost.ledger.postgres.claims import _from_arrays, _keep_all_text
from roost.ledger.schema.amounts import AMOUNTS, LIMITS, NOTHING, Amounts
from roost.ledger.schema.rows import ClaimRow, VMRow
from roost.ledger.schema.tables import claims, host_amounts, host_counters, metadata, projects
from roost.ledger.sqlite.rows import _charge as on_sqlite
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from tests.databases import opened
from tests.integration.ledger.records import add_host, add_project, claim_of, proposal, vm_row

HOSTS = (1, 2, 3)
COUNTER = "x:licence"
MOST_VMS = 6


class Refused(Exception):
    """Leaves a transaction."""


@dataclass
class Host:
    """What a host can promise and has promised."""

    capacity: Amounts
    counter: int
    committed: Amounts = NOTHING
    vms: int = 0
    counted: int = 0

    def takes(self, amounts: Amounts, counted: int) -> bool:
        fits = amounts.fits(self.committed, self.capacity) and self.vms < MOST_VMS
        return fits and (not counted or self.counted + counted <= self.counter)

    def add(self, amounts: Amounts, vms: int, counted: int) -> None:
        self.committed = self.committed.plus(amounts)
        self.vms += vms
        self.counted += counted


@dataclass
class Twin:
    """The books in plain Python."""

    hosts: dict[int, Host]
    quota: Amounts
    used: Amounts = NOTHING
    claims: dict[str, tuple[ClaimRow, int]] = field(default_factory=dict)  # with its counter
    vms: dict[str, VMRow] = field(default_factory=dict)

    def sums(self) -> dict[str, Any]:
        sums: dict[str, Any] = {"project": (*self.used, len(self.vms))}
        for number, host in self.hosts.items():
            sums[f"host {number}"] = (*host.committed, host.vms, host.counted)
        sums["claims"] = sorted(
            (row.id, row.host, row.kind, *row.amounts) for row, _ in self.claims.values()
        )
        return sums


def _sums(connection: Any) -> dict[str, Any]:
    project = connection.execute(select(projects).where(projects.c.name == "p")).mappings().one()
    sums: dict[str, Any] = {"project": tuple(project[f"{name}_used"] for name in LIMITS)}
    counted = {
        row.host: row.committed
        for row in connection.execute(select(host_counters.c.host, host_counters.c.committed))
    }
    for row in connection.execute(select(host_amounts)).mappings():
        own = tuple(row[f"{name}_committed"] for name in LIMITS)
        sums[f"host {row['host']}"] = (*own, counted[row["host"]])
    rows = connection.execute(select(claims)).mappings()
    sums["claims"] = sorted(
        (row["id"], row["host"], row["kind"], *(row[name] for name in AMOUNTS)) for row in rows
    )
    return sums


class Books:
    """The ledger and its twin, changed together by chance."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.store, self.chance = store, chance
        self.twin = Twin({}, Amounts(12, 15, 18))
        self._last = 0

    async def begin(self) -> None:
        quotas = {
            f"{name}_quota": most for name, most in zip(AMOUNTS, self.twin.quota, strict=True)
        }
        await self.store.write(lambda tx: add_project(tx, "p", **quotas))
        for number in HOSTS:
            host = self.twin.hosts[number] = Host(self._amounts(12), 3)
            given = host.capacity._asdict() | {"counters": {COUNTER: 3}, "max_vms": MOST_VMS}
            await self.store.write(lambda tx, n=number, g=given: add_host(tx, n, **g))

    def _amounts(self, most: int) -> Amounts:
        return Amounts._make(self.chance.randint(0, most) for _ in AMOUNTS)

    def _new(self) -> tuple[VMRow, int, int]:
        self._last += 1
        vm = vm_row(f"vm-{self._last}", project="p", **self._amounts(5)._asdict())
        return vm, self.chance.choice(HOSTS), self.chance.choice((0, 0, 1, 2))

    def _one_of(self, *kinds: str) -> tuple[ClaimRow, int] | None:
        found = [each for each in self.twin.claims.values() if each[0].kind in kinds]
        return self.chance.choice(found) if found else None

    async def step(self) -> str | None:
        """Change both; return how they differ."""
        steps = (self._create, self._create, self._charge, self._release, self._resize, self._hold,
                 self._set)  # fmt: skip
        step = self.chance.choice(steps)
        agreed = await step()
        ours, theirs = self.twin.sums(), await self.store.read(_sums)
        if not agreed:
            return f"{step.__name__}: one refused, the other did not"
        wrong = [f"{key}: {theirs[key]} is not {ours[key]}" for key in ours if ours != theirs]
        return f"{step.__name__}: {wrong}" if ours != theirs else None

    async def _create(self) -> bool:
        """Claim as creates do: several in one batch, each kept or turned away by itself."""
        asked = [self._new() for _ in range(self.chance.randint(1, 4))]
        counters = [[(COUNTER, counted)] if counted else [] for _, _, counted in asked]
        batch = [
            proposal(vm.id, host, counters=counter, project="p", **vm.amounts._asdict())
            for (vm, host, _), counter in zip(asked, counters, strict=True)
        ]
        found = await self.store.claim(batch, ["test"] * len(batch), 0)
        agreed = True
        for (vm, host, counted), outcome in zip(asked, found, strict=True):
            kept = outcome.verdict is Verdict.KEPT
            if kept:
                # Who of a batch is kept may rest on the order of steps: the sums decide.
                agreed &= self._takes(vm, host, counted)
                self._take(vm, host, counted)
        if len(batch) == 1:
            vm, host, counted = asked[0]
            agreed &= bool(found[0].verdict is Verdict.KEPT) or not self._takes(vm, host, counted)
        return agreed

    def _takes(self, vm: VMRow, host: int, counted: int) -> bool:
        fits = self.twin.hosts[host].takes(vm.amounts, counted)
        return fits and vm.amounts.fits(self.twin.used, self.twin.quota)

    def _take(self, vm: VMRow, host: int, counted: int) -> None:
        claim = claim_of(vm, host, RUN, {COUNTER: counted} if counted else None)
        self.twin.hosts[host].add(vm.amounts, 1, counted)
        self.twin.used = self.twin.used.plus(vm.amounts)
        self.twin.claims[claim.id] = claim, counted
        self.twin.vms[vm.id] = vm

    async def _charge(self) -> bool:
        """The same within an ordinary transaction."""
        vm, host, counted = self._new()
        claim = claim_of(vm, host, RUN, {COUNTER: counted} if counted else None)

        def change(tx: Tx) -> None:
            if not charge(tx, claim, 1) or charge_project(tx, "p", vm.amounts, 1):
                raise Refused

        kept = await self._try(change)
        if kept != self._takes(vm, host, counted):
            return False
        if kept:
            self._take(vm, host, counted)
        return True

    async def _release(self) -> bool:
        found = self._one_of(RUN, CLEANUP)
        if found is None:
            return True
        claim, counted = found
        vm = self.twin.vms.pop(claim.vm)

        def change(tx: Tx) -> None:
            release(tx, claim)
            uncharge_project(tx, vm)

        await self.store.write(change)
        del self.twin.claims[claim.id]
        self.twin.hosts[claim.host].add(claim.amounts.negative(), -1, -counted)
        self.twin.used = self.twin.used.minus(vm.amounts)
        return True

    async def _resize(self) -> bool:
        found = self._one_of(RUN)
        if found is None:
            return True
        claim, counted = found
        new, vm = self._amounts(6), self.twin.vms[claim.vm]
        more = new.minus(claim.amounts)

        def change(tx: Tx) -> None:
            if resize_claim(tx, claim, new) is None or charge_project(tx, "p", more, 0):
                raise Refused

        host = self.twin.hosts[claim.host]
        fits = more.fits(host.committed, host.capacity)
        expected = fits and more.fits(self.twin.used, self.twin.quota)
        if await self._try(change) != expected:
            return False
        if expected:
            resized = claim_of(vm_row(vm.id, **new._asdict()), claim.host, RUN)
            resized.counters = claim.counters
            self.twin.claims[claim.id] = resized, counted
            self.twin.vms[vm.id] = vm_row(vm.id, project="p", **new._asdict())
            host.add(more, 0, 0)
            self.twin.used = self.twin.used.plus(more)
        return True

    async def _hold(self) -> bool:
        found = self._one_of(RUN)
        if found is None:
            return True
        claim, counted = found
        await self.store.write(lambda tx: hold_instead(tx, claim) and None)
        del self.twin.claims[claim.id]
        held = ClaimRow(**{**_fields(claim), "id": claim_id(claim.vm, CLEANUP), "kind": CLEANUP})
        self.twin.claims[held.id] = held, counted
        return True

    async def _set(self) -> bool:
        """A host comes back with other amounts, maybe less than it has promised."""
        number = self.chance.choice(HOSTS)
        host = self.twin.hosts[number]
        host.capacity, host.counter = self._amounts(14), self.chance.randint(0, 4)
        new = (host.capacity, MOST_VMS, {COUNTER: host.counter})
        await self.store.write(lambda tx: set_capacity(tx, number, *new))
        return True

    async def _try(self, change: Callable[[Tx], None]) -> bool:
        try:
            await self.store.write(change)
        except Refused:
            return False
        return True


def _fields(claim: ClaimRow) -> dict[str, Any]:
    return {name: getattr(claim, name) for name in claim.__struct_fields__}


def difference(url: str, seed: int, steps: int = 60) -> str | None:
    """Return the first difference between the ledger and its twin."""

    async def run() -> str | None:
        async with opened(url) as store:
            books = Books(store, random.Random(seed))
            await books.begin()
            for _ in range(steps):
                found = await books.step()
                if found is not None:
                    return found
            return None

    return asyncio.run(run())


@pytest.mark.parametrize("seed", range(4))
def test_the_ledger_adds_and_refuses_as_its_twin_does(database_url: str, seed: int) -> None:
    assert difference(database_url, seed) is None


def _without(name: str, pattern: str) -> Callable[[pytest.MonkeyPatch], None]:
    def change(patch: pytest.MonkeyPatch) -> None:
        real = getattr(capacity, name)
        shorter = re.sub(pattern, "", real.update)
        assert shorter != real.update
        patch.setattr(capacity, name, real._replace(update=shorter))

    return change


def _counters_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(capacity, "counters_in", lambda claim: {})


def _a_hold_holds_nothing(patch: pytest.MonkeyPatch) -> None:
    real = capacity.hold_instead

    def hold(tx: Tx, claim: ClaimRow) -> Any:
        capacity.charge_host(tx, claim.host, claim.amounts.negative(), -1)
        return real(tx, claim)

    patch.setitem(globals(), "hold_instead", hold)


def _a_set_forgets_promises(patch: pytest.MonkeyPatch) -> None:
    real = capacity.set_capacity

    def set_it(tx: Tx, host: int, *given: Any) -> None:
        real(tx, host, *given)
        tx.change(host_amounts, {"host": host}, **NOTHING.columns("committed"))

    patch.setitem(globals(), "set_capacity", set_it)


@pytest.mark.parametrize(
    "break_it",
    [
        _without("CHARGE_HOSTS", r"AND \(u\.memory_bytes <= 0 OR .*_capacity\)"),
        _without("CHARGE_HOSTS", r"memory_bytes_committed = .*\n"),
        _without("CHARGE_HOSTS", r"u\.disk_bytes <= 0 OR "),
        _without("CHARGE_PROJECTS", r"AND \(u\.cpu_milli <= 0 OR .*_quota\)"),
        _without("CHARGE_COUNTERS", r"AND \(u\.amount <= 0 OR .*\)"),
        _counters_are_kept,
        _a_hold_holds_nothing,
        _a_set_forgets_promises,
    ],
)
def test_a_ledger_that_adds_wrongly_is_caught(
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
) -> None:
    break_it(monkeypatch)
    assert difference(database_url, 1, steps=150) is not None


# A further base resource

_MORE = (*LIMITS, "bandwidth")


def test_a_further_base_resource_is_in_every_statement() -> None:
    hosts, of_projects = capacity.charge_hosts(_MORE), charge_projects(_MORE)
    texts = [
        on_sqlite(hosts, 2), on_sqlite(of_projects, 2),
        _from_arrays(hosts), _from_arrays(of_projects),
        str(capacity._in_transaction(hosts)), str(capacity._in_transaction(of_projects)),
        _keep_all_text(hosts, of_projects),
    ]  # fmt: skip
    for each in texts:
        for place in ("t.{}_", "u.{}", "{}_"):
            assert each.count(place.format("bandwidth")) == each.count(place.format("disk_bytes"))
        assert "t.bandwidth_" in each


def test_a_further_base_resource_is_charged_and_refused(database_url: str) -> None:
    hosts = capacity.charge_hosts(_MORE)

    def taken(tx: Tx, *amounts: int) -> bool:
        return capacity._charge(tx, hosts, 1, None, *amounts)

    def change(tx: Tx) -> list[bool]:
        for suffix in ("capacity", "committed", "held"):
            column = f"bandwidth_{suffix} BIGINT NOT NULL DEFAULT 0"
            tx.connection.execute(text(f"ALTER TABLE host_amounts ADD COLUMN {column}"))
        add_host(tx, 1)
        tx.connection.execute(text("UPDATE host_amounts SET bandwidth_capacity = 10"))
        return [taken(tx, 1, 1, 1, 1, amount) for amount in (6, 6, 4, -3, 3)]

    async def run() -> list[bool]:
        async with opened(database_url) as store:
            return await store.write(change)

    assert asyncio.run(run()) == [True, False, True, True, True]


def test_every_table_of_amounts_has_a_column_for_each() -> None:
    for table, suffixes in (
        ("vms", [""]), ("claims", [""]), ("holds", [""]),
        ("host_amounts", ["_capacity", "_committed", "_held"]), ("projects", ["_quota", "_used"]),
    ):  # fmt: skip
        for suffix in suffixes:
            assert {f"{name}{suffix}" for name in AMOUNTS} <= set(metadata.tables[table].c.keys())
    for row in (VMRow, ClaimRow):
        assert set(AMOUNTS) <= set(row.__struct_fields__)
