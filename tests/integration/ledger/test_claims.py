import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from sqlalchemy import func, select, update

from roost.ledger.claims.proposals import Outcome, Proposal, Verdict
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import (
    claims,
    counters,
    decisions,
    groups,
    host_amounts,
    idempotency,
    members,
    vms,
)
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from tests.databases import opened
from tests.examining import doctor
from tests.integration.ledger.records import GIB, add_group, add_host, add_project, proposal

KEPT, STALE, QUOTA = Verdict.KEPT, Verdict.STALE, Verdict.QUOTA


async def verdicts(
    store: Store, asked: Sequence[Proposal], *, atomic: bool = False
) -> list[Verdict]:
    return [o.verdict for o in await outcomes(store, asked, atomic=atomic)]


async def outcomes(
    store: Store, asked: Sequence[Proposal], *, atomic: bool = False
) -> list[Outcome]:
    return await store.claim(asked, ["test"] * len(asked), 7, atomic=atomic)


def run(url: str, test: Callable[[Store], Awaitable[None]]) -> None:
    async def both() -> None:
        async with opened(url) as store:
            await store.write(lambda tx: add_host(tx, 1, cpu_milli=4000, counters={"x:fpga": 2}))
            await store.write(lambda tx: add_host(tx, 2, cpu_milli=4000, max_vms=2))
            await test(store)
            found = await doctor(store)
            assert (found.findings, found.notes) == ([], [])

    asyncio.run(both())


async def count(store: Store, table: object) -> int:
    query = select(func.count()).select_from(table)  # type: ignore[arg-type]
    return await store.read(lambda c: int(c.execute(query).scalar_one()))


def test_a_batch_is_kept_as_far_as_there_is_room(database_url: str) -> None:
    async def test(store: Store) -> None:
        asked = [proposal(f"vm-{n}", 1) for n in range(6)]
        assert await verdicts(store, asked) == [KEPT] * 4 + [STALE] * 2
        assert await verdicts(store, [proposal("vm-9", 1)]) == [STALE]

    run(database_url, test)


@pytest.mark.parametrize(
    "asked",
    [{"cpu_milli": 4001}, {"memory_bytes": 65 * GIB}, {"disk_bytes": 501 * GIB},
     {"generation": 2}, {"counters": [("x:fpga", 3)]}, {"counters": [("x:none", 1)]},
     {"groups": [("default/g", 1)]}, {"groups": [("default/none", 0)]}, {"rules": 1},
     {"host": 9}],
    ids=str,
)  # fmt: skip
def test_what_has_moved_on_is_stale_and_leaves_nothing_behind(
    database_url: str, asked: dict[str, object]
) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda tx: add_group(tx, "g"))
        given = {"host": 1, "counters": [("x:fpga", 1)], **asked}
        turned_away = proposal("vm-1", key=("s", "k", "d"), **given)  # type: ignore[arg-type]
        stays = proposal("vm-2", 1, counters=[("x:fpga", 1)], groups=[("default/g", 0)])
        assert await verdicts(store, [turned_away, stays]) == [STALE, KEPT]
        for table in (vms, claims, members, decisions):
            assert await count(store, table) == 1
        assert await count(store, idempotency) == 0

    run(database_url, test)


def test_so_many_vms_and_no_more(database_url: str) -> None:
    async def test(store: Store) -> None:
        asked = [proposal(f"vm-{n}", 2, cpu_milli=1) for n in range(3)]
        assert await verdicts(store, asked) == [KEPT, KEPT, STALE]

    run(database_url, test)


def test_a_quota_is_exact_and_says_what_is_missing(database_url: str) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda tx: add_project(tx, "lab", cpu_milli_quota=2500, vms_quota=5))
        asked = [proposal(f"vm-{n}", 1, project="lab") for n in range(3)]
        found = await outcomes(store, asked)
        assert [outcome.verdict for outcome in found] == [KEPT, KEPT, QUOTA]
        assert found[2].quota == {"cpu_milli": {"quota": 2500, "used": 2000, "asked": 1000}}
        small = [proposal(f"vm-{n}", 1, project="lab", cpu_milli=500) for n in range(3, 5)]
        assert await verdicts(store, small) == [KEPT, QUOTA]

    run(database_url, test)


