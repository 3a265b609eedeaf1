"""What a VM is created under: what it names, and its policy or its project's default one."""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from roost.control.memory.roster import Roster
from roost.model.policies import PolicySpread
from roost.model.rules import NO_CHOICE, Choice
from roost.model.states import Restart
from roost.parts.access import Principal
from roost.wire.bodies import CreateVM
from roost.wire.bundles import read_bundle
from roost.wire.specs import NO_POLICY, Under


def spread_of(roster: Roster, policy: str) -> PolicySpread | None:
    """Return how the VMs of a policy are spread; None if they are not."""
    row = roster.rulebook.policies.get(policy)
    if row is None:
        return None
    with suppress(msgspec.MsgspecError):
        return read_bundle(row.bundle).spread
    return None


def are_known(roster: Roster, bodies: Iterable[CreateVM]) -> bool:
    """Say whether this process has heard of every flavor, class, policy and so on they name.

    If not, another process may just have made it: catch up before it is called unknown.
    """
    return all(
        (body.flavor is None or body.flavor in roster.flavors.rows)
        and (body.priority_class is None or body.priority_class in roster.classes.rows)
        and (body.policy is None or body.policy in roster.rulebook.policies)
        and (not body.reservation or body.reservation in roster.holdings.reservations)
        for body in bodies
    )


def in_own_project(body: CreateVM, who: Principal) -> CreateVM:
    """Return a body with a project: one that names none is in its caller's own."""
    return body if body.project else msgspec.structs.replace(body, project=who.home)


def under(roster: Roster, body: CreateVM) -> tuple[Under, Choice]:
    """Return the policy of a new VM, and how that chooses a host; NotFound for an unknown one."""
    row = roster.rulebook.policy_of(body.policy, body.project)
    if row is None:
        return NO_POLICY, NO_CHOICE
    restart: Restart = "here"
    # For one that cannot be read a rule stands that no host passes: the VM may only wait.
    with suppress(msgspec.MsgspecError):
        restart = read_bundle(row.bundle).restart or restart
    choice = roster.engine.rules.choices.get(row.name, NO_CHOICE)
    return Under(row.name, row.version, restart), choice
