"""Both clients against a real HTTP server: requests as sent, answers as read, errors as raised."""

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import roost
from roost.base import errors
from roost.client import (
    AsyncClient,
    Client,
    Patience,
    constraints,
    flavors,
    groups,
    policies,
    priorities,
    recommendations,
    routes,
    series,
)
from roost.client.calls import Call
from roost.wire import bodies as b
from roost.wire.constraints import ChangeConstraint, CreateConstraint, DryRunConstraint
from roost.wire.eventstream import places_frame
from roost.wire.flavors import CreateFlavor
from roost.wire.groups import CreateGroup, SetBudget, SetGroupRule
from roost.wire.policies import (
    ApplyPolicy,
    ChangePolicy,
    CreatePolicy,
    DryRunPolicy,
    RollBackPolicy,
)
from roost.wire.priorities import CreatePriorityClass
from roost.wire.series import ImportSeries
from tests.unit.client.bodies import event, host, placement, rejection, vm
from tests.unit.client.canned import CannedServer, Reply, Seen, error

WEB = b.CreateVM(name="web-1", demand=b.DemandBody(cpu=2, memory="4GiB"))


@pytest.fixture
def server() -> Iterator[CannedServer]:
    with CannedServer() as running:
        yield running


@pytest.fixture
def client(server: CannedServer) -> Iterator[Client]:
    with Client(server.url, "roost_1_secret", wait=lambda _: None) as made:
        yield made


def test_create_sends_token_key_and_body(server: CannedServer, client: Client) -> None:
    server.on("POST", "/api/v1/vms", Reply(201, vm(placement=placement())))
    made = client.create_vm(WEB)
    assert made.placement is not None
    assert (made.host, made.placement.runners_up[0].host) == ("h1", "h2")
    [seen] = server.requests
    assert seen.headers["authorization"] == "Bearer roost_1_secret"
    assert len(seen.headers["idempotency-key"]) > 20
    assert msgspec.json.decode(seen.body, type=b.CreateVM) == WEB


def test_names_and_filters_are_quoted(server: CannedServer, client: Client) -> None:
    server.on("GET", "/api/v1/vms/a%3Fb%20c", vm())
    server.on("GET", "/api/v1/vms", b.VMPage(vms=[vm()]))
    client.get_vm("a?b c", project="x&y")
    client.list_vms(labels={"app": "web", "tier": "a=b"}, state="running", limit=5)
    assert server.requests[0].query == [("project", "x&y")]
    assert server.requests[1].query == [
        ("state", "running"), ("label", "app=web"), ("label", "tier=a=b"), ("limit", "5"),
    ]  # fmt: skip


def test_a_console_is_asked_for_by_offset_and_a_move_with_what_is_not_usual(
    server: CannedServer, client: Client
) -> None:
    piece = b.ConsoleBody(vm="vm-web-1", text="login: ", start=0, end=7, host="h1")
    server.on("GET", "/api/v1/vms/web-1/console", piece)
    server.on("POST", "/api/v1/vms/web-1/migrate", Reply(202, vm()))
    assert client.read_console("web-1", start=0, limit=7, project="p").text == "login: "
    client.read_console("web-1")
    client.migrate_vm("web-1", cold=True, bandwidth="1GiB", auto_converge=False)
    assert server.requests[0].query == [("project", "p"), ("start", "0"), ("limit", "7")]
    assert server.requests[1].query == []
    assert server.requests[2].json == {"cold": True, "bandwidth": "1GiB", "auto_converge": False}


def test_an_empty_name_is_refused_before_anything_is_sent(
    server: CannedServer, client: Client
) -> None:
    with pytest.raises(errors.InvalidRequest):
        client.delete_vm("")
    assert server.requests == []


def test_all_vms_follows_the_pages(server: CannedServer, client: Client) -> None:
    first = b.VMPage(vms=[vm("a"), vm("b")], next="b")
    server.on("GET", "/api/v1/vms", first, b.VMPage(vms=[vm("c")]))
    assert [each.name for each in client.all_vms(host="h1")] == ["a", "b", "c"]
    assert ("after", "b") in server.requests[1].query
    server.on(
        "GET", "/api/v1/hosts", b.HostPage(hosts=[host("h1")], next="h1"), b.HostPage(hosts=[])
    )
    assert [each.name for each in client.all_hosts()] == ["h1"]


