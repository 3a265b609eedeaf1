import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import delete, insert, text, update

from roost.ledger.claims.proposals import Verdict
from roost.ledger.schema.tables import (
    claims,
    events,
    groups,
    holds,
    host_amounts,
    host_counters,
    hosts,
    members,
    projects,
    tombstones,
    vms,
)
from roost.ledger.store import Store
from roost.ledger.upkeep import checks, examination, fold
from roost.ledger.writes.transaction import Tx
from roost.wire.bodies import DoctorBody
from tests.databases import opened
from tests.examining import doctor
from tests.integration.ledger.records import (
    add_group,
    add_host,
    add_project,
    bury,
    proposal,
    release,
    vm_row,
)

Break = Callable[[Tx], object]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ('[{"id": "vm-1"}]', "host h1 has VM vm-1 (running): not on the list"),
        (f'[{{"id": "{"v" * 9000}", "seen": "odd"}}]', f"host h1 has VM {'v' * 200} (odd): not on"),
        ('[{"name": "x"}]', "what host h1 has beside its list cannot be read"),
        ("[{", "what host h1 has beside its list cannot be read"),
    ],
)
def test_what_a_host_once_said_of_other_vms_never_stops_the_doctor(
    sqlite_url: str, held: str, said: str
) -> None:
    async def whole() -> None:
        async with opened(sqlite_url) as store:
            await store.write(prepare)
            change = update(hosts).where(hosts.c.number == 1).values(name="h1", held=held)
            await store.write(lambda tx: tx.connection.execute(change).rowcount)
            told = await doctor(store)
            assert [each for each in told.troubles if said in str(each)], told

    asyncio.run(whole())


def prepare(tx: Tx) -> None:
    """Four hosts in two zones, one of them with an accelerator; a project; three groups."""
    for number in range(1, 5):
        counters = {"x:fpga": 4} if number == 1 else None
        add_host(tx, number, zone=f"z{number % 2}", rack=f"r{number}", counters=counters)
    add_project(tx, "lab", vms_quota=10)
    add_group(tx, "apart")
    add_group(tx, "together", "affinity", scope="zone")
    add_group(tx, "even", "spread", scope="zone")


async def populate(store: Store) -> None:
    await store.write(prepare)
    asked = [
        proposal("vm-1", 1, groups=[("default/apart", 0)]),
        proposal("vm-2", 2, groups=[("default/apart", 0)]),
        proposal("vm-3", 1, groups=[("default/together", 0)]),
        proposal("vm-4", 3, groups=[("default/together", 0)]),
        proposal("vm-5", 1, counters=[("x:fpga", 3)], project="lab"),
        proposal("vm-6", None, project="lab"),
        proposal("vm-7", 3, groups=[("default/even", 0)]),
        proposal("vm-8", 4, groups=[("default/even", 0)]),
    ]
    outcomes = await store.claim(asked, ["test"] * len(asked), 0)
    assert {outcome.verdict for outcome in outcomes} == {Verdict.KEPT}


def examine(url: str, *broken: Break) -> DoctorBody:
    async def run() -> DoctorBody:
        async with opened(url) as store:
            await populate(store)
            for each in broken:
                await store.write(each)
            return await doctor(store)

    return asyncio.run(run())


def test_a_sound_ledger_has_no_findings(database_url: str) -> None:
    found = examine(database_url)
    assert found.ok
    assert (found.findings, found.notes) == ([], [])
    assert found.checked == {
        "committed": 4, "counters": 1, "quotas": 2, "claims": 7, "vms": 8, "specs": 8, "holds": 0,
        "tombstones": 0, "hosts": 4, "names": 12, "groups": 3, "sequence": 16, "reservations": 0,
        "series": 1, "predictions": 0, "policies": 0, "plans": 0,
        "ended VMs counted": 0,
        "fold": 8 + 8 + 7 + 3 + 6 + 2 + 4 + 4,
    }  # fmt: skip


def execute(statement: Any) -> Break:
    return lambda tx: tx.connection.execute(statement)


def move(vm: str, host: int | None, **values: Any) -> Break:
    """Move a VM and its claim without counting anything."""

    def change(tx: Tx) -> None:
        tx.connection.execute(update(vms).where(vms.c.id == vm).values(host=host, **values))
        tx.connection.execute(update(claims).where(claims.c.vm == vm).values(host=host))

    return change


