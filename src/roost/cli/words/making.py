"""What commands share that make, change and list named things: options, and all pages of a list."""

from collections.abc import Callable
from typing import Annotated, Protocol, TypeVar

import typer

KeyOption = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="Idempotency key: the same key creates only once."),
]
DescriptionOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What it is there for.")
]


class Page(Protocol):
    """A piece of a list, and where the next one begins."""

    next: str | None


P = TypeVar("P", bound=Page)
T = TypeVar("T")


def every_page(ask: Callable[[str | None], P], rows_of: Callable[[P], list[T]]) -> list[T]:
    """Return the rows of all pages, asked for one after the other."""
    page = ask(None)
    found = rows_of(page)
    while page.next is not None:
        page = ask(page.next)
        found += rows_of(page)
    return found
