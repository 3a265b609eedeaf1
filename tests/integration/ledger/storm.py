"""Many clients that place and claim at once, each on its own view of the rows.

A client reads hosts, groups and generations in one view, chooses places that the rules allow there,
and claims; what is stale it places again. So whatever the ledger lets through wrongly ends as a
broken rule, and `doctor` says which.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sqlalchemy import Connection, select

from roost.ledger.claims.proposals import Proposal, Verdict
from roost.ledger.schema.tables import counters, events, groups, host_amounts, members, vms
from roost.ledger.store import DatabaseUnavailable, InDoubt, Store
from roost.ledger.writes.transaction import Tx
from tests.examining import doctor
from tests.integration.ledger.records import add_group, add_host, add_project, delete_vm, proposal

HOSTS = 6
#: Of each rule: many, so that clients meet again and again in groups that are not full yet.
GROUPS = 12
#: Of the project `lab`.
QUOTA = 25


def prepare(tx: Tx) -> None:
    """Six hosts of twelve cores, a project with a quota, and groups with hard rules."""
    for number in range(1, HOSTS + 1):
        add_host(tx, number, cpu_milli=12_000, counters={"x:fpga": 2})
    add_project(tx, "lab", vms_quota=QUOTA)
    for number in range(GROUPS):
        add_group(tx, f"apart-{number}")
        add_group(tx, f"even-{number}", "spread")


@dataclass(slots=True)
class View:
    """What one client knows when it decides."""

    free: dict[int, int] = field(default_factory=dict)
    shapes: dict[int, int] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    places: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))


def look(connection: Connection) -> View:
    """Read a view."""
    view = View()
    for row in connection.execute(select(host_amounts)):
        view.free[row.host] = row.cpu_milli_capacity - row.cpu_milli_committed
        view.shapes[row.host] = row.generation
    for row in connection.execute(select(groups)):
        view.generations[row.id] = row.generation
    placed = select(members.c.group_id, vms.c.host).join(vms, vms.c.id == members.c.vm)
    for group, host in connection.execute(placed.where(vms.c.host.is_not(None))):
        view.places[group][host] += 1
    return view


def choose(view: View, random: Random, vm_id: str, group: str) -> Proposal | None:
    """Place one VM as the rules allow on this view, and charge the view with it."""
    apart, even = group.startswith("default/apart"), group.startswith("default/even")
    there = view.places[group]
    fewest = min(there[host] for host in view.free) if view.free else 0
    allowed = [
        host
        for host, free in view.free.items()
        if free >= 1000 and not (apart and there[host]) and not (even and there[host] > fewest)
    ]
    if not allowed:
        return None
    host = random.choice(allowed)
    view.free[host] -= 1000
    if group:
        there[host] += 1
    return proposal(
        vm_id,
        host,
        generation=view.shapes[host],
        project=random.choice(["default", "lab", "lab"]),
        counters=[("x:fpga", 1)] if random.random() < 0.2 else [],
        groups=[(group, view.generations[group])] if group else [],
        key=("s", vm_id, "d"),
    )


@dataclass(slots=True)
class Truth:
    """What the callers were told of each VM."""

    kept: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    in_doubt: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    verdicts: Counter[str] = field(default_factory=Counter)


async def client(
    store: Store,
    truth: Truth,
    name: str,
    turns: int,
    *,
    deletes: bool,
    meet: asyncio.Barrier | None = None,
) -> None:
    """Place and claim, a few at a time; sometimes delete one's own."""
    random = Random(name)
    mine: list[str] = []
    for turn in range(turns):
        try:
            view = await store.read(look)
        except DatabaseUnavailable:
            truth.verdicts["unread"] += 1
            continue
        if meet is not None:
            await meet.wait()
        wanted = [f"vm-{name}-{turn}-{n}" for n in range(random.randint(1, 4))]
        # Clients take the groups in the same order, so that they meet.
        group = random.choice(["", f"apart-{turn % GROUPS}", f"even-{turn % GROUPS}"])
        group = group and f"default/{group}"
        chosen = [choose(view, random, vm_id, group) for vm_id in wanted]
        asked = [each for each in chosen if each is not None]
        ids = [each.vm.id for each in asked]
        try:
            outcomes = await store.claim(asked, ["test"] * len(asked), 0)
        except InDoubt:
            truth.in_doubt.update(ids)
            truth.verdicts["in_doubt"] += len(ids)
        except DatabaseUnavailable:
            truth.refused.update(ids)
            truth.verdicts["unavailable"] += len(ids)
        else:
            for vm_id, outcome in zip(ids, outcomes, strict=True):
                truth.verdicts[outcome.verdict.value] += 1
                if outcome.verdict is Verdict.KEPT:
                    truth.kept.add(vm_id)
                    mine.append(vm_id)
                else:
                    truth.refused.add(vm_id)
        if deletes and mine and random.random() < 0.5:
            await _delete(store, truth, mine.pop(random.randrange(len(mine))))


