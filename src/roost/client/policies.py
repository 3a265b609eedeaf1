"""Policies in both clients: their calls and methods. One is named by its name."""

from roost.client.binding import Method
from roost.client.calls import API, Call, nothing, path, query, reads
from roost.wire import policies as wire

_read_one = reads(wire.PolicyDetail)


def list_policies(*, limit: int | None = None, after: str | None = None) -> Call[wire.PolicyPage]:
    """Return one page of policies."""
    asked = query(limit=limit, after=after)
    return Call("GET", path("policies"), reads(wire.PolicyPage), asked)


def get_policy(name: str) -> Call[wire.PolicyDetail]:
    """Return a policy with its versions."""
    return Call("GET", path("policies", name), _read_one)


def create_policy(policy: wire.CreatePolicy, *, key: str | None = None) -> Call[wire.PolicyDetail]:
    """Create a policy; nobody is under it until a VM or project names it."""
    return Call("POST", path("policies"), _read_one, body=policy, creates=True, key=key)


def change_policy(name: str, change: wire.ChangePolicy) -> Call[wire.PolicyDetail]:
    """Change a policy, as a new version; what the change leaves out stays."""
    return Call("POST", path("policies", name, "change"), _read_one, body=change)


def roll_back_policy(name: str, earlier: wire.RollBackPolicy) -> Call[wire.PolicyDetail]:
    """Let an earlier version of a policy hold again, as a new version."""
    return Call("POST", path("policies", name, "rollback"), _read_one, body=earlier)


def diff_policy(
    name: str, *, of: int | None = None, to: int | None = None, other: str | None = None
) -> Call[wire.PolicyDiffBody]:
    """Say what two versions of a policy, or two policies, say differently."""
    asked = query(of=of, to=to, other=other)
    return Call("GET", path("policies", name, "diff"), reads(wire.PolicyDiffBody), asked)


def dry_run_policy(policy: wire.DryRunPolicy) -> Call[wire.PolicyDryRunBody]:
    """Take past requests again under a policy as it would be, without making it."""
    return Call("POST", f"{API}/policies:dry-run", reads(wire.PolicyDryRunBody), body=policy)


def apply_policy(project: str, applied: wire.ApplyPolicy) -> Call[None]:
    """Make a policy the default of a project's new VMs, or none."""
    return Call("PUT", path("projects", project, "policy"), nothing, body=applied)


def set_vm_policy(
    vm: str, applied: wire.ApplyPolicy, *, project: str | None = None
) -> Call[wire.VMPolicyBody]:
    """Put a VM under another policy, or none."""
    asked = query(project=project)
    return Call("PUT", path("vms", vm, "policy"), reads(wire.VMPolicyBody), asked, applied)


def delete_policy(name: str) -> Call[None]:
    """Delete a policy that nothing uses."""
    return Call("DELETE", path("policies", name), nothing)


class PolicyMethods:
    """What clients do with policies."""

    list_policies = Method(list_policies)
    get_policy = Method(get_policy)
    create_policy = Method(create_policy)
    change_policy = Method(change_policy)
    roll_back_policy = Method(roll_back_policy)
    diff_policy = Method(diff_policy)
    dry_run_policy = Method(dry_run_policy)
    apply_policy = Method(apply_policy)
    set_vm_policy = Method(set_vm_policy)
    delete_policy = Method(delete_policy)