#: What is broken, and the checks that must notice. `fold` notices whatever no event tells of.
BROKEN: Sequence[tuple[str, Break, set[str]]] = [
    ("a host has promised more than its claims",
     execute(update(host_amounts).where(host_amounts.c.host == 2).values(cpu_milli_committed=1001)),
     {"committed"}),
    ("a host keeps room free that nobody has asked for",
     execute(update(host_amounts).where(host_amounts.c.host == 2).values(cpu_milli_held=1)),
     {"held"}),
    ("a host does not keep what a hold asks for",
     lambda tx: tx.insert(holds, {
         "id": "r/0", "host": 2, "kind": "reservation", "owner": "r", "cpu_milli": 1,
         "memory_bytes": 0, "disk_bytes": 0, "vms": 0, "windows": "[[0,null]]",
     }),
     {"held", "fold"}),
    ("a host counts a VM too few",
     execute(update(host_amounts).where(host_amounts.c.host == 2).values(vms_committed=0)),
     {"committed"}),
    ("an idle host has promised something",
     execute(update(host_amounts).where(host_amounts.c.host == 4).values(disk_bytes_committed=1)),
     {"committed"}),
    ("a host's capacity is below what it has promised",
     execute(update(host_amounts).where(host_amounts.c.host == 1).values(cpu_milli_capacity=2999)),
     {"over_capacity", "fold"}),
    ("a counter is off",
     execute(update(host_counters).values(committed=2)),
     {"counters"}),
    ("a counter's capacity is below what it has promised",
     execute(update(host_counters).values(capacity=2)),
     {"over_capacity"}),
    ("a counter is gone", execute(delete(host_counters)), {"counters"}),
    ("a project uses more than its VMs",
     execute(update(projects).where(projects.c.name == "lab").values(memory_bytes_used=0)),
     {"quotas"}),
    ("a project forgot a VM that waits",
     execute(update(projects).where(projects.c.name == "lab").values(vms_used=1)),
     {"quotas"}),
    ("a VM's project is gone",
     execute(delete(projects).where(projects.c.name == "lab")),
     {"quotas", "fold"}),
    ("a placed VM has no claim",
     lambda tx: release(tx, tx.rows(claims.select().where(claims.c.vm == "vm-2"))[0]),
     {"vms", "fold"}),
    ("a VM without a host has a claim",
     execute(update(vms).where(vms.c.id == "vm-2").values(host=None)),
     {"claims", "fold"}),
    ("a VM and its claim are on different hosts",
     execute(update(vms).where(vms.c.id == "vm-2").values(host=3)),
     {"claims", "vms", "fold"}),
    ("a VM moves without room at its target",
     execute(update(vms).where(vms.c.id == "vm-2").values(target=3, phase="preparing")),
     {"vms", "fold"}),
    ("room is held for a move that is not",
     lambda tx: tx.update(claims, claims.c.id == "vm-2:run", id="vm-2:migrate_in",
                          kind="migrate_in"),
     {"claims", "vms", "fold"}),
    ("room is held for nothing",
     lambda tx: tx.update(claims, claims.c.id == "vm-2:run", id="vm-2:hold", kind="hold"),
     {"holds", "vms", "fold"}),
    ("a claim has another's name",
     execute(update(claims).where(claims.c.id == "vm-2:run").values(id="vm-9:run")),
     {"claims", "vms", "fold"}),
    ("a VM is to be destroyed where it should run", lambda tx: bury(tx, "vm-2", 2),
     {"tombstones"}),
    ("a VM is on a host that is gone",
     execute(delete(hosts).where(hosts.c.number == 2)),
     {"hosts", "fold"}),
    ("a host has no amounts",
     execute(delete(host_amounts).where(host_amounts.c.host == 4)),
     {"hosts", "fold"}),
    ("two that should be apart share a host", move("vm-2", 1), {"groups", "committed", "fold"}),
    ("two that should be together are in two zones",
     move("vm-4", 4), {"groups", "committed", "fold"}),
    ("a member is in no zone",
     execute(update(hosts).where(hosts.c.number == 3).values(inventory="{}")),
     {"groups", "fold"}),
    ("a member is no VM",
     execute(insert(members).values(group_id="default/apart", vm="vm-99")),
     {"groups", "fold"}),
    ("a member's group is gone",
     execute(delete(groups).where(groups.c.id == "default/even")),
     {"groups", "fold"}),
    ("an event is gone", execute(delete(events).where(events.c.seq == 3)), {"sequence", "fold"}),
    ("the last event is gone",
     execute(delete(events).where(events.c.seq == 16)),
     {"sequence", "fold"}),
    ("the counter of events ran ahead",
     execute(text("UPDATE counters SET value = value + 1 WHERE name = 'events'")), {"sequence"}),
    ("a row changed without an event",
     execute(update(vms).where(vms.c.id == "vm-1").values(observed="running")), {"fold"}),
    ("a row came without an event",
     lambda tx: tx.insert(tombstones, {"vm": "vm-0", "host": 1, "generation": 1,
                                       "project": "lab", "created_ms": 0}),
     {"fold"}),
    ("an event tells of a row that never was",
     lambda tx: tx.event("vm.created", "vm/vm-0", {"vms": {"vm-0": vm_row("vm-0")}}), {"fold"}),
    ("a group's generation moved without an event",
     execute(update(groups).where(groups.c.id == "default/apart").values(generation=9)), {"fold"}),
    ("a quota changed without an event",
     execute(update(projects).where(projects.c.name == "lab").values(vms_quota=11)), {"fold"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("break_it", "checks"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN]
)
def test_what_is_broken_is_found(database_url: str, break_it: Break, checks: set[str]) -> None:
    found = examine(database_url, break_it)
    assert not found.ok
    assert {finding.check for finding in found.findings} == checks


def test_two_vms_of_one_name_are_found(sqlite_url: str) -> None:
    async def run() -> DoctorBody:
        async with opened(sqlite_url) as store:
            await populate(store)

            def change(tx: Tx) -> None:
                # The database itself forbids it: only a table without its constraint can show it.
                tx.connection.execute(text("ALTER TABLE vms RENAME TO old_vms"))
                tx.connection.execute(text("CREATE TABLE vms AS SELECT * FROM old_vms"))
                tx.connection.execute(text("UPDATE vms SET name = 'vm-1' WHERE id = 'vm-2'"))

            await store.write(change)
            return await doctor(store)

    found = asyncio.run(run())
    assert [finding.message for finding in found.findings if finding.check == "names"] == [
        "2 VMs are called 'default/vm-1'"
    ]


def test_an_uneven_spread_is_noted_but_nothing_is_broken(database_url: str) -> None:
    async def run() -> DoctorBody:
        async with opened(database_url) as store:
            await populate(store)
            asked = [proposal("vm-9", 3, groups=[("default/even", 2)])]
            outcomes = await store.claim(asked, ["test"], 0)
            assert outcomes[0].verdict is Verdict.KEPT
            even = (await doctor(store)).notes
            asked = [proposal("vm-10", 1, groups=[("default/even", 3)])]
            await store.claim(asked, ["test"], 0)
            assert even == []
            return await doctor(store)

    found = asyncio.run(run())
    assert found.ok
    assert [note.check for note in found.notes] == ["uneven_spread"]


def test_a_long_list_of_findings_is_cut(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MOST_TOLD", 3)
    monkeypatch.setattr(examination, "MOST_TOLD", 3)
    found = examine(database_url, execute(update(vms).values(observed="running")))
    assert [finding.check for finding in found.findings] == ["fold"] * 4
    assert "more than 3" in found.findings[-1].message


def test_a_ledger_of_many_pages_and_passes_is_folded_as_well(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "PAGE", 3)
    monkeypatch.setattr(fold, "MOST_ROWS", 5)
    assert examine(database_url).ok


def test_a_difference_is_found_in_whichever_pass_it_is(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "PAGE", 3)
    monkeypatch.setattr(fold, "MOST_ROWS", 5)
    found = examine(sqlite_url, execute(update(vms).values(observed="running")))
    assert len([finding for finding in found.findings if finding.check == "fold"]) == 8
