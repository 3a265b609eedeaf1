"""Users who never rest: creates, batches, deletes, stops, starts, resizes, moves and reads.

Each client is a task with chance of its own, and asks any control plane through a gate. A client
that is not answered asks again with the same key, often elsewhere, and comes back to what is still
in doubt later. All it asks and hears goes into the history; nothing is judged here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

from roost.base.errors import RoostError, Unavailable
from roost.client import AsyncClient
from roost.wire.bodies import CreateVM, GroupBody, ResizeVM
from tests.campaign.history import History, Request
from tests.system.load import Background
from tests.system.processes import Reachable, Site, small

#: A project whose quota is smaller than what clients ask of it, and groups larger than the fleet.
LIMITED, LIMITED_VMS, LIMITED_CPU = "limited", 8, 9
GROUPS = ("apart-a", "apart-b")

_TRIES = 4
_TIMEOUT_S = 3.0
_WEIGHTS = {
    "create": 30, "batch": 5, "resolve": 12, "delete": 14, "stop": 7, "start": 8, "resize": 8,
    "migrate": 12, "read": 12, "list": 3, "doctor": 1,
}  # fmt: skip
_SIZES = (0.5, 0.5, 1, 1, 2, 3)


class Clients(Background):
    """Use it as a context manager: inside, all clients ask; after it, the history is complete."""

    def __init__(
        self,
        site: Site,
        planes: Mapping[str, Reachable],
        history: History,
        *,
        seed: int,
        number: int = 8,
        most: int = 5,
        pause_s: float = 0.08,
    ) -> None:
        super().__init__()
        self.history = history
        self.known: list[str] = []  # ids of VMs that somebody was told of and nobody deleted
        self._site, self._planes = site, dict(planes)
        self._seed, self._number, self.most, self._pause_s = seed, number, most, pause_s

    async def run(self) -> None:
        """Let every client ask until the load ends."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._number):
                group.create_task(self._one(number))

    async def _one(self, number: int) -> None:
        random = Random(f"client {number} of {self._seed}")
        servers = {
            name: self._site.async_client(gate, patience_s=0.0, timeout_s=_TIMEOUT_S)
            for name, gate in self._planes.items()
        }
        client = Client(number, servers, self, random)
        try:
            while not self.stop.is_set():
                await client.act()
                await asyncio.sleep(random.expovariate(1 / self._pause_s))
        finally:
            for server in servers.values():
                await server.aclose()


