"""Several names and selectors on one command, with what became of each."""

import pytest

from roost.base.errors import InvalidRequest
from roost.cli.words.selecting import read_selector
from tests.unit.cli.test_server_commands import answer, roost, said
from tests.unit.client.bodies import host, vm
from tests.unit.client.canned import CannedServer, Reply, error


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("zone=a", {"zone": "a"}, True),
        ("zone=a", {"zone": "b"}, False),
        ("zone!=a", {"zone": "b"}, True),
        ("zone!=a", {}, True),
        ("zone==a,ssd", {"zone": "a", "ssd": ""}, True),
        ("zone=a,ssd", {"zone": "a"}, False),
        ("!old", {"old": "1"}, False),
        ("!old", {}, True),
    ],
)
def test_selectors_match_labels(text: str, labels: dict[str, str], matches: bool) -> None:
    assert read_selector(text).matches(labels) is matches


@pytest.mark.parametrize("text", ["", "=a", "a b=c", "a=1,,b=2", "!"])
def test_a_selector_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is no condition"):
        read_selector(text)


def test_a_delete_that_fails_in_the_middle_says_what_was_done(server: CannedServer) -> None:
    server.on("DELETE", "/api/v1/vms/a", Reply(202, vm("a", state="stopping")))
    server.on("DELETE", "/api/v1/vms/nosuch", error(404, "not_found", "no VM 'nosuch'"))
    server.on("DELETE", "/api/v1/vms/b", Reply(202, vm("b", state="stopping")))
    told = roost("vm", "delete", "a", "nosuch", "b")
    assert told.exit_code == 3
    assert "a is stopping" in told.stdout
    assert "b is stopping" in told.stdout
    assert "nosuch: no VM 'nosuch'" in told.stderr
    assert "2 of 3 done, 1 failed" in told.stderr
    found = answer("vm", "delete", "a", "nosuch", code=3)
    assert [each["name"] for each in found["vms"]] == ["a"]
    assert found["failed"][0]["vm"] == "nosuch"


def test_vms_are_deleted_by_selector(server: CannedServer) -> None:
    listed = {"vms": [vm("a", labels={"team": "x"}), vm("b", labels={"team": "y"})], "next": None}
    server.on("GET", "/api/v1/vms", Reply(200, listed))
    server.on("DELETE", "/api/v1/vms/vm-b", Reply(202, vm("b", state="stopping")))
    assert "b is stopping" in said("vm", "delete", "-l", "team!=x")


def test_a_selector_that_matches_nothing_is_said(server: CannedServer) -> None:
    server.on("GET", "/api/v1/vms", Reply(200, {"vms": [], "next": None}))
    assert "no VM matches -l 'team=z'" in said("vm", "stop", "-l", "team=z", code=3)


def test_names_and_a_selector_together_are_refused(server: CannedServer) -> None:
    assert "VMs are named and selected" in said("vm", "stop", "a", "-l", "team=z", code=2)
    assert "which VM?" in said("vm", "stop", code=2)


def test_several_hosts_are_cordoned_at_once(server: CannedServer) -> None:
    for name in ("h1", "h2"):
        server.on("POST", f"/api/v1/hosts/{name}/cordon", Reply(200, host(name, admin="cordoned")))
    told = said("host", "cordon", "h1", "h2")
    assert "h1 is cordoned" in told
    assert "h2 is cordoned" in told


def test_lists_have_names_wide_columns_and_no_headers(server: CannedServer) -> None:
    listed = {"vms": [vm("b", labels={"team": "x"}), vm("a")], "next": None}
    server.on("GET", "/api/v1/vms", Reply(200, listed))
    assert said("vm", "list", "-o", "name") == "b\na\n"
    assert "team=x" in said("vm", "list", "-o", "wide")
    first, _ = said("vm", "list", "--no-headers", "--sort", "name").splitlines()
    assert first.startswith("a ")


def test_an_empty_name_makes_no_vm(server: CannedServer) -> None:
    told = said("vm", "create", "", "--cpu", "1", "--memory", "1GiB", code=2)
    assert "the name of the VM is empty" in told
