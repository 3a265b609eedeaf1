"""Every route there is, as data: what tests walk over."""

import asyncio

from roost.api.app import whole_table
from roost.api.pages import Pages
from roost.parts.routes import Route
from tests.api.planes import small_plane


async def _routes() -> tuple[Route, ...]:
    async with small_plane(load=False) as plane:
        return whole_table(plane, Pages())


ROUTES = asyncio.run(_routes())
