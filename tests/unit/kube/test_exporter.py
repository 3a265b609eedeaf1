"""The exporter over a real socket, on roost's own fleet; and what it makes of pods that wait."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from roost.base.units import GIB
from roost.kube.base.names import APP, APP_LABEL
from roost.kube.metering.app import serving
from roost.kube.metering.exporter import Exporter
from roost.kube.metering.exposition import NodePage, label
from roost.kube.metering.ownfleet import OwnFleet
from roost.kube.metering.pending import Pending, reason_class
from roost.kube.metering.usage import Capacity, Charge, Usage

SCENARIO = {
    "busy": [
        {
            "name": f"node-{n}",
            "vms": [
                {
                    "id": f"vm-{n}", "cpu_cores": 32, "memory_bytes": 64 * GIB,
                    "cpu_utilization": 0.95, "memory_utilization": 0.5,
                }
            ],
        }
        for n in range(3)
    ]
}  # fmt: skip


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def wall_ms(self) -> int:
        return round((1_700_000_000 + self.now) * 1000)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits here")


def asking(work: Callable[[httpx.AsyncClient], Awaitable[None]], **more: Any) -> None:
    """Serve an exporter of roost's own fleet and ask it."""

    async def body() -> None:
        exporter = Exporter(None, own_fleet=OwnFleet(why="this is a test"))
        async with (
            serving(exporter, **more) as running,
            httpx.AsyncClient(base_url=running.url) as client,
        ):
            await work(client)

    asyncio.run(body())


def samples(page: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Return a page as a reader of it sees it."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in found.setdefault(sample.name, {}), f"{sample.name} {labels} twice"
            found[sample.name][labels] = sample.value
    return found


def test_a_page_is_what_prometheus_reads() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        posted = await client.post("/scenario", json=SCENARIO)
        assert posted.status_code == 200, posted.text
        answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = samples(answer.text)
        first = (("node", "node-0"),)
        assert found["node_cpu_usage_ratio"][first] == pytest.approx(0.95)
        assert found["node_cpu_pressure_psi"][first] == pytest.approx(0.35)
        assert found["node_memory_usage_ratio"][first] == 0.25
        assert found["node_vm_count"][first] == 1
        assert found["kube_node_role"][("node", "node-0"), ("role", "worker")] == 1
        at = (("instance", "node-0"),)
        assert found["node_memory_MemTotal_bytes"][at] == 128 * GIB
        assert found["node_memory_MemAvailable_bytes"][at] == 96 * GIB
        assert found["roost_exporter_source"] == {
            (("source", "kubernetes"),): 0,
            (("source", "own-fleet"),): 1,
        }
        assert {dict(labels)["mode"] for labels in found["node_cpu_seconds_total"]} == {
            "idle", "user", "system"
        }  # fmt: skip

    asking(work)


def test_health_says_that_this_is_no_cluster() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        health = (await client.get("/health")).json()
        assert (health["status"], health["source"]) == ("ok", "own-fleet")
        assert health["why"] == "this is a test"
        assert (await client.post("/refresh")).json()["nodes"] == 5

    asking(work)


def test_a_node_tells_its_vms_and_feedback_moves_them() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.get("/scenario")).status_code == 404
        placed = (await client.post("/scenario", json=SCENARIO)).json()["placed"]
        assert (await client.get("/scenario")).json()["placed"] == placed
        moves = [
            {"vm_id": "vm-0", "from_node": placed["vm-0"], "to_node": placed["vm-1"]},
            {"vm_id": "nobody", "from_node": "node-0", "to_node": "node-1"},
        ]
        answer = (await client.post("/feedback", json={"migrations": moves})).json()
        assert answer["accepted"] == 1
        good, bad = answer["results"]
        assert (good["wanted"], good["chosen"]) == (placed["vm-1"], placed["vm-1"])
        assert (bad["accepted"], bad["error"]["code"]) == (False, "not_found")
        node = (await client.get(f"/nodes/{placed['vm-1']}")).json()
        assert sorted(each["vm"] for each in node["vms"]) == ["vm-0", "vm-1"]
        assert node["cpu_demand_ratio"] == pytest.approx(1.9)
        assert (node["cpu_usage_ratio"], node["cpu_pressure"]) == (1.0, 1.0)

    asking(work)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/nothing", b"", 404, "not_found"),
        ("GET", "/nodes/none", b"", 404, "not_found"),
        ("POST", "/metrics", b"", 405, "method_not_allowed"),
        ("POST", "/feedback", b"{", 400, "invalid_request"),
        ("POST", "/feedback", b'{"migrations": [{"vm": 1}]}', 422, "invalid_request"),
        ("POST", "/feedback?wait_s=x", b'{"migrations": []}', 422, "invalid_request"),
        ("POST", "/scenario", b"", 422, "invalid_request"),
        ("POST", "/scenario?name=unknown", b"", 404, "not_found"),
    ],
)
def test_errors_have_the_one_shape(
    method: str, path: str, body: bytes, status: int, code: str
) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.request(method, path, content=body)
        assert answer.status_code == status, answer.text
        assert set(answer.json()["error"]) == {"code", "message", "details", "hint"}
        assert answer.json()["error"]["code"] == code

    asking(work)


def test_web_pages_are_refused_and_so_are_changes_where_others_can_reach_it() -> None:
    async def pages(client: httpx.AsyncClient) -> None:
        answer = await client.post("/refresh", headers={"Origin": "http://elsewhere"})
        assert answer.status_code == 403

    async def changes(client: httpx.AsyncClient) -> None:
        for path in ("/scenario", "/feedback"):
            answer = await client.post(path, json=SCENARIO)
            assert answer.status_code == 403
            assert "--allow-changes" in answer.json()["error"]["hint"]
        assert (await client.post("/refresh")).status_code == 200

    asking(pages)
    asking(changes, changes=False)


