"""What is registered for evictions: from before anything acts until after all has stopped."""

import asyncio

import msgspec
import pytest

from roost.base.errors import NotFound, RoostError
from roost.kube.base.client import NAMESPACES, PODS, VMS, WEBHOOKS, Kube, TooManyRequests
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import VMS_NAMESPACE_LABEL
from roost.kube.cluster.local import LocalCluster
from roost.kube.control import Controller, ControllerSettings, Service
from roost.kube.moving.webhook import Webhook
from tests.kube.clusters import LIMIT_S, run
from tests.kube.keeping import space
from tests.kube.moving import QUICK, rig

SLOW = msgspec.structs.replace(QUICK, speed=0.5)


class Told:
    """A service that writes down when it is started and when it has stopped."""

    def __init__(self, service: Service, log: list[str]) -> None:
        self._service, self._log = service, log

    async def start(self) -> None:
        """Start it."""
        self._log.append(f"{type(self._service).__name__} starts")
        await self._service.start()

    async def stop(self) -> None:
        """Stop it."""
        await self._service.stop()
        self._log.append(f"{type(self._service).__name__} has stopped")


class Door(Webhook):
    """A webhook that is asked once more when it is told to stop."""

    log: list[str]
    asks = ("", "")  # namespace and pod
    before: list[str]  # what had been done by then
    answer = ""

    async def stop(self) -> None:
        """Ask, then stop."""
        self.before = list(self.log)
        with pytest.raises(TooManyRequests) as refused:
            await self._kube.evict(self.asks[1], self.asks[0])
        self.answer = str(refused.value)
        await super().stop()


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "taken-back"])
def test_what_acts_stops_before_the_webhook_and_protection_outlasts_it(
    cluster: LocalCluster, name: str, keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    services = Controller._services
    monkeypatch.setattr(
        Controller, "_services", lambda self: [Told(each, log) for each in services(self)]
    )

    async def body() -> None:
        async with rig(cluster, name, None) as made:
            door = Door(made.kube, namespace=made.space, keep=keep)
            door.log = log
            settings = ControllerSettings(migration=SLOW, lease=None)
            acts = Controller(made.kube, made.space, settings=settings, beside=[door])
            try:
                await acts.start()
                try:
                    for vm in ("db", "web"):
                        await made.vm(vm)
                    first = await made.pod_of("web")
                    door.asks = made.space, first
                    await made.ask("db")  # so that it stops in the middle of something
                    await made.until("db", lambda vm: vm["status"].get("migration"))
                finally:
                    await acts.stop()
                others = [each.split()[0] for each in log[1:] if each.endswith("starts")]
                assert log[0] == "Door starts"
                assert {"Launching", "Migrations"} <= set(others)
                stopped = [f"{other} has stopped" for other in reversed(others)]
                started = [f"{other} starts" for other in others]
                assert door.before == ["Door starts", *started, *stopped]
                assert f'evacuation of VMI "{made.space}/web"' in door.answer
                if keep:
                    with pytest.raises(RoostError, match="failed calling webhook"):
                        await made.evict("web")
                    # Nobody acts, so nothing has become of it.
                    assert await made.pod_of("web") == first
                else:
                    with pytest.raises(NotFound):
                        await made.kube.get(WEBHOOKS, door.configuration)
            finally:
                await made.kube.delete(WEBHOOKS, door.configuration)

    run(body)


def test_one_that_was_taken_over_from_leaves_the_others_registration(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with rig(cluster, name) as made:
            await made.vm("db")
            first = Webhook(made.kube, namespace=made.space)
            second = Webhook(made.kube, namespace=made.space)
            await first.start()
            await second.start()
            await first.stop()
            try:
                await refused(made.kube, made.space, await made.pod_of("db"))
                assert second.told["known"] == 1
            finally:
                await second.stop()
            with pytest.raises(NotFound):
                await made.kube.get(WEBHOOKS, second.configuration)

    run(body)


async def refused(kube: Kube, space: str, pod: str) -> None:
    """Ask, without meaning it, until an eviction is refused by who is registered now.

    The API server learns of registrations and of labels of namespaces some time after they are
    written.
    """
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path, said = PODS.path(space, pod, "eviction"), ""
    async with asyncio.timeout(LIMIT_S):
        while "triggered evacuation" not in said:
            try:
                await kube.call("POST", path, body=body, query={"dryRun": "All"}, patience_s=0.0)
            except RoostError as error:
                said = str(error)
            await asyncio.sleep(0.1)


def test_a_namespace_that_is_made_again_under_its_name_is_marked_again(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        async with space(cluster, name, 2, settings=None) as there:
            spaces = await Mirror(there.kube, NAMESPACES).start()
            settings = ControllerSettings(migration=QUICK, lease=None)
            door = Webhook(there.kube)
            acts = Controller(there.kube, settings=settings, beside=[door])
            await acts.start()

            def marked() -> str:
                """Return the uid of the namespace once it is marked."""
                metadata = (spaces.get(name) or {"metadata": {}})["metadata"]
                is_marked = (metadata.get("labels") or {}).get(VMS_NAMESPACE_LABEL) == "true"
                return str(metadata["uid"]) if is_marked else ""

            async def is_protected() -> None:
                await there.create("web")
                status = await there.running("web")
                await refused(there.kube, name, status["podName"])

            try:
                await is_protected()
                before = await spaces.until(lambda: marked() or None, LIMIT_S)
                # Without VMs in it: a namespace that has to wait for something waits for long.
                await there.kube.delete(VMS, "web", name)
                await there.gone()
                await there.kube.delete(NAMESPACES, name)
                await spaces.until(lambda: spaces.get(name) is None, LIMIT_S, "its end")
                await there.kube.create(NAMESPACES, {"metadata": {"name": name}})
                await is_protected()
                after = await spaces.until(lambda: marked() or None, LIMIT_S)
                assert after != before
            finally:
                await acts.stop()
                await spaces.stop()

    run(body)


def test_a_controller_of_one_namespace_needs_no_mark(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, 2, settings=None) as there:
            settings = ControllerSettings(migration=QUICK, lease=None)
            door = Webhook(there.kube, namespace=name)
            acts = Controller(there.kube, name, settings=settings, beside=[door])
            await acts.start()
            try:
                await there.create("web")
                status = await there.running("web")
                with pytest.raises(TooManyRequests, match="triggered evacuation"):
                    await there.kube.evict(status["podName"], name)
                await there.running("web", but=status["nodeName"])
                found = await there.kube.get(NAMESPACES, name)
                assert VMS_NAMESPACE_LABEL not in found["metadata"]["labels"]
            finally:
                await acts.stop()

    run(body)
