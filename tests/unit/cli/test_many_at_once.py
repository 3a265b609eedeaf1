"""Several names and selectors on one command, with what became of each."""

import pytest

from roost.base.errors import InvalidRequest
from roost.cli.words.selecting import read_selector
from roost.wire.bodies import DrainBody, MigrationBody
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


@pytest.mark.parametrize(
    ("what", "page"), [("vm", {"vms": [], "next": None}), ("host", {"hosts": [], "next": None})]
)
def test_a_list_says_which_selector_matched_nothing(
    server: CannedServer, what: str, page: dict[str, object]
) -> None:
    server.on("GET", f"/api/v1/{what}s", Reply(200, page))
    name = "VM" if what == "vm" else "host"
    assert f"no {name} matches -l 'team=z'" in said(what, "list", "-l", "team=z")
    assert f"no {name}s\n" in said(what, "list")


def test_no_event_is_said_too(server: CannedServer) -> None:
    server.on("GET", "/api/v1/events", Reply(200, {"events": [], "next": 7}))
    assert roost("events").stderr == "no events\n"
    told = roost("events", "--kind", "nosuch")
    assert (told.stdout, told.stderr) == ("", "no event matches\n")
    assert roost("events", "--kind", "nosuch", "-o", "json").stderr == ""


def test_hosts_that_are_forgotten_are_told_beside_those_that_are_not(server: CannedServer) -> None:
    listed = {
        "hosts": [host(name, labels={"old": ""}) for name in ("h1", "h2", "h3")],
        "next": None,
    }
    server.on("GET", "/api/v1/hosts", Reply(200, listed))
    for name in ("h1", "h3"):
        server.on("DELETE", f"/api/v1/hosts/{name}", Reply(204))
    server.on("DELETE", "/api/v1/hosts/h2", error(409, "conflict", "host 'h2' has 1 VM"))
    told = roost("host", "delete", "-l", "old")
    assert told.exit_code == 4
    assert told.stdout == "h1 is forgotten\nh3 is forgotten\n"
    assert "h2: host 'h2' has 1 VM" in told.stderr
    assert answer("host", "delete", "h1") == {"deleted": "h1"}
    assert answer("host", "delete", "h1", "h3") == {"hosts": [{"deleted": "h1"}, {"deleted": "h3"}]}
    assert "which host?" in said("host", "delete", code=2)


@pytest.mark.parametrize(
    ("words", "path", "sent"),
    [
        (("maintenance", "on"), "maintenance", {"on": True}),
        (("maintenance", "off"), "maintenance", {"on": False}),
        (("confirm-dead", "--reason", "no power"), "confirm-dead", {"reason": "no power"}),
    ],
)
def test_several_hosts_change_at_once(
    server: CannedServer, words: tuple[str, ...], path: str, sent: dict[str, object]
) -> None:
    listed = {"hosts": [host("h1", labels={"rack": "1"}), host("h2"), host("h3")], "next": None}
    server.on("GET", "/api/v1/hosts", Reply(200, listed))
    for method in ("POST", "PUT"):
        for name in ("h1", "h2"):
            server.on(method, f"/api/v1/hosts/{name}/{path}", Reply(200, host(name)))
    assert said("host", *words, "h1", "h2").count(" is open and online") == 2
    assert [seen.json for seen in server.requests] == [sent, sent]
    assert said("host", *words, "-l", "rack=1").startswith("h1 is open")
    assert said("host", *words, "h1", "h2", "-o", "name") == "h1\nh2\n"


def test_the_vms_of_several_hosts_are_recovered_and_those_that_stay_are_told(
    server: CannedServer,
) -> None:
    stays = {"host": "h2", "queued": ["c"], "failed": [{"vm": "b", "why": "nobody knows it"}]}
    server.on("POST", "/api/v1/hosts/h1/recover", {"host": "h1", "restarted": ["a"]})
    server.on("POST", "/api/v1/hosts/h2/recover", stays)
    told = said("host", "recover", "h1", "h2", code=1)
    assert "1 VMs of h1 start elsewhere, 0 wait\n0 VMs of h2 start elsewhere, 1 wait\n" in told
    assert "b stays: nobody knows it" in told
    assert [each["host"] for each in answer("host", "recover", "h1", "h2", code=1)["hosts"]] == [
        "h1",
        "h2",
    ]
    assert answer("host", "recover", "h1")["restarted"] == ["a"]