def test_a_vm_that_waits_counts_for_its_quota_and_takes_no_room(database_url: str) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda tx: add_project(tx, "lab", vms_quota=1))
        asked = [proposal(f"vm-{n}", None, project="lab") for n in range(2)]
        assert await verdicts(store, asked) == [KEPT, QUOTA]
        assert await count(store, claims) == 0

    run(database_url, test)


def test_a_project_that_is_not_there_is_said_so(database_url: str) -> None:
    async def test(store: Store) -> None:
        assert await verdicts(store, [proposal("vm-1", project="none")]) == [Verdict.NO_PROJECT]

    run(database_url, test)


def test_a_name_is_given_once_per_project(database_url: str) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda tx: add_project(tx, "lab"))
        asked = [
            proposal("vm-1", name="a"),
            proposal("vm-2", name="a"),
            proposal("vm-3", name="a", project="lab"),
        ]
        assert await verdicts(store, asked) == [KEPT, Verdict.NAME_TAKEN, KEPT]
        assert await verdicts(store, [proposal("vm-4", name="a")]) == [Verdict.NAME_TAKEN]

    run(database_url, test)


def test_vms_that_wait_are_refused_whole_like_those_with_a_host(database_url: str) -> None:
    """A batch that asks nothing of any host: a taken name or key leaves nothing of it behind."""

    async def test(store: Store) -> None:
        first = proposal("vm-1", None, name="a", key=("default", "k", "d"))
        assert await verdicts(store, [first]) == [KEPT]
        assert await verdicts(store, [proposal("vm-2", None, name="a")]) == [Verdict.NAME_TAKEN]
        again = proposal("vm-3", None, name="b", key=("default", "k", "d"))
        assert await verdicts(store, [again]) == [Verdict.REPLAYED]
        assert await count(store, vms) == 1

    run(database_url, test)


def test_a_key_answers_the_same_again_and_refuses_another_body(database_url: str) -> None:
    async def test(store: Store) -> None:
        first = proposal("vm-1", key=("s", "k", "body"))
        assert await verdicts(store, [first]) == [KEPT]
        again = [
            proposal("vm-2", key=("s", "k", "body")),
            proposal("vm-3", key=("s", "k", "other")),
            proposal("vm-4", key=("t", "k", "other")),
        ]
        found = await outcomes(store, again)
        assert [(o.verdict, o.detail) for o in found[:2]] == [
            (Verdict.REPLAYED, "vm-1"),
            (Verdict.KEY_REUSED, "vm-1"),
        ]
        assert found[2].verdict is KEPT

    run(database_url, test)


def test_one_key_twice_in_a_batch_is_one_vm(database_url: str) -> None:
    async def test(store: Store) -> None:
        asked = [proposal(f"vm-{n}", 1, name=f"n{n}", key=("s", "k", "d")) for n in range(3)]
        found = await outcomes(store, asked)
        assert sorted(o.verdict.value for o in found) == ["kept", "replayed", "replayed"]
        kept = next(p.vm.id for p, o in zip(asked, found, strict=True) if o.verdict is KEPT)
        assert {o.detail for o in found if o.verdict is Verdict.REPLAYED} == {kept}

    run(database_url, test)


def test_nobody_is_refused_for_the_sake_of_one_who_lost(database_url: str) -> None:
    """The first takes the name and the key for a moment, then loses its place."""

    async def test(store: Store) -> None:
        asked = [
            proposal("vm-1", 9, name="a", key=("s", "k", "d")),
            proposal("vm-2", 1, name="b", key=("s", "k", "d")),
            proposal("vm-3", 1, name="c", key=("s", "k", "other")),
            proposal("vm-4", 1, name="a"),
        ]
        assert await verdicts(store, asked) == [STALE] * 4
        assert await verdicts(store, asked[1:2]) == [KEPT]
        assert await verdicts(store, asked[3:]) == [KEPT]

    run(database_url, test)


def test_members_move_the_groups_generation(database_url: str) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda tx: add_group(tx, "g", scope="rack"))
        asked = [
            proposal("vm-1", 1, groups=[("default/g", 0)]),
            proposal("vm-2", 2, groups=[("default/g", 0)]),
            proposal("vm-3", None, groups=[("default/g", 0)]),
        ]
        assert await verdicts(store, asked) == [KEPT] * 3
        late = proposal("vm-4", 1, groups=[("default/g", 0)])
        assert await verdicts(store, [late]) == [STALE]
        found = await store.read(lambda c: c.execute(select(groups.c.generation)).scalar())
        assert found == 2
        assert await count(store, members) == 3

    run(database_url, test)


