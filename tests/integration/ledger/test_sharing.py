"""Changes that share a commit: one that is refused hurts nobody else."""

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import select

from roost.base.errors import InvariantBroken
from roost.ledger.claims import Verdict
from roost.ledger.tables import projects
from roost.ledger.transaction import Tx
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
