"""Creates and deletes without a pause, from a thread of its own, while a test breaks things.

`Background` is the thread, `Load` what goes on in it. Every call is carried to its answer: a client
repeats a create with the same key until somebody answers. So when the load has ended it is known
exactly which VMs must exist.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Self

from roost.base.errors import NotFound, RoostError
from roost.client import AsyncClient
from roost.wire.bodies import CreateVM, VMBody
from tests.system.processes import PATIENCE_S, small


class Background(ABC):
    """Runs clients in a thread of its own until the block ends; then says what went wrong."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="load")
        self._failure: BaseException | None = None

    @abstractmethod
    async def run(self) -> None:
        """Do the work until `stop` is set."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop.set()
        self._thread.join(2 * PATIENCE_S)
        assert not self._thread.is_alive()
        if error is None and self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            asyncio.run(self.run())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever ends the load
            self._failure = error


class Load(Background):
    """Use it as a context manager: inside, the load is on; after it, `kept` is the truth."""

    def __init__(
        self,
        clients: Callable[[], list[AsyncClient]],
        *,
        seed: int,
        workers: int = 8,
        delete_share: float = 0.3,
        pause_s: float = 0.0,
        make: Callable[[str], CreateVM] = small,
    ) -> None:
        super().__init__()
        self._make_clients = clients
        self._seed, self._workers = seed, workers
        self._delete_share, self._pause_s, self._make = delete_share, pause_s, make
        self.kept: dict[str, VMBody] = {}
        self.deleted: set[str] = set()
        self.refused: Counter[str] = Counter()

    async def run(self) -> None:
        """Let all workers create and delete."""
        clients = self._make_clients()
        try:
            async with asyncio.TaskGroup() as group:
                for at in range(self._workers):
                    group.create_task(self._worker(at, clients[at % len(clients)]))
        finally:
            for client in clients:
                await client.aclose()

    async def _worker(self, number: int, client: AsyncClient) -> None:
        random = Random(f"{self._seed}-{number}")
        mine: list[str] = []
        turn = 0
        while not self.stop.is_set():
            turn += 1
            if mine and random.random() < self._delete_share:
                await self._delete(client, mine.pop(random.randrange(len(mine))))
                continue
            vm = self._make(f"w{number}-{turn}")
            try:
                made = await client.create_vm(vm, key=f"{self._seed}-{vm.name}")
            except RoostError as error:
                self.refused[error.code] += 1
                continue
            assert made.name == vm.name
            self.kept[made.id] = made
            mine.append(made.id)
            if self._pause_s:
                await asyncio.sleep(self._pause_s)

    async def _delete(self, client: AsyncClient, vm: str) -> None:
        with suppress(NotFound):  # an earlier try, whose answer was lost, did it
            await client.delete_vm(vm)
        del self.kept[vm]
        self.deleted.add(vm)