def test_each_proposal_is_held_to_the_generation_that_it_saw_itself(database_url: str) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda tx: add_group(tx, "g"))
        assert await verdicts(store, [proposal("vm-1", 1, groups=[("default/g", 0)])]) == [KEPT]
        asked = [
            proposal("vm-2", 2, groups=[("default/g", 1)]),
            proposal("vm-3", 1, groups=[("default/g", 0)]),  # did not see vm-1 there
        ]
        assert await verdicts(store, asked) == [KEPT, STALE]

    run(database_url, test)


def test_each_proposal_is_held_to_the_host_that_it_saw_itself(database_url: str) -> None:
    async def test(store: Store) -> None:
        bump = update(host_amounts).where(host_amounts.c.host == 1).values(generation=2)

        def change(tx: Tx) -> None:
            tx.connection.execute(bump)
            row = tx.row(select(host_amounts).where(host_amounts.c.host == 1))
            assert row is not None
            shown = {n: v for n, v in row.items() if n == "generation" or n.endswith("capacity")}
            tx.event("host.changed", "host/h1", {"host_amounts": {"1": shown}})

        await store.write(change)
        asked = [proposal(f"vm-{n}", 1, generation=1 + n % 2) for n in range(4)]
        assert await verdicts(store, asked) == [STALE, KEPT, STALE, KEPT]

    run(database_url, test)


def test_a_spread_rests_on_all_who_were_placed_before(database_url: str) -> None:
    """vm-2 and vm-4 are on host 2 only because vm-1 and vm-3 were to be on host 1."""

    async def test(store: Store) -> None:
        await store.write(lambda tx: add_group(tx, "even", "spread"))
        seen = [("default/even", 0)]
        asked = [proposal(f"vm-{n}", 2 - n % 2, groups=seen) for n in range(1, 5)]
        asked[0].host_generation = 9
        asked.append(proposal("vm-5", 1))
        assert await verdicts(store, asked) == [STALE] * 4 + [KEPT]

    run(database_url, test)


def test_all_or_none(database_url: str) -> None:
    async def test(store: Store) -> None:
        heard: list[Event] = []
        store.listener = heard.extend
        asked = [proposal("vm-1", 1), proposal("vm-2", 9)]
        assert STALE in await verdicts(store, asked, atomic=True)
        assert await count(store, vms) == 0
        good = [proposal("vm-1", 1), proposal("vm-2", 2)]
        assert await verdicts(store, good, atomic=True) == [KEPT, KEPT]
        await asyncio.sleep(0)
        assert [event.subject for event in heard] == ["vm/vm-1", "vm/vm-2"]

    run(database_url, test)


def test_label_rules_that_changed_are_noticed(database_url: str) -> None:
    async def test(store: Store) -> None:
        assert await verdicts(store, [proposal("vm-1", rules=0)]) == [KEPT]
        bump = update(counters).where(counters.c.name == "rules").values(value=1)
        await store.write(lambda tx: tx.connection.execute(bump) and None)
        asked = [proposal("vm-2", rules=0), proposal("vm-3", rules=1), proposal("vm-4")]
        assert await verdicts(store, asked) == [STALE, KEPT, KEPT]

    run(database_url, test)


def test_the_listener_hears_each_event_once_with_its_sequence(database_url: str) -> None:
    async def test(store: Store) -> None:
        heard: list[Event] = []
        store.listener = heard.extend
        await verdicts(store, [proposal(f"vm-{n}", 1) for n in range(3)])
        await verdicts(store, [proposal("vm-3", 9)])
        await verdicts(store, [proposal("vm-4", 1)])
        await asyncio.sleep(0)
        assert [event.seq for event in heard] == [3, 4, 5, 6]
        assert {event.kind for event in heard} == {"vm.created"}

    run(database_url, test)


def test_a_host_and_its_sums_survive_a_reopening(database_url: str) -> None:
    async def both() -> None:
        async with opened(database_url) as store:
            await store.write(lambda tx: add_host(tx, 1))
            await verdicts(store, [proposal("vm-1", 1)])
        async with opened(database_url) as store:
            query = select(host_amounts.c.cpu_milli_committed)
            assert await store.read(lambda c: c.execute(query).scalar()) == 1000
            assert (await doctor(store)).ok

    asyncio.run(both())
