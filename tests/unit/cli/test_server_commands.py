"""The commands that ask a server, as a person types them, against a real HTTP server."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from typer.testing import CliRunner, Result

from roost.cli.main import app
from roost.wire import bodies as b
from roost.wire.flavors import FlavorPage
from tests.unit.client.bodies import GIB, event, host, placement, project, rejection, token, vm
from tests.unit.client.canned import CannedServer, Reply, error

SIZE = ("--cpu", "2", "--memory", "4GiB", "--disk", "20GiB")


def roost(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def said(*arguments: str, code: int = 0, stdin: str | None = None) -> str:
    result = roost(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def answer(*arguments: str, code: int = 0) -> Any:
    result = roost(*arguments, "-o", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


# roost vm


def test_create_says_the_host_and_why(server: CannedServer) -> None:
    server.on("POST", "/api/v1/vms", Reply(201, vm(state="starting", placement=placement())))
    told = said("vm", "create", "web-1", *SIZE)
    assert "web-1 is on h1  virtual  starting  (2 cores, 4 GiB, 20 GiB disk; vm-web-1)" in told
    told = " ".join(told.split())
    assert (
        "why h1: least_loaded gave it the lowest score, 0.5000 = 0.2500 cpu + 0.2500 memory; "
        "next came h2 (0.2500 behind)"
    ) in told


def test_create_sends_what_was_typed(server: CannedServer) -> None:
    server.on("POST", "/api/v1/vms", Reply(201, vm()))
    said(
        "vm", "create", "web-1", "--cpu", "1.5", "--memory", "4GiB", "--gpu", "1", "--gpu-model",
        "A100,H100", "--x", "license=2", "--project", "shop", "--priority", "7", "--strategy",
        "best_fit", "--zone", "a,b", "--label", "tier in gold", "--exclude", "h9", "--tolerate",
        "burst", "--prefer", "ssd exists:30", "--group", "web anti-affinity rack", "--affinity",
        "app=web spread zone", "--vm-label", "app=web", "--queue", "--restart", "elsewhere",
        "--stopped", "--key", "mine",
    )  # fmt: skip
    [seen] = server.requests
    assert seen.headers["idempotency-key"] == "mine"
    sent = msgspec.json.decode(seen.body, type=b.CreateVM)
    assert (sent.name, sent.project, sent.priority) == ("web-1", "shop", 7)
    assert (sent.demand.cpu, sent.demand.memory) == ("1500m", 4 * GIB)
    assert sent.demand.gpu == b.DeviceBody(models=["A100", "H100"])
    assert sent.demand.extended == {"license": 2}
    assert sent.constraints == b.ConstraintsBody(
        zones=["a", "b"],
        labels=[b.LabelTermBody(key="tier", operator="in", values=["gold"])],
        not_hosts=["h9"],
        tolerations=[b.TolerationBody(key="burst")],
        preferences=[b.PreferenceBody(key="ssd", weight=30)],
    )
    assert sent.groups == [b.GroupBody(name="web", rule="anti-affinity", scope="rack")]
    assert sent.affinity == [b.AffinityBody(selector={"app": "web"}, rule="spread", scope="zone")]
    assert (sent.labels, sent.on_no_fit, sent.restart) == ({"app": "web"}, "queue", "elsewhere")
    assert sent.start is False


def test_a_vm_that_fits_nowhere_says_why_and_what_would_help(server: CannedServer) -> None:
    details = {"rejection": msgspec.to_builtins(rejection())}
    refusal = error(503, "insufficient_resources", "VM 'web-1' fits on no host", details=details)
    server.on("POST", "/api/v1/vms", refusal)
    result = roost("vm", "create", "web-1", *SIZE)
    assert result.exit_code == 6
    assert "error: VM 'web-1' fits on no host" in result.stderr
    assert "short by 4 GiB of memory on h1 (the same on 3 hosts)" in result.stderr
    assert "smallest fix: uncordon h4" in result.stderr
    assert result.stdout == ""
    found = answer("vm", "create", "web-1", *SIZE, code=6)
    assert found["error"]["details"] == details


def test_a_queued_vm_says_why_it_waits(server: CannedServer) -> None:
    waiting = vm(state="pending", host=None, virtual=False, pending=rejection())
    server.on("POST", "/api/v1/vms", Reply(202, waiting))
    told = said("vm", "create", "web-1", *SIZE, "--queue")
    assert "web-1 is pending: no host fits yet" in told
    assert "uncordon h4" in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--cpu", "2"), "has no memory"),
        (("--cpu", "2", "--memory", "8Gb"), "Maybe 8GiB or 8GB?"),
        ((*SIZE, "--vm-label", "app"), "Maybe --vm-label app=gold?"),
        ((*SIZE, "--affinity", "app=web"), "Maybe --affinity 'app=web anti-affinity host'?"),
        ((*SIZE, "--affinity", "app=web apart"), "unknown group rule 'apart'"),
        ((*SIZE, "--restart", "there"), "there"),
    ],
)
def test_a_wrong_create_is_refused_before_it_is_sent(
    server: CannedServer, arguments: tuple[str, ...], says: str
) -> None:
    assert says in said("vm", "create", "web-1", *arguments, code=2)
    assert server.requests == []


def test_list_marks_virtual_vms_and_says_what_is_wrong(server: CannedServer) -> None:
    failed = vm(
        "db-1",
        state="failed",
        virtual=False,
        host="h2",
        problem=b.ProblemBody(code="boot_failed", message="no such image", generation=1),
    )
    server.on("GET", "/api/v1/vms", b.VMPage(vms=[vm(), failed]))
    told = said("vm", "list", "--project", "default", "--label", "app=web")
    [web] = [line for line in told.splitlines() if line.startswith("web-1")]
    [db] = [line for line in told.splitlines() if line.startswith("db-1")]
    assert web.split()[:8] == ["web-1", "running", "h1", "virtual", "2", "4", "GiB", "20"]
    assert "virtual" not in db
    assert "no such image" in db
    assert server.requests[0].query == [
        ("project", "default"), ("label", "app=web"), ("limit", "1000"),
    ]  # fmt: skip


def test_list_goes_through_all_pages_unless_limited(server: CannedServer) -> None:
    page = b.VMPage(vms=[vm("a"), vm("b")], next="b")
    server.on("GET", "/api/v1/vms", page, b.VMPage(vms=[vm("c")]))
    assert [each["name"] for each in answer("vm", "list")["vms"]] == ["a", "b", "c"]
    server.on("GET", "/api/v1/vms", page)
    assert len(answer("vm", "list", "--limit", "2")["vms"]) == 2
    assert "no VMs" in _empty(server)


def _empty(server: CannedServer) -> str:
    server.on("GET", "/api/v1/vms", b.VMPage(vms=[]))
    return said("vm", "list")


def test_show_in_each_output(server: CannedServer) -> None:
    server.on("GET", "/api/v1/vms/web-1", vm(placement=placement(), labels={"app": "web"}))
    told = said("vm", "show", "web-1")
    assert "least_loaded, score 0.5000" in told
    assert "virtual" in told
    assert "app=web" in told
    assert answer("vm", "show", "web-1")["placement"]["runners_up"][0]["host"] == "h2"
    shown = yaml.safe_load(said("vm", "show", "web-1", "-o", "yaml"))
    assert shown["demand"]["memory_bytes"] == 4 * GIB
    assert dict(server.requests[0].query) == {}
    said("vm", "show", "web-1", "--project", "shop")
    assert dict(server.requests[-1].query) == {"project": "shop"}


def test_show_of_a_waiting_vm_says_why(server: CannedServer) -> None:
    waiting = vm(state="pending", host=None, virtual=False, pending=rejection())
    server.on("GET", "/api/v1/vms/web-1", waiting)
    assert "nearest miss: short by 4 GiB of memory on h1" in said("vm", "show", "web-1")


@pytest.mark.parametrize(
    ("command", "method", "path"),
    [
        ("start", "POST", "/start"),
        ("stop", "POST", "/stop"),
        ("restart", "POST", "/restart"),
        ("pause", "POST", "/pause"),
        ("resume", "POST", "/resume"),
        ("delete", "DELETE", ""),
    ],
)
def test_several_vms_can_be_changed_at_once(
    server: CannedServer, command: str, method: str, path: str
) -> None:
    for name in ("a", "b"):
        server.on(method, f"/api/v1/vms/{name}{path}", Reply(202, vm(name, state="stopping")))
    assert "b is stopping on h1" in said("vm", command, "a", "b")
    assert [each["name"] for each in answer("vm", command, "a", "b")["vms"]] == ["a", "b"]
    assert answer("vm", command, "a")["name"] == "a"


def test_resize_sends_only_what_changes(server: CannedServer) -> None:
    server.on("POST", "/api/v1/vms/web-1/resize", Reply(202, vm()))
    assert "web-1 has 2 cores, 4 GiB" in said("vm", "resize", "web-1", "--memory", "8GiB")
    assert server.requests[0].json == {"memory": 8 * GIB}
    assert "Maybe --cpu 4" in said("vm", "resize", "web-1", code=2)


def test_migrate_says_from_where_to_where(server: CannedServer) -> None:
    move = b.MigrationBody(source="h1", target="h2", phase="preparing")
    server.on("POST", "/api/v1/vms/web-1/migrate", Reply(202, vm(migration=move)))
    told = said("vm", "migrate", "web-1", "--host", "h2")
    assert "web-1 moves from h1 to h2 (preparing)" in told
    assert server.requests[0].json == {"host": "h2"}


def explanation() -> b.ExplanationBody:
    shortage = {"resource": "cpu", "need_milli": 2000, "free_milli": 500, "short_milli": 1500}
    return b.ExplanationBody(
        answer=placement(),
        hosts=2,
        fitting=1,
        reasons=[b.ReasonBody(reason="cpu", first=1, total=1)],
        verdicts=[
            b.VerdictBody(host="h1", fits=True, score=1, reasons=[], shortages=[]),
            b.VerdictBody(host="h2", fits=False, score=None, reasons=["cpu"], shortages=[shortage]),
        ],
    )


@pytest.mark.parametrize("command", [("vm", "explain"), ("explain",)])
def test_explain_a_vm_lists_every_hosts_verdict(
    server: CannedServer, command: tuple[str, ...]
) -> None:
    server.on("GET", "/api/v1/vms/web-1/explain", explanation())
    server.on("GET", "/api/v1/vms/web-1", vm())
    told = said(*command, "web-1")
    assert "1 of 2 hosts fit" in told
    assert "cpu 0.5 cores of 2 cores" in told
    told = said(*command, "web-1", "--host", "h2")
    assert "h1" not in told
    assert ("host", "h2") in server.asked("GET", "/api/v1/vms/web-1/explain")[1].query


BATCHES = {
    "vms.json": '[{"name": "a", "demand": {"cpu": 1, "memory": "1GiB"}}]',
    "vms.yaml": "vms:\n- {name: a, demand: {cpu: 1, memory: 1GiB}}\natomic: true\n",
    "vms.txt": "# one a line\na cpu=1 memory=1GiB group='web anti-affinity'\n",
}


@pytest.mark.parametrize("name", BATCHES)
def test_batch_reads_json_yaml_and_words(server: CannedServer, tmp_path: Path, name: str) -> None:
    item = b.BatchItem(name="a", id="vm-a", host="h1", state="starting")
    body = b.BatchBody(results=[item], created=1, queued=0, failed=0)
    server.on("POST", "/api/v1/vms:batch", body)
    path = tmp_path / name
    path.write_text(BATCHES[name].replace("'", '"') if name == "vms.txt" else BATCHES[name])
    assert "1 created, 0 queued, 0 failed" in said("vm", "batch", str(path))
    [sent] = server.requests
    asked = msgspec.json.decode(sent.body, type=b.CreateVMs)
    assert asked.vms[0].name == "a"
    assert asked.atomic is (name == "vms.yaml")
    assert "idempotency-key" in sent.headers


def test_a_batch_with_failures_ends_with_one(server: CannedServer) -> None:
    refused = b.BatchItem(name="b", error={"code": "conflict", "message": "b is taken"})
    fine = b.BatchItem(name="a", id="vm-a", host="h1", state="starting")
    body = b.BatchBody(results=[fine, refused], created=1, queued=0, failed=1)
    server.on("POST", "/api/v1/vms:batch", body)
    # It looks whether what failed is there already, as it was asked for.
    server.on("GET", "/api/v1/projects", b.ProjectPage(projects=[project("default")]))
    server.on("GET", "/api/v1/flavors", FlavorPage(flavors=[]))
    server.on("GET", "/api/v1/vms", b.VMPage(vms=[]))
    lines = "a cpu=1 memory=1GiB\nb cpu=1 memory=1GiB\n"
    assert "b is taken" in said("vm", "batch", "-", stdin=lines, code=1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a cpu=1 memroy=1GiB", "-:1: unknown word 'memroy'"),
        ("", "names no VM"),
        ('[{"name": "a"}]', "demand"),
        ("{", "-: Input data was truncated"),
    ],
)
def test_a_batch_with_a_mistake_says_where(server: CannedServer, text: str, says: str) -> None:
    assert says in said("vm", "batch", "-", stdin=text, code=2)
    assert server.requests == []


# roost host


def test_hosts_are_listed_with_driver_and_amounts(server: CannedServer) -> None:
    hosts = [host(), host("h2", virtual=False, driver="qemu", health="offline")]
    server.on("GET", "/api/v1/hosts", b.HostPage(hosts=hosts))
    told = said("host", "list", "--zone", "a")
    first, second = (line for line in told.splitlines() if line.startswith("h"))
    assert "virtual" in first
    assert "2 / 16" in first
    assert "4 GiB / 64 GiB" in first
    assert "qemu" in second
    assert "offline" in second


def test_a_host_is_shown_with_what_it_promised(server: CannedServer) -> None:
    server.on("GET", "/api/v1/hosts/h1", host(held=[{"id": "stray-1"}], fenced="operator"))
    told = said("host", "show", "h1")
    for part in ("virtual", "tier=gold", "2 cores", "unknown", "1 GiB", "stray-1", "operator"):
        assert part in told
    assert answer("host", "show", "h1")["memory_bytes"]["committed"] == 4 * GIB


def test_host_info_prints_the_scheduling_block(server: CannedServer) -> None:
    info = b.SchedulingInfo(host="h1", text="CPU: 2/16 (12.5% used)")
    server.on("GET", "/api/v1/hosts/h1/scheduling-info", info)
    assert "CPU: 2/16 (12.5% used)" in said("host", "info", "h1")
    assert "CPU: 2/16 (12.5% used)" in said("info", "h1")


def test_cordon_and_uncordon(server: CannedServer) -> None:
    server.on("POST", "/api/v1/hosts/h1/cordon", host(admin="cordoned"))
    server.on("POST", "/api/v1/hosts/h1/uncordon", host())
    assert "h1 is cordoned and online, with 1 VM" in said("host", "cordon", "h1")
    assert "h1 is open" in said("host", "uncordon", "h1")


def test_a_blocked_drain_names_the_vm_and_the_fix(server: CannedServer) -> None:
    blocked = [{"vm": "web-1", "rejection": msgspec.to_builtins(rejection())}]
    body = b.DrainBody(host="h1", state="blocked", left=1, blocked=blocked)
    server.on("POST", "/api/v1/hosts/h1/drain", Reply(202, body))
    told = said("host", "drain", "h1", code=1)
    assert "h1 is blocked: 1 VM left" in told
    assert "uncordon h4" in told


def test_labels_are_added_and_taken_off(server: CannedServer) -> None:
    server.on("GET", "/api/v1/hosts/h1", host())
    server.on("PUT", "/api/v1/hosts/h1/labels", host(labels={"ssd": "yes"}))
    assert "tier=gold" in said("host", "labels", "h1")
    assert "ssd=yes" in said("host", "labels", "h1", "ssd=yes", "tier-")
    assert server.asked("PUT", "/api/v1/hosts/h1/labels")[0].json == {"labels": {"ssd": "yes"}}
    assert "has no label 'nope'" in said("host", "labels", "h1", "nope-", code=2)


def test_confirm_dead_needs_a_reason(server: CannedServer) -> None:
    server.on("POST", "/api/v1/hosts/h1/confirm-dead", host(health="offline"))
    assert "--reason" in said("host", "confirm-dead", "h1", code=2)
    said("host", "confirm-dead", "h1", "--reason", "power is off")
    assert server.requests[0].json == {"reason": "power is off"}


def test_a_host_with_vms_is_not_forgotten(server: CannedServer) -> None:
    refusal = error(409, "conflict", "host 'h1' has 1 VM", hint="Maybe drain it first.")
    server.on("DELETE", "/api/v1/hosts/h1", refusal, Reply(204))
    result = roost("host", "delete", "h1")
    assert result.exit_code == 4
    assert "Maybe drain it first." in result.stderr
    assert "h1 is forgotten" in said("host", "delete", "h1")


# roost project, token, events, doctor


def test_projects_show_use_and_quota(server: CannedServer) -> None:
    server.on("GET", "/api/v1/projects", b.ProjectPage(projects=[project(quota=10)]))
    told = said("project", "list")
    assert "1 / 10" in told
    assert "4 GiB / 64 GiB" in told
    assert "2 / -" in told


def test_quota_changes_only_what_is_given(server: CannedServer) -> None:
    server.on("GET", "/api/v1/projects/shop", project("shop", quota=10))
    server.on("PUT", "/api/v1/projects/shop/quota", project("shop", quota=20))
    said("project", "quota", "shop", "--vms", "20", "--memory", "none", "--cpu", "100")
    [sent] = server.asked("PUT", "/api/v1/projects/shop/quota")
    asked = msgspec.json.decode(sent.body, type=b.SetQuota)
    assert asked.quota == b.QuotaBody(cpu="100", vms=20)
    said("project", "quota", "shop")
    assert len(server.asked("PUT", "/api/v1/projects/shop/quota")) == 1


def test_projects_are_created_and_deleted(server: CannedServer) -> None:
    server.on("POST", "/api/v1/projects", Reply(201, project("shop")))
    server.on("DELETE", "/api/v1/projects/shop", Reply(204))
    said("project", "create", "shop", "--memory", "64GiB")
    assert server.requests[0].json["quota"]["memory"] == 64 * GIB
    assert "idempotency-key" in server.requests[0].headers
    assert answer("project", "delete", "shop") == {"deleted": "shop"}


def test_a_new_tokens_secret_alone_is_standard_output(server: CannedServer) -> None:
    secret = "roost_tok-1_" + "0123456789abcdef" * 10
    server.on("POST", "/api/v1/tokens", Reply(201, token(secret=secret)))
    result = roost("token", "create", "ci", "--role", "operator", "--expires", "90d")
    assert result.stdout == f"{secret}\n"
    assert "shown this once" in result.stderr
    assert server.requests[0].json["expires_in_s"] == 90 * 86_400
    assert server.requests[0].json["role"] == "operator"


def test_a_member_needs_a_project_and_time_a_unit(server: CannedServer) -> None:
    assert "--project" in said("token", "create", "ci", "--role", "member", code=2)
    assert "Maybe 30m" in said("token", "create", "ci", "--expires", "90", code=2)
    assert server.requests == []


def test_a_join_token_may_be_bound_to_a_host(server: CannedServer) -> None:
    server.on("POST", "/api/v1/join-tokens", Reply(201, token(secret="roost_j_x")))
    assert said("token", "join", "--host", "h7", "--expires", "10m").strip() == "roost_j_x"
    assert server.requests[0].json == {"host": "h7", "expires_in_s": 600}


def test_tokens_are_listed_and_deleted(server: CannedServer) -> None:
    server.on("GET", "/api/v1/tokens", b.TokenPage(tokens=[token()]))
    server.on("DELETE", "/api/v1/tokens/tok-1", Reply(204))
    assert "never" in said("token", "list")
    assert "tok-1 is worthless now" in said("token", "delete", "tok-1")


def history(count: int) -> Any:
    """Return a route that holds so many events and pages through them."""

    def page(seen: Any) -> b.EventPage:
        asked = dict(seen.query)
        if "last" in asked:
            last = range(max(1, count + 1 - int(asked["last"])), count + 1)
            return b.EventPage(events=[event(seq) for seq in last], next=count)
        since, limit = int(asked.get("since", 0)), int(asked.get("limit", 100))
        events = [event(seq) for seq in range(since + 1, count + 1)][:limit]
        return b.EventPage(events=events, next=events[-1].seq if events else since)

    return page


def test_events_that_are_kept_no_longer_are_said_and_the_others_shown(
    server: CannedServer,
) -> None:
    def kept(request: Any) -> Any:
        if int(dict(request.query)["since"]) < 100:
            return error(410, "events_gone", "no", details={"kept_after": 100})
        return history(120)(request)

    server.on("GET", "/api/v1/events", kept)
    assert len(said("events", "--since", "7").splitlines()) == 20


def test_events_are_the_last_ones_or_all_since(server: CannedServer) -> None:
    server.on("GET", "/api/v1/events", history(120))
    lines = said("events").splitlines()
    assert len(lines) == 50
    assert lines[0].split()[0] == "71"
    assert "vm_created" in lines[0]
    assert len(server.requests) == 1
    assert len(said("events", "--last", "7").splitlines()) == 7
    assert len(said("events", "--since", "0").splitlines()) == 120
    found = [
        json.loads(line) for line in said("events", "--since", "118", "-o", "json").splitlines()
    ]
    assert [each["seq"] for each in found] == [119, 120]


def test_an_event_names_its_vm(server: CannedServer) -> None:
    changes = {"vms": {"vm-1": {"name": "web-1", "asked": "{}"}}, "reason": "asked"}
    told = event(1, subject="vm/vm-1", changes=changes, note="for now", kind="vm.stopping")
    server.on(
        "GET", "/api/v1/events", b.EventPage(events=[told], next=1), b.EventPage(events=[], next=1)
    )
    line = said("events", "--since", "0").strip()
    assert line.endswith("vm/vm-1  web-1  reason=asked  for now  by token/tok-1")


def test_events_are_chosen_by_the_server(server: CannedServer) -> None:
    server.on("GET", "/api/v1/events", b.EventPage(events=[event(1)], next=9))
    said("events", "--vm", "web-1", "--project", "shop", "--kind", "vm.*", "--text", "x")
    assert dict(server.requests[-1].query) == {
        "last": "50", "vm": "web-1", "project": "shop", "kind": "vm.*", "text": "x",
    }  # fmt: skip
    said("events", "--host", "h1", "--since", "1h", "--until", "2026-11-20T08:00:00+01:00")
    asked = dict(server.requests[-1].query)
    assert asked["until_time"] == "2026-11-20T07:00:00.000Z"
    assert asked["since_time"].endswith("Z")
    assert "neither a length of time nor" in said("events", "--since", "yesterday", code=2)
    told = said("events", "--follow", "--text", "a", code=2)
    assert "--follow goes by --vm, --host and --kind" in told


def test_events_follow_the_stream(server: CannedServer) -> None:
    chunks = [f"data: {msgspec.json.encode(event(seq)).decode()}\n\n" for seq in (8, 9)]
    server.on("GET", "/api/v1/events", Reply(stream=chunks))
    lines = said("events", "--since", "7", "--follow", "--limit", "2").splitlines()
    assert [line.split()[0] for line in lines] == ["8", "9"]


@pytest.mark.parametrize(
    ("words", "seen", "asked"),
    [
        (("--vm", "web-1"), ["3", "9", "11"], {"vm": "web-1"}),
        (("--host", "h1"), ["3", "10"], {"host": "h1"}),
        (("--kind", "vm.started"), ["3", "8", "9"], {"kind": "vm.started"}),
        (("--kind", "vm.*"), ["3", "8", "9", "11"], {"kind": "vm.*"}),
        (("--vm", "web-1", "--kind", "vm.started"), ["3", "9"],
         {"vm": "web-1", "kind": "vm.started"}),
        (("--vm", "web-1", "--since", "1"), ["3", "9", "11"], {"vm": "web-1"}),
    ],
)  # fmt: skip
def test_events_that_are_followed_are_chosen_as_those_that_are_kept(
    server: CannedServer, words: tuple[str, ...], seen: list[str], asked: dict[str, str]
) -> None:
    happen = [
        event(8, kind="vm.started", subject="vm/vm-other"),
        event(9, kind="vm.started", subject="vm/vm-web-1"),
        event(10, kind="host.cordoned", subject="host/h1"),
        event(11, kind="vm.deleted", subject="vm/vm-web-1"),
    ]
    chunks = [f"data: {msgspec.json.encode(each).decode()}\n\n" for each in happen]
    kept = event(3, kind="vm.started", subject="vm/vm-web-1")
    server.on("GET", "/api/v1/vms/web-1", vm())
    server.on("GET", "/api/v1/events", b.EventPage(events=[kept], next=7), Reply(stream=chunks))
    lines = said("events", "--follow", "--limit", str(len(seen)), *words).splitlines()
    assert [line.split()[0] for line in lines] == seen
    listed, followed = server.asked("GET", "/api/v1/events")
    assert asked.items() <= dict(listed.query).items()
    assert dict(followed.query)["since"] == "7"


def test_doctor_says_what_it_checked(server: CannedServer) -> None:
    server.on("GET", "/healthz", b.HealthBody(status="ok"))
    server.on("GET", "/readyz", b.HealthBody(status="ok"))
    well = b.DoctorBody(ok=True, checked={"claims": 12}, findings=[])
    finding = b.FindingBody(check="claims", message="h1 promises 17 of 16 cores")
    ill = b.DoctorBody(ok=False, checked={"claims": 12}, findings=[finding])
    trouble = b.FindingBody(check="silent", message="host h9 is offline, 3 VMs are on it")
    alone = b.DoctorBody(ok=False, checked={"claims": 12}, findings=[], troubles=[trouble])
    server.on("GET", "/api/v1/doctor", well, ill, alone)
    assert "all is well" in said("doctor")
    assert "h1 promises 17 of 16 cores" in said("doctor", code=70)
    told = said("doctor", code=1)
    assert "host h9 is offline, 3 VMs are on it" in told
    assert "all is well" not in told
    server.on("GET", "/readyz", b.HealthBody(status="starting", detail="loading the fleet"))
    server.on("GET", "/api/v1/doctor", well)
    told = said("doctor", code=1)
    assert "it is starting loading the fleet" in told
    assert "the server is not ready" in told
    assert "all is well" not in told


# Questions


def test_place_is_a_dry_run(server: CannedServer) -> None:
    server.on("POST", "/api/v1/placements:dry-run", placement(), rejection())
    assert "web-1 goes to h1" in said("place", "--name", "web-1", *SIZE, "--runners-up", "1")
    assert server.requests[0].json["runners_up"] == 1
    assert "fits on no host" in said("place", *SIZE, code=1)


def test_place_many_is_one_dry_run(server: CannedServer) -> None:
    answers = b.AnswersBody(answers=[placement("vm-1"), placement("vm-2"), rejection("vm-3")])
    server.on("POST", "/api/v1/placements:dry-run-batch", answers)
    assert "2 of 3 placed" in said("place", *SIZE, "--count", "3", code=1)
    found = answer("place", *SIZE, "--count", "3", code=1)
    assert (found["asked"], found["placed"], len(found["answers"])) == (3, 2, 3)


@pytest.mark.parametrize("option", [("--save", "x"), ("--seed", "1")])
def test_what_only_a_file_knows_is_refused(server: CannedServer, option: tuple[str, ...]) -> None:
    assert option[0] in said("place", *SIZE, *option, code=2)
    assert server.requests == []


def test_explain_without_a_vm_asks_for_a_dry_run(server: CannedServer) -> None:
    server.on("POST", "/api/v1/placements:dry-run", rejection())
    assert "smallest fix: uncordon h4" in said("explain", *SIZE)
    assert "describes another" in said("explain", "web-1", *SIZE, code=2)


def test_a_refusal_is_asked_again_with_moves_but_explained_without_by_an_older_server(
    server: CannedServer,
) -> None:
    unknown = error(400, "invalid_request", "there is no field 'moves'")
    server.on("POST", "/api/v1/placements:dry-run", rejection(), unknown)
    assert "smallest fix: uncordon h4" in said("explain", *SIZE)
    assert [each.json.get("moves") for each in server.requests] == [None, True]


def test_capacity_asks_the_server(server: CannedServer) -> None:
    body = b.CapacityBody(
        answer="capacity", count=7, survive="rack", losses=1, sampled=False, blocking="rack a-1",
        refused=None,
    )  # fmt: skip
    server.on("POST", "/api/v1/capacity", body)
    told = said("capacity", *SIZE, "--survive", "rack")
    assert "7 more of 2 cores, 4 GiB, 20 GiB disk fit while the loss of any rack" in told
    assert "no host for" not in told  # of a server that does not say
    assert server.requests[0].json["survive"] == "rack"
    said("capacity", *SIZE, "--vm-label", "tier=db", "--policy", "databases")
    asked = server.requests[-1].json
    assert (asked["labels"], asked["policy"]) == ({"tier": "db"}, "databases")


# Errors


def test_a_server_that_is_away_is_named_with_what_to_do(server: CannedServer) -> None:
    result = roost("vm", "list", "--server", "http://127.0.0.1:9")
    assert result.exit_code == 5
    assert "no server answers at http://127.0.0.1:9" in result.stderr
    assert "roost serve" in result.stderr


def test_errors_have_the_exit_code_of_their_family(server: CannedServer) -> None:
    for status, code, exit_code in ((404, "not_found", 3), (409, "conflict", 4), (422, "x", 2)):
        server.on("GET", "/api/v1/hosts/h1", error(status, code, "no"))
        assert answer("host", "show", "h1", code=exit_code)["error"]["code"] == code
    shown = yaml.safe_load(said("host", "show", "h1", "-o", "yaml", code=2))
    assert shown["error"]["message"] == "no"


def test_a_missing_token_says_where_to_get_one(server: CannedServer) -> None:
    server.on("GET", "/api/v1/vms", error(401, "unauthorized", "no token"))
    assert "Maybe set ROOST_TOKEN" in said("vm", "list", code=2)


def test_options_win_over_the_environment(server: CannedServer) -> None:
    server.on("GET", "/api/v1/vms", b.VMPage(vms=[]))
    said("vm", "list", "--token", "other")
    assert server.requests[0].headers["authorization"] == "Bearer other"


def test_the_context_file_is_found(server: CannedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROOST_SERVER", "ROOST_TOKEN"):
        monkeypatch.delenv(name)
    Path(".roost").mkdir()
    Path(".roost/context.json").write_text(json.dumps({"server": server.url, "token": "filed"}))
    server.on("GET", "/api/v1/vms", b.VMPage(vms=[]))
    said("vm", "list")
    assert server.requests[0].headers["authorization"] == "Bearer filed"


def test_a_vm_that_has_yet_to_restart_is_not_said_to_run(server: CannedServer) -> None:
    server.on("POST", "/api/v1/vms/web-1/restart", vm(generation=2))
    assert CliRunner().invoke(app, ["vm", "restart", "web-1"]).output == (
        "web-1 is being restarted on h1\n"
    )