def test_a_dry_run_is_read_as_what_it_is(server: CannedServer, client: Client) -> None:
    server.on("POST", "/api/v1/placements:dry-run", placement(), rejection())
    asked = b.DryRun(name="web-1", demand=WEB.demand)
    assert isinstance(client.dry_run(asked), b.PlacementBody)
    assert isinstance(client.dry_run(asked), b.RejectionBody)


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code"),
    [
        (422, "invalid_request", errors.InvalidRequest, 2),
        (422, "invalid_strategy", errors.InvalidStrategy, 2),
        (413, "request_too_large", errors.TooLarge, 2),
        (401, "unauthorized", errors.Unauthorized, 2),
        (403, "forbidden", errors.Forbidden, 2),
        (403, "quota_exceeded", errors.QuotaExceeded, 2),
        (404, "not_found", errors.NotFound, 3),
        (409, "conflict", errors.Conflict, 4),
        (409, "constraints_unsatisfied", errors.NoFit, 6),
        (503, "no_available_agents", errors.NoFit, 6),
        (500, "invariant_broken", errors.InvariantBroken, 70),
        (418, "of_the_future", errors.InvalidRequest, 2),
    ],
)
def test_errors_come_back_as_their_family(
    server: CannedServer,
    client: Client,
    status: int,
    code: str,
    kind: type[errors.RoostError],
    exit_code: int,
) -> None:
    more: dict[str, Any] = {"details": {"message": "m", "valid": [1]}, "hint": "Maybe not."}
    server.on("POST", "/api/v1/vms", error(status, code, "it is so", **more))
    with pytest.raises(kind) as caught:
        client.create_vm(WEB)
    found = caught.value
    assert (found.code, found.message, found.hint) == (code, "it is so", "Maybe not.")
    assert found.details == {"message": "m", "valid": [1]}
    assert found.exit_code == exit_code
    assert str(found) == "it is so"


def test_what_is_no_error_of_ours_goes_by_its_status(server: CannedServer, client: Client) -> None:
    server.on("GET", "/api/v1/vms", Reply(403, b"<h1>no</h1>"))
    with pytest.raises(errors.Forbidden, match="403 Forbidden"):
        client.list_vms()


def test_a_dropped_create_is_sent_again_with_its_key(server: CannedServer, client: Client) -> None:
    server.on("POST", "/api/v1/vms", Reply(drop=True), Reply(200, vm()))
    assert client.create_vm(WEB).name == "web-1"
    first, second = server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body


def test_a_server_that_is_away_is_named() -> None:
    says = pytest.raises(errors.Unavailable, match=r"127\.0\.0\.1:9: connection refused")
    with Client("http://127.0.0.1:9", patience=Patience(0, 0)) as client, says:
        client.list_vms()


def test_both_clients_word_a_refusal_alike() -> None:
    async def ask() -> None:
        async with AsyncClient("http://127.0.0.1:9", patience=Patience(0, 0)) as client:
            await client.list_vms()

    with pytest.raises(errors.Unavailable, match=r"127\.0\.0\.1:9: connection refused"):
        asyncio.run(ask())