async def _delete(store: Store, truth: Truth, vm_id: str) -> None:
    try:
        await store.write(lambda tx: delete_vm(tx, vm_id))
    except InDoubt:
        truth.kept.discard(vm_id)
        truth.in_doubt.add(vm_id)
    except DatabaseUnavailable:
        truth.verdicts["not_deleted"] += 1
    else:
        truth.kept.discard(vm_id)
        truth.deleted.add(vm_id)


async def storm(
    stores: Sequence[Store],
    *,
    clients: int = 8,
    turns: int = 12,
    deletes: bool = False,
    name: str = "c",
    together: bool = False,
) -> Truth:
    """Let clients loose on the stores, several to each.

    `together`: in each turn all of them look before any of them claims, so that they meet for
    certain however the machine is loaded. For databases that do not fail.
    """
    truth = Truth()
    meet = asyncio.Barrier(clients) if together else None
    running = [
        client(stores[n % len(stores)], truth, f"{name}{n}", turns, deletes=deletes, meet=meet)
        for n in range(clients)
    ]
    await asyncio.gather(*running)
    return truth


async def crowd(stores: Sequence[Store], truth: Truth) -> None:
    """Let many claim the first host without looking: more than it has, and more than the quota."""
    asked = [
        proposal(
            f"vm-crowd-{n}",
            1,
            project="lab" if n % 2 else "default",
            counters=[("x:fpga", 1)] if n % 3 else [],
        )
        for n in range(4 * QUOTA)
    ]
    claims = [stores[n % len(stores)].claim([each], ["test"], 0) for n, each in enumerate(asked)]
    for each, [outcome] in zip(asked, await asyncio.gather(*claims), strict=True):
        truth.verdicts[outcome.verdict.value] += 1
        (truth.kept if outcome.verdict is Verdict.KEPT else truth.refused).add(each.vm.id)


async def verify(store: Store, truth: Truth) -> list[str]:
    """Return every way in which the rows differ from the laws and from what callers were told."""
    found = await doctor(store)
    wrong = [f"{finding.check}: {finding.message}" for finding in found.findings]
    # Deletions may leave a spread uneven; nothing else may be worth a note.
    wrong += [
        f"{note.check}: {note.message}"
        for note in found.notes
        if note.check != "uneven_spread" or not truth.deleted
    ]
    there = set(await store.read(lambda c: list(c.execute(select(vms.c.id)).scalars())))
    wrong += [f"{vm} was kept, but is not there" for vm in truth.kept - there]
    wrong += [f"{vm} was not kept, but is there" for vm in (truth.refused | truth.deleted) & there]
    wrong += [f"nobody asked for {vm}" for vm in there - truth.kept - truth.in_doubt]
    return wrong


async def read_along(store: Store, until: asyncio.Event) -> list[str]:
    """Resume by sequence again and again; return what was missed or out of order."""
    last, wrong = 0, []
    head = select(counters.c.value).where(counters.c.name == "events")

    def page(connection: Connection) -> tuple[list[int], int]:
        query = select(events.c.seq).where(events.c.seq > last).order_by(events.c.seq).limit(50)
        return list(connection.execute(query).scalars()), connection.execute(head).scalar_one()

    reached: Any = -1
    while not (until.is_set() and last == reached):
        try:
            found, reached = await store.read(page)
        except DatabaseUnavailable:
            continue
        if found != list(range(last + 1, last + 1 + len(found))):
            wrong.append(f"after {last} came {found}")
        last = found[-1] if found else last
    return wrong
