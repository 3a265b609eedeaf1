import asyncio

from sqlalchemy import select

from roost.ledger.tables import projects
from tests.databases import opened


def test_a_fresh_database_has_the_default_project(database_url: str) -> None:
    async def run() -> list[str]:
        async with opened(database_url) as store:
            return await store.read(lambda c: list(c.execute(select(projects.c.name)).scalars()))

    assert asyncio.run(run()) == ["default"]
