"""What a doctor asks about policies: those that are named exist, and their versions are whole."""

import msgspec
from sqlalchemy import Connection, select

from roost.ledger.schema.rows import PolicyRow
from roost.ledger.schema.tables import constraints, policies, policy_versions, projects, vm_specs
from roost.ledger.upkeep.examination import Examination
from roost.ledger.upkeep.fold import Pages
from roost.ledger.writes.statements import count_rows, find_rows
from roost.wire.spectext import SpecUnreadable, read_spec

#: Specs that may name a policy; a label may look like it, so the spec itself decides.
_NAMING = Pages(
    [vm_specs.c.vm, vm_specs.c.version, vm_specs.c.spec],
    [vm_specs.c.vm, vm_specs.c.version],
    vm_specs.c.spec.contains('"policy":"', autoescape=True),
)
#: Projects and rules that name one. Compared here, not in SQL: both are few.
_NAMED = {
    "project": select(projects.c.name, projects.c.policy)
    .where(projects.c.policy.is_not(None))
    .order_by(projects.c.name),
    "rule": select(constraints.c.id, constraints.c.policy)
    .where(constraints.c.policy.is_not(None))
    .order_by(constraints.c.id),
}
_row = msgspec.json.Decoder(PolicyRow).decode


def check_policies(connection: Connection, found: Examination) -> None:
    """See whether projects, rules and VMs name policies that exist, whose versions are whole."""
    found.count("policies", count_rows(connection, policies))
    rows = [PolicyRow(**row) for row in find_rows(connection, policies, {})]
    known = {row.name for row in rows}
    for what, question in _NAMED.items():
        for name, policy in connection.execute(question):
            if policy not in known:
                found.find("policies", f"{what} {name!r} is under {policy!r}, which does not exist")
    for page in _NAMING.read(connection):
        for each in page:
            try:
                policy = read_spec(each.spec, each.version).policy
            except SpecUnreadable:
                continue  # that is asked of specs
            if policy and policy not in known:
                found.find("policies", f"VM {each.vm!r} is under {policy!r}, which does not exist")
    versions = {
        (row["policy"], row["version"]): row["body"]
        for row in find_rows(connection, policy_versions, {})
    }
    for row in rows:
        body = versions.get((row.name, row.version))
        if body is None:
            found.find("policies", f"{row.name!r} is at version {row.version}, which is not kept")
        elif not _same(body, row):
            found.find("policies", f"{row.name!r} is not what its version {row.version} says")
    for name, version in sorted(versions):
        if name not in known:
            found.find("policies", f"version {version} is of {name!r}, which does not exist")


def _same(body: str, row: PolicyRow) -> bool:
    try:
        return _row(body) == row
    except msgspec.MsgspecError:
        return False
