"""Whom a VM must be near to: what owners name, found in the ledger, and what must be known."""

from dataclasses import replace

from sqlalchemy import Connection

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.control.memory.roster import Roster
from roost.control.vms.lookup import vm_row
from roost.ledger.store import Store
from roost.ledger.upgrade.older import release_before_may_be_here
from roost.model.constraints import Constraints, NearRule
from roost.parts.access import Principal


async def with_near_found(
    store: Store,
    roster: Roster,
    constraints: Constraints,
    project: str,
    who: Principal,
    *,
    kept: bool = False,
) -> Constraints:
    """Return constraints whose bounds name VMs and groups by id; refuses those that are not there.

    Without a network nobody knows how near anything is, so a bound is refused, not ignored; so is
    one that is to be `kept` with a VM while processes may be there that would not go by it.
    """
    if not constraints.near:
        return constraints
    if roster.engine.network is None:
        named = constraints.near[0].name
        raise InvalidRequest(
            f"how near to {named!r} cannot be said: no network is described",
            hint="Maybe describe it first: roost topology apply FILE.",
        )
    wanted = project or who.home

    def look(connection: Connection) -> tuple[NearRule, ...]:
        if kept:
            _refuse_beside_older(connection)
        return tuple(_found(connection, roster, rule, wanted, who) for rule in constraints.near)

    return replace(constraints, near=await store.read(look))


def _refuse_beside_older(connection: Connection) -> None:
    """Refuse while processes may be there that would place a VM however far it is."""
    if release_before_may_be_here(connection):
        raise Conflict(
            "no VM can be bound to be near another while older processes may run beside",
            hint="Maybe finish the upgrade first: roost ledger finish-upgrade.",
        )


def _found(
    connection: Connection, roster: Roster, rule: NearRule, project: str, who: Principal
) -> NearRule:
    if rule.group:
        group = f"{project}/{rule.name}"
        if group not in roster.groups:
            raise NotFound(f"no group {rule.name!r} to be near to", group=rule.name)
        return replace(rule, of=group)
    try:
        vm = vm_row(connection, rule.name, None if rule.name.startswith("vm-") else project, who)
    except NotFound:
        raise NotFound(f"no VM {rule.name!r} to be near to", vm=rule.name) from None
    return replace(rule, of=vm.id)
