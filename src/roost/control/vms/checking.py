"""What a doctor asks about VMs: their claims, holds, tombstones, names and specs."""

from functools import cache

from sqlalchemy import Connection, func, literal, or_, select

from roost.ledger.claims.capacity import CLAIM_KINDS, CLEANUP, MIGRATE_IN, RUN
from roost.ledger.schema.tables import claims, tombstones, vm_specs, vm_user_data, vms
from roost.ledger.upgrade.older import is_unfinished, may_run_beside
from roost.ledger.upkeep.examination import Examination, Wrong, has_none, never, none_of
from roost.ledger.writes.statements import count_rows


def check_vms(connection: Connection, found: Examination) -> None:
    """Ask everything about VMs."""
    for check in (_run_claims, _holds, _tombstones, _names, _specs):
        check(connection, found)


@cache
def _wrong_claims() -> list[Wrong]:
    wrong = []
    for kind, column in ((RUN, vms.c.host), (MIGRATE_IN, vms.c.target)):
        unheld = has_none(
            claims, claims.c.id == vms.c.id + literal(f":{kind}"), claims.c.host == column
        )
        unwanted = has_none(vms, vms.c.id == claims.c.vm, column == claims.c.host)
        wrong += [
            never(
                "vms",
                select(vms.c.id, column).where(column.is_not(None), unheld).order_by(vms.c.id),
                lambda vm, host, kind=kind: f"VM {vm} has no {kind} claim on host {host}",
            ),
            never(
                "claims",
                select(claims.c.id, claims.c.host).where(claims.c.kind == kind, unwanted)
                .order_by(claims.c.id),
                lambda claim, host: f"claim {claim} holds room on host {host} for nobody",
            ),
        ]  # fmt: skip
    misnamed = or_(
        claims.c.id != claims.c.vm + literal(":") + claims.c.kind,
        claims.c.kind.not_in(CLAIM_KINDS),
    )
    query = select(claims.c.id).where(misnamed).order_by(claims.c.id)
    say = "claim {} is not named after its VM and kind".format
    return [*wrong, never("claims", query, say)]


def _run_claims(connection: Connection, found: Examination) -> None:
    """A VM has a `run` claim on its host, and only there; `migrate_in` while it has a target."""
    found.count("claims", count_rows(connection, claims))
    found.count("vms", count_rows(connection, vms))
    none_of(connection, found, _wrong_claims())


_HOLDS = select(func.count()).select_from(claims).where(claims.c.kind == CLEANUP)
_WRONG_HOLD = never(
    "holds",
    select(claims.c.id, claims.c.host)
    .where(
        claims.c.kind == CLEANUP,
        has_none(tombstones, tombstones.c.vm == claims.c.vm, tombstones.c.host == claims.c.host),
        # Targets are counted: the index of those that are moving is not the way to one VM.
        select(func.count(vms.c.target)).where(vms.c.id == claims.c.vm).scalar_subquery() == 0,
    )
    .order_by(claims.c.id),
    lambda claim, host: f"claim {claim} on host {host} has neither tombstone nor move",
)


def _holds(connection: Connection, found: Examination) -> None:
    """Room is held only for what is still to be destroyed, or is moving."""
    found.count("holds", connection.execute(_HOLDS).scalar_one())
    none_of(connection, found, [_WRONG_HOLD])


_WRONG_TOMBSTONE = never(
    "tombstones",
    select(tombstones.c.vm, tombstones.c.host)
    .where(
        ~has_none(
            vms,
            vms.c.id == tombstones.c.vm,
            vms.c.desired != "absent",
            or_(vms.c.host == tombstones.c.host, vms.c.target == tombstones.c.host),
        )
    )
    .order_by(tombstones.c.vm, tombstones.c.host),
    lambda vm, host: f"VM {vm} is to be destroyed on host {host}, where it is wanted",
)


def _tombstones(connection: Connection, found: Examination) -> None:
    """Nothing is destroyed where it is wanted."""
    found.count("tombstones", count_rows(connection, tombstones))
    none_of(connection, found, [_WRONG_TOMBSTONE])


_SAME_NAME = never(
    "names",
    select(vms.c.project, vms.c.name, func.count())
    .group_by(vms.c.project, vms.c.name)
    .having(func.count() > 1)
    .order_by(vms.c.project, vms.c.name),
    lambda project, name, count: f"{count} VMs are called '{project}/{name}'",
)


def _names(connection: Connection, found: Examination) -> None:
    """No two VMs of a project have one name."""
    found.count("names", count_rows(connection, vms))
    none_of(connection, found, [_SAME_NAME])


@cache
def _wrong_specs() -> list[Wrong]:
    return [
        never(
            "specs",
            select(table.c.vm).where(has_none(vms, vms.c.id == table.c.vm)).order_by(table.c.vm),
            f"{table.name} has a row of VM {{}}, which is gone".format,
        )
        for table in (vm_specs, vm_user_data)
    ]


def _specs(connection: Connection, found: Examination) -> None:
    """Every VM has its spec, and what stands beside a VM is gone with it."""
    found.count("specs", count_rows(connection, vm_specs))
    none_of(connection, found, _wrong_specs())
    if is_unfinished(connection):
        found.note(
            "upgrade",
            "older processes may run beside; roost ledger finish-upgrade once all are of this "
            "version",
        )
    if may_run_beside(connection):
        return
    query = select(vms.c.id).where(has_none(vm_specs, vm_specs.c.vm == vms.c.id)).order_by(vms.c.id)
    none_of(connection, found, [never("specs", query, "VM {} has no spec".format)])
