"""What a controller in trouble does: it protects, lets others try, goes on, and says so."""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.clock import RealClock
from roost.base.errors import Unavailable
from roost.kube.base.client import LEASES, NAMESPACES, PODS, WEBHOOKS, Kube, load_configuration
from roost.kube.base.lease import HOME, Lease, LeaseLost, LeaseSettings, lease_name
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import VMS_NAMESPACE_LABEL
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster
from roost.kube.control import Controller, ControllerSettings, Namespaces
from roost.kube.moving.webhook import CONFIGURATION
from tests.kube.clusters import LIMIT_S, namespace, run
from tests.kube.keeping import controller, space
from tests.kube.line import line_to

LEASED = ControllerSettings(migrate=False, lease=LeaseSettings(duration_s=6.0))


def test_a_controller_that_has_ended_leaves_vms_protected(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, 2, settings=None) as there:
            running = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).with_name("roost")), "kube", "controller",
                "--namespace", name, "--kubeconfig", str(cluster.kubeconfig),
                stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            try:
                await there.create("web")
                was = (await there.running("web"))["podName"]
            finally:
                if running.returncode is None:
                    running.send_signal(signal.SIGTERM)
                await running.wait()
            before = await there.kube.get(PODS, was, name)
            try:
                with pytest.raises(Unavailable, match="evictions"):
                    await there.kube.evict(was, name)
                after = await there.kube.get(PODS, was, name)
            finally:
                await there.kube.delete(WEBHOOKS, f"{CONFIGURATION}-{name}")
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert "deletionTimestamp" not in after["metadata"]

    run(body)


def test_a_namespace_that_is_being_deleted_goes(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, 1, settings=None) as there:
            async with controller(there.kube, name, LEASED):
                await there.create("web")
                await there.running("web")
            await there.kube.delete(NAMESPACES, name)
            spaces = await Mirror(there.kube, NAMESPACES).start()
            try:
                # One that begins when nothing new can be made in there any more.
                async with controller(there.kube, name, LEASED) as kept:
                    await spaces.until(lambda: spaces.get(name) is None, LIMIT_S, "its end")
                    assert kept.is_leading
            finally:
                await spaces.stop()

    run(body)


def test_controllers_of_all_and_of_one_namespace_have_a_lease_each() -> None:
    assert len({lease_name(None), lease_name("default"), lease_name("other")}) == 3


class Slow(Kube):
    """A session whose next writes get no answer."""

    slow = 0

    async def _send(self, method: str, *args: Any, **more: Any) -> Any:
        if method == "PUT" and self.slow:
            self.slow -= 1
            await asyncio.Event().wait()
        return await super()._send(method, *args, **more)


def test_a_renewal_without_answer_does_not_lose_the_lease_but_many_do_in_time(
    cluster: LocalCluster, name: str
) -> None:
    async def body() -> None:
        # One try may take an eighth of it, which is longer than a busy etcd takes to sync.
        duration_s = 16.0
        async with Slow(await load_configuration(cluster.kubeconfig)) as kube:
            lease = Lease(kube, name, LeaseSettings(duration_s=duration_s))
            await lease.start()
            await lease.acquire()
            # Whatever happened between taking it and holding it counts.
            await asyncio.sleep(0.5)
            kube.slow = 2
            with pytest.raises(TimeoutError):
                # Longer than a lease is held without a renewal: so the third try was one.
                async with asyncio.timeout(duration_s * 0.75):
                    await lease.hold()
            kube.slow = 1000
            last = (await kube.get(LEASES, name, HOME))["metadata"]["resourceVersion"]
            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(LeaseLost):
                await lease.hold()
            assert loop.time() - began < lease.settings.give_up_s + 1
            assert (await kube.get(LEASES, name, HOME))["metadata"]["resourceVersion"] == last
            await lease.stop()

    run(body)


class Broken:
    """A service that does not start."""

    starts = 0

    async def start(self) -> None:
        """Fail."""
        self.starts += 1
        raise Unavailable("the port is taken")

    async def stop(self) -> None:
        """Do nothing."""


def test_a_leader_that_cannot_act_lets_another(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        settings = ControllerSettings(migrate=False, lease=LeaseSettings(duration_s=60.0))
        async with space(cluster, name, 1, settings=None) as there:
            broken = Broken()
            first = Controller(there.kube, name, settings=settings, beside=[broken])
            await first.start()
            try:
                async with (
                    asyncio.timeout(30.0),
                    controller(there.kube, name, settings) as second,
                ):
                    await second.until_leading()
                    await there.create("web")
                    await there.running("web")
                    assert broken.starts
            finally:
                await first.stop()

    run(body)


def test_a_namespace_is_marked_again(cluster: LocalCluster, name: str) -> None:
    async def body() -> None:
        async with space(cluster, name, 0, settings=None) as there:
            spaces = await Mirror(there.kube, NAMESPACES).start()
            marks = Namespaces(there.kube, there.vms, RealClock(), again_s=0.2)
            await marks.start()

            def is_marked() -> bool:
                labels = (spaces.get(name) or {})["metadata"]["labels"]
                return bool(labels.get(VMS_NAMESPACE_LABEL) == "true")

            try:
                await there.create("web")
                await spaces.until(is_marked, LIMIT_S)
                off = {"metadata": {"labels": {VMS_NAMESPACE_LABEL: None}}}
                await there.kube.patch(NAMESPACES, name, off)
                await spaces.until(lambda: not is_marked(), LIMIT_S)
                await spaces.until(is_marked, LIMIT_S)
            finally:
                await marks.stop()
                await spaces.stop()

    run(body)


class Garbled(Kube):
    """A session whose first watch brings something that nobody can read."""

    garbled = 1

    async def watch(self, *args: Any, **more: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        if self.garbled:
            self.garbled -= 1
            raise ValueError("garbled")
        async for event in super().watch(*args, **more):
            yield event


def test_a_mirror_outlives_what_nobody_expected(
    cluster: LocalCluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    def heard(before: Object | None, after: Object | None) -> None:
        raise KeyError("a listener's bug")

    async def body() -> None:
        async with (
            Garbled(await load_configuration(cluster.kubeconfig)) as kube,
            namespace(kube, name),
        ):
            mirror = await Mirror(kube, LEASES, name).start()
            mirror.listen(heard)
            told: list[Object | None] = []
            mirror.listen(lambda _, after: told.append(after))
            try:
                await mirror.until(lambda: mirror.lists == 2 or None, LIMIT_S)
                await kube.create(LEASES, {"metadata": {"name": "thing"}}, name)
                await mirror.until(lambda: len(told) == 1 or None, LIMIT_S)
            finally:
                await mirror.stop()

    run(body)
    assert "garbled" in caplog.text
    assert "a listener's bug" in caplog.text


def test_a_controller_says_that_it_is_behind_and_when_no_more(
    cluster: LocalCluster, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "roost.kube")

    def said(words: str) -> int:
        return sum(f"virtualmachines are {words}" in each.getMessage() for each in caplog.records)

    async def body() -> None:
        async with (
            space(cluster, name, 0, settings=None) as there,
            line_to(cluster, tmp_path) as (line, config),
            await Kube.open(config) as over,
            controller(over, name) as kept,
        ):
            line.refuses = True
            line.cut()
            await kept.vms.until(lambda: kept.vms.trouble, LIMIT_S)
            line.refuses = False
            await there.create("web")
            await kept.vms.until(lambda: kept.vms.get("web", name), LIMIT_S)

    run(body)
    assert said("not up to date")
    assert said("up to date again") >= 1
    assert "Maybe" in caplog.text
