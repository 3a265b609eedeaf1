"""One call of the API as a value: what to send, and how to read what comes back."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec.json import Decoder

from roost.base.errors import InvalidRequest, InvariantBroken
from roost.wire.bodies import Request

T = TypeVar("T")

API = "/api/v1"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request to one route. `T` is what a good answer is read as.

    A `creates` call carries an idempotency key. A `repeatable` call may be sent again when its
    answer was lost: the second time changes nothing that the first did not.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    query: tuple[tuple[str, str], ...] = ()
    body: Request | None = None
    creates: bool = False
    repeatable: bool = True
    key: str | None = None  # the caller's own idempotency key
    bearer: str | None = None  # a token for this call alone
    accepts: tuple[int, ...] = ()  # statuses beside 2xx whose body is an answer too

    @property
    def removes(self) -> bool:
        """Say whether it takes something away and gets no body back."""
        return self.method == "DELETE" and self.read is nothing


def path(*parts: str) -> str:
    """Return a path below the API; parts that people typed are quoted.

    A slash would be one of the path's own to the server, quoted or not, and `..` another path.
    """
    for part in parts[1:]:
        if not part:
            raise InvalidRequest(
                f"an empty name is none of the {parts[0]}",
                hint="Maybe a variable of the shell is not set.",
            )
        if "/" in part or part in (".", ".."):
            raise InvalidRequest(
                f"{part!r} is none of the {parts[0]}: no name has a slash or is dots alone"
            )
    return "/".join((API, *(quote(part, safe="") for part in parts)))


def query(**given: object) -> tuple[tuple[str, str], ...]:
    """Return the parameters that were given; a sequence repeats its name."""
    pairs: list[tuple[str, str]] = []
    for name, value in given.items():
        values = value if isinstance(value, list | tuple) else () if value is None else (value,)
        pairs += [(name, str(each)) for each in values]
    return tuple(pairs)


@cache
def _decoder(kind: Hashable) -> Decoder[Any]:
    return Decoder(cast("type[Any]", kind))


def reads(kind: type[T]) -> Callable[[bytes], T]:
    """Return the reader of a JSON body of this kind."""

    def read(content: bytes) -> T:
        try:
            # Made when first used: preparing all of them would cost every command its start.
            found: T = _decoder(cast(Hashable, kind)).decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvariantBroken(
                f"the server's answer cannot be read: {error}",
                hint="Maybe client and server are of different versions.",
            ) from error
        return found

    return read


def nothing(content: bytes) -> None:
    """Read an answer that has no body."""


def text(content: bytes) -> str:
    """Read an answer that is plain text."""
    return content.decode(errors="replace")