@pytest.mark.parametrize("address", ["", "127.0.0.1:7070", "ftp://x", "http://", "http://h:99999"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(errors.InvalidRequest, match="server"):
        Client(address)


def test_a_token_with_a_line_break_is_refused() -> None:
    with pytest.raises(errors.InvalidRequest, match="token"):
        Client("http://127.0.0.1:9", "roost_1_x\n")


def chunks(*events: b.EventBody, end: str = "") -> list[str]:
    lines = [
        f"id: {e.seq}\nevent: {e.kind}\ndata: {msgspec.json.encode(e).decode()}\n\n" for e in events
    ]
    return [": hello\n\n", *lines, end]


def test_events_go_on_where_a_connection_broke(server: CannedServer, client: Client) -> None:
    half = 'id: 4\ndata: {"seq": 4, "at'
    server.on(
        "GET",
        "/api/v1/events",
        Reply(stream=chunks(event(2), event(3), end=half)),
        Reply(drop=True),
        error(503, "unavailable", "restarting"),
        Reply(stream=chunks(event(3), event(4), event(5))),
    )
    events = client.events(since=1)
    assert [next(events).seq for _ in range(4)] == [2, 3, 4, 5]
    asked = server.asked("GET", "/api/v1/events")
    assert [dict(each.query)["since"] for each in asked] == ["1", "3", "3", "3"]
    assert [each.headers["last-event-id"] for each in asked] == ["1", "3", "3", "3"]
    assert asked[0].headers["accept"] == "text/event-stream"


def test_who_comes_too_late_for_events_is_told_behind_which_to_go_on(
    server: CannedServer, client: Client
) -> None:
    details = {"since": 7, "kept_after": 100}
    gone = {"code": "events_gone", "message": "so", "details": details, "hint": None}
    text = msgspec.json.encode({"error": gone}).decode()
    server.on(
        "GET", "/api/v1/events", Reply(stream=chunks(end=f"event: error\ndata: {text}\n\n")),
        error(410, "events_gone", "so", details=details),
    )  # fmt: skip
    with pytest.raises(errors.EventsGone) as stream:
        next(client.events(since=7))
    with pytest.raises(errors.EventsGone) as page:
        client.list_events(since=7)
    assert stream.value.details == page.value.details == details


@pytest.mark.parametrize("back", [1, 2, 3, 6])
def test_events_of_a_restored_ledger_are_read_from_where_it_was_copied(
    server: CannedServer, client: Client, back: int
) -> None:
    first, last = 10, 17

    def history(name: str, seqs: Iterable[int]) -> list[b.EventBody]:
        return [msgspec.structs.replace(event(seq), tx=f"{name}-{seq}") for seq in seqs]

    def answer(asked: Seen) -> Reply:
        query = dict(asked.query)
        since, tx = int(query["since"]), query.get("tx", "")
        if since > last - back and tx.startswith("old"):
            return error(409, "events_rewritten", "restored", details={"since": since})
        kept = history("old", range(since + 1, last - back + 1))
        new = history("new", range(max(since, last - back) + 1, last + 3))
        return Reply(stream=chunks(*kept, *new))

    server.on(
        "GET", "/api/v1/events",
        Reply(stream=chunks(*history("old", range(first, last + 1)))), answer,
    )  # fmt: skip
    events = client.events(since=first - 1)
    read = [next(events) for _ in range(last + 1 - first + back + 2)]
    assert [each.tx for each in read] == [
        each.tx
        for each in (
            *history("old", range(first, last + 1)),
            *history("new", range(last - back + 1, last + 3)),
        )
    ]


def test_who_has_read_no_event_yet_goes_back_by_the_places_that_it_was_told(
    server: CannedServer, client: Client
) -> None:
    """Its first connection gives no event and breaks; the ledger is restored as of event 16."""

    def answer(asked: Seen) -> Reply:
        query = dict(asked.query)
        since = int(query["since"])
        if query["tx"] != f"old-{since}" or since > 16:
            return error(409, "events_rewritten", "restored", details={"since": since})
        old = (msgspec.structs.replace(event(seq), tx=f"old-{seq}") for seq in range(since + 1, 17))
        new = (msgspec.structs.replace(event(seq), tx=f"new-{seq}") for seq in range(17, 20))
        return Reply(stream=chunks(*old, *new))

    told = places_frame((seq, f"old-{seq}") for seq in (10, 14, 16, 17, 18)).decode()
    server.on("GET", "/api/v1/events", Reply(stream=chunks(end=told)), answer)
    events = client.events(since=18)
    assert [next(events).tx for _ in range(4)] == ["old-15", "new-17", "new-18", "new-19"]


def test_a_ledger_from_before_all_that_was_read_ends_the_events(
    server: CannedServer, client: Client
) -> None:
    known = [msgspec.structs.replace(event(seq), tx=f"old-{seq}") for seq in (5, 6)]
    rewritten = error(409, "events_rewritten", "restored", details={"since": 6})
    server.on("GET", "/api/v1/events", Reply(stream=chunks(*known)), rewritten, rewritten)
    events = client.events(since=4)
    assert [next(events).seq for _ in range(2)] == [5, 6]
    with pytest.raises(errors.EventsRewritten):
        next(events)


def test_events_end_when_the_token_is_refused(server: CannedServer, client: Client) -> None:
    server.on("GET", "/api/v1/events", error(401, "unauthorized", "who are you?"))
    with pytest.raises(errors.Unauthorized):
        next(client.events())


def test_an_error_within_the_stream_is_the_servers_last_word(
    server: CannedServer, client: Client
) -> None:
    def saying(code: str) -> Reply:
        detail = {"error": {"code": code, "message": "so", "details": {}, "hint": None}}
        text = msgspec.json.encode(detail).decode()
        return Reply(stream=chunks(event(1), end=f"event: error\ndata: {text}\n\n"))

    server.on("GET", "/api/v1/events", saying("unavailable"), saying("forbidden"))
    events = client.events()
    assert next(events).seq == 1
    with pytest.raises(errors.Forbidden, match="so"):
        next(events)
    assert len(server.requests) == 2


def test_events_give_up_when_no_connection_comes_back(server: CannedServer) -> None:
    server.on("GET", "/api/v1/events", Reply(stream=chunks(event(1))), Reply(drop=True))
    with Client(server.url) as client:
        events = client.events(patience_s=0.5)
        assert next(events).seq == 1
        with pytest.raises(errors.Unavailable):
            next(events)


def test_the_async_client_does_the_same(server: CannedServer) -> None:
    server.on("POST", "/api/v1/vms", Reply(drop=True), Reply(201, vm()))
    server.on("GET", "/api/v1/vms", b.VMPage(vms=[vm("a")], next="a"), b.VMPage(vms=[vm("b")]))
    server.on("GET", "/api/v1/hosts", b.HostPage(hosts=[host()]))
    server.on(
        "GET", "/api/v1/events", Reply(stream=chunks(event(1))), Reply(stream=chunks(event(2)))
    )
    server.on("GET", "/api/v1/vms/gone", error(404, "not_found", "no VM 'gone'"))

    async def talk() -> None:
        async with AsyncClient(server.url, "t") as client:
            assert (await client.create_vm(WEB)).name == "web-1"
            assert [each.name async for each in client.all_vms()] == ["a", "b"]
            assert [each.name async for each in client.all_hosts()] == ["h1"]
            async with aclosing(client.events(0)) as events:
                assert [(await anext(events)).seq for _ in range(2)] == [1, 2]
            with pytest.raises(errors.NotFound, match="gone"):
                await client.get_vm("gone")

    asyncio.run(asyncio.wait_for(talk(), 20))


MODULES = (
    routes,
    constraints,
    flavors,
    groups,
    policies,
    priorities,
    recommendations,
    series,
)


def _routes() -> dict[str, Any]:
    """Return the functions that make calls, of every module that has some."""
    return {
        name: function
        for module in MODULES
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and not name.startswith("_")
    }


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_every_route_is_a_method_with_the_same_arguments(kind: type) -> None:
    assert len(_routes()) >= 49
    for name, route in _routes().items():
        method = getattr(kind, name)
        assert inspect.signature(method) == inspect.signature(route)
        assert method.__doc__ == route.__doc__


#: method and path of every route that the API has, beside the agents' own connection.
SAID = """
POST /api/v1/vms · POST /api/v1/vms:batch · GET /api/v1/vms · GET /api/v1/vms/x
DELETE /api/v1/vms/x · POST /api/v1/vms/x/start · POST /api/v1/vms/x/stop
PATCH /api/v1/vms/x
POST /api/v1/vms/x/restart · POST /api/v1/vms/x/resize · POST /api/v1/vms/x/migrate
POST /api/v1/vms/x/pause · POST /api/v1/vms/x/resume · POST /api/v1/vms/x/cancel-migration
GET /api/v1/vms/x/console · GET /api/v1/vms/x/explain · GET /api/v1/hosts · GET /api/v1/hosts/x
GET /api/v1/hosts/x/scheduling-info · POST /api/v1/hosts/x/cordon · POST /api/v1/hosts/x/uncordon
PUT /api/v1/hosts/x/maintenance · PATCH /api/v1/hosts/x
POST /api/v1/hosts/x/drain · GET /api/v1/hosts/x/drain · PUT /api/v1/hosts/x/labels
POST /api/v1/hosts/x/held/x/destroy · POST /api/v1/hosts/x/held/x/adopt
POST /api/v1/hosts/x/recover · POST /api/v1/vms/x/recover
POST /api/v1/hosts/x/confirm-dead · DELETE /api/v1/hosts/x · POST /api/v1/placements:dry-run
POST /api/v1/placements:dry-run-batch · POST /api/v1/capacity · GET /api/v1/strategies
POST /api/v1/recommendations
GET /api/v1/projects · POST /api/v1/projects · GET /api/v1/projects/x · PUT /api/v1/projects/x/quota
DELETE /api/v1/projects/x · GET /api/v1/tokens · POST /api/v1/tokens · DELETE /api/v1/tokens/x
GET /api/v1/groups · POST /api/v1/groups · GET /api/v1/groups/x · PUT /api/v1/groups/x/rule
PUT /api/v1/groups/x/budget · GET /api/v1/preemptions
GET /api/v1/vms/x/preemption · POST /api/v1/vms/x/preempt
GET /api/v1/priority-classes · POST /api/v1/priority-classes · GET /api/v1/priority-classes/x
POST /api/v1/priority-classes/x/change · DELETE /api/v1/priority-classes/x
GET /api/v1/flavors · POST /api/v1/flavors · GET /api/v1/flavors/x
POST /api/v1/flavors/x/change · DELETE /api/v1/flavors/x
GET /api/v1/constraints · POST /api/v1/constraints · GET /api/v1/constraints/x
POST /api/v1/constraints/x/change · DELETE /api/v1/constraints/x
POST /api/v1/constraints:dry-run · GET /api/v1/constraints:check
GET /api/v1/policies · POST /api/v1/policies · GET /api/v1/policies/x
GET /api/v1/policies/x/diff · POST /api/v1/policies/x/change · DELETE /api/v1/policies/x
POST /api/v1/policies/x/rollback · POST /api/v1/policies:dry-run · PUT /api/v1/projects/x/policy
PUT /api/v1/vms/x/policy
POST /api/v1/groups/x/add · POST /api/v1/groups/x/remove · DELETE /api/v1/groups/x
POST /api/v1/join-tokens · POST /api/v1/agents/join · GET /api/v1/events
GET /api/v1/doctor · POST /api/v1/ledger:finish-upgrade
GET /api/v1/vms/x/series · GET /api/v1/vms/x/profile · GET /api/v1/hosts/x/series
GET /api/v1/reports/fleet
POST /api/v1/series:import
GET /healthz · GET /readyz · GET /metrics · GET /api/v1/openapi.json
"""
ARGUMENTS: dict[str, Any] = {
    "vm": "x", "host": "x", "name": "x", "token": "x", "join_token": "t", "reason": "off",
    "labels": {}, "vms": [WEB], "amounts": b.ResizeVM(cpu=1), "changes": b.SetVM(),
    "settings": b.SetHost(labels=None),
    "quota": b.QuotaBody(),
    "project": "x", "applied": ApplyPolicy(policy=None), "earlier": RollBackPolicy(version=1),
    "change": ChangeConstraint(priority=3), "members": ["x"], "rule": SetGroupRule(rule="spread"),
    "budget": SetBudget(at_most=1), "priority_class": CreatePriorityClass(name="x", value=1),
    "flavor": CreateFlavor(name="x", demand=WEB.demand),
    "series": ImportSeries(kind="vm", name="x", at_ms=[1], figures={"cpu_milli": [1.0]}),
    "on": True,
    "question": b.CapacityQuestion(name="x", demand=WEB.demand),
}  # fmt: skip


def _call(name: str) -> Call[Any]:
    route = _routes()[name]
    given = dict(ARGUMENTS)
    given["vm"] = {"create_vm": WEB, "dry_run": b.DryRun(name="x", demand=WEB.demand)}.get(
        name, "x"
    )
    given["group"] = CreateGroup(name="x", rule="spread") if name == "create_group" else "x"
    given["constraint"] = (
        CreateConstraint(name="x", expression="true")
        if name == "create_constraint"
        else DryRunConstraint(expression="true")
    )
    given["policy"] = CreatePolicy(name="x") if name == "create_policy" else DryRunPolicy()
    if name == "change_policy":
        given["change"] = ChangePolicy()
    given["token"] = b.CreateToken(name="x") if name == "create_token" else "x"
    needed = [
        parameter.name
        for parameter in inspect.signature(route).parameters.values()
        if parameter.default is parameter.empty
    ]
    made: Call[Any] = route(**{each: given[each] for each in needed})
    return made


def test_the_routes_are_those_of_the_api() -> None:
    calls = [_call(name) for name in _routes()]
    said = {each.strip() for line in SAID.strip().splitlines() for each in line.split("·")}
    assert {f"{call.method} {call.path}" for call in calls} == said


def test_every_create_is_one() -> None:
    creates = {name for name in _routes() if _call(name).creates}
    assert creates == {
        "create_vm",
        "create_vms",
        "create_project",
        "create_group",
        "create_constraint",
        "create_policy",
        "create_priority_class",
        "create_flavor",
        "create_token",
        "create_join_token",
    }


def _loaded(program: str, *modules: str) -> list[str]:
    """Return which modules a fresh interpreter has loaded after a program."""
    printing = f"{program}\nimport sys\nprint(*(m for m in {modules!r} if m in sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", printing], capture_output=True, text=True, check=True, timeout=60
    )
    return found.stdout.split()


