"""All-or-none batches as a person asks for them, against a real HTTP server."""

import json
from pathlib import Path

import msgspec
from typer.testing import CliRunner

from roost.cli.main import app
from roost.wire import bodies as b
from tests.unit.client.bodies import placement, rejection
from tests.unit.client.canned import CannedServer, error

CONFLICT = b.BatchConflictBody(
    restrictions=[b.RestrictionBody(kind="rule", name="ssd", vms=["x"], count=3)],
    checked=True,
    smallest=True,
)


def said(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


def batch(tmp_path: Path) -> str:
    path = tmp_path / "vms"
    path.write_text("x cpu=1 memory=1GiB\ny cpu=2 memory=1GiB\n")
    return str(path)


def test_a_dry_run_says_where_all_would_go(server: CannedServer, tmp_path: Path) -> None:
    together = b.TogetherBody(how="exact search")
    found = b.AnswersBody(answers=[placement("x"), placement("y")], together=together)
    server.on("POST", "/api/v1/placements:dry-run-batch", found)
    told = said("vm", "batch", batch(tmp_path), "--atomic", "--dry-run")
    assert server.requests[-1].json["atomic"] is True
    assert "2 of 2 would be placed  (exact search)" in told
    told = said("vm", "batch", batch(tmp_path), "--dry-run", "-o", "json")
    assert json.loads(told)["together"]["how"] == "exact search"


def test_a_dry_run_names_what_is_in_the_way(server: CannedServer, tmp_path: Path) -> None:
    together = b.TogetherBody(how="exact search", conflict=CONFLICT)
    found = b.AnswersBody(answers=[rejection("x")], together=together)
    server.on("POST", "/api/v1/placements:dry-run-batch", found)
    told = said("vm", "batch", batch(tmp_path), "--atomic", "--dry-run", code=1)
    assert "all would fit without these (the smallest set; each was put back" in told
    assert "rule ssd of x and 2 more" in told
    size = ("--cpu", "1", "--memory", "1GiB", "--count", "3")
    assert "rule ssd" in said("place", *size, "--all-or-nothing", code=1)


def test_a_refused_batch_says_what_is_not_proven(server: CannedServer, tmp_path: Path) -> None:
    details = {
        "rejection": msgspec.to_builtins(rejection("x")),
        "together": {"how": "exact search", "proven": False, "conflict": None},
    }
    refused = error(409, "constraints_unsatisfied", "no way", details=details)
    server.on("POST", "/api/v1/vms:batch", refused)
    told = said("vm", "batch", batch(tmp_path), "--atomic", code=6)
    assert "the search was cut short; there may be a way" in told
