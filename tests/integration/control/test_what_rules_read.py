"""What rules read of hosts and groups is so when a claim is kept: labels change, members come.

The law is asked of the ledger afterwards, without the engine: no VM was placed on a host that was
labelled before its claim was kept, no two members of a group are on one host or in one zone. Each
race is also run on a build that does not compare the generation of the host, or of the group.
"""

from collections.abc import Awaitable
from typing import Any

import msgspec
import pytest

from roost.control.create import committing
from roost.control.moves import moving
from roost.ledger.claims.proposals import Proposal
from roost.ledger.postgres import claims as postgresclaims
from roost.wire.bodies import MigrateVM, SetLabels
from roost.wire.constraints import CreateConstraint
from roost.wire.groups import CreateGroup
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run_two
from tests.integration.control.test_constraint_races import (
    PLACING,
    Change,
    Race,
    meanwhile,
    run_race,
    three_hosts,
)

#: Its races are between processes: the cases on PostgreSQL do not take turns.
pytestmark = pytest.mark.turns(1)

UNUSED = CreateConstraint(name="unused", expression="!has(host.labels.use)")
#: The group's own rule is soft: who is created with it is bound by this one alone.
APART = CreateConstraint(name="apart", expression="!has(group.name) || !(host.name in group.hosts)")
OTHER_ZONE = CreateConstraint(
    name="other-zone", expression="!has(group.name) || !(host.zone in group.zones)"
)


def labelled(host: str) -> Change:
    body = SetLabels(labels={"use": "batch"})
    return lambda rig: rig.plane.hosts.set_labels(host, body, OPERATOR)


async def unused_hosts(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.plane.constraints.create(UNUSED, ADMIN)
    await two.plane.follower.catch_up()


async def a_host_is_labelled_where_one_is_created(one: Rig, two: Rig) -> None:
    await unused_hosts(one, two)
    made = await meanwhile(two, "claim", labelled("h0"), one, two.create("new"))
    assert made.host != "h0"


async def a_host_is_labelled_where_one_moves_to(one: Rig, two: Rig) -> None:
    await unused_hosts(one, two)
    await one.running("vm")
    await two.plane.follower.catch_up()
    asked = two.plane.moves.migrate("vm", None, MigrateVM(), OPERATOR)
    await meanwhile(two, PLACING, labelled("h1"), one, asked)
    row = await one.row("vm")
    assert row is not None
    assert row.target == 3


RELABELLED: tuple[Race, ...] = (
    a_host_is_labelled_where_one_is_created,
    a_host_is_labelled_where_one_moves_to,
)


@pytest.mark.parametrize("race", RELABELLED, ids=lambda race: race.__name__)
def test_labels_that_a_rule_read_are_so_at_the_commit(database_url: str, race: Race) -> None:
    run_race(database_url, race)


@pytest.mark.parametrize("race", RELABELLED, ids=lambda race: race.__name__)
def test_a_build_that_compares_no_hosts_is_found(
    database_url: str, race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose, take = committing.propose, moving.take

    def proposed(*given: Any) -> Proposal:
        made = propose(*given)
        made.host_generation = None  # type: ignore[assignment]
        return made

    def taken(tx: Any, vm: Any, claim: Any, seen: Any, *given: Any) -> None:
        take(tx, vm, claim, msgspec.structs.replace(seen, host_generation=None), *given)

    monkeypatch.setattr(committing, "propose", proposed)
    monkeypatch.setattr(moving, "take", taken)
    with pytest.raises(AssertionError):
        run_race(database_url, race)


async def two_members(one: Rig, two: Rig, *first_on: str) -> list[str | None]:
    """Create a member while another process has just decided where one goes; return their hosts."""
    for name, zone in (("h0", "a"), ("h1", "a"), ("h2", "b")):
        await one.host(name, cpu=8, memory=64, zone=zone)
    body = CreateGroup(name="g", rule="anti-affinity", hard=False)
    await one.plane.groups.create(body, OPERATOR)
    for rule in (APART, OTHER_ZONE):
        await one.plane.constraints.create(rule, ADMIN)
    await two.plane.follower.catch_up()

    def first(rig: Rig) -> Awaitable[object]:
        return rig.create("first", groups=["g"], constraints={"hosts": [*first_on]})

    await meanwhile(two, "claim", first, one, two.create("second", groups=["g"]))
    return [(await one.get(name)).host for name in ("first", "second")]


async def two_are_created_on_one_host(one: Rig, two: Rig) -> None:
    assert await two_members(one, two, "h0") == ["h0", "h2"]


async def two_are_created_in_one_zone(one: Rig, two: Rig) -> None:
    assert await two_members(one, two, "h1") == ["h1", "h2"]


MEMBERS: tuple[Race, ...] = (two_are_created_on_one_host, two_are_created_in_one_zone)


@pytest.mark.parametrize("race", MEMBERS, ids=lambda race: race.__name__)
def test_members_that_a_rule_read_are_so_at_the_commit(postgres_url: str, race: Race) -> None:
    run_two(postgres_url, race)


@pytest.mark.parametrize("race", MEMBERS, ids=lambda race: race.__name__)
def test_a_build_that_compares_no_groups_is_found(
    postgres_url: str, race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresclaims, "outpaced", lambda *_: [])
    # What the host has promised is another than was read, too, where both are on one.
    monkeypatch.setattr(committing, "reads_amounts", lambda *_: False)
    with pytest.raises(AssertionError):
        run_two(postgres_url, race)
