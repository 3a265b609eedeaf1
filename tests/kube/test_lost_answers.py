"""A write was done and its answer never came: the same controller goes on, and nothing is twice."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from roost.base.errors import Unavailable
from roost.kube.base.client import EVENTS, NODES, VMS, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import EVICTION_IN_PROGRESS_ANNOTATION, MEMORY_UTILIZATION_ANNOTATION
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.control import Controller, ControllerSettings
from tests.kube.clusters import LIMIT_S, namespace, nodes, pool, run
from tests.kube.moving import QUICK, Rig, migrations

#: The copy takes one and a half seconds, and is told of some times.
STEADY = msgspec.structs.replace(QUICK, speed=5.0)
#: Everything that a migration writes, in order.
WRITES = (
    "status: Scheduling", "note: eviction-in-progress", "target: POST",
    "status: Copying", "note: part of the memory", "status: figures", "note: all of the memory",
    "status: Handover", "source: let go", "source: DELETE", "event: POST", "status: Succeeded",
)  # fmt: skip


class Deaf(Kube):
    """A session to which one answer is lost; what was asked for is done."""

    loses, lost = "", False
    asks_again = True  # the client by itself; else whoever called it is told that nobody answered

    async def call(self, method: str, path: str, **more: Any) -> Object:
        """Send a request; its caller may not get the answer."""
        answer = await super().call(method, path, **more)
        if not self.asks_again:
            self._lose(method, path, more.get("body"))
        return answer

    async def _once(self, method: str, path: str, body: Any, *more: Any) -> Object:
        answer = await super()._once(method, path, body, *more)
        if self.asks_again:
            self._lose(method, path, body)
        return answer

    def _lose(self, method: str, path: str, body: Any) -> None:
        if method != "GET" and not self.lost and described(method, path, body) == self.loses:
            self.lost = True
            raise Unavailable("the answer is lost")


def described(method: str, path: str, body: Any) -> str:
    """Return what a write of a migration is for."""
    if path.endswith("/status"):
        return f"status: {body['status']['migration'].get('phase', 'figures')}"
    if method == "PATCH":
        notes: Object = body["metadata"].get("annotations") or {}
        if EVICTION_IN_PROGRESS_ANNOTATION in notes:
            return "note: eviction-in-progress"
        used = notes.get(MEMORY_UTILIZATION_ANNOTATION)
        if used is not None:
            return f"note: {'all' if used == '1' else 'part'} of the memory"
        return "source: let go"
    whose = "event" if path.endswith("/events") else "target" if method == "POST" else "source"
    return f"{whose}: {method}"


class Story:
    """What a VM's status said, one thing after the other."""

    def __init__(self, vm: str) -> None:
        self._vm = vm
        self.phases: list[str] = []
        self.pods: list[str] = []

    def heard(self, _: Object | None, after: Object | None) -> None:
        """Write down what is new."""
        if after is None or after["metadata"]["name"] != self._vm:
            return
        status = after.get("status") or {}
        for said, word in (
            (self.phases, (status.get("migration") or {}).get("phase")),
            (self.pods, status.get("podName")),
        ):
            if word and said[-1:] != [word]:
                said.append(word)


@pytest.mark.turns(2)
@pytest.mark.parametrize("asks_again", [True, False], ids=["client-asks-again", "caller-is-told"])
def test_an_answer_that_is_lost_at_any_write_changes_nothing(
    cluster: LocalCluster, name: str, asks_again: bool
) -> None:
    async def placed(kube: Kube, space: str, stack: AsyncExitStack) -> Rig:
        await stack.enter_async_context(namespace(kube, space))
        made = Rig(kube, space, name, [])
        for mirror in (made.vms, made.pods):
            await mirror.start()
            stack.push_async_callback(mirror.stop)
        await made.vm("db")
        return made

    async def moved(made: Rig, at: Mirror, loses: str) -> None:
        story = Story("db")
        first = await made.pod_of("db")
        made.vms.listen(story.heard)
        async with await Deaf.open(cluster.kubeconfig) as deaf:
            deaf.loses, deaf.asks_again = loses, asks_again
            moves, mirrors = await migrations(deaf, made, at, STEADY)
            await made.ask("db")
            told = await made.moved("db")
            own = await made.alone("db")
            async with asyncio.timeout(LIMIT_S):
                # Its last answer may be the one that is lost: it is done when it has heard so.
                while moves.under_way:
                    await asyncio.sleep(0.02)
            await moves.stop()
            for mirror in mirrors:
                await mirror.stop()
        assert deaf.lost, loses
        assert (told["phase"], told["number"]) == ("Succeeded", 1), (loses, told)
        assert own["metadata"]["name"] == told["targetPod"]
        assert story.phases == ["Scheduling", "Copying", "Handover", "Succeeded"], loses
        assert story.pods == [first, told["targetPod"]], loses
        noted = own["metadata"]["annotations"]
        assert noted[MEMORY_UTILIZATION_ANNOTATION] == "1", loses
        assert EVICTION_IN_PROGRESS_ANNOTATION not in noted
        status = (await made.kube.get(VMS, "db", made.space))["status"]
        assert len(status["migrations"]) == 1, loses
        assert not {"evacuation", "evacuationNodeName"} & set(status)
        events = (await made.kube.list(EVENTS, made.space)).items
        of_vm = [each["reason"] for each in events if each["involvedObject"]["name"] == "db"]
        assert of_vm == ["Migrated"], loses

    async def body() -> None:
        async with AsyncExitStack() as stack:
            kube = await stack.enter_async_context(await cluster.connect())
            await stack.enter_async_context(nodes(kube, pool(name, 3, pods=500)))
            at = await Mirror(kube, NODES).start()
            stack.push_async_callback(at.stop)
            keeper = Controller(kube, settings=ControllerSettings(migrate=False, lease=None))
            await keeper.start()
            spaces = [f"deaf-{'again' if asks_again else 'told'}-{n}" for n in range(len(WRITES))]
            made = await each_of(spaces, lambda space: placed(kube, space, stack), at_once=6)
            # Whoever keeps pods lets the source go, too; here nobody else is to do it.
            await keeper.stop()
            cases = zip(made, WRITES, strict=True)
            await each_of(cases, lambda each: moved(each[0], at, each[1]), at_once=6)

    run(body)
