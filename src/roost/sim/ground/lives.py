"""One life of a process: what ends when it is killed.

A crash runs no clean-up: its tasks are cancelled only after every port of this life has been shut,
so `finally` blocks find nothing that they could still change. Ports ask `check` first.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, Token
from typing import Any

_current: ContextVar["Life | None"] = ContextVar("life", default=None)


class Dead(BaseException):
    """The process that asks is dead. No `except Exception` may go on from here."""


class Life:
    """One incarnation of one process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen: asyncio.Event | None = None  # while it is stopped, not dead
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def check(self) -> None:
        """Raise Dead in a process that was killed."""
        if not self.alive:
            raise Dead(self.name)

    async def gate(self) -> None:
        """Wait while the process is frozen; raise Dead when it was killed."""
        self.check()
        while self.frozen is not None:
            await self.frozen.wait()
            self.check()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine in this life; tasks that it makes belong to this life too."""
        token = _current.set(self)
        try:
            return asyncio.get_running_loop().create_task(work)
        finally:
            _current.reset(token)

    def enter(self) -> "Token[Life | None]":
        """Enter this life: what follows belongs to it."""
        return _current.set(self)

    def leave(self, token: "Token[Life | None]") -> None:
        """Leave this life again."""
        _current.reset(token)

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        """Count a task to this life."""
        self._tasks[task] = None
        task.add_done_callback(self._forget)

    def end(self) -> None:
        """Kill the process: cancel its tasks."""
        self.alive = False
        if self.frozen is not None:
            self.frozen.set()
        for task in list(self._tasks):
            task.cancel()

    def freeze(self) -> None:
        """Freeze the process, as SIGSTOP does."""
        if self.frozen is None:
            self.frozen = asyncio.Event()

    def thaw(self) -> None:
        """Let the frozen process go on."""
        if self.frozen is not None:
            self.frozen.set()
            self.frozen = None

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)


def task_factory(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **given: Any
) -> "asyncio.Task[Any]":
    """Make tasks that belong to the life that makes them."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **given)
    life = _current.get()
    if life is not None:
        life.adopt(task)
    return task