class Client:
    """One user."""

    def __init__(
        self, number: int, servers: Mapping[str, AsyncClient], all_: Clients, random: Random
    ) -> None:
        self._number, self._servers, self._all, self._random = number, servers, all_, random
        self._mine: list[str] = []
        self._doubts: list[tuple[Request, list[CreateVM]]] = []  # creates that nobody answered
        self._turn = 0

    async def act(self) -> None:
        """Do one thing."""
        weights = dict(_WEIGHTS)
        if len(self._mine) >= self._all.most:
            weights["create"] = weights["batch"] = 0
        if not self._doubts:
            weights["resolve"] = 0
        what = self._random.choices(list(weights), list(weights.values()))[0]
        match what:
            case "create":
                await self._create([self._vm()])
            case "batch":
                first = self._vm()
                more = [self._like(first) for _ in range(self._random.randint(1, 4))]
                await self._create([first, *more], atomic=self._random.random() < 0.3)
            case "resolve":
                await self._repeat(*self._doubts.pop(0))
            case "list":
                await self._send(self._blank("list"), _ids)
            case "doctor":
                await self._send(self._blank("doctor"), _findings)
            case _:
                if vm := self._some_vm():
                    await self._about(what, vm)

    # Creates

    def _vm(self) -> CreateVM:
        random = self._random
        more: dict[str, Any] = {}
        if random.random() < 0.5:
            more["restart"] = "elsewhere"
        if random.random() < 0.4:
            more["on_no_fit"] = "queue"
        if random.random() < 0.2:
            more["project"] = LIMITED
        elif random.random() < 0.25:
            more["groups"] = [GroupBody(name=random.choice(GROUPS), rule="anti-affinity")]
        return small(self._new_name(), random.choice(_SIZES), **more)

    def _like(self, first: CreateVM) -> CreateVM:
        return small(
            self._new_name(),
            float(str(first.demand.cpu)),
            project=first.project,
            groups=first.groups,
            restart=first.restart,
            on_no_fit=first.on_no_fit,
        )

    def _new_name(self) -> str:
        self._turn += 1
        return f"c{self._number}-{self._turn}"

    async def _create(self, vms: list[CreateVM], *, atomic: bool = False) -> None:
        first = vms[0]
        group = first.groups[0] if first.groups else None
        blank = Request(
            client=self._number,
            what="create" if len(vms) == 1 else "batch",
            began=0.0,
            key=f"key-{first.name}",
            names=[vm.name for vm in vms],
            project=first.project,
            group=group.name if isinstance(group, GroupBody) else "",
            cpu_milli=int(1000 * float(str(first.demand.cpu))),
            atomic=atomic,
        )
        await self._repeat(blank, vms)

    async def _repeat(self, blank: Request, vms: list[CreateVM]) -> None:
        """Ask until there is an answer, and sometimes once more; all with one key."""
        answered = False
        for _ in range(_TRIES):
            # Sometimes twice at one moment, as an impatient proxy does.
            times = 2 if self._random.random() < 0.1 else 1
            sends = (
                self._send(blank, lambda server: _create(server, blank, vms)) for _ in range(times)
            )
            requests = await asyncio.gather(*sends)
            for request in requests:
                self._keep(request)
            answered = answered or any(each.answer != "unknown" for each in requests)
            if answered and self._random.random() < 0.85:
                return
            await self._wait()
        if not answered:
            self._doubts.append((blank, vms))

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.uniform(0.0, 0.8))

    def _keep(self, request: Request) -> None:
        for vm in request.ids:
            if vm and vm not in self._all.known:
                self._all.known.append(vm)
                self._mine.append(vm)

    # All else

    def _blank(self, what: str, vm: str = "") -> Request:
        return Request(client=self._number, what=what, began=0.0, vm=vm)

    def _some_vm(self) -> str | None:
        pool = self._all.known if self._random.random() < 0.15 else self._mine
        return self._random.choice(pool) if pool else None

    async def _about(self, what: str, vm: str) -> None:
        cpu = self._random.choice(_SIZES)
        blank = self._blank(what, vm)
        calls: dict[str, Callable[[AsyncClient], Awaitable[object]]] = {
            "delete": lambda server: server.delete_vm(vm),
            "stop": lambda server: server.stop_vm(vm),
            "start": lambda server: server.start_vm(vm),
            "resize": lambda server: server.resize_vm(vm, ResizeVM(cpu=cpu)),
            "migrate": lambda server: server.migrate_vm(vm),
            "read": lambda server: server.get_vm(vm),
        }
        if what == "resize":
            blank.cpu_milli = int(1000 * cpu)
        for _ in range(_TRIES if what == "delete" else 1):
            request = await self._send(blank, calls[what])
            gone = request.code == "not_found" or (what == "delete" and request.answer == "ok")
            if gone:
                self._forget(vm)
            if request.answer != "unknown":
                return
            await self._wait()

    def _forget(self, vm: str) -> None:
        for listed in (self._mine, self._all.known):
            if vm in listed:
                listed.remove(vm)

    async def _send(
        self, blank: Request, call: Callable[[AsyncClient], Awaitable[object]]
    ) -> Request:
        """Send a request once, and write down what came of it."""
        plane = self._random.choice(list(self._servers))
        request = self._all.history.begin(blank, plane)
        try:
            answer = await call(self._servers[plane])
        except Unavailable as error:
            request.code, request.message = error.code, error.message
        except RoostError as error:
            request.answer = "refused"
            request.code, request.message = error.code, error.message
        else:
            request.answer = "ok"
            if isinstance(answer, list):
                request.ids = answer
        request.ended = self._all.history.now()
        return request


async def _ids(server: AsyncClient) -> list[str]:
    """Return the ids of all VMs."""
    return [vm.id async for vm in server.all_vms()]


async def _findings(server: AsyncClient) -> list[str]:
    """Return what is wrong with the ledger, in words."""
    return [f"{each.check}: {each.message}" for each in (await server.doctor()).findings]


async def _create(server: AsyncClient, blank: Request, vms: list[CreateVM]) -> list[str]:
    """Return the ids of what was made, in the order of the names."""
    if blank.what == "create":
        made = await server.create_vm(vms[0], key=blank.key)
        assert made.name == vms[0].name
        return [made.id]
    batch = await server.create_vms(vms, atomic=blank.atomic, key=blank.key)
    assert [item.name for item in batch.results] == blank.names
    # What a batch was not given now may be given later, so an error that says "not now" is a doubt.
    for item in batch.results:
        code = str((item.error or {}).get("code", ""))
        if item.error and code in _NOT_NOW:
            raise Unavailable(f"{item.name}: {item.error.get('message')}")
    return [item.id or "" for item in batch.results]


_NOT_NOW = ("unavailable", "agent_service_unavailable", "placement_contended")