def test_importing_the_client_loads_no_engine() -> None:
    heavy = ("numpy", "numba", "ortools", "httpx")
    assert _loaded("import roost.client", *heavy) == []
    assert _loaded("import roost.client; roost.client.Client", *heavy) == ["httpx"]


def test_importing_the_server_loads_neither_a_client_nor_another_database() -> None:
    unneeded = ("httpx", "alembic", "asyncpg", "sqlalchemy.orm")
    assert _loaded("import roost.app.serve", *unneeded) == []


def test_importing_roost_loads_no_client_until_one_is_named() -> None:
    assert _loaded("import roost", "httpx", "msgspec", "asyncio", "roost.client") == []
    assert _loaded("import roost; roost.Client, roost.AsyncClient", "httpx") == ["httpx"]
    assert (roost.Client, roost.AsyncClient) == (Client, AsyncClient)
    with pytest.raises(AttributeError, match="Clint"):
        roost.Clint  # noqa: B018


def test_methods_are_told_to_type_checkers_as_answers_and_as_coroutines(tmp_path: Path) -> None:
    asked = tmp_path / "asked.py"
    asked.write_text(
        "import roost\n"
        "client, later = roost.Client(''), roost.AsyncClient('')\n"
        "reveal_type(client.get_vm('x', project='p'))\n"
        "reveal_type(later.get_vm('x'))\n"
        "reveal_type(client.all_hosts(zone='z'))\n"
        "client.get_vm(7)\n"
    )
    api = pytest.importorskip("mypy.api")
    limit = sys.getrecursionlimit()
    try:
        said, _, _ = api.run(["--no-incremental", "--follow-imports=silent", str(asked)])
    finally:
        sys.setrecursionlimit(limit)  # which mypy has raised for good
    for each in (
        ':3: note: Revealed type is "roost.wire.bodies.vms.VMBody"',
        'typing.Coroutine[Any, Any, roost.wire.bodies.vms.VMBody]"',
        'typing.Iterator[roost.wire.bodies.hosts.HostBody]"',
        ":6: error: Argument 1 has incompatible type",
    ):
        assert each in said, said


def test_an_argument_that_a_list_does_not_have_is_refused(client: Client) -> None:
    with pytest.raises(TypeError, match="zoned"):
        list(client.all_hosts(zoned="z"))  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["", "a/b", "../hosts/h1", ".", ".."])
def test_what_is_no_name_is_not_sent_as_a_path(
    server: CannedServer, client: Client, name: str
) -> None:
    with pytest.raises(errors.InvalidRequest, match="is none of the vms"):
        client.get_vm(name)
    assert server.requests == []
