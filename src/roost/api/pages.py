"""The document of the API, as JSON and as a page that needs nothing from elsewhere."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from roost.api.openapi import document
from roost.parts.roles import ANYONE
from roost.parts.routes import Call, Route


class Pages:
    """The two routes that every table ends with; `table` is set once it is whole.

    The document is written when somebody first asks for it: most processes never are.
    """

    def __init__(self) -> None:
        self.table: Sequence[Route] = ()
        self._document = b""

    # fmt: off
    def routes(self) -> tuple[Route, ...]:
        """Return the routes of the OpenAPI document and its page."""
        return (
            Route(method="GET", path="/api/v1/openapi.json", noun="pages", verb="openapi",
                  call=self._openapi, roles=ANYONE, summary="This document", reply=dict),
            Route(method="GET", path="/api/v1/docs", noun="pages", verb="docs", call=self._docs,
                  roles=ANYONE, summary="This document as a page",
                  media="text/html; charset=utf-8", reply=str),
        )
    # fmt: on

    async def _openapi(self, call: Call) -> bytes:
        if not self._document:
            self._document = document(self.table)
        return self._document

    async def _docs(self, call: Call) -> bytes:
        return _page()


@cache
def _page() -> bytes:
    return files("roost.api").joinpath("docs.html").read_bytes()
