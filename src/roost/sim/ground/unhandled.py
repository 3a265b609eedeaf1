"""An exception that nobody handles, in any task of a world, breaks a law.

Heard here: what a callback raises, what a task or future ended with and nobody asked for, and what
a loop of a service logged with its traceback and lived on. A process that was killed handles
nothing (`Dead`), and neither does one whose tasks were cancelled.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from roost.sim.ground.lives import Dead


class _Heard(logging.Handler):
    """Hears of exceptions that were logged and survived."""

    def __init__(self, tell: Callable[[str, BaseException], None]) -> None:
        super().__init__(logging.ERROR)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Tell of a record that has an exception with it."""
        if record.exc_info and isinstance(record.exc_info[1], BaseException):
            self._tell(record.getMessage(), record.exc_info[1])


@contextmanager
def services_log_nothing() -> Iterator[None]:
    """Keep what services log below an error out of sight: in worlds it goes wrong on purpose.

    Around the loop and not within it: a loop that ends too early leaves its coroutines, and what
    they would have put back, to the garbage collector.
    """
    logger = logging.getLogger("roost")
    level, told_on, handlers = logger.level, logger.propagate, list(logger.handlers)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.propagate = told_on
        logger.handlers[:] = handlers


@contextmanager
def hear_unhandled(tell: Callable[[str], None]) -> Iterator[None]:
    """Tell of every exception that nobody handles on the running loop, while this lasts."""

    def heard(where: str, error: BaseException) -> None:
        if not _is_death(error):
            tell(f"nobody handled {type(error).__name__}: {error} ({where})")

    def of_loop(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            task = context.get("task") or context.get("future")
            name = getattr(getattr(task, "get_coro", lambda: None)(), "__qualname__", "")
            heard(name or str(context.get("message", "")), error)

    loop, logger = asyncio.get_running_loop(), logging.getLogger("roost")
    handler = _Heard(heard)
    loop.set_exception_handler(of_loop)
    logger.addHandler(handler)
    try:
        yield
        gc.collect()  # a task that ended with an exception may still wait in a cycle
    finally:
        logger.removeHandler(handler)
        loop.set_exception_handler(lambda loop, context: None)  # from here on everybody is killed


def _is_death(error: BaseException) -> bool:
    """Say whether an exception only says that its process was killed."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_death, error.exceptions))
    return isinstance(error, Dead | asyncio.CancelledError)
