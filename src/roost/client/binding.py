"""How a function that makes a call becomes a method of both clients.

A type checker sees the method of a `Client` return the answer, and that of an `AsyncClient` a
coroutine of it; arguments and docstring are the function's.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from roost.client.calls import Call

P = ParamSpec("P")
T = TypeVar("T")


class Sends(Protocol):
    """A client that waits for its answers."""

    def send(self, call: Call[T], /) -> T: ...


class SendsAsync(Protocol):
    """A client for asyncio."""

    def send(self, call: Call[T], /) -> Coroutine[Any, Any, T]: ...


class Method(Generic[P, T]):
    """A method that makes a call and sends it."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self._make = make

    @overload
    def __get__(self, client: None, kind: type, /) -> Callable[P, Call[T]]: ...
    @overload
    def __get__(self, client: Sends, kind: type, /) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: SendsAsync, kind: type, /) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, kind: type, /) -> Callable[P, Any]:
        make = self._make
        if client is None:  # asked of the class, as help() does
            return make

        @functools.wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(make(*args, **kwargs))

        return method
