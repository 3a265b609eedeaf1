"""An event loop on virtual time: nothing ever waits, and the same program runs the same way again.

When nothing is ready the clock jumps to the next timer. When there is no next timer either, what
waits would wait for ever, and that is an error. Work for threads is done at once, in line.
"""

import asyncio
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


class NothingLeft(Exception):
    """Everybody waits and nothing will ever happen."""


class VirtualLoop(BaseEventLoop):
    """A loop whose time is a number."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = self  # asked for what is ready, as a selector would be
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Return the virtual seconds since the world began."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Let time pass until the next timer."""
        if timeout is None:
            raise NothingLeft("everybody waits, and no timer is set")
        if timeout > 0:
            self._now = max(self._now, self._scheduled[0]._when)  # type: ignore[attr-defined]
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Process no events: there are no sockets."""

    def _write_to_self(self) -> None:
        """Wake nobody: there are no other threads."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Run a thread's work at once, in this thread."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits it
            future.set_exception(error)
        return future
