"""`roost vm recommend` as a person types it, against a real HTTP server."""

import json

from typer.testing import CliRunner

from roost.cli.main import app
from roost.wire.bodies import RuleRefusalBody, ScoreTermBody
from roost.wire.recommendations import RecommendationBody, RecommendationsBody, RuleSaysBody
from tests.unit.client.bodies import rejection
from tests.unit.client.canned import CannedServer

ONE = 10 * 2**30
SSD = 'host.labels["disk"] == "ssd"'


def ranked(rank: int | None, host: str, **more: object) -> RecommendationBody:
    fields: dict[str, object] = {
        "here": False, "score": ONE // 4, "gain": ONE // 2, "reasons": [], "shortages": [],
        "breakdown": [ScoreTermBody(name="cpu", value=ONE // 4)], "rules": [],
    }  # fmt: skip
    return RecommendationBody(rank=rank, host=host, **fields | more)  # type: ignore[arg-type]


def says(kind: str, charge: int = 0) -> RuleSaysBody:
    part = RuleRefusalBody(rule="ssd", part=SSD, values={"host.labels": "hdd"}, error="")
    return RuleSaysBody(rule="ssd", kind=kind, holds=False, charge=charge, parts=[part])


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["vm", "recommend", *arguments], env={"COLUMNS": "300"})
    assert result.exit_code == code, result.output
    return result.output


def test_better_places_are_ranked_with_what_is_gained(server: CannedServer) -> None:
    body = RecommendationsBody(
        vm="web-1", strategy="least_loaded", hosts=4, fitting=2, reasons=[],
        recommendations=[
            ranked(1, "h2", rules=[RuleSaysBody(rule="ssd", kind="soft", holds=True, charge=0,
                                                parts=[])]),
            ranked(2, "h3", rules=[says("soft", ONE // 8)]),
            ranked(None, "h1", here=True, score=None, gain=None, reasons=["rule"], breakdown=[],
                   rules=[says("hard")]),
        ],
    )  # fmt: skip
    server.on("POST", "/api/v1/recommendations", body)
    told = said("web-1", "--project", "shop", "--most", "3")
    assert server.requests[-1].json == {"vm": "web-1", "project": "shop", "most": 3}
    assert "h1 (here)" in told
    assert "rule ssd holds" in told
    assert "0.1250 charged by rule ssd" in told
    assert "refused by rule ssd" in told
    assert json.loads(said("web-1", "-o", "json"))["recommendations"][0]["rank"] == 1


def test_a_vm_that_does_not_exist_is_described(server: CannedServer) -> None:
    body = RecommendationsBody(
        vm="vm", strategy="best_fit", hosts=4, fitting=0, recommendations=[], reasons=[],
        rejection=rejection("vm"),
    )  # fmt: skip
    server.on("POST", "/api/v1/recommendations", body)
    told = said("--cpu", "2", "--memory", "4GiB")
    assert server.requests[-1].json["new"]["demand"]["cpu"] == "2"
    assert "no host fits" in told
    assert "smallest fix" in told
    assert "describes another" in said("web-1", "--cpu", "2", code=2)


def test_a_vm_is_described_by_what_rules_and_reservations_go_by(server: CannedServer) -> None:
    body = RecommendationsBody(
        vm="vm", strategy="best_fit", hosts=1, fitting=1, recommendations=[ranked(1, "h2")],
        reasons=[],
    )  # fmt: skip
    server.on("POST", "/api/v1/recommendations", body)
    until = "2030-01-01T00:00:00Z"
    given = ("--vm-label", "tier=db", "--policy", "databases", "--until", until)
    said("--cpu", "2", "--memory", "4GiB", *given, "--reservation", "audit")
    asked = server.requests[-1].json["new"]
    assert (asked["labels"], asked["policy"]) == ({"tier": "db"}, "databases")
    assert (asked["until"], asked["reservation"]) == (until, "audit")
    for option in (("--vm-label", "a=b"), ("--policy", "p"), ("--for", "1h")):
        assert f"{option[0]} describes another" in said("web-1", *option, code=2)