def test_counters_follow_the_clock_and_all_modes_make_cores_times_time() -> None:
    clock, usage = Hands(), Usage()
    page = NodePage(usage, clock)
    usage.set_node("a", Capacity(4000, 1000, 10))
    clock.now += 10  # idle
    usage.charge(("n", "p"), Charge("a", 3_000_000, 950, "v"))
    clock.now += 20  # three cores busy
    usage.charge(("n", "q"), Charge("a", 3_000_000, 0))
    clock.now += 5  # six wanted of four
    found = samples("".join(page.lines()))
    seconds = {dict(key)["mode"]: value for key, value in found["node_cpu_seconds_total"].items()}
    busy = 20 * 3 + 5 * 4
    assert seconds == {"idle": 35 * 4 - busy, "user": busy * 0.6, "system": busy * 0.4}
    waiting = found["node_pressure_cpu_waiting_seconds_total"][(("instance", "a"),)]
    assert waiting == pytest.approx(20 * (0.049 + 0.151 * 0.25) + 5 * 1.0)
    memory = found["node_pressure_memory_waiting_seconds_total"][(("instance", "a"),)]
    assert memory == pytest.approx(25 * 0.35)


def test_a_node_that_is_gone_is_not_shown_and_one_that_comes_back_counts_from_nothing() -> None:
    clock, usage = Hands(), Usage()
    page = NodePage(usage, clock)
    usage.set_node("a", Capacity(1000, 1000, 10, uid="1"))
    clock.now += 10
    usage.set_node("a", None)
    assert samples("".join(page.lines())) == {}
    usage.set_node("a", Capacity(1000, 1000, 10, uid="2"))
    clock.now += 1
    seconds = samples("".join(page.lines()))["node_cpu_seconds_total"]
    assert sum(seconds.values()) == 1


@pytest.mark.parametrize("name", ["plain", 'a"b', "back\\slash", "two\nlines", "é"])
def test_any_label_is_read_back_as_it_was(name: str) -> None:
    [family] = text_string_to_metric_families(f"# TYPE m gauge\nm{{x={label(name)}}} 1\n")
    assert family.samples[0].labels == {"x": name}


# Waiting

NO_ROOM = "0/9 nodes are available: 4 Insufficient cpu, 5 Insufficient memory. preemption: none."
ELSEWHERE = "0/9 nodes are available: 9 node(s) didn't match Pod's node affinity/selector."


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (NO_ROOM, "cpu"),
        (ELSEWHERE, "node-rules"),
        # Of the nodes that passed all rules before, none had the memory: that is what is wanting.
        ("0/9: 8 node(s) didn't match Pod's node selector, 1 Insufficient memory.", "memory"),
        ("0/1 nodes are available: 1 node(s) had untolerated taint(s).", "taint"),
        ("0/3: 3 node(s) didn't match pod topology spread constraints.", "spread"),
        ("0/3: 3 node(s) didn't match pod anti-affinity rules.", "anti-affinity"),
        ("0/3 nodes are available: 3 node(s) didn't match pod affinity rules.", "affinity"),
        ("0/3 nodes are available: 3 Too many pods.", "pods"),
        ("no nodes available to schedule pods", "other"),
    ],
)  # fmt: skip
def test_the_schedulers_words_are_classed_by_what_came_closest(message: str, expected: str) -> None:
    assert reason_class(message) == expected


def waiting(message: str | None = None, node: str = "") -> dict[str, Any]:
    told = [{"type": "PodScheduled", "status": "False", "message": message}] if message else []
    return {
        "metadata": {
            "name": "p", "namespace": "n", "labels": {APP_LABEL: APP},
            "creationTimestamp": "2023-11-14T22:30:00Z",
        },
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": "Pending", "conditions": told},
    }  # fmt: skip


def test_waiting_is_measured_from_the_first_sight_to_the_node() -> None:
    clock = Hands()
    pending = Pending(clock)
    pending.heard(None, waiting())
    assert +pending.reasons == {"new": 1}
    clock.now += 0.04
    pending.heard(waiting(), waiting(NO_ROOM))
    assert +pending.reasons == {"cpu": 1}
    clock.now += 0.04
    pending.heard(waiting(NO_ROOM), waiting(node="a"))
    pending.heard(waiting(node="a"), waiting(node="a"))
    assert +pending.reasons == {}
    assert (sum(pending.counts), pending.seconds) == (1, pytest.approx(0.08))


def test_one_that_waited_before_the_exporter_began_is_measured_from_its_creation() -> None:
    clock = Hands()
    clock.now += 60.0  # the pod was created when this clock began
    pending = Pending(clock)
    pending.heard(None, waiting(NO_ROOM))
    pending.heard(waiting(NO_ROOM), waiting(node="a"))
    assert pending.seconds == pytest.approx(60.0)


def test_one_that_goes_without_a_node_is_not_measured() -> None:
    pending = Pending(Hands())
    pending.heard(None, waiting())
    pending.heard(waiting(), None)
    pending.heard(waiting(), None)
    assert (+pending.reasons, sum(pending.counts), len(pending)) == ({}, 0, 0)


def test_the_answer_of_the_app_is_json() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.get("/health")
        assert answer.headers["content-type"] == "application/json"
        msgspec.json.decode(answer.content)

    asking(work)
