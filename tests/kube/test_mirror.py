"""A mirror is what the cluster holds, whatever happens to the line between."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from roost.base.errors import Unavailable
from roost.kube.base.client import NAMESPACES, Kube, Resource
from roost.kube.base.failures import Gone
from roost.kube.base.mirror import Mirror
from roost.kube.base.objects import Object, key_of
from roost.kube.cluster.local import LocalCluster
from roost.kube.cluster.parts import API, Setup
from tests.kube.clusters import LIMIT_S, cluster_in, namespace, run
from tests.kube.late import tell_late
from tests.kube.line import Line, line_to

#: Nobody changes these but the test.
THINGS = Resource("/api/v1", "configmaps", "ConfigMap")


def thing(name: str) -> Object:
    """Return an object."""
    return {"metadata": {"name": name}}


@asynccontextmanager
async def over_a_line(
    cluster: LocalCluster, name: str, folder: Path
) -> AsyncIterator[tuple[Kube, str, Line, Kube]]:
    """Yield a session, a namespace, a line that can be cut, and a session that goes over it."""
    async with (
        await cluster.connect() as kube,
        namespace(kube, name) as space,
        line_to(cluster, folder) as (line, config),
        await Kube.open(config, patience_s=10.0) as over,
    ):
        yield kube, space, line, over


class Folded:
    """What the events of a mirror add up to."""

    def __init__(self, mirror: Mirror) -> None:
        self.versions: dict[tuple[str, str], str] = {}
        self.wrong: list[tuple[str, str]] = []
        mirror.listen(self.heard)

    def heard(self, before: Object | None, after: Object | None) -> None:
        """Take one event; it must fit what was heard before."""
        if after is None:
            assert before is not None
            self.versions.pop(key_of(before), None)
            return
        key = key_of(after)
        if (before is None) != (key not in self.versions):
            self.wrong.append(key)
        self.versions[key] = after["metadata"]["resourceVersion"]


async def same_as_cluster(mirror: Mirror, folded: Folded, kube: Kube, space: str) -> None:
    """Wait until the mirror and its events are what the cluster lists."""
    listed = await kube.list(THINGS, space)
    want = {key_of(item): item["metadata"]["resourceVersion"] for item in listed.items}

    def same() -> bool | None:
        has = {key: item["metadata"]["resourceVersion"] for key, item in mirror.objects.items()}
        return True if has == want == folded.versions else None

    await mirror.until(same, LIMIT_S, "the mirror of all of them")
    assert not folded.wrong


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", range(4))
def test_cuts_at_any_time_lose_no_event(
    cluster: LocalCluster, name: str, tmp_path: Path, seed: int
) -> None:
    async def body() -> None:
        chance = random.Random(seed)
        async with over_a_line(cluster, name, tmp_path) as (kube, space, line, over):
            mirror = await Mirror(over, THINGS, space).start()
            folded = Folded(mirror)
            there: list[str] = []
            for number in range(30):
                if there and chance.random() < 0.4:
                    await kube.delete(
                        THINGS, there.pop(chance.randrange(len(there))), space, grace_s=0
                    )
                else:
                    await kube.create(THINGS, thing(f"p{number}"), space)
                    there.append(f"p{number}")
                if chance.random() < 0.3:
                    line.cut()
                line.refuses = chance.random() < 0.2
            line.refuses = False
            await same_as_cluster(mirror, folded, kube, space)
            assert len(mirror) == len(there)
            await mirror.stop()

    run(body)


def test_what_a_restarted_server_forgot_is_listed_again(tmp_path: Path) -> None:
    async def body() -> None:
        cluster = cluster_in(tmp_path / "c")
        await cluster.up(Setup(pools=(), parts=("etcd", API)), attached=True)
        try:
            async with (
                await cluster.connect() as kube,
                line_to(cluster, tmp_path) as (line, config),
                await Kube.open(config) as over,
            ):
                await kube.create(NAMESPACES, {"metadata": {"name": "space"}})
                for number in range(3):
                    await kube.create(THINGS, thing(f"p{number}"), "space")
                mirror = await Mirror(over, THINGS, "space").start()
                folded = Folded(mirror)
                line.refuses = True
                line.cut()
                await kube.delete(THINGS, "p0", "space", grace_s=0)
                await kube.create(THINGS, thing("p3"), "space")
                await cluster.stop_part(API)
                assert len(mirror) == 3, "what is known stays while nobody can be asked"
                await cluster.start_part(API, attached=True)
                with pytest.raises(Gone):
                    async for _ in kube.watch(THINGS, "1", "space"):
                        pass
                mirror._version = "1"  # older than what the server kept
                line.refuses = False
                await same_as_cluster(mirror, folded, kube, "space")
                assert mirror.get("p0", "space") is None
                assert mirror.lists == 2
                await mirror.stop()
        finally:
            await cluster.down()

    run(body)


def test_a_line_that_falls_silent_is_noticed(
    cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    async def body() -> None:
        async with over_a_line(cluster, name, tmp_path) as (kube, space, line, over):
            mirror = await Mirror(over, THINGS, space, watch_s=2).start()
            folded = Folded(mirror)
            line.freeze()
            await kube.create(THINGS, thing("p"), space)
            await mirror.until(lambda: mirror.trouble, LIMIT_S, "trouble")
            assert len(mirror) == 0
            line.thaw()
            line.cut()
            await same_as_cluster(mirror, folded, kube, space)
            await mirror.stop()

    run(body)


def test_an_answer_that_is_lost_creates_nothing_twice(
    cluster: LocalCluster, name: str, tmp_path: Path
) -> None:
    async def body() -> None:
        async with over_a_line(cluster, name, tmp_path) as (kube, space, line, over):
            # The connection is there, so the next answer is that of the create.
            await over.list(THINGS, space)
            line.loses_answers = True
            with pytest.raises(Unavailable):
                await over.create(THINGS, thing("once"), space)
            things = await Mirror(kube, THINGS, space).start()
            first = await things.until(lambda: things.get("once", space), LIMIT_S)
            line.loses_answers = False
            again = await over.ensure(THINGS, thing("once"), space)
            assert again["metadata"]["uid"] == first["metadata"]["uid"]
            assert len((await kube.list(THINGS, space)).items) == 1
            await things.stop()

    run(body)


def test_who_catches_up_knows_what_was_written_before(
    cluster: LocalCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_late(monkeypatch, 0.5)

    async def body() -> None:
        async with await cluster.connect() as kube, namespace(kube, name) as space:
            mirror = await Mirror(kube, THINGS, space).start()
            try:
                # Created, changed, deleted; and, the third time, nothing at all.
                await kube.create(THINGS, thing("a"), space)
                assert mirror.get("a", space) is None
                await mirror.catch_up(LIMIT_S)
                assert mirror.get("a", space) is not None
                changed = await kube.patch(THINGS, "a", {"data": {"b": "c"}}, space)
                await mirror.catch_up(LIMIT_S)
                assert mirror.get("a", space) == changed
                await mirror.catch_up(LIMIT_S)
                await kube.delete(THINGS, "a", space)
                await mirror.catch_up(LIMIT_S)
                assert mirror.get("a", space) is None
            finally:
                await mirror.stop()

    run(body)
