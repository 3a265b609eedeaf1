"""Creating and keeping VMs over HTTP, on both roads to the use case."""

import asyncio
from random import Random
from typing import Any

import pytest

from roost.api.errors import STATUS
from roost.base.errors import FleetUnavailable, InvariantBroken, PlacementContended, Unavailable
from roost.testing.clock import HandClock
from tests.api.conftest import Site
from tests.api.planes import small_plane, token
from tests.api.serving import Count, Running, serving

VM = {"name": "web", "demand": {"cpu": 1, "memory": "1GiB"}}
BIG = {"name": "big", "demand": {"cpu": 1, "memory": 2**41}}
POST = "/api/v1/vms"
#: What a VM has written to its console.
LOG = "booting\nlogin: "


def test_a_created_vm_is_shown_listed_changed_and_deleted(site: Site) -> None:
    made = site.ask("POST", POST, json={**VM, "name": "arc", "labels": {"app": "a=b"}})
    assert made.status_code == 201
    vm = made.json()
    assert vm["host"] == vm["hypervisor_id"] == "h1"
    site.settle()
    assert site.ask("GET", f"{POST}/arc").json() == site.ask("GET", f"{POST}/{vm['id']}").json()
    assert [v["name"] for v in site.ask("GET", f"{POST}?label=app=a=b").json()["vms"]] == ["arc"]
    assert site.ask("GET", f"{POST}?label=app=c").json()["vms"] == []
    for verb, state in (("stop", "stopped"), ("start", "running"), ("restart", "running"),
                        ("pause", "paused"), ("resume", "running")):  # fmt: skip
        assert site.ask("POST", f"{POST}/arc/{verb}").status_code == 202
        site.settle()
        assert site.ask("GET", f"{POST}/arc").json()["state"] == state
    assert site.ask("POST", f"{POST}/arc/resize", json={"memory": "2GiB"}).status_code == 202
    site.settle()
    assert site.ask("GET", f"{POST}/arc").json()["demand"]["memory_bytes"] == 2 * 2**30
    said = site.ask("PATCH", f"{POST}/arc", json={"restart": "elsewhere"})
    assert (said.status_code, said.json()["restart"]) == (202, "elsewhere")
    assert not said.json()["restart_acknowledged"]
    assert site.ask("PATCH", f"{POST}/arc", json={"restart": "here"}).json()["restart"] == "here"
    site.settle()
    for wrong in ({"restart": "nowhere"}, {"restart": None}, {"start": "elsewhere"}, {}):
        assert site.ask("PATCH", f"{POST}/arc", json=wrong).status_code == 422
    assert site.ask("POST", f"{POST}/arc/migrate", json={}).status_code == 202
    site.settle()
    assert site.ask("GET", f"{POST}/arc").json()["host"] == "h2"
    explained = site.ask("GET", f"{POST}/arc/explain?host=h1&host=h2").json()
    assert [verdict["host"] for verdict in explained["verdicts"]] == ["h1", "h2"]
    deleted = site.ask("DELETE", f"{POST}/arc")
    assert (deleted.status_code, deleted.json()["state"]) == (202, "deleting")
    site.settle()
    assert site.ask("GET", f"{POST}/arc").status_code == 404


def test_a_move_takes_its_options_and_can_be_called_off(site: Site) -> None:
    site.ask("POST", POST, json={**VM, "name": "moves"})
    site.pause()
    refused = site.ask("POST", f"{POST}/moves/cancel-migration")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    options = {"host": "h2", "cold": True, "bandwidth": "100MiB", "downtime_ms": 300,
               "auto_converge": False, "post_copy": True, "limit_s": 60}  # fmt: skip
    moving = site.ask("POST", f"{POST}/moves/migrate", json=options).json()
    assert (moving["state"], moving["migration"]["mode"]) == ("migrating", "cold")
    assert site.ask("POST", f"{POST}/moves/cancel-migration").status_code == 202
    site.settle()
    called_off = site.ask("GET", f"{POST}/moves").json()
    assert (called_off["state"], called_off["host"], called_off["migration"]) == (
        "running", "h1", None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [{"downtime_ms": -1}, {"limit_s": 86_401}, {"bandwidth": "fast"}, {"bandwidth": -1}],
    ids=str,
)
def test_a_move_with_options_that_make_no_sense_is_refused(
    site: Site, wrong: dict[str, object]
) -> None:
    site.ask("POST", POST, json={**VM, "name": "stays"})
    assert site.ask("POST", f"{POST}/stays/migrate", json=wrong).status_code == 422


