"""Every route of the API, described once: one function each, which returns its `Call`.

Both clients turn these functions into methods of the same name and arguments. A VM is named by id
or by name; a name is looked up in `project`, by default the project "default".
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

from roost.client.calls import API, Call, nothing, path, query, reads, text
from roost.wire import bodies
from roost.wire.bodies import CreateVM

# msgspec reads a union as well as a struct; only the type checker has no word for that.
_read_answer = reads(cast("type[bodies.AnswerBody]", bodies.AnswerBody))
_read_vm = reads(bodies.VMBody)
_read_host = reads(bodies.HostBody)
_read_recovered = reads(bodies.RecoveredBody)
_read_project = reads(bodies.ProjectBody)
_read_token = reads(bodies.TokenBody)
_read_drain = reads(bodies.DrainBody)
_read_health = reads(bodies.HealthBody)

#: How many items a client asks for at once when it reads a list to its end.
PAGE = 1000


class VMFilters(TypedDict, total=False):
    """Which VMs `list_vms` and `all_vms` return; all when nothing is given."""

    project: str | None
    host: str | None
    state: str | None
    name: str | None
    labels: Mapping[str, str] | None


class HostFilters(TypedDict, total=False):
    """Which hosts `list_hosts` and `all_hosts` return; all when nothing is given."""

    health: str | None
    admin: str | None
    zone: str | None


# VMs


def create_vm(vm: CreateVM, *, key: str | None = None) -> Call[bodies.VMBody]:
    """Create a VM; a queued one comes back pending."""
    return Call("POST", path("vms"), _read_vm, body=vm, creates=True, key=key)


def create_vms(
    vms: Sequence[CreateVM], *, atomic: bool = False, key: str | None = None
) -> Call[bodies.BatchBody]:
    """Create many VMs; each is answered by itself unless `atomic`, which keeps all or none."""
    body = bodies.CreateVMs(vms=list(vms), atomic=atomic)
    read = reads(bodies.BatchBody)
    return Call("POST", f"{API}/vms:batch", read, body=body, creates=True, key=key)


def list_vms(
    *,
    project: str | None = None,
    host: str | None = None,
    state: str | None = None,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Call[bodies.VMPage]:
    """Return one page of VMs."""
    label = [f"{key}={value}" for key, value in (labels or {}).items()]
    asked = query(
        project=project, host=host, state=state, name=name, label=label, limit=limit, after=after
    )
    return Call("GET", path("vms"), reads(bodies.VMPage), asked)


def get_vm(vm: str, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Return a VM as it is now, with its placement."""
    return Call("GET", path("vms", vm), _read_vm, query(project=project))


