"""`roost vm stop|start|restart --wait` against a real control plane whose hosts are played."""

import json
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from roost.cli.main import app
from tests.api.conftest import Site
from tests.api.planes import token

SIZE = {"demand": {"cpu": 1, "memory": "1GiB"}}
#: What `Unavailable` ends with: it may work later.
NOT_NOW = 5


@pytest.fixture
def vm(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A VM that runs, on a server that commands find."""
    monkeypatch.setenv("ROOST_SERVER", site.url)
    monkeypatch.setenv("ROOST_TOKEN", token("operator"))
    monkeypatch.delenv("ROOST_OUTPUT", raising=False)
    made = site.ask("POST", "/api/v1/vms", json=SIZE | {"name": "web"}).json()
    site.settle()
    assert site.ask("GET", "/api/v1/vms/web").json()["state"] == "running"
    yield made["id"]
    for agent in site.players.agents.values():
        agent.failing.clear()
    assert site.ask("DELETE", "/api/v1/vms/web").is_success
    site.settle()


def roost(*words: str) -> Result:
    """Run a command of a VM, and wait."""
    return CliRunner().invoke(app, ["vm", *words, "web", "--wait", "-o", "json"])


def state(site: Site) -> str:
    return str(site.ask("GET", "/api/v1/vms/web").json()["state"])


def test_stop_start_and_restart_end_when_it_is_so(site: Site, vm: str) -> None:
    for command, reached in (("stop", "stopped"), ("start", "running"), ("restart", "running")):
        before = site.ask("GET", "/api/v1/vms/web").json()
        result = roost(command)
        assert result.exit_code == 0, result.output
        after = site.ask("GET", "/api/v1/vms/web").json()
        assert after["state"] == reached
        assert after["observed_generation"] == after["generation"] > before["generation"]


@pytest.mark.parametrize("command", ["stop", "restart"])
def test_a_host_that_does_nothing_is_waited_for_so_long(site: Site, vm: str, command: str) -> None:
    site.pause()
    result = roost(command, "--timeout", "1")
    assert result.exit_code == NOT_NOW
    told = json.loads(result.stdout)["error"]
    assert told["code"] == "unavailable"
    assert "after 1 s" in told["message"]
    site.settle()  # what was asked for is done, though nobody waits any more
    assert state(site) == ("stopped" if command == "stop" else "running")


def test_a_start_that_fails_ends_the_wait_with_the_reason(site: Site, vm: str) -> None:
    assert roost("stop").exit_code == 0
    for agent in site.players.agents.values():
        agent.failing[vm] = "no_such_image"
    result = roost("start", "--timeout", "20")
    assert result.exit_code == NOT_NOW
    told = json.loads(result.stdout)["error"]
    assert (told["details"]["vm"], told["details"]["state"]) == ("web", "failed")
    assert "failed on h" in told["message"]
    assert "cannot" in told["message"]  # the host's own words