def talking(site: Site, name: str, **more: object) -> str:
    """Create a VM that has written to its console; return the address of that."""
    vm = site.ask("POST", POST, json={**VM, "name": name, **more}).json()
    site.players.agents["h1"].consoles[vm["id"]] = LOG
    site.settle()
    return f"{POST}/{vm['id']}/console"


def test_a_console_is_read_in_pieces(site: Site) -> None:
    address = talking(site, "talks")
    whole = site.ask("GET", address).json()
    assert (whole["text"], whole["start"], whole["end"]) == (LOG, 0, len(LOG))
    assert whole["host"] == "h1"
    assert site.ask("GET", f"{address}?limit=7").json()["text"] == "login: "
    part = site.ask("GET", f"{address}?start=2&limit=3").json()
    assert (part["text"], part["start"], part["end"]) == (LOG[2:5], 2, 5)


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1048577",
        "start=-1",
        "start=null",
        "start=",
        "start=x",
        f"start={2**53 + 1}",
    ],
)
def test_a_piece_of_a_console_that_makes_no_sense_is_refused(site: Site, query: str) -> None:
    assert site.ask("GET", f"{POST}/talks/console?{query}").status_code == 400


def test_a_console_is_not_for_viewers_nor_other_projects(site: Site) -> None:
    address = talking(site, "private")
    ours = talking(site, "ours", project="p1")
    assert site.ask("GET", address, role="viewer").status_code == 403
    assert site.ask("GET", address, role="member").status_code == 404
    assert site.ask("GET", address, role="operator").status_code == 200
    assert site.ask("GET", ours, role="member").status_code == 200


def test_a_console_without_an_agent_or_a_host_says_so(site: Site) -> None:
    there = {"constraints": {"hosts": ["h3"]}}  # whose agent is not connected
    site.ask("POST", POST, json={**VM, "name": "silent", **there})
    silent = site.ask("GET", f"{POST}/silent/console")
    assert silent.status_code == 503
    assert silent.json()["error"]["code"] == "agent_service_unavailable"
    assert silent.headers["retry-after"].isdigit()
    site.ask("POST", POST, json={**BIG, "name": "nowhere", "on_no_fit": "queue"})
    assert site.ask("GET", f"{POST}/nowhere/console").status_code == 409


IMAGE = {"digest": f"sha256:{'a' * 64}", "url": "https://example.org/disk.qcow2"}


def test_a_vm_may_say_what_it_boots(site: Site) -> None:
    boot = {"image": IMAGE, "kernel": {"digest": f"sha256:{'b' * 64}"}, "cmdline": "quiet"}
    nics = [{"forward": ["tcp:2222:22"]}, {"mode": "tap", "bridge": "br0"}]
    made = site.ask("POST", POST, json={**VM, "name": "boots", "boot": boot, "nics": nics})
    assert made.status_code == 201, made.text
    assert (made.json()["boot"], made.json()["nics"]) == (boot, nics)


@pytest.mark.parametrize(
    "wrong",
    [
        {"boot": {"image": {"digest": "sha256:abc"}}},
        {"boot": {"image": {"digest": f"sha256:{'A' * 64}"}}},
        {"boot": {"image": {"digest": f"sha256:{'a' * 64}\n"}}},
        {"boot": {"image": {**IMAGE, "url": "ftp://example.org/x"}}},
        {"boot": {"image": {**IMAGE, "url": "file:///a b"}}},
        {"boot": {"cmdline": "x" * 2049}},
        {"nics": [{"mode": "bridge"}]},
        {"nics": [{"bridge": "../../etc"}]},
        {"nics": [{"mac": "52:54"}]},
        {"nics": [{"forward": ["tcp:22"]}]},
        {"nics": [{}] * 9},
    ],
    ids=str,
)
def test_a_boot_that_makes_no_sense_is_refused(site: Site, wrong: dict[str, object]) -> None:
    assert site.ask("POST", POST, json={**VM, "name": "wrong", **wrong}).status_code == 422


@pytest.mark.parametrize("state", ["pausing", "paused"])
def test_lists_know_the_states_of_a_pause(site: Site, state: str) -> None:
    assert site.ask("GET", f"{POST}?state={state}").status_code == 200


def test_a_vm_that_waits_for_room_is_accepted(site: Site) -> None:
    response = site.ask("POST", POST, json={**BIG, "name": "waits", "on_no_fit": "queue"})
    assert response.status_code == 202
    assert response.json()["pending"]["code"] == "insufficient_resources"


