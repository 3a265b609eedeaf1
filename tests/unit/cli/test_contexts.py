"""`roost context`, several servers, and the project of commands that name none."""

import json
import stat
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from roost.app.serve import tell_command_line
from roost.cli.main import app
from roost.cli.words.completing import complete_contexts, complete_from
from roost.cli.words.nouns import VM_STATES
from roost.client.context import Context, load_contexts, read_context, write_context
from roost.wire.queries import State
from tests.unit.client.bodies import placement, vm
from tests.unit.client.canned import CannedServer, Reply, error

SIZE = ("--cpu", "2", "--memory", "4GiB")


def said(*arguments: str, code: int = 0, stdin: str | None = None) -> str:
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Name a context file that is not there yet, and nothing else."""
    for name in ("SERVER", "TOKEN", "CA_FILE", "PROJECT", "OUTPUT", "FLEET", "CONFIG"):
        monkeypatch.delenv(f"ROOST_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROOST_CONTEXT", str(tmp_path / "context.json"))
    return tmp_path / "context.json"


def test_contexts_are_added_used_shown_and_removed(file: Path) -> None:
    said("context", "add", "prod", "--server", "https://a:7070,https://b:7070",
         "--token-file", "-", "--project", "shop", stdin="roost_1_secret\n")  # fmt: skip
    said("context", "add", "lab", "--server", "http://127.0.0.1:7070")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = json.loads(said("context", "list", "-o", "json"))
    assert (listed["current"], [each["name"] for each in listed["contexts"]]) == (
        "prod",
        ["lab", "prod"],
    )
    assert "lab" in said("context", "use", "lab")
    shown = said("context", "show", "prod")
    assert "https://a:7070, https://b:7070" in shown
    assert "shop" in shown
    assert "secret" not in shown + said("context", "list") + said("context", "list", "-o", "yaml")
    assert "none is current" in said("context", "remove", "lab")
    assert said("context", "list", "-o", "name").split() == ["prod"]


def test_what_cannot_be_is_refused(file: Path) -> None:
    said("context", "add", "prod", "--server", "http://a:1")
    assert "already" in said("context", "add", "prod", "--server", "http://b:1", code=4)
    said("context", "add", "prod", "--server", "http://b:1", "--replace")
    assert "Maybe 'prod'?" in said("context", "use", "prd", code=3)
    assert "no name of a context" in said("context", "add", "a/b", "--server", "http://b:1", code=2)
    assert "no address" in said("context", "add", "x", "--server", "b:1", code=2)
    assert "no file" in said(
        "context", "add", "x", "--server", "https://b", "--ca-file", "nope.pem", code=3
    )
    file.write_text('{"current": "gone", "contexts": {}}')
    assert "context.json: no context 'gone'" in said("vm", "list", code=2)


def test_a_file_with_one_context_becomes_one_with_several(file: Path) -> None:
    write_context(file, Context(server="http://127.0.0.1:1", token="old"))
    said("context", "add", "prod", "--server", "http://a:1", "--use")
    found = load_contexts(file)
    assert found.current == "prod"
    assert found.named("default") == Context(server="http://127.0.0.1:1", token="old")


def test_certificates_are_found_from_every_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("")
    said("context", "add", "prod", "--server", "https://a:1", "--ca-file", "ca.pem")
    token = tmp_path / "admin-token"
    token.write_text("roost_1_admin\n")
    monkeypatch.chdir("/")
    assert read_context({"ROOST_CONTEXT": str(file)}, Path("/")).ca_file == str(tmp_path / "ca.pem")
    # What `serve --tls-cert cert.pem` writes, started from another folder.
    monkeypatch.chdir(tmp_path)
    file.unlink()
    tell_command_line(file, "https://127.0.0.1:7070", token, Path("ca.pem"))
    assert load_contexts(file).chosen().ca_file == str(tmp_path / "ca.pem")


def test_a_server_here_is_called_local_in_a_file_with_several(file: Path, tmp_path: Path) -> None:
    said("context", "add", "prod", "--server", "https://a:1")
    token = tmp_path / "admin-token"
    token.write_text("roost_1_admin\n")
    tell_command_line(file, "http://127.0.0.1:7070", token, None)
    found = load_contexts(file)
    assert (found.current, found.named("local").token) == ("prod", "roost_1_admin")


def test_a_context_local_that_names_another_machine_is_kept(file: Path, tmp_path: Path) -> None:
    said("context", "add", "local", "--server", "https://elsewhere:1", "--token", "roost_1_mine")
    token = tmp_path / "admin-token"
    token.write_text("roost_1_admin\n")
    tell_command_line(file, "http://127.0.0.1:7070", token, None)
    assert load_contexts(file).named("local").server == "https://elsewhere:1"


def test_a_command_goes_by_the_context_that_it_names(file: Path) -> None:
    with CannedServer() as one, CannedServer() as two:
        for server, name in ((one, "one"), (two, "two")):
            server.on("GET", "/api/v1/vms/web-1", vm(host=f"on-{name}"))
            said("context", "add", name, "--server", server.url, "--token", f"roost_{name}")
        assert "on-one" in said("vm", "show", "web-1")
        assert "on-two" in said("vm", "show", "web-1", "--context", "two")
        assert two.requests[-1].headers["authorization"] == "Bearer roost_two"
        said("vm", "show", "web-1", "--context", "three", code=3)


def test_a_command_asks_the_next_server_when_one_is_away_or_busy(file: Path) -> None:
    with CannedServer() as busy, CannedServer() as well:
        busy.on("POST", "/api/v1/vms", error(503, "unavailable", "not ready"))
        well.on("POST", "/api/v1/vms", Reply(201, vm(placement=placement())))
        servers = f"http://127.0.0.1:1,{busy.url},{well.url}"
        said("context", "add", "prod", "--server", servers, "--token", "t")
        assert "web-1 is on" in said("vm", "create", "web-1", *SIZE)
        keys = [each.requests[0].headers["idempotency-key"] for each in (busy, well)]
        assert keys[0] == keys[1]
        well.on("POST", "/api/v1/vms", error(403, "forbidden", "no"))
        said("vm", "create", "web-1", *SIZE, code=2)
        assert len(well.requests) == 2  # an answer is an answer: nobody else is asked
    assert "http://127.0.0.1:1 or" in said("vm", "list", code=5)


def test_a_token_of_the_file_goes_to_its_servers_alone(file: Path) -> None:
    said("context", "add", "prod", "--server", "http://a:1,http://b:1", "--token", "t")
    environment = {"ROOST_CONTEXT": str(file)}
    assert read_context(environment, file.parent, server="http://b:1").token == "t"
    assert read_context(environment, file.parent, server="http://b:1,http://c:1").token is None


@pytest.mark.parametrize("by", ["context", "environment"])
def test_the_project_of_the_context_is_that_of_commands_that_name_none(
    file: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    with CannedServer() as server:
        server.on("POST", "/api/v1/vms", Reply(201, vm(placement=placement())))
        server.on("GET", "/api/v1/vms/web-1", vm())
        server.on("GET", "/api/v1/vms", {"vms": [], "next": None})
        more = ("--project", "shop") if by == "context" else ()
        said("context", "add", "prod", "--server", server.url, *more)
        if by == "environment":
            monkeypatch.setenv("ROOST_PROJECT", "shop")
        said("vm", "create", "web-1", *SIZE)
        assert server.requests[-1].json["project"] == "shop"
        said("vm", "show", "web-1")
        assert ("project", "shop") in server.requests[-1].query
        said("vm", "create", "web-1", *SIZE, "--project", "other")
        assert server.requests[-1].json["project"] == "other"
        said("vm", "list")
        assert ("project", "shop") in server.requests[-1].query
        said("vm", "list", "--project", "")
        assert not dict(server.requests[-1].query).get("project")


def test_without_any_project_the_server_chooses(file: Path) -> None:
    with CannedServer() as server:
        server.on("POST", "/api/v1/vms", Reply(201, vm(placement=placement())))
        said("context", "add", "prod", "--server", server.url)
        said("vm", "create", "web-1", *SIZE)
        assert "project" not in server.requests[-1].json


def test_a_fleet_file_knows_no_context(file: Path, tmp_path: Path) -> None:
    file.write_text("{")
    fleet = tmp_path / "one.fleet"
    fleet.write_text("host h1 cpu=4 memory=8GiB\n")
    assert "h1" in said("place", "--fleet", str(fleet), "--cpu", "1", "--memory", "1GiB")


def test_values_are_completed(file: Path) -> None:
    said("context", "add", "prod", "--server", "http://a:1")
    said("context", "add", "lab", "--server", "http://a:1")
    assert complete_contexts("p") == ["prod"]
    assert get_args(State) == VM_STATES
    assert complete_from(*VM_STATES)("p") == ["pending", "pausing", "paused"]
