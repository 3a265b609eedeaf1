"""Laws that hold for every line of the table of routes, tried on a real server."""

import json
import re

import httpx
import msgspec
import pytest

from roost.api.openapi import error_statuses
from roost.parts import roles
from roost.parts.routes import Route
from roost.wire.bodies import ErrorBody
from tests.api.conftest import MOST_BYTES, Site
from tests.api.planes import token
from tests.api.table import ROUTES

ROLES = ("viewer", "operator", "admin", "member", "agent", "worker")
#: A body that each route takes.
VM = {"name": "web", "demand": {"cpu": 1, "memory": "1GiB"}}
BODIES = {
    "CreateVM": VM,
    "CreateVMs": {"vms": [VM]},
    "DryRun": VM,
    "DryRunBatch": {"vms": [VM]},
    "CapacityQuestion": VM,
    "AskRecommendations": {"new": VM},
    "ResizeVM": {"cpu": 2},
    "SetVM": {"restart": "elsewhere"},
    "MigrateVM": {"host": "h1"},
    "SetHost": {"taints": [{"key": "gpu"}]},
    "SetLabels": {"labels": {"a": "b"}},
    "SetMaintenance": {"on": False},
    "ConfirmDead": {"reason": "it burns"},
    "CreateGroup": {"name": "new", "rule": "spread"},
    "SetGroupRule": {"rule": "spread"},
    "SetBudget": {"at_most": 1},
    "CreatePriorityClass": {"name": "new", "value": 10},
    "ChangePriorityClass": {"description": "x"},
    "CreateFlavor": {"name": "new", "demand": {"cpu": 1, "memory": "1GiB"}},
    "ChangeFlavor": {"description": "x"},
    "GroupVMs": {"vms": ["web"]},
    "CreateConstraint": {"name": "new", "expression": "true", "project": "p1"},
    "ChangeConstraint": {"priority": 3},
    "DryRunConstraint": {"expression": "true"},
    "CreatePolicy": {"name": "new"},
    "ChangePolicy": {"strategy": "best_fit"},
    "RollBackPolicy": {"version": 1},
    "DryRunPolicy": {"requests": 10},
    "ApplyPolicy": {"policy": None},
    "CreatePlan": {"goal": "balance"},
    "PlanMaintenance": {"at_once": 2},
    "ApplyTopology": {"nodes": [{"id": "core", "type": "switch"}], "links": []},
    "MeasureTopology": {"dry_run": True},
    "SetTraffic": {"pairs": [{"source": "default/a", "dest": "default/b", "rate": 1.5}]},
    "CreateReservation": {
        "name": "new",
        "demand": {"cpu": 1, "memory": "1GiB"},
        "project": "default",
    },
    "ChangeReservation": {"description": "for whom"},
    "ImportSeries": {"kind": "host", "name": "h1", "at_ms": [1], "figures": {"cpu_milli": [1.0]}},
    "CreateProject": {"name": "new"},
    "SetQuota": {"quota": {"cpu": 4}},
    "CreateToken": {"name": "ci"},
    "CreateJoinToken": {},
    "JoinBody": {"host": "h9"},
    "SubmitJobs": {"command": ["true"]},
    "CreateJobKind": {"name": "new", "command": ["true"]},
    "CreatePool": {"name": "new", "provider": "model"},
    "ChangePool": {"warm": 0},
    "CreateAccount": {"name": "new", "provider": "model"},
    "ChangeAccount": {"max_machines": 3},
    "WorkerJoin": {"machine": "m1"},
    "WorkerPoll": {"instance": "one", "sequence": 1},
    "WorkerLogs": {"chunks": []},
}

NEEDED = {"ReadOutput": "?name=result"}


def named(routes: list[Route]) -> list[object]:
    """Return the routes as parameters with readable names."""
    return [pytest.param(route, id=f"{route.method} {route.path}") for route in routes]


def where(route: Route) -> str:
    """Return an address of a route."""
    return re.sub(r"{\w+}", "h1", route.path)


def body_of(route: Route) -> dict[str, object] | None:
    """Return a body that the route takes."""
    return BODIES[route.body.__name__] if route.body is not None else None  # type: ignore[return-value]


def asked_of(route: Route) -> str:
    """Return the query that the route does not go without."""
    return NEEDED.get(route.query.__name__, "") if route.query is not None else ""


