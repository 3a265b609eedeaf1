"""A cloud and workers that pretend, for tests of jobs: every fault is one that a real one has.

`ModelCloud` fills the provider's port and passes its conformance suite; `ModelWorker` speaks the
workers' protocol with the door itself. Both do only what the test lets them do next.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from roost.model.job import Account, CloudMachine, Launch, MachineType
from roost.parts.access import Principal
from roost.providers.base import OWNER_TAG, tag_of
from roost.providers.errors import MachineGone, ProviderError
from roost.wire.workerlink import (
    Assignment,
    AttemptReport,
    AttemptSeen,
    WorkerCapacity,
    WorkerJoin,
    WorkerJoined,
    WorkerOrders,
    WorkerPoll,
)

GIB = 2**30
SMALL = MachineType("small", 2000, 4 * GIB, 0, price_micro=100_000, spot_price_micro=30_000)
LARGE = MachineType("large", 8000, 32 * GIB, 0, price_micro=360_000, spot_price_micro=110_000)


@dataclass(slots=True)
class ModelCloud:
    """A provider in memory."""

    types: Sequence[MachineType] = (SMALL, LARGE)
    name: str = "model"
    rented: dict[str, tuple[Launch, CloudMachine]] = field(default_factory=dict)  # by token
    gone: set[str] = field(default_factory=set)  # cloud ids
    launches: list[Launch] = field(default_factory=list)
    #: Raised by the next launches, one each; an error after which the machine is there all the same
    #: stands with True.
    faults: list[tuple[ProviderError, bool]] = field(default_factory=list)
    terminate_faults: list[ProviderError] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)  # tokens that lists do not show yet
    untracked: set[str] = field(default_factory=set)  # tokens that a test has made up

    async def machine_types(self) -> Sequence[MachineType]:
        """Return what is offered."""
        return self.types

    async def launch(self, launch: Launch) -> CloudMachine:
        """Rent a machine, or return the one that this token made."""
        self.launches.append(launch)
        fault, made = self.faults.pop(0) if self.faults else (None, True)
        if made and launch.token not in self.rented:
            machine = CloudMachine(
                cloud_id=f"i-{len(self.rented)}",
                machine=launch.token,
                state="running",
                type=launch.type.name,
                region=launch.region,
                market=launch.market,
            )
            self.rented[launch.token] = launch, machine
        if fault is not None:
            raise fault
        return await self.describe(self.rented[launch.token][1].cloud_id)

    async def describe(self, cloud_id: str) -> CloudMachine:
        """Return one machine."""
        for _, machine in self.rented.values():
            if machine.cloud_id == cloud_id and cloud_id not in self.gone:
                return machine
        raise MachineGone(self.name, f"there is no {cloud_id}")

    async def machines(self, owner: str) -> Sequence[CloudMachine]:
        """Return an owner's machines that are not gone."""
        return [
            machine
            for launch, machine in self.rented.values()
            if machine.cloud_id not in self.gone
            and launch.token not in self.hidden
            and tag_of(launch.tags, OWNER_TAG) == owner
        ]

    async def terminate(self, cloud_id: str) -> None:
        """Give a machine back."""
        if self.terminate_faults:
            raise self.terminate_faults.pop(0)
        self.gone.add(cloud_id)

    async def close(self) -> None:
        """Close the cloud, which has no connections."""

    @property
    def running(self) -> list[str]:
        """Return the tokens of machines that cost money now."""
        return [t for t, (_, machine) in self.rented.items() if machine.cloud_id not in self.gone]


class ModelClouds:
    """Where a test's providers come from."""

    def __init__(self, cloud: ModelCloud) -> None:
        self.cloud = cloud
        self.opened: list[tuple[Account | None, Mapping[str, str]]] = []

    def names(self) -> Sequence[str]:
        """Return the names of all providers."""
        return (self.cloud.name,)

    def without_account(self) -> Sequence[str]:
        """Return the names of those that need no account."""
        return (self.cloud.name,)

    async def open(
        self, name: str, account: Account | None, credentials: Mapping[str, str]
    ) -> ModelCloud:
        """Return the cloud, and remember with what it was opened."""
        self.opened.append((account, credentials))
        return self.cloud


class Door(Protocol):
    """The door of workers."""

    async def join(self, body: WorkerJoin, bearer: str) -> WorkerJoined:
        """Trade a join token for a credential."""

    async def poll(self, body: WorkerPoll, who: Principal) -> WorkerOrders:
        """Say what a machine has, and learn what it should have."""


