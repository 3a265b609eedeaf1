"""What the shell completes: every word that names a thing the server knows, within a moment."""

from collections.abc import Iterator
from typing import Any

import pytest

from roost.cli.main import COMMANDS
from roost.cli.words import completing
from roost.wire import bodies as b
from tests.unit.client.bodies import host, vm
from tests.unit.client.canned import CannedServer

#: Words of help that stand for a thing with a name, or for one of a few words.
KNOWN = {
    "CLASS", "FLAVOR", "FLAVOR...", "GROUP", "GOAL", "HEALTH", "HOST", "HOST...", "JOB",
    "MARKET", "ORDER", "FIT", "PLAN", "POLICY", "POOL", "RULE", "STATE", "VM", "VM...",
    "here|elsewhere", "never|lower", "on|off",
}  # fmt: skip
#: What is new with the command, or lies where no server is asked.
FREE = {
    "group create group", "flavor create flavor", "rule create rule", "policy create policy",
    "priority create priority_class", "vm create affinity", "group list rule", "job list state",
}  # fmt: skip


def words(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield every option and argument of a command, and of those below it."""
    for name, below in getattr(command, "commands", {}).items():
        yield from words(below, (*path, name))
    if not hasattr(command, "commands"):
        for each in command.params:
            yield " ".join((*path, each.name)), each


def test_every_word_that_names_a_thing_is_completed() -> None:
    seen, wanting = 0, set()
    for entry in COMMANDS:
        if entry.name == "kube":  # a cluster is asked there, not a server
            continue
        for where, each in words(entry.load(), (entry.name,)):
            if each.metavar in KNOWN and where not in FREE:
                seen += 1
                if each._custom_shell_complete is None:
                    wanting.add(where)
    assert wanting == set()
    assert seen > 80  # it has looked


def test_a_name_on_a_later_page_is_found(server: CannedServer) -> None:
    first = b.VMPage(vms=[vm("app-1"), vm("app-2")], next="app-2")
    server.on("GET", "/api/v1/vms", first, b.VMPage(vms=[vm("web-1")]))
    assert completing.complete_vms("w") == ["web-1"]


def test_no_more_names_are_given_than_a_shell_can_show(server: CannedServer) -> None:
    page = b.HostPage(hosts=[host(f"h{at}") for at in range(300)], next="h299")
    server.on("GET", "/api/v1/hosts", page)
    assert len(completing.complete_hosts("h")) == 200
    assert len(server.requests) == 1


def test_a_server_with_endless_pages_is_left_after_a_moment(
    server: CannedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completing, "_TIMEOUT_S", 0.2)
    server.on("GET", "/api/v1/hosts", b.HostPage(hosts=[host("h1")], next="h1"))
    assert completing.complete_hosts("x") == []


def test_zones_are_those_of_hosts_each_once(server: CannedServer) -> None:
    there = [host("h1", zone="a"), host("h2", zone="a"), host("h3", zone="b"), host("h4", zone="")]
    server.on("GET", "/api/v1/hosts", b.HostPage(hosts=there))
    assert completing.complete_zones("") == ["a", "b"]
