"""Constraints in both clients: their calls and methods. One is named by its name and project."""

from roost.client.binding import Method
from roost.client.calls import API, Call, nothing, path, query, reads
from roost.wire import constraints as wire

_read_one = reads(wire.ConstraintDetail)


def list_constraints(
    *,
    project: str | None = None,
    kind: str | None = None,
    limit: int | None = None,
    after: str | None = None,
) -> Call[wire.ConstraintPage]:
    """Return one page of constraints."""
    asked = query(project=project, kind=kind, limit=limit, after=after)
    return Call("GET", path("constraints"), reads(wire.ConstraintPage), asked)


def get_constraint(name: str, *, project: str | None = None) -> Call[wire.ConstraintDetail]:
    """Return a constraint with its versions."""
    return Call("GET", path("constraints", name), _read_one, query(project=project))


def create_constraint(
    constraint: wire.CreateConstraint, *, key: str | None = None
) -> Call[wire.ConstraintDetail]:
    """Create a constraint; it holds for whatever is placed from then on."""
    body = constraint
    return Call("POST", path("constraints"), _read_one, body=body, creates=True, key=key)


def change_constraint(
    name: str, change: wire.ChangeConstraint, *, project: str | None = None
) -> Call[wire.ConstraintDetail]:
    """Change a constraint; what the change leaves out stays."""
    return Call(
        "POST", path("constraints", name, "change"), _read_one, query(project=project), change
    )


def delete_constraint(name: str, *, project: str | None = None) -> Call[None]:
    """Delete a constraint."""
    return Call("DELETE", path("constraints", name), nothing, query(project=project))


def dry_run_constraint(constraint: wire.DryRunConstraint) -> Call[wire.ConstraintDryRunBody]:
    """Say what a constraint would mean for the fleet as it is, without making it."""
    read = reads(wire.ConstraintDryRunBody)
    return Call("POST", f"{API}/constraints:dry-run", read, body=constraint)


def check_constraints(
    *, project: str | None = None, rule: str | None = None
) -> Call[wire.ViolationsBody]:
    """Return the VMs that hard constraints find in the wrong place now."""
    asked = query(project=project, rule=rule)
    return Call("GET", f"{API}/constraints:check", reads(wire.ViolationsBody), asked)


class ConstraintMethods:
    """What clients do with constraints."""

    list_constraints = Method(list_constraints)
    get_constraint = Method(get_constraint)
    create_constraint = Method(create_constraint)
    change_constraint = Method(change_constraint)
    delete_constraint = Method(delete_constraint)
    dry_run_constraint = Method(dry_run_constraint)
    check_constraints = Method(check_constraints)
