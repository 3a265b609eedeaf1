"""Groups over HTTP: the client's methods on a real server with a real plane."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from roost.api.app import build_app
from roost.api.server import build_server
from roost.base.clock import RealClock
from roost.base.errors import Conflict, Forbidden, NotFound
from roost.base.ids import IdSource
from roost.client import AsyncClient
from roost.wire.bodies import CreateProject, CreateToken
from roost.wire.groups import CreateGroup, SetGroupRule
from tests.integration.control.rig import ADMIN, Rig, run

APART = CreateGroup(name="apart", rule="anti-affinity")


@asynccontextmanager
async def served(rig: Rig) -> AsyncIterator[Callable[..., Awaitable[AsyncClient]]]:
    """Serve a rig's plane; gives a function that makes clients of a role."""
    clock = RealClock()
    app = build_app(rig.plane, clock=clock, ids=IdSource(clock.wall_ms))
    server = build_server(app, rig.plane, "127.0.0.1", 0)
    task = asyncio.ensure_future(server._serve())
    clients: list[AsyncClient] = []

    async def client(role: str, project: str | None = None) -> AsyncClient:
        asked = CreateToken(name=role, role=role, project=project)  # type: ignore[arg-type]
        made = await rig.plane.access.create_token(asked, ADMIN)
        assert made.secret is not None
        clients.append(AsyncClient(server.url, made.secret))
        return clients[-1]

    try:
        await server.wait_up()
        yield client
    finally:
        for each in clients:
            await each.aclose()
        server.should_exit = True
        await task


def test_a_group_from_its_making_to_its_end(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for n in range(2):
            await rig.host(f"h{n}", zone=f"z{n}")
        await rig.create("a")
        await rig.create("b", constraints={"hosts": ["h1"]})
        async with served(rig) as clients:
            client = await clients("operator")
            made = await client.create_group(APART, key="once")
            assert await client.create_group(APART, key="once") == made
            found = await client.add_to_group("apart", ["a", "b"])
            assert (found.members, found.holds) == (2, True)
            with pytest.raises(Conflict, match="is in the host"):
                await client.set_group_rule("apart", SetGroupRule(rule="affinity"))
            soft = SetGroupRule(rule="affinity", scope="zone", hard=False)
            assert not (await client.set_group_rule("apart", soft)).holds
            shown = await client.get_group("apart", limit=1)
            assert len(shown.vms) == 1
            rest = await client.get_group("apart", limit=1, after=shown.next)
            assert {vm.zone for vm in shown.vms + rest.vms} == {"z0", "z1"}
            assert [g.id for g in (await client.list_groups(rule="affinity")).groups] == ["apart"]
            assert (await client.remove_from_group("apart", ["a"])).members == 1
            with pytest.raises(Conflict, match="1 members"):
                await client.delete_group("apart")
            await client.delete_group("apart", force=True)
            with pytest.raises(NotFound):
                await client.get_group("apart")

    run(database_url, test)


def test_a_name_that_is_nearly_right_is_suggested(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        async with served(rig) as clients:
            client = await clients("operator")
            await client.create_group(APART)
            with pytest.raises(NotFound, match="'apartt'") as found:
                await client.get_group("apartt")
            assert found.value.hint == "Maybe 'apart'?"

    run(sqlite_url, test)


def test_roles_and_projects(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.plane.projects.create(CreateProject(name="lab"), ADMIN)
        async with served(rig) as clients:
            viewer, member = await clients("viewer"), await clients("member", "lab")
            with pytest.raises(Forbidden):
                await viewer.create_group(APART)
            with pytest.raises(NotFound):
                await member.create_group(CreateGroup(name="x", rule="spread", project="default"))
            await member.create_group(CreateGroup(name="own", rule="spread", project="lab"))
            assert [g.name for g in (await viewer.list_groups()).groups] == ["own"]
            assert (await member.get_group("own")).project == "lab"
            with pytest.raises(NotFound):
                await member.get_group("own", project="default")
            with pytest.raises(Forbidden):
                await viewer.delete_group("own", project="lab")
            await member.delete_group("own")

    run(sqlite_url, test)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/api/v1/groups", {"name": "x"}, 400),
        ("POST", "/api/v1/groups", {"name": "x", "rule": "near"}, 400),
        ("POST", "/api/v1/groups", {"name": "a/b", "rule": "spread"}, 400),
        ("POST", "/api/v1/groups", {"name": "x", "rule": "spread", "max_skew": 0}, 400),
        ("POST", "/api/v1/groups", {"name": "x", "rule": "spread", "project": "none"}, 404),
        ("POST", "/api/v1/groups/none/add", {"vms": ["a"]}, 404),
        ("POST", "/api/v1/groups/none/add", {"vms": []}, 400),
        ("PUT", "/api/v1/groups/none/rule", {"rule": "spread"}, 404),
        ("DELETE", "/api/v1/groups/none?force=yes", None, 400),
        ("DELETE", "/api/v1/groups/none?force=true", None, 404),
        ("GET", "/api/v1/groups?rule=near", None, 400),
        ("GET", "/api/v1/groups/~x", None, 404),
    ],
)
def test_what_is_wrong_is_refused(
    sqlite_url: str, method: str, path: str, body: Any, status: int
) -> None:
    async def test(rig: Rig) -> None:
        async with served(rig) as clients:
            client = await clients("operator")
            bearer = {"Authorization": f"Bearer {client._manner.token}"}
            async with httpx.AsyncClient(base_url=client.server, headers=bearer) as raw:
                answer = await raw.request(method, path, json=body)
            assert answer.status_code in (status, 422 if status == 400 else status), answer.text
            assert answer.json()["error"]["message"]

    run(sqlite_url, test)