#: How an attempt ends by itself: given its assignment, the report without its name.
Ending = Callable[[Assignment], dict[str, Any]]
State = Literal["waiting", "fetching", "running", "ending"]


def completes(assignment: Assignment) -> dict[str, Any]:
    """End an attempt with exit code 0."""
    return {"outcome": "completed", "exit_code": 0, "run_ms": 10}


class ModelWorker:
    """A worker of one machine; it starts what fits and ends it when the test says so.

    A real machine keeps a part of its memory for itself, and some have fewer cores to give than
    they are called: `reserve` and `cpu_reserve` of what its type has.
    """

    def __init__(
        self,
        door: Door,
        launch: Launch,
        instance: str = "one",
        reserve: float = 0.0,
        cpu_reserve: float = 0.0,
    ) -> None:
        self._door, self.launch, self.instance = door, launch, instance
        self._memory_bytes = launch.type.memory_bytes - round(reserve * launch.type.memory_bytes)
        self._cpu_milli = launch.type.cpu_milli - round(cpu_reserve * launch.type.cpu_milli)
        self.machine = launch.token
        self.who = Principal(f"machine/{self.machine}", "worker", host=self.machine)
        self.attempts: dict[str, tuple[Assignment, State]] = {}
        self.finished: dict[str, AttemptReport] = {}
        self.started: list[str] = []  # every start, in order
        self.sequence = 0
        self.left = self.draining = False
        self.notice: Literal["", "reclaim", "leaving"] = ""

    async def join(self) -> WorkerJoined:
        """Join with the token that the machine was launched with."""
        body = WorkerJoin(machine=self.machine)
        return await self._door.join(body, self.launch.bootstrap.join_token)

    def message(self) -> WorkerPoll:
        """Return the next poll."""
        self.sequence += 1
        kind = self.launch.type
        return WorkerPoll(
            instance=self.instance,
            sequence=self.sequence,
            attempts=[AttemptSeen(attempt=a, state=s) for a, (_, s) in self.attempts.items()],
            finished=list(self.finished.values()),
            capacity=WorkerCapacity(
                cpu_milli=self._cpu_milli,
                memory_bytes=self._memory_bytes,
                disk_bytes=kind.disk_bytes,
            )
            if self.sequence == 1
            else None,
            notice=self.notice,
        )

    async def poll(self, *, lose_answer: bool = False) -> WorkerOrders | None:
        """Poll once; an answer that is lost was given all the same."""
        answer = await self._door.poll(self.message(), self.who)
        if lose_answer:
            return None
        self.hear(answer)
        return answer

    def hear(self, answer: WorkerOrders) -> None:
        """Do what the answer says."""
        for attempt in answer.acknowledged:
            self.finished.pop(attempt, None)
        for each in answer.assignments:
            if each.attempt not in self.attempts and each.attempt not in self.finished:
                self.attempts[each.attempt] = each, "waiting"
        for attempt in answer.cancel:
            self.attempts.pop(attempt, None)
            if attempt not in self.finished:
                self.finished[attempt] = AttemptReport(
                    attempt=attempt, outcome="cancelled", reason="cancelled"
                )
        self.draining, self.left = answer.drain, answer.leave
        if answer.leave:
            self.attempts.clear()
        self.start()

    def start(self) -> None:
        """Start what waits and fits; what runs never takes more than the machine has."""
        running = [each for each, state in self.attempts.values() if state == "running"]
        cpu = sum(each.cpu_milli for each in running)
        memory = sum(each.memory_bytes for each in running)
        for attempt, (each, state) in self.attempts.items():
            if state == "waiting" and cpu + each.cpu_milli <= self._cpu_milli:
                if memory + each.memory_bytes > self._memory_bytes:
                    continue
                cpu, memory = cpu + each.cpu_milli, memory + each.memory_bytes
                self.attempts[attempt] = each, "running"
                self.started.append(attempt)

    def finish(self, ending: Ending = completes, most: int | None = None) -> int:
        """End attempts that run; return how many."""
        running = [a for a, (_, state) in self.attempts.items() if state == "running"][:most]
        for attempt in running:
            each, _ = self.attempts.pop(attempt)
            self.finished[attempt] = AttemptReport(attempt=attempt, **ending(each))
        self.start()
        return len(running)
