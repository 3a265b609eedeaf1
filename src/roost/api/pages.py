"""The document of the API, as JSON and as a page that needs nothing from elsewhere."""

from functools import cache
from importlib.resources import files

from roost.api.answers import Answer
from roost.api.calls import Call


async def openapi(call: Call[None, None]) -> Answer:
    """Return the OpenAPI document."""
    return Answer(200, call.site.document)


async def docs(call: Call[None, None]) -> Answer:
    """Return the page that shows it."""
    return Answer(
        200,
        _page(),
        (
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", b"default-src 'self' 'unsafe-inline'"),
        ),
    )


@cache
def _page() -> bytes:
    return files("roost.api").joinpath("docs.html").read_bytes()
