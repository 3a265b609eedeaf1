"""`roost rule` as a person types it, against a real HTTP server."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from roost.cli.main import app
from roost.wire.constraints import (
    ClassBody,
    ConstraintBody,
    ConstraintDetail,
    ConstraintDryRunBody,
    ConstraintPage,
    ConstraintVersion,
    ViolationBody,
    ViolationsBody,
)
from tests.unit.client.canned import CannedServer, Reply, error

SSD = 'host.labels["disk"] == "ssd"'


def rule(**more: Any) -> dict[str, Any]:
    return {
        "id": "ssd", "name": "ssd", "project": None, "description": "", "expression": SSD,
        "tree": None, "form": "cel", "kind": "hard", "weight": 1.0, "priority": 0, "selector": {},
        "vm": None, "policy": None, "enabled": True, "expires_at": None, "version": 1,
        "created_at": "2026-11-17T08:00:00", "created_by": "root",
        "changed_at": "2026-11-17T08:00:00", "changed_by": "root",
    } | more  # fmt: skip


def version(number: int) -> ConstraintVersion:
    return ConstraintVersion(
        version=number, expression=f"host.vms < {number}", kind="hard", weight=1.0, priority=0,
        selector={}, enabled=True, changed_at="2026-11-17T08:00:00", changed_by="root",
    )  # fmt: skip


def detail(**more: Any) -> ConstraintDetail:
    return ConstraintDetail(**{"versions": [version(2), version(1)]} | rule(**more))


def violation() -> ViolationBody:
    return ViolationBody(
        vm="vm-a", name="db-1", project="default", host="h1", rule="ssd", part=SSD,
        rule_since="2026-11-17T08:00:00",
    )  # fmt: skip


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["rule", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_rules_are_listed_page_by_page(server: CannedServer) -> None:
    soft = rule(id="p/s", kind="soft", weight=0.5, priority=3, project="p", selector={"a": "b"})
    server.on(
        "GET", "/api/v1/constraints",
        ConstraintPage(constraints=[ConstraintBody(**rule())], next="ssd"),
        ConstraintPage(constraints=[ConstraintBody(**soft)]),
    )  # fmt: skip
    told = said("list")
    assert "all VMs" in told
    assert "soft 0.5 priority 3" in told
    assert "project p, a=b" in told
    assert dict(server.requests[-1].query)["after"] == "ssd"


def test_a_rule_is_shown_with_its_versions(server: CannedServer) -> None:
    server.on("GET", "/api/v1/constraints/ssd", detail(expires_at="2026-12-01T00:00:00"))
    told = said("show", "ssd")
    assert SSD in told
    assert "2026-12-01" in told
    assert "host.vms < 2" in told
    assert json.loads(said("show", "ssd", "-o", "json"))["versions"][1]["version"] == 1


def test_what_was_asked_for_is_sent(server: CannedServer, tmp_path: Path) -> None:
    server.on("POST", "/api/v1/constraints", Reply(201, detail()))
    said(
        "create", "ssd", SSD, "--selector", "tier=db", "--soft", "0.5", "--priority", "2",
        "--expires", "2h", "--disabled", "--force", "--project", "shop", "--vm", "db-1",
    )  # fmt: skip
    assert server.requests[-1].json == {
        "name": "ssd", "expression": SSD, "selector": {"tier": "db"}, "kind": "soft",
        "weight": 0.5, "priority": 2, "expires_in_s": 7200, "enabled": False, "force": True,
        "project": "shop", "vm": "db-1",
    }  # fmt: skip
    tree = {"left": "host.zone", "operator": "eq", "right": "a"}
    (tmp_path / "rule.json").write_text(json.dumps(tree))
    said("create", "ssd", f"@{tmp_path / 'rule.json'}")
    assert server.requests[-1].json == {"name": "ssd", "expression": tree}


def test_only_what_is_named_is_changed(server: CannedServer) -> None:
    server.on("POST", "/api/v1/constraints/ssd/change", detail())
    said("change", "ssd", "--hard", "--disable")
    assert server.requests[-1].json == {"kind": "hard", "enabled": False}
    assert "not both" in said("change", "ssd", "--hard", "--soft", "1", code=2)


def test_when_a_rule_holds_is_sent_and_shown(server: CannedServer) -> None:
    timing = {"when": "fleet.load > 0.8", "until": "fleet.load < 0.6", "time_zone": "Asia/Tokyo"}
    more = timing | {"dwell_s": 600, "active": False, "holds": False, "relax_after_s": 1800}
    server.on("POST", "/api/v1/constraints", Reply(201, detail(**more)))
    told = said(
        "create", "ssd", SSD, "--when", "fleet.load > 0.8", "--until", "fleet.load < 0.6",
        "--time-zone", "Asia/Tokyo", "--dwell", "10m", "--relax-after", "30m",
    )  # fmt: skip
    sent = {"name": "ssd", "expression": SSD, "dwell_s": 600, "relax_after_s": 1800} | timing
    assert server.requests[-1].json == sent
    assert "not now" in told
    assert "in Asia/Tokyo, switched at most every 600 s" in " ".join(told.split())
    assert "has waited for 1800 s" in told
    server.on("POST", "/api/v1/constraints/ssd/change", detail())
    said("change", "ssd", "--always")
    assert server.requests[-1].json == {"when": None}
    assert "not both" in said("change", "ssd", "--always", "--when", "true", code=2)


def test_what_a_rule_has_is_taken_away(server: CannedServer) -> None:
    server.on("POST", "/api/v1/constraints/ssd/change", detail())
    said("change", "ssd", "--no-expires", "--no-until", "--no-relax", "--all-vms")
    nothing: dict[str, Any] = {
        "expires_in_s": None,
        "until": None,
        "relax_after_s": None,
        "selector": {},
    }
    assert server.requests[-1].json == nothing
    for given, taken in (
        (("--expires", "2h"), "--no-expires"),
        (("--until", "true"), "--no-until"),
        (("--relax-after", "2h"), "--no-relax"),
        (("--selector", "a=b"), "--all-vms"),
    ):
        assert "one of them" in said("change", "ssd", *given, taken, code=2)


def test_a_dry_run_of_a_change_is_asked_for_as_the_rule_is(server: CannedServer) -> None:
    more = {"project": "shop", "selector": {"tier": "db"}, "when": "fleet.load > 0.8"}
    server.on("GET", "/api/v1/constraints/ssd", detail(**more))
    found = ConstraintDryRunBody(
        hosts=3, vms=1, violated=0, violations=[], locks_out=False, classes=[], says=["all well"]
    )
    server.on("POST", "/api/v1/constraints:dry-run", found)
    assert "all well" in said("dry-run", "true", "--replaces", "ssd", "--project", "shop")
    sent = {"name": "ssd", "expression": "true", "kind": "hard"} | more
    assert server.requests[-1].json == sent
    assert dict(server.requests[-2].query)["project"] == "shop"
    said("dry-run", "true", "--replaces", "ssd", "--project", "shop", "--selector", "tier=web")
    assert server.requests[-1].json["selector"] == {"tier": "web"}


def test_a_mistake_is_shown_with_a_caret(server: CannedServer) -> None:
    picture = 'host.zoen == "a"\n     ^^^^'
    server.on(
        "POST", "/api/v1/constraints",
        error(
            422, "invalid_rule", "line 1, column 6: host has no field zoen",
            hint="Maybe host.zone is meant.",
            details={"line": 1, "column": 6, "picture": picture},
        ),
    )  # fmt: skip
    told = said("create", "r", 'host.zoen == "a"', code=2)
    assert picture in told
    assert "Maybe host.zone is meant." in told


def test_a_dry_run_is_told_in_sentences_and_classes(server: CannedServer) -> None:
    found = ConstraintDryRunBody(
        hosts=3, vms=1, violated=1, violations=[violation()], locks_out=False,
        classes=[
            ClassBody(asks=SSD, vms=1, example="db-1", hosts=2),
            ClassBody(asks="false", vms=0, example="", hosts=0),
        ],
        says=["1 of 1 VMs would be in the wrong place; they stay where they are"],
    )  # fmt: skip
    server.on("POST", "/api/v1/constraints:dry-run", found)
    told = said("dry-run", SSD)
    assert found.says[0] in told
    assert ["1", "db-1", "2", "of", "3"] in [line.split()[:5] for line in told.splitlines()]
    assert "a new VM" in told
    assert "h1" in told


def test_a_check_lists_who_is_in_the_wrong_place(server: CannedServer) -> None:
    server.on(
        "GET", "/api/v1/constraints:check",
        ViolationsBody(total=0, violations=[]),
        ViolationsBody(total=60, violations=[violation()], repaired=1),
        ViolationsBody(total=1, violations=[violation()], repaired=1),
    )  # fmt: skip
    assert "every VM is where the rules want it" in said("check")
    told = said("check", "--rule", "ssd")
    assert "db-1" in told
    assert "and 59 more" in told
    assert "repairs looked for in 1 of 60" in told
    assert "looked for" not in said("check"), "all were"


def test_a_rule_is_deleted(server: CannedServer) -> None:
    server.on("DELETE", "/api/v1/constraints/ssd", Reply(204))
    assert "ssd is deleted" in said("delete", "ssd", "--project", "shop")
    assert dict(server.requests[-1].query)["project"] == "shop"
