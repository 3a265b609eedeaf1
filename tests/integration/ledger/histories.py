"""Random histories of a ledger, and the law that they all keep: the events fold to the rows."""

from random import Random
from typing import Any

from sqlalchemy import Connection, select, update

from roost.base.errors import Conflict
from roost.ledger.claims.proposals import Proposal, Verdict
from roost.ledger.schema.amounts import LIMITS
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import (
    events,
    groups,
    host_amounts,
    host_counters,
    hosts,
    projects,
    tokens,
    tombstones,
    vms,
)
from roost.ledger.store import Store
from roost.ledger.upkeep.fold import FOLDED, counters_committed, fold, host_committed, projects_used
from roost.ledger.writes.transaction import Tx
from tests.examining import doctor
from tests.integration.ledger.records import (
    GIB,
    add_group,
    add_host,
    add_project,
    bury,
    delete_vm,
    proposal,
)


class History:
    """Makes random changes; many of them are refused, as they should be."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.random, self.number = store, Random(seed), 0
        self.vms: list[str] = []
        self.hosts = 0

    async def begin(self) -> None:
        """Make a little fleet."""
        for _ in range(3):
            await self.host()
        await self.store.write(lambda tx: add_project(tx, "lab", vms_quota=6))
        await self.store.write(lambda tx: add_group(tx, "soft", hard=False))
        await self.store.write(lambda tx: add_group(tx, "other", "affinity", hard=False))

    async def live(self, steps: int) -> None:
        """Do anything, in any order."""
        doing = [self.claim] * 6 + [
            self.delete, self.host, self.reshape, self.quota, self.token, self.grave, self.refused
        ]  # fmt: skip
        for _ in range(steps):
            await self.random.choice(doing)()

    def _name(self, kind: str) -> str:
        self.number += 1
        return f"{kind}-{self.number}"

    def _proposal(self) -> Proposal:
        random = self.random
        host = random.choice([None, *range(1, self.hosts + 2)])
        known = ["", "default/soft", "default/other"]
        # Whoever waits is not held to a generation, so its group must be there.
        group = random.choice(known if host is None else [*known, "default/none"])
        return proposal(
            self._name("vm"),
            host,
            generation=random.choice([1, 1, 1, 2]),
            project=random.choice(["default", "default", "lab", "none"]),
            name=f"n{random.randrange(40)}",
            cpu_milli=random.randrange(3000),
            memory_bytes=random.randrange(4 * GIB),
            disk_bytes=random.randrange(100 * GIB),
            counters=random.choice([(), (), [("x:fpga", random.randint(1, 3))], [("x:no", 1)]]),
            groups=[(group, random.randrange(4))] if group else [],
            rules=random.choice([None, None, 0, 1]),
            key=("s", f"k{random.randrange(60)}", random.choice("ab")),
        )

    async def _see_groups(self, asked: list[Proposal]) -> None:
        """Let most proposals quote the generations that groups have."""
        query = select(groups.c.id, groups.c.generation)
        seen = dict(await self.store.read(lambda c: [tuple(row) for row in c.execute(query)]))
        for each in asked:
            if self.random.random() < 0.8:
                each.groups = tuple((g, seen.get(g, at)) for g, at in each.groups)

    async def claim(self) -> None:
        asked = [self._proposal() for _ in range(self.random.randint(1, 8))]
        await self._see_groups(asked)
        atomic = self.random.random() < 0.1
        found = await self.store.claim(asked, ["test"] * len(asked), self.number, atomic=atomic)
        if atomic and any(outcome.verdict is not Verdict.KEPT for outcome in found):
            return
        for each, outcome in zip(asked, found, strict=True):
            if outcome.verdict is Verdict.KEPT:
                self.vms.append(each.vm.id)

    async def delete(self) -> None:
        if self.vms:
            vm = self.vms.pop(self.random.randrange(len(self.vms)))
            await self.store.write(lambda tx: delete_vm(tx, vm))

    async def host(self) -> None:
        self.hosts += 1
        counters = self.random.choice([None, {"x:fpga": 4}])
        await self.store.write(
            lambda tx: add_host(tx, self.hosts, cpu_milli=6000, max_vms=5, counters=counters)
        )

    async def reshape(self) -> None:
        """Change a host's row and its generation."""
        number = self.random.randint(1, self.hosts)

        def change(tx: Tx) -> None:
            row = tx.update(hosts, hosts.c.number == number, admin="cordoned", guard_stop_s=0.1)
            amounts = tx.update(host_amounts, host_amounts.c.host == number,
                                generation=host_amounts.c.generation + 1)  # fmt: skip
            assert amounts is not None
            shown = {name: amounts[name] for name in FOLDED["host_amounts"].shown}
            changes = {"hosts": {str(number): row}, "host_amounts": {str(number): shown}}
            tx.event("host.changed", f"host/h{number}", changes)

        await self.store.write(change)

    async def quota(self) -> None:
        limit = self.random.choice([None, 3, 10])

        def change(tx: Tx) -> None:
            row = tx.update(projects, projects.c.name == "lab", vms_quota=limit)
            assert row is not None
            shown = {name: row[name] for name in FOLDED["projects"].shown}
            tx.event("project.quota", "project/lab", {"projects": {"lab": shown}})

        await self.store.write(change)

    async def token(self) -> None:
        name = self._name("tok")
        row: dict[str, Any] = {
            "id": name, "kind": "api", "name": name, "role": "viewer", "project": None,
            "host": None, "created_ms": 0, "expires_ms": None,
        }  # fmt: skip

        def change(tx: Tx) -> None:
            tx.insert(tokens, {**row, "hash": "h"})
            tx.event("token.created", f"token/{name}", {"tokens": {name: row}})

        await self.store.write(change)

    async def grave(self) -> None:
        """Bury something, or say that the oldest grave is done."""
        name, host = self._name("gone"), self.random.randint(1, self.hosts)

        def change(tx: Tx) -> None:
            old = tx.row(select(tombstones).order_by(tombstones.c.vm).limit(1))
            if old is None:
                bury(tx, name, host)
                return
            tx.delete(tombstones, tombstones.c.vm == old["vm"])
            key = f"{old['vm']}|{old['host']}"
            tx.event("vm.cleaned", f"vm/{old['vm']}", {"tombstones": {key: None}})

        await self.store.write(change)

    async def refused(self) -> None:
        """Change a lot and then think better of it."""

        def change(tx: Tx) -> None:
            add_project(tx, "refused")
            tx.connection.execute(update(vms).values(observed="nonsense"))
            raise Conflict("no")

        try:
            await self.store.write(change)
        except Conflict:
            return
        raise AssertionError("a change that raised was kept")