def delete_vm(vm: str, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Delete a VM; it is gone when its host has stopped it."""
    return Call("DELETE", path("vms", vm), _read_vm, query(project=project))


def start_vm(vm: str, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Want a VM running."""
    return Call("POST", path("vms", vm, "start"), _read_vm, query(project=project))


def stop_vm(vm: str, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Want a VM stopped; it keeps its host and its claim."""
    return Call("POST", path("vms", vm, "stop"), _read_vm, query(project=project))


def restart_vm(vm: str, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Stop and start a VM once."""
    asked = query(project=project)
    return Call("POST", path("vms", vm, "restart"), _read_vm, asked, repeatable=False)


def recover_vm(vm: str, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Start a VM elsewhere whose host is proved to be off."""
    asked = query(project=project)
    return Call("POST", path("vms", vm, "recover"), _read_vm, asked, repeatable=False)


def pause_vm(vm: str, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Want a running VM to stand still, its memory kept."""
    return Call("POST", path("vms", vm, "pause"), _read_vm, query(project=project))


def resume_vm(vm: str, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Want a paused VM to go on."""
    return Call("POST", path("vms", vm, "resume"), _read_vm, query(project=project))


def resize_vm(
    vm: str, amounts: bodies.ResizeVM, *, project: str | None = None
) -> Call[bodies.VMBody]:
    """Give a VM other amounts, on the host where it is."""
    return Call("POST", path("vms", vm, "resize"), _read_vm, query(project=project), amounts)


def set_vm(vm: str, changes: bodies.SetVM, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Set where a VM may be started after the loss of its host."""
    return Call("PATCH", path("vms", vm), _read_vm, query(project=project), changes)


def migrate_vm(
    vm: str,
    *,
    host: str | None = None,
    project: str | None = None,
    cold: bool = False,
    bandwidth: int | str = 0,
    downtime_ms: int = 0,
    auto_converge: bool = True,
    post_copy: bool = False,
    limit_s: int = 0,
    ignore_budget: bool = False,
) -> Call[bodies.VMBody]:
    """Move a VM to a named host, or to where its strategy sends it; see `bodies.MigrateVM`."""
    body = bodies.MigrateVM(
        host=host,
        cold=cold,
        bandwidth=bandwidth,
        downtime_ms=downtime_ms,
        auto_converge=auto_converge,
        post_copy=post_copy,
        limit_s=limit_s,
        ignore_budget=ignore_budget,
    )
    return Call(
        "POST",
        path("vms", vm, "migrate"),
        _read_vm,
        query(project=project),
        body,
        repeatable=False,  # where a strategy chooses, twice is two moves
    )


def cancel_migration(vm: str, *, project: str | None = None) -> Call[bodies.VMBody]:
    """Call off the move of a VM; whether it stays is known when the move has ended."""
    return Call("POST", path("vms", vm, "cancel-migration"), _read_vm, query(project=project))


def read_console(
    vm: str, *, start: int | None = None, limit: int | None = None, project: str | None = None
) -> Call[bodies.ConsoleBody]:
    """Return the end of a VM's serial log, or what follows the byte `start`."""
    read = reads(bodies.ConsoleBody)
    asked = query(project=project, start=start, limit=limit)
    return Call("GET", path("vms", vm, "console"), read, asked)


def explain_vm(
    vm: str, *, hosts: Sequence[str] = (), project: str | None = None
) -> Call[bodies.ExplanationBody]:
    """Return every host's verdict on a VM, or the verdicts of some hosts."""
    read = reads(bodies.ExplanationBody)
    asked = query(project=project, host=list(hosts))
    return Call("GET", path("vms", vm, "explain"), read, asked)


# Hosts


def list_hosts(
    *,
    health: str | None = None,
    admin: str | None = None,
    zone: str | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Call[bodies.HostPage]:
    """Return one page of hosts."""
    asked = query(health=health, admin=admin, zone=zone, limit=limit, after=after)
    return Call("GET", path("hosts"), reads(bodies.HostPage), asked)


def get_host(host: str) -> Call[bodies.HostBody]:
    """Return a host as it is now."""
    return Call("GET", path("hosts", host), _read_host)


def scheduling_info(host: str) -> Call[bodies.SchedulingInfo]:
    """Return the lines that describe a host to an operator."""
    return Call("GET", path("hosts", host, "scheduling-info"), reads(bodies.SchedulingInfo))


def cordon_host(host: str, *, reason: str | None = None) -> Call[bodies.HostBody]:
    """Place nothing new on a host; the reason is told until it is open again."""
    return Call("POST", path("hosts", host, "cordon"), _read_host, query(reason=reason))


def uncordon_host(host: str) -> Call[bodies.HostBody]:
    """Open a host again, and end its drain."""
    return Call("POST", path("hosts", host, "uncordon"), _read_host)


def set_maintenance(host: str, *, on: bool) -> Call[bodies.HostBody]:
    """Take an empty host out of service, or bring it back."""
    body = bodies.SetMaintenance(on=on)
    return Call("PUT", path("hosts", host, "maintenance"), _read_host, body=body)


def drain_host(host: str) -> Call[bodies.DrainBody]:
    """Cordon a host and move its VMs away, two at a time."""
    return Call("POST", path("hosts", host, "drain"), _read_drain)


def get_drain(host: str) -> Call[bodies.DrainBody]:
    """Return how far a drain has come."""
    return Call("GET", path("hosts", host, "drain"), _read_drain)


def set_labels(host: str, labels: Mapping[str, str]) -> Call[bodies.HostBody]:
    """Replace a host's labels."""
    body = bodies.SetLabels(labels=dict(labels))
    return Call("PUT", path("hosts", host, "labels"), _read_host, body=body)


def set_host(host: str, settings: bodies.SetHost) -> Call[bodies.HostBody]:
    """Set labels, taints, overcommitment or reserve of a host; what is left out stays."""
    return Call("PATCH", path("hosts", host), _read_host, body=settings)


def recover_host(host: str) -> Call[bodies.RecoveredBody]:
    """Start all VMs of a host elsewhere that is proved to be off."""
    return Call("POST", path("hosts", host, "recover"), _read_recovered)


def confirm_dead(host: str, reason: str) -> Call[bodies.HostBody]:
    """Give an operator's word that a host is off and stays off."""
    body = bodies.ConfirmDead(reason=reason)
    return Call("POST", path("hosts", host, "confirm-dead"), _read_host, body=body)


def adopt_held(host: str, vm: str) -> Call[bodies.VMBody]:
    """Make a VM that a host holds and the server does not know the server's, on that host."""
    return Call("POST", path("hosts", host, "held", vm, "adopt"), _read_vm)


def destroy_held(host: str, vm: str) -> Call[bodies.HostBody]:
    """Destroy a VM that a host holds and the ledger does not know."""
    return Call("POST", path("hosts", host, "held", vm, "destroy"), _read_host)


def delete_host(host: str) -> Call[None]:
    """Forget a host that has no VMs."""
    return Call("DELETE", path("hosts", host), nothing)


# Questions


def dry_run(vm: bodies.DryRun) -> Call[bodies.AnswerBody]:
    """Place a VM without creating it."""
    return Call("POST", f"{API}/placements:dry-run", _read_answer, body=vm)


def dry_run_batch(vms: Sequence[CreateVM], *, atomic: bool = False) -> Call[bodies.AnswersBody]:
    """Place VMs without creating them: one after the other, or `atomic`: all or none."""
    read = reads(bodies.AnswersBody)
    body = bodies.DryRunBatch(vms=list(vms), atomic=atomic)
    return Call("POST", f"{API}/placements:dry-run-batch", read, body=body)


def capacity(question: bodies.CapacityQuestion) -> Call[bodies.CapacityBody]:
    """Count how many more copies of a VM fit."""
    return Call("POST", path("capacity"), reads(bodies.CapacityBody), body=question)


def strategies() -> Call[bodies.StrategiesBody]:
    """Return the strategies and which one is the default."""
    return Call("GET", path("strategies"), reads(bodies.StrategiesBody))


# Projects and tokens


def list_projects() -> Call[bodies.ProjectPage]:
    """Return all projects that the caller may see."""
    return Call("GET", path("projects"), reads(bodies.ProjectPage))


def get_project(name: str) -> Call[bodies.ProjectBody]:
    """Return a project and what it uses."""
    return Call("GET", path("projects", name), _read_project)


def create_project(
    name: str, quota: bodies.QuotaBody | None = None, *, key: str | None = None
) -> Call[bodies.ProjectBody]:
    """Create a project."""
    body = bodies.CreateProject(name=name, quota=quota or bodies.QuotaBody())
    return Call("POST", path("projects"), _read_project, body=body, creates=True, key=key)


def set_quota(name: str, quota: bodies.QuotaBody) -> Call[bodies.ProjectBody]:
    """Replace a project's quota."""
    body = bodies.SetQuota(quota=quota)
    return Call("PUT", path("projects", name, "quota"), _read_project, body=body)


def delete_project(name: str) -> Call[None]:
    """Delete a project that has no VMs."""
    return Call("DELETE", path("projects", name), nothing)


def list_tokens() -> Call[bodies.TokenPage]:
    """Return all tokens, without their secrets."""
    return Call("GET", path("tokens"), reads(bodies.TokenPage))


def create_token(token: bodies.CreateToken, *, key: str | None = None) -> Call[bodies.TokenBody]:
    """Make a token; only this answer has its secret."""
    # A secret is not kept, so an answer that was lost cannot be had again: never sent twice.
    return Call(
        "POST", path("tokens"), _read_token, body=token, creates=True, repeatable=False, key=key
    )


def delete_token(token: str) -> Call[None]:
    """Make a token worthless."""
    return Call("DELETE", path("tokens", token), nothing)


def create_join_token(
    *, host: str | None = None, expires_in_s: int = 3600, key: str | None = None
) -> Call[bodies.TokenBody]:
    """Make a one-time token with which one agent joins."""
    body = bodies.CreateJoinToken(host=host, expires_in_s=expires_in_s)
    return Call(
        "POST", path("join-tokens"), _read_token, body=body, creates=True, repeatable=False, key=key
    )


def join(host: str, join_token: str) -> Call[bodies.JoinedBody]:
    """Turn a one-time token into the credential of a host's agent."""
    body = bodies.JoinBody(host=host)
    return Call(
        "POST",
        path("agents", "join"),
        reads(bodies.JoinedBody),
        body=body,
        repeatable=False,  # the token is spent by the first try
        bearer=join_token,
    )


# Events, health


def list_events(
    *,
    since: int | None = None,
    limit: int | None = None,
    last: int | None = None,
    vm: str | None = None,
    project: str | None = None,
    host: str | None = None,
    kind: str | None = None,
    since_time: str | None = None,
    until_time: str | None = None,
    text: str | None = None,
) -> Call[bodies.EventPage]:
    """Return one page of events: after a sequence, or the `last` so many; of all or of some."""
    return Call(
        "GET",
        path("events"),
        reads(bodies.EventPage),
        query(
            since=since, limit=limit, last=last, vm=vm, project=project, host=host, kind=kind,
            since_time=since_time, until_time=until_time, text=text,
        ),
    )  # fmt: skip


def finish_upgrade() -> Call[bodies.UpgradeBody]:
    """End what is done for processes of the release before, once none of them runs."""
    return Call("POST", f"{API}/ledger:finish-upgrade", reads(bodies.UpgradeBody))


def doctor() -> Call[bodies.DoctorBody]:
    """Verify the invariants of the live database."""
    return Call("GET", path("doctor"), reads(bodies.DoctorBody))


def health() -> Call[bodies.HealthBody]:
    """Say whether the process lives."""
    return Call("GET", "/healthz", _read_health, accepts=(503,))


def readiness() -> Call[bodies.HealthBody]:
    """Say whether the server is ready, and else what it waits for."""
    return Call("GET", "/readyz", _read_health, accepts=(503,))


def metrics(*, hosts: str | None = None) -> Call[str]:
    """Return the metrics as Prometheus reads them; those of hosts too, "no", or "only" those."""
    return Call("GET", "/metrics", text, query=query(hosts=hosts))


def openapi() -> Call[dict[str, Any]]:
    """Return the OpenAPI document."""
    return Call("GET", path("openapi.json"), reads(cast("type[dict[str, Any]]", dict)))