def test_a_vm_that_fits_nowhere_is_refused_with_the_rejection(site: Site) -> None:
    response = site.ask("POST", POST, json=BIG)
    assert response.status_code == 503
    assert response.headers["retry-after"].isdigit()
    assert response.json()["error"]["details"]["rejection"]["answer"] == "rejection"


def test_pages_go_on_where_they_ended(site: Site) -> None:
    for number in range(5):
        site.ask("POST", POST, json={**VM, "name": f"page-{number}", "project": "p2"})
    names, ids, after = [], [], ""
    for _ in range(5):
        page = site.ask("GET", f"{POST}?project=p2&limit=2{after}").json()
        assert len(page["vms"]) <= 2
        names += [vm["name"] for vm in page["vms"]]
        ids += [vm["id"] for vm in page["vms"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert ids == sorted(ids)
    assert sorted(names) == [f"page-{number}" for number in range(5)]


def test_a_member_sees_only_its_project(site: Site) -> None:
    mine = {**VM, "name": "mine", "project": "p1"}
    assert site.ask("POST", POST, role="member", json=mine).status_code == 201
    other = site.ask("POST", POST, json={**VM, "name": "other", "project": "p2"}).json()
    assert site.ask("GET", f"{POST}/{other['id']}", role="member").status_code == 404
    assert site.ask("DELETE", f"{POST}/{other['id']}", role="member").status_code == 404
    listed = site.ask("GET", POST, role="member").json()["vms"]
    assert {vm["project"] for vm in listed} == {"p1"}


def test_a_request_that_fits_nowhere_is_an_answer_of_the_dry_run(site: Site) -> None:
    response = site.ask("POST", "/api/v1/placements:dry-run", role="viewer", json=BIG)
    assert (response.status_code, response.json()["answer"]) == (200, "rejection")


# The short road gives the answers of the long one.


def conversation() -> list[tuple[str, bytes, dict[str, str]]]:
    """Return requests that meet every branch of the two routes."""
    key, batch = {"Idempotency-Key": "k1"}, b'{"vms":[%s]}'
    one = b'{"name":"one","demand":{"cpu":1,"memory":"1GiB"}}'
    two = b'{"name":"two","demand":{"cpu":1,"memory":"1GiB"}}'
    return [
        (POST, one, {}),
        (POST, one, {}),
        (POST, two, key),
        (POST, two, key),
        (POST, one, key),
        (POST, two, {"Idempotency-Key": ""}),
        (POST, two, {"Idempotency-Key": "k" * 256}),
        (POST, two, {"Idempotency-Key": "a b"}),
        (POST, b"", {}),
        (POST, b"{", {}),
        (POST, b"[]", {}),
        (POST, b'{"name":"a","demand":{"cpu":1,"memory":"1GiB"},"x":1}', {}),
        (POST, b'{"name":"a\\n","demand":{"cpu":1,"memory":"1GiB"}}', {}),
        (POST, b'{"name":"a","demand":{"cpu":1,"memory":"1Gb"}}', {}),
        (POST, b'{"name":"a","demand":{"cpu":-1,"memory":1}}', {}),
        (POST, b'{"name":"a","demand":{"cpu":1,"memory":1},"strategy":"best"}', {}),
        (POST, b'{"name":"a","demand":{"cpu":1,"memory":1},"labels":{"a":"\\u0000"}}', {}),
        (POST, b'{"name":"a","demand":{"cpu":9999,"memory":1}}', {}),
        (POST, b'{"name":"big","demand":{"cpu":1,"memory":2199023255552}}', {}),
        (POST, b'{"name":"q","demand":{"cpu":1,"memory":2199023255552},"on_no_fit":"queue"}', {}),
        (POST, b" " * 5000, {}),
        (POST, one, {"Authorization": "Basic x"}),
        (POST, one, {"Authorization": "Bearer unknown"}),
        (POST, one, {"Authorization": f"Bearer {token('viewer')}"}),
        (POST, one, {"Authorization": f"bearer   {token('operator')}"}),
        (f"{POST}:batch", batch % b"", {}),
        (f"{POST}:batch", batch % (one + b"," + b'{"name":"t","demand":{"cpu":1,"memory":1}}'), {}),
        (f"{POST}:batch", batch % one, {"Idempotency-Key": "b1"}),
        (f"{POST}:batch", batch % one, {"Idempotency-Key": "b1"}),
        (f"{POST}:batch", batch % two, {"Idempotency-Key": "b1"}),
        (f"{POST}:batch", b"{", {}),
        (f"{POST}:batch", batch % b"7", {}),
    ]


async def hear(fast: bool) -> list[tuple[int, dict[str, str], bytes]]:
    """Hold the conversation with a new server, whose ids and times are the same each time."""
    heard = []
    async with (
        small_plane(clock=HandClock(), random=Random(1)) as plane,
        serving(plane, fast=fast, max_body_bytes=4096) as running,
    ):
        for path, content, headers in conversation():
            response = await running.ask("POST", path, content=content, headers=headers)
            kept = {k: v for k, v in response.headers.items() if k != "date"}
            heard.append((response.status_code, kept, response.content))
    return heard


def test_both_roads_give_the_same_answers() -> None:
    fast, slow = asyncio.run(hear(True)), asyncio.run(hear(False))
    for request, one, other in zip(conversation(), fast, slow, strict=True):
        assert one == other, request
    assert {status for status, _, _ in fast} == {200, 201, 202, 400, 401, 403, 409, 413, 422, 503}


def test_a_replay_says_so_and_another_body_is_a_conflict(site: Site) -> None:
    key = {"Idempotency-Key": "replay"}
    site.pause()  # so that nothing becomes of it meanwhile
    first = site.ask("POST", POST, json={**VM, "name": "replayed"}, headers=key)
    again = site.ask("POST", POST, json={**VM, "name": "replayed"}, headers=key)
    other = site.ask("POST", POST, json={**VM, "name": "another"}, headers=key)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.json() == again.json()
    assert first.json()["placement"]["host"] == "h1"
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers


# Failures


async def fail(failure: Exception, fast: bool = True) -> Any:
    """Create a VM on a plane whose database fails."""
    async with small_plane() as plane, serving(plane, fast=fast) as running:
        plane.store.failure = failure
        return await running.ask("POST", POST, json=VM)


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_a_bug_is_answered_with_an_id_that_the_log_knows(
    fast: bool, caplog: pytest.LogCaptureFixture
) -> None:
    response = asyncio.run(fail(ZeroDivisionError("secret detail"), fast))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (500, "invariant_broken")
    assert "secret" not in response.text
    (record,) = [r for r in caplog.records if r.name == "roost.api"]
    assert error["details"]["failure"] in record.getMessage()
    assert record.exc_info is not None


def test_a_broken_invariant_names_itself(caplog: pytest.LogCaptureFixture) -> None:
    response = asyncio.run(fail(InvariantBroken("host h1 has less than nothing", host="h1")))
    assert response.status_code == 500
    assert response.json()["error"]["details"]["host"] == "h1"
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "failure",
    [Unavailable("the disk is full"), FleetUnavailable("x"), PlacementContended("x")],
    ids=lambda failure: failure.code,
)
def test_what_may_work_later_says_when(failure: Unavailable) -> None:
    response = asyncio.run(fail(failure))
    assert response.status_code == STATUS[failure.code] == 503
    assert response.headers["retry-after"] == "1"
    failure.details = {"retry_after_s": 7}
    assert asyncio.run(fail(failure)).headers["retry-after"] == "7"


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "slow"])
def test_requests_are_refused_until_the_plane_is_ready(fast: bool) -> None:
    async def ask() -> None:
        async with small_plane(load=False) as plane, serving(plane, fast=fast) as running:
            for method, path in (("POST", POST), ("GET", POST), ("GET", "/api/v1/hosts")):
                response = await running.ask(method, path, json=VM)
                assert response.status_code == 503
                assert response.json()["error"]["code"] == "agent_service_unavailable"
            assert (await running.ask("GET", "/readyz")).status_code == 503
            for path in ("/healthz", "/metrics", "/api/v1/docs", "/api/v1/openapi.json"):
                assert (await running.ask("GET", path, role=None)).status_code == 200

    asyncio.run(ask())


def test_every_request_is_measured_under_its_route() -> None:
    meter = Count()

    async def ask(running: Running) -> None:
        await running.ask("POST", POST, json=VM)
        await running.ask("GET", f"{POST}/web")
        await running.ask("GET", f"{POST}/nope")
        await running.ask("POST", POST, role=None)

    async def run() -> None:
        async with serving(meter=meter) as running:
            await ask(running)

    asyncio.run(run())
    assert meter.requests == [
        ("POST", POST, 201),
        ("GET", f"{POST}/{{vm}}", 200),
        ("GET", f"{POST}/{{vm}}", 404),
        ("POST", POST, 401),
    ]


def test_a_connection_stays_usable_after_refusals(site: Site) -> None:
    # An unread body must not be taken for the next request.
    for _ in range(3):
        assert site.ask("POST", POST, role=None, content=b"x" * 3000).status_code == 401
        assert site.ask("GET", "/healthz").status_code == 200