def tokens_of(route: Route) -> dict[str, str]:
    """Return the header of somebody who may."""
    name = "join" if route.roles == roles.JOINING else sorted(route.roles - {"member"})[0]
    return {"Authorization": f"Bearer {token(name)}"}


def refusal(response: httpx.Response, status: int, code: str) -> ErrorBody:
    """Check that a response is an error in the one shape."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = msgspec.json.decode(response.content, type=ErrorBody)
    assert error.error.code == code
    assert error.error.message
    assert set(json.loads(response.content)["error"]) == {"code", "message", "details", "hint"}
    return error


CLOSED = [route for route in ROUTES if route.roles != roles.ANYONE]
ROLED = [route for route in CLOSED if route.roles != roles.JOINING]
BODIED = [route for route in ROUTES if route.body is not None]
QUERIED = [route for route in ROUTES if route.query is not None]
NAMED = [route for route in ROUTES if "{" in route.path]


@pytest.mark.parametrize("route", named(CLOSED))
def test_no_token_is_refused(site: Site, route: Route) -> None:
    response = site.ask(route.method, where(route), role=None, json=body_of(route))
    refusal(response, 401, "unauthorized")
    assert response.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("header", ["", "Bearer", "Basic abc", "Bearer tok\xe9n", "x"])
@pytest.mark.parametrize("route", named(CLOSED[:2] + CLOSED[-3:]))
def test_a_broken_token_is_refused(site: Site, route: Route, header: str) -> None:
    headers = {"Authorization": header.encode("latin-1")}
    response = site.ask(route.method, where(route), role=None, headers=headers, json=body_of(route))
    refusal(response, 401, "unauthorized")


@pytest.mark.parametrize("reason", ["a%00b", "a%0ab", "%1b[2J", "x" * 254])
def test_a_reason_that_is_not_one_short_line_is_refused(site: Site, reason: str) -> None:
    response = site.ask("POST", f"/api/v1/hosts/no-such/cordon?reason={reason}", json=None)
    refusal(response, 400, "invalid_request")


@pytest.mark.parametrize("route", named(CLOSED))
def test_an_unknown_token_is_refused(site: Site, route: Route) -> None:
    response = site.ask(route.method, where(route), role="nobody", json=body_of(route))
    refusal(response, 401, "unauthorized")


@pytest.mark.parametrize("route", named(ROLED))
def test_other_roles_are_refused(site: Site, route: Route) -> None:
    for role in ROLES:
        if role not in route.roles:
            response = site.ask(route.method, where(route), role=role, json=body_of(route))
            error = refusal(response, 403, "forbidden")
            assert error.error.details["role"] == role


@pytest.mark.parametrize("route", named(ROLED))
def test_no_route_refuses_its_own_roles(site: Site, route: Route) -> None:
    for role in route.roles:
        response = site.ask(route.method, where(route), role=role, json=body_of(route))
        assert response.status_code not in (401, 403, 405)
        assert response.status_code < 500
        assert response.status_code in {*route.statuses, *error_statuses(route)}


@pytest.mark.parametrize("route", named(BODIED))
def test_an_unknown_field_is_refused(site: Site, route: Route) -> None:
    body = {**(body_of(route) or {}), "surprise": 1}
    response = site.ask(route.method, where(route), headers=tokens_of(route), json=body)
    assert "surprise" in refusal(response, 422, "invalid_request").error.message


@pytest.mark.parametrize("raw", [b"", b"{", b'{"name": "a', b"\xff\xfe", b"nul", b'{"a":1}}'])
@pytest.mark.parametrize("route", named(BODIED))
def test_broken_json_is_refused(site: Site, route: Route, raw: bytes) -> None:
    response = site.ask(route.method, where(route), headers=tokens_of(route), content=raw)
    refusal(response, 400, "invalid_request")


@pytest.mark.parametrize(
    "raw", [b"[]", b"null", b"7", b'"x"', b'{"vms": 1, "name": [], "host": 1}']
)
@pytest.mark.parametrize("route", named(BODIED))
def test_wrong_types_are_refused(site: Site, route: Route, raw: bytes) -> None:
    response = site.ask(route.method, where(route), headers=tokens_of(route), content=raw)
    error = refusal(response, 422, "invalid_request")
    assert error.error.details["at"].startswith("$")


@pytest.mark.parametrize("route", named(BODIED))
def test_an_oversized_body_is_refused_by_its_announced_length(site: Site, route: Route) -> None:
    raw = b" " * (MOST_BYTES + 1)
    response = site.ask(route.method, where(route), headers=tokens_of(route), content=raw)
    error = refusal(response, 413, "request_too_large")
    assert error.error.details["most_bytes"] == MOST_BYTES


@pytest.mark.parametrize("route", named(BODIED))
def test_an_oversized_body_is_refused_while_it_comes_in_chunks(site: Site, route: Route) -> None:
    chunks = (b" " * 1024 for _ in range(MOST_BYTES // 1024 + 1))
    response = site.ask(route.method, where(route), headers=tokens_of(route), content=chunks)
    refusal(response, 413, "request_too_large")


@pytest.mark.parametrize("route", named([r for r in BODIED if '": "' in json.dumps(body_of(r))]))
def test_the_character_nul_is_refused(site: Site, route: Route) -> None:
    body = json.dumps(body_of(route) or {})
    raw = re.sub(r'(": )"(\w)', r'\1"\\u0000\2', body, count=1)
    response = site.ask(route.method, where(route), headers=tokens_of(route), content=raw)
    refusal(response, 422, "invalid_request")


@pytest.mark.parametrize("route", named(list(ROUTES)))
def test_a_wrong_method_is_refused_with_those_that_exist(site: Site, route: Route) -> None:
    allowed = {other.method for other in ROUTES if other.path == route.path} | {"OPTIONS"}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - allowed:
        response = site.ask(method, where(route), json=None)
        refusal(response, 405, "method_not_allowed")
        assert set(response.headers["allow"].split(", ")) == allowed
    response = site.ask("OPTIONS", where(route), role=None)
    assert response.status_code == 204
    assert set(response.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    "query", ["surprise=1", "project=a&project=b", "limit=many", "project=%ff"]
)
@pytest.mark.parametrize("route", named(QUERIED))
def test_a_wrong_query_is_refused(site: Site, route: Route, query: str) -> None:
    address = f"{where(route)}?{query}"
    response = site.ask(route.method, address, headers=tokens_of(route), json=body_of(route))
    refusal(response, 400, "invalid_request")


@pytest.mark.parametrize("route", named(CLOSED))
def test_an_unknown_parameter_is_refused(site: Site, route: Route) -> None:
    address = f"{where(route)}?surprise=1"
    response = site.ask(route.method, address, headers=tokens_of(route), json=body_of(route))
    assert "surprise" in refusal(response, 400, "invalid_request").error.message


@pytest.mark.parametrize("name", ["no-such", "a%20b", "%00", "-x", "a" * 64, "%C3%A9"])
@pytest.mark.parametrize("route", named(NAMED))
def test_what_is_not_there_is_not_found(site: Site, route: Route, name: str) -> None:
    address = re.sub(r"{\w+}", name, route.path) + asked_of(route)
    response = site.ask(route.method, address, json=body_of(route))
    refusal(response, 404, "not_found")


@pytest.mark.parametrize("name", ["", "/", "%2F", "h1%2F"])
@pytest.mark.parametrize("route", named(NAMED))
def test_an_empty_or_cut_name_is_not_another_route(site: Site, route: Route, name: str) -> None:
    address = re.sub(r"{\w+}", name, route.path)
    response = site.ask(route.method, address, json=body_of(route))
    refusal(response, 404, "not_found")


@pytest.mark.parametrize("path", ["/nope", "/", "/api", "/api/v1", "/api/v2/vms", "/api/v1/vms:x"])
def test_an_unknown_path_is_not_found(site: Site, path: str) -> None:
    refusal(site.ask("GET", path, role=None), 404, "not_found")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_probes_may_ask_for_the_head_only(site: Site, path: str) -> None:
    head, whole = site.ask("HEAD", path, role=None), site.ask("GET", path, role=None)
    assert head.status_code == whole.status_code == 200
    assert head.content == b""
    # What a process counts of itself has more digits from one answer to the next.
    apart = abs(int(head.headers["content-length"]) - len(whole.content))
    assert apart <= (40 if path == "/metrics" else 0)