def _rows(connection: Connection) -> tuple[list[Event], dict[str, Any], list[Any], list[Any]]:
    heard = [
        Event(**row._mapping) for row in connection.execute(select(events).order_by(events.c.seq))
    ]
    tables: dict[str, Any] = {}
    for name, folded in FOLDED.items():
        tables[name] = {
            "|".join(str(row[column]) for column in folded.key): {
                column: row[column] for column in folded.shown
            }
            for row in connection.execute(select(folded.table)).mappings()
        }
    amounts = [dict(row) for row in connection.execute(select(host_amounts)).mappings()]
    used = [dict(row) for row in connection.execute(select(projects)).mappings()]
    tables["host_counters"] = {
        (row.host, row.counter): row.committed
        for row in connection.execute(select(host_counters))
        if row.committed
    }
    return heard, tables, amounts, used


async def broken_laws(store: Store) -> list[str]:
    """Return how rows and events disagree: by the plain fold, and by what `doctor` finds."""
    heard, tables, amounts, used = await store.read(_rows)
    wrong = []
    if [event.seq for event in heard] != list(range(1, len(heard) + 1)):
        wrong.append("the sequence has a gap")
    folded = fold(heard)
    wrong += [
        f"{name} are not what events fold to"
        for name in FOLDED
        if folded.tables[name] != tables[name]
    ]
    names = LIMITS
    committed = {row["host"]: {n: row[f"{n}_committed"] for n in names} for row in amounts}
    if host_committed(folded) != committed:
        wrong.append("committed amounts are not the sums of claims")
    if counters_committed(folded) != tables["host_counters"]:
        wrong.append("counters are not the sums of claims")
    if projects_used(folded) != {r["name"]: {n: r[f"{n}_used"] for n in names} for r in used}:
        wrong.append("projects do not use what their VMs ask for")
    if any(row[f"{n}_committed"] > row[f"{n}_capacity"] for row in amounts for n in names):
        wrong.append("a host has promised more than it has")
    found = await doctor(store)
    return wrong + [f"{finding.check}: {finding.message}" for finding in found.findings]
