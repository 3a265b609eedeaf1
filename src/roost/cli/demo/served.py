"""Tours of a control plane: the server is started, and asked over HTTP and by its events."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from roost.app import demo
from roost.app.demo import stage
from roost.base.clock import Clock
from roost.cli.demo.runner import Screen, Stage, Tour, typed_command, typed_path
from roost.cli.demo.tape import Tape
from roost.cli.show.screen import note
from roost.wire.bodies import HostBody

if TYPE_CHECKING:
    from roost.client import AsyncClient

S = TypeVar("S", bound=demo.Stage)


class ServedTour(Tour, Generic[S]):
    """A tour of a control plane that runs on a stage with its agents."""

    #: What is said before anything is there.
    about: ClassVar[tuple[str, ...]]
    #: What shows something from the beginning on.
    first_try: ClassVar[str] = "vm list"
    _client: "AsyncClient"
    _tape: Tape

    def __init__(self, clock: Clock, screen: Screen, stage: S) -> None:
        super().__init__(clock, screen, clock.monotonic())
        self._stage = stage

    @classmethod
    @abstractmethod
    async def prepare(cls) -> Callable[[Path, Clock, Callable[[str], None]], S]:
        """Return what makes the stage of this tour, once all that it needs is there."""

    async def start(self, port: int) -> None:
        """Start the control plane, and say where it is."""
        await self._stage.start_server(port)
        server, log = self._stage.context.server, self._stage.log
        self.stays = (
            f"The API documents itself at {server}/api/v1/docs; log: {typed_path(log)}",
            "It serves until Ctrl-C.",
        )
        self.closing = f"Everything has ended; the log stays in {typed_path(log)}."
        self.hint = f"Maybe {log} tells why."
        self.summary |= {"server": server, "folder": str(self._stage.folder)}
        self._screen.lines(
            "",
            f"The control plane is ready after {self._clock.monotonic() - self.began:.1f} s: "
            f"{server}",
            f"Try at once, in a second terminal: {typed_command()} {self.first_try}",
        )

    async def run(self) -> None:
        """Take every step of the tour, with a client and the events since the beginning."""
        from roost.client import AsyncClient

        context = self._stage.context
        async with (
            AsyncClient(context.server, context.token) as self._client,
            Tape(self._client) as self._tape,
        ):
            await super().run()

    async def stay(self) -> None:
        """Serve until cancelled; agents that are killed come back."""
        await self._stage.serve()

    async def _hosts(self) -> list[HostBody]:
        return (await self._client.list_hosts(limit=100)).hosts


def staging(tour: type[ServedTour[S]], folder: Path, port: int) -> Stage:
    """Return what sets a tour's stage in a folder, starts its control plane and yields the tour."""

    @asynccontextmanager
    async def staged(clock: Clock, screen: Screen) -> AsyncIterator[ServedTour[S]]:
        make = await tour.prepare()
        screen.lines(*tour.about, "Everything is on loopback and ends with this command.")
        async with stage(make, folder, clock, note) as made:
            begun = tour(clock, screen, made)
            await begun.start(port)
            yield begun

    return staged
