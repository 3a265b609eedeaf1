"""Playing a scenario's moments on a cluster: what is done, and when.

    timeline --> Play --> VM specs (loads), marks (migrations), evictions, nodes
                  ^
    Watching -----+   (which node is the hottest now, who is on it)

It waits for times of the scenario and decides nothing by itself: who moves where is up to the
controller and the cluster's scheduler.
"""

import heapq
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count

import msgspec

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest, NotFound, RoostError
from roost.kube.base.client import NODES, VMS, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.failures import TooManyRequests
from roost.kube.moving.admission import triggered
from roost.kube.moving.marking import ask_to_move
from roost.kube.scenarios.watching import Watching
from roost.kube.script.loads import Level, Load, LoadBook
from roost.kube.script.scenario import (
    Cordon,
    Create,
    Delete,
    Evict,
    Kill,
    Levels,
    LoadStep,
    Migrate,
    Moment,
    Target,
    Uncordon,
    VMPool,
    all_vms,
)
from roost.kube.vms.spec import VM, number_text
from roost.kube.vms.vmlist import create_vm, delete_vm

#: How often the use of nodes is noted.
SAMPLE_S = 0.5
Work = Callable[[], Awaitable[None]]


class Play:
    """One run of a scenario in one namespace."""

    def __init__(
        self,
        kube: Kube,
        watching: Watching,
        *,
        node_labels: dict[str, str],
        own_nodes: bool,
        seed: int,
        clock: Clock,
    ) -> None:
        """Play on the nodes with these labels; only `own_nodes` may be closed or killed."""
        self.troubles: list[str] = []
        self._kube, self._watching, self._clock = kube, watching, clock
        self._labels, self._own_nodes, self._seed = node_labels, own_nodes, seed
        self._book = LoadBook()
        self._queue: list[tuple[float, int, Work]] = []
        self._numbers = count()

    # Time

    async def play(self, moments: Sequence[Moment], duration_s: float) -> None:
        """Do everything at its time, and go on until the duration is over."""
        end_s = max([duration_s, *(moment.at for moment in moments)])
        for moment in moments:
            self._later(moment.at, partial(self._do, moment))
        sample_at = 0.0
        while self._queue or self._watching.now_s < end_s:
            # A load may end later than anybody looks.
            if self._queue and self._queue[0][0] > end_s:
                self._queue.clear()
                continue
            next_at = min(self._queue[0][0] if self._queue else end_s, sample_at)
            if (left := next_at - self._watching.now_s) > 0:
                await self._clock.sleep(left)
            if sample_at <= self._watching.now_s:
                self._watching.sample()
                sample_at = self._watching.now_s + SAMPLE_S
            if self._queue and self._queue[0][0] <= self._watching.now_s:
                await heapq.heappop(self._queue)[2]()

    def _later(self, at: float, work: Work) -> None:
        heapq.heappush(self._queue, (at, next(self._numbers), work))

    # What steps do

    async def create(self, pools: Sequence[VMPool]) -> list[str]:
        """Create the VMs of some pools; they go to the nodes of the run."""
        vms = all_vms(pools, self._seed, self._watching.namespace)
        for vm in vms:
            self._book.add(vm.name, Level(vm.cpu_utilization, vm.memory_utilization))
        self._watching.pools |= {name: pool.name for pool in pools for name in pool.names()}

        async def ask(vm: VM) -> None:
            labels = {**vm.node_labels, **self._labels}
            await create_vm(self._kube, msgspec.structs.replace(vm, node_labels=labels))

        # What is forced to a node goes first: the scheduler shall count it when it chooses.
        forced = [vm for vm in vms if vm.node]
        await each_of(forced, ask)
        await self._watching.answered(vm.name for vm in forced)
        await each_of((vm for vm in vms if not vm.node), ask)
        return [vm.name for vm in vms]

    async def migrate(self, name: str, wanted: str = "") -> None:
        """Ask a VM to leave its node."""
        space = self._watching.namespace
        await ask_to_move(self._kube, name, space, self._clock, wanted=wanted)

    async def evict(self, name: str) -> str:
        """Ask for the eviction of a VM's pod; return what the cluster says to that."""
        pod = self._watching.status(name).get("podName")
        if not pod:
            return ""
        try:
            await self._kube.evict(pod, self._watching.namespace)
        except TooManyRequests as error:
            said = error.message.rpartition("denied the request: ")[2]
            if said != triggered(f"{self._watching.namespace}/{name}"):
                self._watching.tell(f"{name} is not evicted: {said}")
            return said
        except NotFound:
            pass  # it went meanwhile: nothing is left to evict
        return ""

    async def _lay(self, name: str, load: Load, for_s: float | None) -> None:
        number = self._book.lay(name, load)
        await self._show(name)
        if for_s is not None:

            async def take_off() -> None:
                if self._book.take_off(name, number):
                    await self._show(name)

            self._later(self._watching.now_s + for_s, take_off)

    async def _show(self, name: str) -> None:
        """Write what a VM uses now into its spec; the controller shows it on the pod."""
        level = self._book.level(name)
        used = {"cpu": number_text(round(level.cpu, 4))}
        used["memory"] = number_text(round(level.memory, 4))
        change = {"spec": {"utilization": used}}
        try:
            await self._kube.patch(VMS, name, change, self._watching.namespace)
        except NotFound:
            self._book.remove(name)

    async def _delete(self, name: str) -> None:
        self._watching.pools.pop(name, None)
        self._book.remove(name)
        await delete_vm(self._kube, name, self._watching.namespace, clock=self._clock)

    async def _node_step(self, step: Cordon | Uncordon | Kill) -> None:
        name = self._watching.node(step.node)
        if not self._own_nodes:
            raise InvalidRequest(f"node {name} is not the scenario's own: it stays as it is")
        self._watching.tell(f"{type(step).__name__.lower()} {name}")
        if isinstance(step, Kill):
            self._watching.nodes.discard(name)
            await self._kube.delete(NODES, name)
        else:
            closed = True if isinstance(step, Cordon) else None
            await self._kube.patch(NODES, name, {"spec": {"unschedulable": closed}})

    # One moment

    async def _do(self, moment: Moment) -> None:
        try:
            await self._step(moment)
        except RoostError as error:
            self._trouble(moment, error)

    def _trouble(self, moment: Moment, error: RoostError) -> None:
        """Take note of what could not be done; the scenario goes on, and its report tells it."""
        self.troubles.append(f"{moment.at:g} s: {error.message}")
        self._watching.tell(error.message)

    async def _each(
        self, moment: Moment, names: Sequence[str], work: Callable[[str], Awaitable[object]]
    ) -> None:
        """Do something to each VM; one that cannot be helped does not keep the others from it."""

        async def one(name: str) -> None:
            try:
                await work(name)
            except RoostError as error:
                self._trouble(moment, error)

        await each_of(names, one)

    async def _step(self, moment: Moment) -> None:
        step = moment.step
        match step:
            case Create():
                names = await self.create(step.vms)
                self._tell("create", names)
            case Cordon() | Uncordon() | Kill():
                await self._node_step(step)
            case Migrate():
                names = self._chosen(step.on, moment.number)
                wanted = self._watching.node(step.wanted) if step.wanted else ""
                self._tell("migrate", names, f" (wanted {wanted})" if wanted else "")
                await self._each(moment, names, lambda name: self.migrate(name, wanted))
            case LoadStep():
                names = self._chosen(step.on, moment.number)
                self._tell(moment.source or "load", names, _words(step.to, step.add))
                chance = random.Random(f"{self._seed}/amount/{moment.number}")
                load = _load(step.to, step.add, chance)
                for_s = step.for_.draw(chance) if step.for_ else None
                await self._each(moment, names, lambda name: self._lay(name, load, for_s))
            case Evict():
                names = self._chosen(step.on, moment.number)
                self._tell("evict", names)
                await self._each(moment, names, self.evict)
            case Delete():
                names = self._chosen(step.on, moment.number)
                self._tell("delete", names)
                await self._each(moment, names, self._delete)

    def _chosen(self, on: str | Target, number: int) -> list[str]:
        """Return the VMs that are meant now; the same state and number give the same."""
        if isinstance(on, str):
            on = Target(vms=(on,))
        watching = self._watching
        node = watching.node(on.node) if on.node else ""
        found = [
            name
            for name, pool in sorted(watching.pools.items())
            if (not on.vms or name in on.vms)
            and (not on.pool or pool == on.pool)
            and (not on.node or watching.status(name).get("nodeName") == node)
        ]
        if on.count is not None and on.count < len(found):
            chance = random.Random(f"{self._seed}/pick/{number}")
            found = sorted(chance.sample(found, on.count))
        return found

    def _tell(self, what: str, names: Sequence[str], more: str = "") -> None:
        some = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        self._watching.tell(f"{what} {some or 'nobody'}{more}")


def _load(to: Levels | None, add: Levels | None, chance: random.Random) -> Load:
    levels = to or add
    assert levels is not None  # one of both is there: the scenario was checked
    return Load(
        cpu=levels.cpu.draw(chance) if levels.cpu else None,
        memory=levels.memory.draw(chance) if levels.memory else None,
        on_top=to is None,
    )


def _words(to: Levels | None, add: Levels | None) -> str:
    levels = to or add
    assert levels is not None
    said = [
        f"{what} {share.low:.0%}" + (f" to {share.high:.0%}" if share.kind == "uniform" else "")
        for what, share in (("cpu", levels.cpu), ("memory", levels.memory))
        if share is not None
    ]
    return f" (to {', '.join(said)})" if to else f" ({', '.join(said)} more)"
