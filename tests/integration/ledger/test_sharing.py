"""Changes that share a commit: one that is refused hurts nobody else."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from roost.base.errors import InvariantBroken
from roost.ledger.claims.proposals import Verdict
from roost.ledger.schema.tables import projects
from roost.ledger.writes.transaction import Tx
from tests.databases import opened
from tests.examining import doctor
from tests.integration.ledger.records import add_host, add_project, proposal


def _raises(tx: Tx) -> None:
    add_project(tx, "broken")
    raise ValueError("no")


def _violates(tx: Tx) -> None:
    add_project(tx, "broken")
    add_project(tx, "default")  # which is there


@pytest.mark.parametrize(("broken", "error"), [(_raises, ValueError), (_violates, InvariantBroken)])
def test_a_change_that_fails_leaves_nothing_and_hurts_nobody_else(
    database_url: str, broken: Callable[[Tx], None], error: type[Exception]
) -> None:
    async def run() -> None:
        async with opened(database_url) as store:
            await store.write(lambda tx: add_host(tx, 1))
            many = [store.write(lambda tx, n=n: add_project(tx, f"p{n}")) for n in range(10)]
            many.insert(5, store.write(broken))
            claimed = store.claim([proposal("vm-1", 1)], ["test"], 0)
            *answers, outcomes = await asyncio.gather(*many, claimed, return_exceptions=True)
            assert [type(each) for each in answers if each is not None] == [error]
            assert not isinstance(outcomes, BaseException)
            assert outcomes[0].verdict is Verdict.KEPT
            there = await store.read(lambda c: list(c.execute(select(projects.c.name)).scalars()))
            assert set(there) == {"default", *(f"p{n}" for n in range(10))}
            assert (await doctor(store)).ok

    asyncio.run(run())


def test_a_change_that_nobody_waits_for_any_more_is_made_or_not_but_never_by_halves(
    database_url: str,
) -> None:
    async def run() -> None:
        async with opened(database_url) as store:
            await store.write(lambda tx: add_host(tx, 1))
            for turn in range(20):
                asked = [proposal(f"vm-{turn}-{n}", 1, cpu_milli=10) for n in range(5)]
                claiming = asyncio.ensure_future(store.claim(asked, ["test"] * 5, 0))
                for _ in range(turn):
                    await asyncio.sleep(0)
                claiming.cancel()
                await asyncio.gather(claiming, return_exceptions=True)
            await store.write(lambda tx: add_project(tx, "after"))
            assert (await doctor(store)).ok

    asyncio.run(run())


def test_batches_of_creates_are_committed_one_after_the_other(tmp_path: Path) -> None:
    """While one is written the loop makes the next; other changes share a commit with one."""
    heard: list[list[str]] = []

    async def run() -> None:
        async with opened(f"sqlite:///{tmp_path}/roost.db") as store:
            await store.write(lambda tx: add_host(tx, 1))
            store.listener = lambda events: heard.append([event.subject for event in events])
            held = threading.Event()
            first = asyncio.create_task(store.write(lambda tx: held.wait(30)))
            await asyncio.sleep(0.05)  # the writer has it
            rest = [
                asyncio.create_task(each)
                for each in (
                    store.claim([proposal("vm-1", 1)], ["test"], 0),
                    store.write(lambda tx: tx.event("project.changed", "project/a", {})),
                    store.claim([proposal("vm-2", 1), proposal("vm-3", 1)], ["test"] * 2, 0),
                    store.claim([proposal("vm-4", 1)], ["test"], 0),
                )
            ]
            await asyncio.sleep(0)
            held.set()
            await asyncio.gather(first, *rest)

    asyncio.run(run())
    assert heard == [["vm/vm-1", "project/a"], ["vm/vm-2", "vm/vm-3"], ["vm/vm-4"]]