def test_several_vms_move_and_one_that_cannot_is_told(server: CannedServer) -> None:
    for name in ("a", "c"):
        moves = MigrationBody(source="h1", target="h2", phase="preparing")
        server.on("POST", f"/api/v1/vms/{name}/migrate", Reply(202, vm(name, migration=moves)))
    server.on("POST", "/api/v1/vms/b/migrate", error(409, "conflict", "VM 'b' is moving"))
    told = roost("vm", "migrate", "a", "b", "c", "--to", "h2")
    assert told.exit_code == 4
    assert "a moves from h1 to h2" in told.stdout
    assert "c moves from h1 to h2" in told.stdout
    assert "2 of 3 done, 1 failed" in told.stderr
    assert [seen.json for seen in server.requests] == [{"host": "h2"}] * 3
    server.on("POST", "/api/v1/vms/a/cancel-migration", Reply(202, vm("a", migration=moves)))
    server.on("POST", "/api/v1/vms/c/cancel-migration", Reply(202, vm("c", migration=moves)))
    assert said("vm", "migrate", "a", "c", "--cancel").count("is being called off") == 2


def test_a_policy_that_one_vm_cannot_have_is_told_beside_the_others(server: CannedServer) -> None:
    for name in ("a", "c"):
        under = {
            "vm": f"vm-{name}", "name": name, "project": "default", "policy": "gold", "version": 1,
            "host": "h1", "changed": True, "violations": [{"rule": "r", "part": "host.ssd"}],
        }  # fmt: skip
        server.on("PUT", f"/api/v1/vms/{name}/policy", Reply(200, under))
    server.on("PUT", "/api/v1/vms/b/policy", error(404, "not_found", "no VM 'b'"))
    told = roost("vm", "set", "a", "b", "c", "--policy", "gold")
    assert told.exit_code == 3
    assert (
        "a is now under policy gold\n  on h1 it breaks r: host.ssd; it stays there" in told.stdout
    )
    assert "c is now under policy gold" in told.stdout
    assert "b: no VM 'b'" in told.stderr
    found = answer("vm", "set", "a", "b", "--policy", "gold", code=3)
    assert [each["name"] for each in found["vms"]] == ["a"]
    assert found["failed"][0]["vm"] == "b"


def test_flavors_behind_one_that_is_not_there_are_deleted(server: CannedServer) -> None:
    for name in ("a", "c"):
        server.on("DELETE", f"/api/v1/flavors/{name}", Reply(204))
    server.on("DELETE", "/api/v1/flavors/b", error(404, "not_found", "no flavor 'b'"))
    told = roost("flavor", "delete", "a", "b", "c")
    assert told.exit_code == 3
    assert told.stdout == "a is deleted\nc is deleted\n"
    assert "2 of 3 done, 1 failed" in told.stderr
    assert answer("flavor", "delete", "a") == {"deleted": "a"}


@pytest.mark.parametrize(
    ("words", "path", "told"),
    [
        (("project", "delete"), "projects", "is deleted"),
        (("token", "delete"), "tokens", "is worthless now"),
        (("group", "delete"), "groups", "is deleted"),
        (("rule", "delete"), "constraints", "is deleted"),
        (("policy", "delete"), "policies", "is deleted"),
        (("reservation", "delete"), "reservations", "is deleted"),
        (("priority", "delete"), "priority-classes", "is deleted"),
        (("pool", "delete"), "pools", "is deleted"),
        (("account", "delete"), "accounts", "is deleted"),
        (("job", "kind", "delete"), "job-kinds", "is deleted"),
    ],
)
def test_several_of_any_kind_are_deleted_at_once(
    server: CannedServer, words: tuple[str, ...], path: str, told: str
) -> None:
    for name in ("a", "c"):
        server.on("DELETE", f"/api/v1/{path}/{name}", Reply(204))
    server.on("DELETE", f"/api/v1/{path}/b", error(409, "conflict", "it is in use"))
    done = roost(*words, "a", "b", "c")
    assert done.exit_code == 4, done.output
    assert done.stdout == f"a {told}\nc {told}\n"
    assert "b: it is in use" in done.stderr
    assert "2 of 3 done, 1 failed" in done.stderr
    assert answer(*words, "a") == {"deleted": "a"}


