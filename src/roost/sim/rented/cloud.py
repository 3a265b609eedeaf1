"""A simulated cloud: it keeps its own books, and what it says of them may be late, lost or twice.

A request goes on though nobody waits for its answer any more: a machine may come into being minutes
after whoever asked for it was killed. What it has is the truth that laws compare the ledger with.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from roost.base.units import GIB
from roost.model.job import CloudMachine, Launch, MachineType
from roost.providers.base import OWNER_TAG, tag_of
from roost.providers.errors import (
    MachineGone,
    NoCapacity,
    ProviderError,
    QuotaReached,
    Throttled,
    Unreachable,
)
from roost.sim.ground.lives import Life

T = TypeVar("T")

SMALL = MachineType("small", 2000, 4 * GIB, 0, price_micro=100_000, spot_price_micro=30_000)
LARGE = MachineType("large", 8000, 32 * GIB, 0, price_micro=360_000, spot_price_micro=110_000)
#: How long a list may not show what was made, or still show what is gone.
MOST_LATE_S = 40.0


@dataclass(slots=True)
class Rented:
    """A machine that costs money until `gone_at`."""

    cloud_id: str
    launch: Launch
    made_at: float
    listed_at: float
    twin: bool = False  # a second one of the same launch
    gone_at: float | None = None
    unlisted_at: float = float("inf")

    def shown(self) -> CloudMachine:
        """Return the machine as the port tells it."""
        return CloudMachine(
            cloud_id=self.cloud_id,
            machine=self.launch.token,
            state="running" if self.gone_at is None else "gone",
            type=self.launch.type.name,
            region=self.launch.region,
            market=self.launch.market,
        )


@dataclass(slots=True)
class Weather:
    """How likely each thing goes wrong; nothing does in a calm."""

    fails: float = 0.0  # a request is refused
    lost: float = 0.0  # its answer is lost, whatever was done
    twice: float = 0.0  # a launch makes two machines
    slow_s: float = 0.5  # how long an answer takes at most
    stuck: float = 0.0  # an answer takes minutes
    late: bool = False  # lists are late


@dataclass(slots=True)
class SimCloud:
    """Implements `Provider`; one for the whole world."""

    random: Random
    life: Life  # of the cloud, which never ends
    note: Callable[[str, str, str], None]
    began: Callable[[Rented], None]
    ended: Callable[[Rented], None]
    name: str = "sim"
    weather: Weather = field(default_factory=Weather)
    rented: dict[str, Rented] = field(default_factory=dict)
    #: Asked before a machine is ended, with who asks: a law looks whether it is in use.
    before_end: Callable[[Rented], None] = lambda rented: None

    async def machine_types(self) -> Sequence[MachineType]:
        """Return what is offered."""
        await self._way()
        return SMALL, LARGE

    async def launch(self, launch: Launch) -> CloudMachine:
        """Rent a machine, or return the one that this token made."""
        return await self._ask("launch", lambda: self._launch(launch))

    async def describe(self, cloud_id: str) -> CloudMachine:
        """Return one machine."""
        await self._way()
        found = self.rented.get(cloud_id)
        if found is None or found.gone_at is not None:
            raise MachineGone(self.name, f"there is no {cloud_id}")
        return found.shown()

    async def machines(self, owner: str) -> Sequence[CloudMachine]:
        """Return an owner's machines as far as lists show them by now."""
        return await self._ask("list", lambda: self._list(owner))

    async def terminate(self, cloud_id: str) -> None:
        """Give a machine back."""
        await self._ask("terminate", lambda: self._terminate(cloud_id))

    async def close(self) -> None:
        """Close nothing: there are no connections."""

    # What is done

    def _launch(self, launch: Launch) -> CloudMachine:
        mine = [each for each in self.rented.values() if each.launch.token == launch.token]
        if living := [each for each in mine if each.gone_at is None]:
            return living[0].shown()
        if mine:
            raise MachineGone(self.name, f"the machine of {launch.token} was ended")
        made = self._make(launch)
        if self.random.random() < self.weather.twice:
            self.note("fault.cloud_twice", launch.token, "launch")
            twin = self._make(launch)
            twin.twin = True
        return made.shown()

    def _make(self, launch: Launch) -> Rented:
        now = asyncio.get_running_loop().time()
        late = self.random.uniform(0, MOST_LATE_S) if self.weather.late else 0.0
        made = Rented(f"i-{len(self.rented)}", launch, now, now + late)
        self.rented[made.cloud_id] = made
        self.note("rented", made.cloud_id, launch.token)
        self.began(made)
        return made

    def _list(self, owner: str) -> list[CloudMachine]:
        now = asyncio.get_running_loop().time()
        return [
            each.shown()
            for each in self.rented.values()
            if each.listed_at <= now < each.unlisted_at
            and tag_of(each.launch.tags, OWNER_TAG) == owner
        ]

    def _terminate(self, cloud_id: str) -> None:
        found = self.rented.get(cloud_id)
        if found is not None and found.gone_at is None:
            self.before_end(found)
            self.end(found)

    def end(self, machine: Rented) -> None:
        """End a machine: it was given back, or the cloud takes it."""
        if machine.gone_at is not None:
            return
        now = asyncio.get_running_loop().time()
        late = self.random.uniform(0, MOST_LATE_S / 4) if self.weather.late else 0.0
        machine.gone_at, machine.unlisted_at = now, now + late
        self.note("ended", machine.cloud_id, machine.launch.token)
        self.ended(machine)

    # The way there and back

    async def _way(self) -> None:
        await asyncio.sleep(0.01 + self.random.random() * self.weather.slow_s)

    async def _ask(self, verb: str, work: Callable[[], T]) -> T:
        """Carry a request to the cloud and its answer back; the cloud goes on by itself."""
        task = self.life.spawn(self._do(verb, work))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        found, error = await asyncio.shield(task)
        if error is not None:
            raise error
        return found  # type: ignore[no-any-return]

    async def _do(
        self, verb: str, work: Callable[[], T]
    ) -> tuple[T | None, ProviderError | Exception | None]:
        random, weather = self.random, self.weather
        await self._way()
        if random.random() < weather.stuck:
            self.note("fault.cloud_stuck", verb, "")
            await asyncio.sleep(random.uniform(60, 200))
        if random.random() < weather.fails:
            self.note("fault.cloud_fails", verb, "")
            return None, self._trouble(verb)
        try:
            found = work()
        except ProviderError as error:
            return None, error
        await self._way()
        if random.random() < weather.lost:
            self.note("fault.cloud_lost", verb, "")
            return None, Unreachable(self.name, "no answer came")
        return found, None

    def _trouble(self, verb: str) -> Exception:
        kinds: list[Callable[[], Exception]] = [
            lambda: Throttled(self.name, "too many requests"),
            lambda: Unreachable(self.name, "connection refused"),
        ]
        if verb == "launch":
            kinds += [
                lambda: NoCapacity(self.name, "none is left"),
                lambda: QuotaReached(self.name, "the account may have no more"),
            ]
        return self.random.choice(kinds)()
