"""Creating and keeping VMs over HTTP, on both roads to the use case."""

import asyncio
from typing import Any

import pytest

from roost.api.errors import STATUS
from roost.base.errors import FleetUnavailable, InvariantBroken, PlacementContended, Unavailable
from tests.api.conftest import Site
from tests.api.fakeplane import FakePlane, token
from tests.api.serving import Count, Running, serving

VM = {"name": "web", "demand": {"cpu": 1, "memory": "1GiB"}}
BIG = {"name": "big", "demand": {"cpu": 1, "memory": 2**41}}
POST = "/api/v1/vms"


def test_a_created_vm_is_shown_listed_changed_and_deleted(site: Site) -> None:
    made = site.ask("POST", POST, json={**VM, "name": "arc", "labels": {"app": "a=b"}})
    assert made.status_code == 201
    vm = made.json()
    assert vm["host"] == vm["hypervisor_id"] == "h1"
    assert site.ask("GET", f"{POST}/arc").json() == site.ask("GET", f"{POST}/{vm['id']}").json()
    assert [v["name"] for v in site.ask("GET", f"{POST}?label=app=a=b").json()["vms"]] == ["arc"]
    assert site.ask("GET", f"{POST}?label=app=c").json()["vms"] == []
    for verb in ("start", "stop", "restart"):
        assert site.ask("POST", f"{POST}/arc/{verb}").status_code == 202
    assert site.ask("POST", f"{POST}/arc/resize", json={"memory": "2GiB"}).status_code == 202
    assert site.ask("POST", f"{POST}/arc/migrate", json={}).status_code == 202
    explained = site.ask("GET", f"{POST}/arc/explain?host=h1&host=h2").json()
    assert [verdict["host"] for verdict in explained["verdicts"]] == ["h1", "h2"]
    deleted = site.ask("DELETE", f"{POST}/arc")
    assert (deleted.status_code, deleted.json()["state"]) == (202, "deleting")
    assert site.ask("GET", f"{POST}/arc").status_code == 404


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
    names, after = [], ""
    for _ in range(5):
        page = site.ask("GET", f"{POST}?project=p2&limit=2{after}").json()
        names += [vm["name"] for vm in page["vms"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert names == [f"page-{number}" for number in range(5)]


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
    """Hold the conversation with a new server."""
    heard = []
    async with serving(fast=fast, max_body_bytes=4096) as running:
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
    first = site.ask("POST", POST, json={**VM, "name": "replayed"}, headers=key)
    again = site.ask("POST", POST, json={**VM, "name": "replayed"}, headers=key)
    other = site.ask("POST", POST, json={**VM, "name": "another"}, headers=key)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers


# Failures


async def fail(failure: Exception, fast: bool = True) -> Any:
    """Create a VM on a plane that fails."""
    plane = FakePlane()
    plane.admit.failure = failure
    async with serving(plane, fast=fast) as running:
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
        plane = FakePlane()
        plane.status = "loading"
        async with serving(plane, fast=fast) as running:
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