def test_vms_are_resized_by_selector_each_with_its_result(server: CannedServer) -> None:
    listed = {"vms": [vm("a"), vm("b"), vm("c")], "next": None}
    server.on("GET", "/api/v1/vms", Reply(200, listed))
    for name in ("a", "c"):
        server.on("POST", f"/api/v1/vms/vm-{name}/resize", Reply(200, vm(name)))
    refusal = error(409, "insufficient_resources", "host 'h1' has no room")
    server.on("POST", "/api/v1/vms/vm-b/resize", refusal)
    told = roost("vm", "resize", "-l", "!old", "--cpu", "2")
    assert told.exit_code == 6, told.output
    assert [line.partition(" has ")[0] for line in told.stdout.splitlines()] == ["a", "c"]
    assert "vm-b: host 'h1' has no room" in told.stderr
    assert "2 of 3 done, 1 failed" in told.stderr


def test_hosts_are_all_closed_before_the_first_of_them_is_drained(server: CannedServer) -> None:
    for name, state in (("h1", "blocked"), ("h2", "empty")):
        server.on("POST", f"/api/v1/hosts/{name}/cordon", host(name, admin="cordoned"))
        drained = DrainBody(host=name, state=state, left=1 if state == "blocked" else 0)
        server.on("POST", f"/api/v1/hosts/{name}/drain", Reply(202, drained))
    told = roost("host", "drain", "h1", "h2")
    assert told.exit_code == 1, told.output
    assert told.stdout == "h1 is blocked: 1 VM left\nh2 is empty: 0 VMs left\n"
    orders = [seen.path.removeprefix("/api/v1/hosts/") for seen in server.requests]
    assert orders[-4:] == ["h1/cordon", "h2/cordon", "h1/drain", "h2/drain"]
    [wish] = server.asked("POST", "/api/v1/plans")
    assert wish.json["hosts"] == ["h1", "h2"]


def test_one_host_is_drained_as_before(server: CannedServer) -> None:
    drained = DrainBody(host="h1", state="empty", left=0)
    server.on("POST", "/api/v1/hosts/h1/drain", Reply(202, drained))
    assert answer("host", "drain", "h1")["state"] == "empty"
    assert not server.asked("POST", "/api/v1/hosts/h1/cordon")


def test_several_things_are_shown_one_after_the_other(server: CannedServer) -> None:
    for name in ("a", "b"):
        server.on("GET", f"/api/v1/vms/{name}", vm(name))
        server.on("GET", f"/api/v1/hosts/{name}", host(name))
    assert [each["name"] for each in answer("vm", "show", "a", "b")["vms"]] == ["a", "b"]
    assert [each["name"] for each in answer("host", "show", "a", "b")["hosts"]] == ["a", "b"]
    assert answer("vm", "show", "a")["name"] == "a"
    assert "--watch is for one, not for 2" in said("vm", "show", "a", "b", "--watch", code=2)


def test_jobs_are_cancelled_each_with_its_counts(server: CannedServer) -> None:
    for name, number in (("a", 2), ("b", 0)):
        cancelled = {"cancelled": number, "cancelling": 1}
        server.on("POST", f"/api/v1/jobs/{name}/cancel", Reply(200, cancelled))
    told = said("job", "cancel", "a", "b")
    assert told == "a: 2 cancelled, 1 told to end\nb: 0 cancelled, 1 told to end\n"


def test_vms_join_a_group_by_selector(server: CannedServer) -> None:
    listed = {"vms": [vm("a"), vm("b")], "next": None}
    server.on("GET", "/api/v1/vms", Reply(200, listed))
    roost("group", "add", "web", "-l", "!old")
    [sent] = [seen for seen in server.requests if seen.method == "POST"]
    assert sent.json == {"vms": ["vm-a", "vm-b"]}


def test_a_flavor_without_memory_is_told_by_its_name(server: CannedServer) -> None:
    assert "flavor 'm2' has no memory" in said("flavor", "create", "m2", "--cpu", "2", code=2)


def test_vms_for_which_nobody_makes_room_are_named(server: CannedServer) -> None:
    for name in ("a", "b"):
        found = {"preemption": None, "why": f"it is {name}"}
        server.on("GET", f"/api/v1/vms/{name}/preemption", Reply(200, found))
    told = said("vm", "preempt", "a", "b", "--dry-run")
    assert told == "a: nobody makes room: it is a\nb: nobody makes room: it is b\n"
    assert said("vm", "preempt", "a", "--dry-run") == "nobody makes room: it is a\n"
