"""`roost group` as a person types it, against a real HTTP server."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from roost.cli.main import app
from roost.wire.groups import GroupDetail, GroupPage, GroupSummary, MemberBody
from tests.unit.client.canned import CannedServer, Reply, error


def group(name: str = "web", **more: Any) -> dict[str, Any]:
    return {
        "id": name, "name": name, "project": "default", "rule": "anti-affinity", "scope": "zone",
        "hard": True, "max_skew": 1, "weight": 50, "selector": {}, "members": 2, "generation": 7,
    } | more  # fmt: skip


def detail(**more: Any) -> GroupDetail:
    vms = [
        MemberBody(id="vm-a", name="a", state="running", host="h1", rack="", zone="z1"),
        MemberBody(id="vm-b", name="b", state="pending", host=None, rack="", zone=""),
    ]
    return GroupDetail(**{"holds": True, "broken": [], "vms": vms} | group(**more))


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["group", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_groups_are_listed_page_by_page(server: CannedServer) -> None:
    labels = group("labels-1f", selector={"app": "db"}, rule="spread", hard=False)
    server.on(
        "GET", "/api/v1/groups",
        GroupPage(groups=[GroupSummary(**group())], next="default/web"),
        GroupPage(groups=[GroupSummary(**labels)]),
    )  # fmt: skip
    told = said("list", "--rule", "spread")
    assert "anti-affinity zone" in told
    assert "spread zone soft max-skew=1 weight=50  (VMs with app=db)" in " ".join(told.split("\n"))
    assert dict(server.requests[-1].query)["after"] == "default/web"


def test_a_group_is_shown_with_members_and_whether_its_rule_holds(server: CannedServer) -> None:
    why = "VM 'a' on host 'h1', VM 'c' on host 'h1' share the zone 'z1'"
    server.on("GET", "/api/v1/groups/web", detail(holds=False, broken=[why]))
    told = said("show", "web", "--project", "shop")
    assert "holds now  no" in told
    assert why in told
    assert ["a", "running", "h1", "-", "z1"] in [line.split() for line in told.splitlines()]
    assert dict(server.requests[-1].query)["project"] == "shop"
    assert json.loads(said("show", "web", "-o", "json"))["holds"] is False


def test_a_rule_is_given_in_the_words_of_vm_create(server: CannedServer) -> None:
    server.on("POST", "/api/v1/groups", Reply(201, detail()))
    server.on("PUT", "/api/v1/groups/web/rule", detail())
    said("create", "web", "spread", "rack", "soft", "max-skew=3", "weight=9", "--project", "shop")
    [sent] = server.asked("POST", "/api/v1/groups")
    assert sent.json == {
        "name": "web", "project": "shop", "rule": "spread", "scope": "rack", "hard": False,
        "max_skew": 3, "weight": 9,
    }  # fmt: skip
    said("set", "web", "anti-affinity")
    [sent] = server.asked("PUT", "/api/v1/groups/web/rule")
    assert sent.json == {"rule": "anti-affinity", "scope": "host"}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("anti-afinity",), "Maybe 'anti-affinity'?"),
        (("spread", "zones"), "Maybe 'zone'?"),
        (("spread", "zone", "max-skw=2"), "Maybe 'max-skew'?"),
    ],
)
def test_a_slip_in_a_rule_is_told_without_asking_the_server(
    server: CannedServer, words: tuple[str, ...], hint: str
) -> None:
    assert hint in said("set", "web", *words, code=2)
    assert server.requests == []


def test_members_come_and_go_and_the_group_too(server: CannedServer) -> None:
    server.on("POST", "/api/v1/groups/web/add", detail())
    server.on("POST", "/api/v1/groups/web/remove", detail(members=0))
    server.on("DELETE", "/api/v1/groups/web", Reply(204))
    said("add", "web", "a", "b")
    said("remove", "web", "a", "b")
    for verb in ("add", "remove"):
        [sent] = server.asked("POST", f"/api/v1/groups/web/{verb}")
        assert sent.json == {"vms": ["a", "b"]}
    assert "web is deleted" in said("delete", "web", "--force")
    assert dict(server.requests[-1].query) == {"force": "true"}


def test_a_refusal_names_vm_and_host(server: CannedServer) -> None:
    message = "no VM was added: VM 'a' on host 'h1', VM 'b' on host 'h1' share the host 'h1'"
    server.on("POST", "/api/v1/groups/web/add", error(409, "conflict", message))
    assert message in said("add", "web", "b", code=4)
