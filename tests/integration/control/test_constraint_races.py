"""Rules change while VMs are placed: no claim is committed against a hard rule committed before.

The law is read from the events in their order: whatever a claim takes anew, takes it where every
hard rule that was in force then allows it. On PostgreSQL another process changes the rules, on
SQLite another request of the same one. Each race is also run on builds that are broken on purpose,
and must find the law broken there.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from roost.base.errors import NoFit
from roost.control.create import committing, placing
from roost.control.rules.writing import switch
from roost.control.vms import lifecycle
from roost.ledger.claims import capacity
from roost.ledger.schema.tables import events, hosts
from roost.wire.agentlink import AmountInfo
from roost.wire.bodies import (
    CreateProject,
    CreateVMs,
    DemandBody,
    MigrateVM,
    QuotaBody,
    ResizeVM,
    SetLabels,
    SetQuota,
)
from roost.wire.constraints import ChangeConstraint, CreateConstraint
from roost.wire.reservations import CreateReservation
from tests.integration.control.rig import (
    ADMIN,
    GIB,
    OPERATOR,
    Rig,
    body_of,
    digest_of,
    run,
    run_two,
)

#: Its races are between processes: the cases on PostgreSQL do not take turns.
pytestmark = pytest.mark.turns(1)

Change = Callable[[Rig], Awaitable[object]]
Race = Callable[[Rig, Rig], Awaitable[None]]

#: Rules of these tests name the one host that they forbid.
NOT_ON = re.compile(r'host\.name != "(\w+)"')


async def broken_law(rig: Rig) -> list[str]:
    """Return every claim that took something against a hard rule of its time."""
    names = {row["number"]: row["name"] for row in await rig.rows(select(hosts))}
    forbidden: dict[str, str] = {}
    had: dict[str, dict[str, Any]] = {}
    found = []
    for event in await rig.rows(select(events.c.seq, events.c.changes).order_by(events.c.seq)):
        changes = msgspec.json.decode(event["changes"])
        for claim, row in changes.get("claims", {}).items():
            before = had.pop(claim, None)
            if row is None or row["kind"] == "hold":
                continue
            had[claim] = row
            grown = (
                before is None
                or before["host"] != row["host"]
                or any(
                    row[name] > before[name] for name in ("cpu_milli", "memory_bytes", "disk_bytes")
                )
            )
            if grown and names[row["host"]] in forbidden.values():
                found.append(f"{event['seq']}: {claim} on {names[row['host']]}")
        for key, rule in changes.get("constraints", {}).items():
            forbidden.pop(key, None)
            holds = rule is not None and rule["enabled"] and rule["active"] is not False
            if holds and rule["kind"] == "hard":
                forbidden[key] = NOT_ON.fullmatch(rule["expression"])[1]  # type: ignore[index]
    return found


async def meanwhile(rig: Rig, where: str, change: Change, other: Rig, asked: Awaitable[Any]) -> Any:
    """Let `other` change something after `rig` has decided and before it commits, once."""
    kept = {name: getattr(rig.store, name) for name in ("claim", "write")}
    left = 1

    def too_late(name: str) -> Any:
        async def wrapped(first: Any, *given: Any, **rest: Any) -> Any:
            nonlocal left
            if left and where in (name, getattr(first, "__qualname__", "")):
                left = 0
                await change(other)
            return await kept[name](first, *given, **rest)

        return wrapped

    for name in kept:
        setattr(rig.store, name, too_late(name))
    try:
        return await asked
    finally:
        assert not left, "nothing was committed where it should have been"
        for name, function in kept.items():
            setattr(rig.store, name, function)


PLACING = "Placing.place.<locals>.<lambda>"
GROWING = "Lifecycle._write.<locals>.with_spec"


def forbid(host: str) -> Change:
    body = CreateConstraint(name=f"not-{host}", expression=f'host.name != "{host}"')
    return lambda rig: rig.plane.constraints.create(body, ADMIN)


async def three_hosts(one: Rig, two: Rig) -> None:
    for n in range(3):
        await one.host(f"h{n}", cpu=8, memory=64)
    await two.plane.follower.catch_up()


async def lawful(one: Rig, two: Rig) -> None:
    assert await broken_law(one) == []
    for rig in (one, two):
        await rig.plane.follower.catch_up()
        assert (await rig.plane.doctor()).findings == []


async def one_is_created(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    made = await meanwhile(two, "claim", forbid("h0"), one, two.create("new"))
    await lawful(one, two)
    assert made.host == "h1"


async def one_with_labels_is_created(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    asked = two.create("new", labels={"tier": "db"})
    made = await meanwhile(two, "claim", forbid("h0"), one, asked)
    await lawful(one, two)
    assert made.host == "h1"


async def a_disabled_rule_is_enabled(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    body = CreateConstraint(name="r", expression='host.name != "h0"', enabled=False)
    await one.plane.constraints.create(body, ADMIN)
    await two.plane.follower.catch_up()

    def enable(rig: Rig) -> Awaitable[object]:
        return rig.plane.constraints.change("r", None, ChangeConstraint(enabled=True), ADMIN)

    made = await meanwhile(two, "claim", enable, one, two.create("new"))
    await lawful(one, two)
    assert made.host == "h1"


async def a_rule_is_switched_on(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    body = CreateConstraint(name="r", expression='host.name != "h0"', when="fleet.vms > 100")
    await one.plane.constraints.create(body, ADMIN)
    await two.plane.follower.catch_up()

    async def switch_on(rig: Rig) -> None:
        row = rig.plane.roster.rulebook.rows["r"]
        await rig.store.write(lambda tx: switch(tx, row, rig.clock.wall_ms(), active=True))

    made = await meanwhile(two, "claim", switch_on, one, two.create("new"))
    await lawful(one, two)
    assert made.host == "h1"


async def one_is_moved(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.running("vm")
    await two.plane.follower.catch_up()
    asked = two.plane.moves.migrate("vm", None, MigrateVM(), OPERATOR)
    await meanwhile(two, PLACING, forbid("h1"), one, asked)
    await lawful(one, two)
    row = await one.row("vm")
    assert row is not None
    assert row.target == 3


async def one_leaves_the_queue(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    for n in range(3):
        await one.create(f"full-{n}", cpu=8)
    await one.create("waits", cpu=8, on_no_fit="queue")
    await one.settle()
    await one.pass_by(4)
    await two.plane.follower.catch_up()
    for n in range(2):
        await one.plane.vms.delete(f"full-{n}", None, ADMIN)
    await one.settle()
    await meanwhile(one, PLACING, forbid("h0"), two, one.pass_by(4))
    await lawful(one, two)
    assert (await one.get("waits")).host == "h1"


async def one_grows(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.running("vm")
    await two.plane.follower.catch_up()
    asked = two.plane.vms.resize("vm", None, ResizeVM(cpu=2), OPERATOR)
    with pytest.raises(NoFit, match="does not let 'vm' grow"):
        await meanwhile(two, GROWING, forbid("h0"), one, asked)
    await lawful(one, two)


RACES: tuple[Race, ...] = (
    one_is_created, one_with_labels_is_created, a_disabled_rule_is_enabled,
    a_rule_is_switched_on, one_is_moved, one_leaves_the_queue, one_grows,
)  # fmt: skip


def run_race(url: str, race: Race) -> None:
    """Run a race of two processes, or of two requests where only one process can write."""
    if url.startswith("sqlite"):

        async def alone(rig: Rig) -> None:
            await race(rig, rig)

        run(url, alone)
    else:
        run_two(url, race)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_no_claim_is_kept_against_a_rule_that_was_there_before(
    database_url: str, race: Race
) -> None:
    run_race(database_url, race)


def create_compares_nothing(patch: pytest.MonkeyPatch) -> None:
    propose = committing.propose

    def broken(*given: Any) -> Any:
        made = propose(*given)
        made.constraints = None
        return made

    patch.setattr(committing, "propose", broken)


def placing_compares_nothing(patch: pytest.MonkeyPatch) -> None:
    take = placing.take

    def broken(tx: Any, vm: Any, claim: Any, seen: Any, *given: Any) -> None:
        take(tx, vm, claim, seen, *given)
        tx.constraints = None

    for module in ("create.queueing", "moves.moving", "survive.rehoming"):
        patch.setattr(f"roost.control.{module}.take", broken)


def growing_compares_nothing(patch: pytest.MonkeyPatch) -> None:
    resize = lifecycle.resize

    def broken(tx: Any, *given: Any) -> Any:
        tx.constraints = None
        return resize(tx, *given)

    patch.setattr(lifecycle, "resize", broken)


@pytest.mark.parametrize(
    ("race", "mistake"),
    [
        (one_is_created, create_compares_nothing),
        (one_with_labels_is_created, create_compares_nothing),
        (a_disabled_rule_is_enabled, create_compares_nothing),
        (a_rule_is_switched_on, create_compares_nothing),
        (one_is_moved, placing_compares_nothing),
        (one_leaves_the_queue, placing_compares_nothing),
        (one_grows, growing_compares_nothing),
    ],
    ids=lambda each: each.__name__,
)
def test_a_broken_build_is_found(
    database_url: str, race: Race, mistake: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    mistake(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_race(database_url, race)


#: At most one VM on a host: what the rule reads is changed by every claim.
ALONE = CreateConstraint(name="alone", expression="host.vms == 0")


async def shared_hosts(rig: Rig) -> list[str]:
    """Return the hosts on which more than one VM has a claim."""
    taken = sorted((await rig.claims()).values())
    return sorted({host for host in taken if taken.count(host) > 1})


async def another_is_created_there(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.plane.constraints.create(ALONE, ADMIN)
    await two.plane.follower.catch_up()
    await meanwhile(two, "claim", lambda rig: rig.create("other"), one, two.create("new"))
    assert await shared_hosts(one) == []


async def another_is_created_where_one_moves_to(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.running("vm")
    await one.plane.constraints.create(ALONE, ADMIN)
    await two.plane.follower.catch_up()
    asked = two.plane.moves.migrate("vm", None, MigrateVM(), OPERATOR)
    await meanwhile(two, PLACING, lambda rig: rig.create("other"), one, asked)
    assert await shared_hosts(one) == []


async def another_is_created_where_one_grows(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.running("vm")
    roomy = CreateConstraint(name="roomy", expression="host.vms == 0", selector={"big": "yes"})
    await one.running("big", labels={"big": "yes"}, constraints={"hosts": ["h1"]})
    await one.plane.constraints.create(roomy, ADMIN)
    await two.plane.follower.catch_up()
    asked = two.plane.vms.resize("big", None, ResizeVM(cpu=2), OPERATOR)

    def crowd(rig: Rig) -> Awaitable[object]:
        return rig.create("other", constraints={"hosts": ["h1"]})

    with pytest.raises(NoFit, match="does not let 'big' grow"):
        await meanwhile(two, GROWING, crowd, one, asked)


async def another_is_heard_of_between_two_of_a_batch(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.plane.constraints.create(ALONE, ADMIN)
    await two.plane.follower.catch_up()
    await one.create("other", constraints={"hosts": ["h0"]})
    # The first of the batch is placed, the second refused: only then does `two` hear of the other.
    first = body_of("new", constraints={"hosts": ["h0"]})
    body = CreateVMs(vms=[first, body_of("large", memory=5000 * GIB)])
    made = await two.plane.admit.create_many(body, OPERATOR, None, digest_of(body))
    assert await shared_hosts(one) == []
    assert made.batch.failed == 2


async def another_takes_what_is_counted_there(one: Rig, two: Rig) -> None:
    for name in ("h0", "h1"):
        await one.host(name, cpu=8, memory=64, extended={"fpga": AmountInfo(4)})
    whole = CreateConstraint(
        name="whole", expression='host.free["fpga"] >= 4', selector={"fpga": "whole"}
    )
    await one.plane.constraints.create(whole, ADMIN)
    await one.running("old", constraints={"hosts": ["h0"]})
    await two.plane.follower.catch_up()

    async def swap(rig: Rig) -> None:
        # As many VMs and as much of all other amounts as before.
        await rig.plane.vms.delete("old", None, OPERATOR)
        await rig.settle()
        await rig.create("other", extended={"fpga": 2}, constraints={"hosts": ["h0"]})

    asked = two.create("new", labels={"fpga": "whole"}, extended={"fpga": 1})
    made = await meanwhile(two, "claim", swap, one, asked)
    assert made.host == "h1"


CROWDED: tuple[Race, ...] = (
    another_takes_what_is_counted_there,
    another_is_created_there,
    another_is_heard_of_between_two_of_a_batch,
    another_is_created_where_one_moves_to,
    another_is_created_where_one_grows,
)


@pytest.mark.parametrize("race", CROWDED, ids=lambda race: race.__name__)
def test_what_a_rule_read_of_a_host_is_so_at_the_commit(postgres_url: str, race: Race) -> None:
    run_two(postgres_url, race)


@pytest.mark.parametrize("race", CROWDED, ids=lambda race: race.__name__)
def test_a_build_that_does_not_compare_it_is_found(
    postgres_url: str, race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("create.committing", "create.placing", "vms.ruling"):
        monkeypatch.setattr(f"roost.control.{module}.reads_amounts", lambda *_: False)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_two(postgres_url, race)


#: Half of a host of these tests stays free.
FLOOR = CreateConstraint(name="floor", expression='host.free.cpu >= cores("4")')


def reserved(host: str) -> Change:
    """Keep so much of a host that the floor is passed, and a small VM fits yet."""
    body = CreateReservation(
        name="kept", purpose="fire drill", demand=DemandBody(cpu=5, memory="1GiB"), hosts=[host]
    )
    return lambda rig: rig.plane.reservations.create(body, ADMIN)


async def room_is_reserved_where_one_is_created(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.plane.constraints.create(FLOOR, ADMIN)
    await two.plane.follower.catch_up()
    made = await meanwhile(two, "claim", reserved("h0"), one, two.create("new"))
    assert made.host == "h1"


async def room_is_reserved_where_one_moves_to(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.running("vm")
    await one.plane.constraints.create(FLOOR, ADMIN)
    await two.plane.follower.catch_up()
    asked = two.plane.moves.migrate("vm", None, MigrateVM(), OPERATOR)
    await meanwhile(two, PLACING, reserved("h1"), one, asked)
    row = await one.row("vm")
    assert row is not None
    assert row.target == 3


async def room_is_reserved_where_one_grows(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.running("vm", constraints={"hosts": ["h0"]})
    await one.plane.constraints.create(FLOOR, ADMIN)
    await two.plane.follower.catch_up()
    asked = two.plane.vms.resize("vm", None, ResizeVM(cpu=2), OPERATOR)
    with pytest.raises(NoFit, match="does not let 'vm' grow"):
        await meanwhile(two, GROWING, reserved("h0"), one, asked)


async def a_counter_is_reserved_where_one_is_created(one: Rig, two: Rig) -> None:
    for name in ("h0", "h1"):
        await one.host(name, cpu=8, memory=64, extended={"fpga": AmountInfo(4)})
    whole = CreateConstraint(
        name="whole", expression='host.free["fpga"] >= 4', selector={"fpga": "whole"}
    )
    await one.plane.constraints.create(whole, ADMIN)
    await two.plane.follower.catch_up()
    body = CreateReservation(
        name="kept", purpose="fire drill", hosts=["h0"],
        demand=DemandBody(cpu=1, memory="1GiB", extended={"fpga": 2}),
    )  # fmt: skip
    asked = two.create("new", labels={"fpga": "whole"}, extended={"fpga": 1})
    made = await meanwhile(
        two, "claim", lambda rig: rig.plane.reservations.create(body, ADMIN), one, asked
    )
    assert made.host == "h1"


KEPT_FOR_OTHERS: tuple[Race, ...] = (
    room_is_reserved_where_one_is_created,
    room_is_reserved_where_one_moves_to,
    room_is_reserved_where_one_grows,
    a_counter_is_reserved_where_one_is_created,
)


@pytest.mark.parametrize("race", KEPT_FOR_OTHERS, ids=lambda race: race.__name__)
def test_what_a_host_keeps_for_others_is_so_at_the_commit(database_url: str, race: Race) -> None:
    run_race(database_url, race)


@pytest.mark.parametrize("race", KEPT_FOR_OTHERS, ids=lambda race: race.__name__)
def test_a_build_that_compares_no_holds_is_found(
    database_url: str, race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        capacity.Promised,
        "is_as_read",
        lambda seen, now, **_: (seen.limits, seen.extended) == (now.limits, now.extended),
    )
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_race(database_url, race)


#: One VM of a project at most, and four cores for its VMs together.
ONLY = CreateConstraint(name="only", expression="project.vms == 0", selector={"only": "yes"})
FOUR = CreateConstraint(
    name="four", expression='project.committed.cpu + vm.demand.cpu <= cores("4")'
)
ELSEWHERE = {"hosts": ["h2"]}


def far_off(rig: Rig) -> Awaitable[object]:
    return rig.create("other", constraints=ELSEWHERE)


def quota(vms: int) -> SetQuota:
    return SetQuota(quota=QuotaBody(vms=vms))


async def another_of_its_project_is_created(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.plane.constraints.create(ONLY, ADMIN)
    await two.plane.follower.catch_up()
    asked = two.create("new", labels={"only": "yes"})
    with pytest.raises(NoFit, match=r"project\.vms == 0"):
        await meanwhile(two, "claim", far_off, one, asked)


async def another_of_its_project_grows(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.running("other", cpu=1, constraints=ELSEWHERE)
    await one.plane.constraints.create(FOUR, ADMIN)
    await two.plane.follower.catch_up()

    def grow(rig: Rig) -> Awaitable[object]:
        return rig.plane.vms.resize("other", None, ResizeVM(cpu=3), OPERATOR)

    with pytest.raises(NoFit, match="rule 'four'"):
        await meanwhile(two, "claim", grow, one, two.create("new", cpu=2))


async def another_of_its_project_is_created_while_one_moves(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.running("vm", labels={"only": "yes"})
    await one.plane.constraints.create(ONLY, ADMIN)
    await two.plane.follower.catch_up()
    asked = two.plane.moves.migrate("vm", None, MigrateVM(), OPERATOR)
    with pytest.raises(NoFit, match=r"project\.vms == 0"):
        await meanwhile(two, PLACING, far_off, one, asked)


async def another_of_its_project_is_created_while_one_grows(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.running("vm", cpu=1)
    await one.plane.constraints.create(FOUR, ADMIN)
    await two.plane.follower.catch_up()
    asked = two.plane.vms.resize("vm", None, ResizeVM(cpu=3), OPERATOR)

    def crowd(rig: Rig) -> Awaitable[object]:
        return rig.create("other", cpu=2, constraints=ELSEWHERE)

    with pytest.raises(NoFit, match="does not let 'vm' grow"):
        await meanwhile(two, GROWING, crowd, one, asked)


async def another_of_its_project_is_created_while_one_waits(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    for n in range(3):
        await one.create(f"full-{n}", cpu=8, project="full")
    await one.plane.constraints.create(ONLY, ADMIN)
    await one.create("waits", cpu=8, labels={"only": "yes"}, on_no_fit="queue")
    await one.settle()
    await one.pass_by(4)
    await two.plane.follower.catch_up()
    for n in (0, 2):
        await one.plane.vms.delete(f"full-{n}", "full", ADMIN)
    await one.settle()

    await meanwhile(one, PLACING, far_off, two, one.pass_by(4))
    assert (await one.get("waits")).host is None


async def its_quota_changes(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.plane.projects.set_quota("default", quota(8), ADMIN)
    await one.plane.follower.catch_up()
    await one.plane.constraints.create(
        CreateConstraint(name="half", expression="project.vms * 2 < project.most_vms"), ADMIN
    )
    await one.create("other")
    await two.plane.follower.catch_up()

    def less(rig: Rig) -> Awaitable[object]:
        return rig.plane.projects.set_quota("default", quota(2), ADMIN)

    with pytest.raises(NoFit, match=r"project\.most_vms"):
        await meanwhile(two, "claim", less, one, two.create("new"))


OF_PROJECTS: tuple[Race, ...] = (
    another_of_its_project_is_created,
    another_of_its_project_grows,
    another_of_its_project_is_created_while_one_moves,
    another_of_its_project_is_created_while_one_grows,
    another_of_its_project_is_created_while_one_waits,
    its_quota_changes,
)


async def with_projects(race: Race, one: Rig, two: Rig) -> None:
    await one.plane.projects.create(CreateProject(name="full"), ADMIN)
    await race(one, two)
    for rig in (one, two):
        await rig.plane.follower.catch_up()
        assert (await rig.plane.doctor()).findings == []


@pytest.mark.parametrize("race", OF_PROJECTS, ids=lambda race: race.__name__)
def test_what_a_rule_read_of_a_project_is_so_at_the_commit(postgres_url: str, race: Race) -> None:
    run_two(postgres_url, partial(with_projects, race))


@pytest.mark.parametrize("race", OF_PROJECTS, ids=lambda race: race.__name__)
def test_a_build_that_does_not_compare_projects_is_found(
    postgres_url: str, race: Race, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("create.committing", "create.placing", "vms.ruling"):
        monkeypatch.setattr(f"roost.control.{module}.reads_project", lambda *_: False)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_two(postgres_url, partial(with_projects, race))


def test_creates_at_once_are_as_many_as_a_rule_lets_a_project_have(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await three_hosts(rig, rig)
        three = CreateConstraint(name="three", expression="project.vms < 3")
        await rig.plane.constraints.create(three, ADMIN)
        body = CreateVMs(vms=[body_of(f"batch-{n}") for n in range(2)])
        many = rig.plane.admit.create_many(body, OPERATOR, None, digest_of(body))
        await asyncio.gather(many, *(rig.create(f"vm-{n}") for n in range(5)),
                             return_exceptions=True)  # fmt: skip
        assert len(await rig.claims()) == 3
        whole = CreateVMs(vms=[body_of(f"more-{n}") for n in range(2)], atomic=True)
        with pytest.raises(NoFit):
            await rig.plane.admit.create_many(whole, OPERATOR, None, digest_of(whole))

    run(database_url, test)


SMALL_ON_H1 = 'vm.demand.cpu < cores("2") || host.name != "h1"'
SMALL_WHERE_LABELLED = 'vm.demand.cpu < cores("2") || !has(host.labels.small)'


async def one_grows_that_was_not_heard_of(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.plane.constraints.create(
        CreateConstraint(name="small", expression=SMALL_ON_H1), ADMIN
    )
    await two.plane.follower.catch_up()
    await one.running("vm", constraints={"hosts": ["h1"]})
    with pytest.raises(NoFit, match="does not let 'vm' grow on host 'h1'"):
        await two.plane.vms.resize("vm", None, ResizeVM(cpu=4), OPERATOR)


async def one_grows_that_has_moved_unheard(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.plane.constraints.create(
        CreateConstraint(name="small", expression=SMALL_ON_H1), ADMIN
    )
    await one.running("vm")
    await two.plane.follower.catch_up()
    await one.move("vm", "h1")
    with pytest.raises(NoFit, match="does not let 'vm' grow on host 'h1'"):
        await two.plane.vms.resize("vm", None, ResizeVM(cpu=4), OPERATOR)


async def one_grows_while_its_host_is_labelled(one: Rig, two: Rig) -> None:
    await three_hosts(one, two)
    await one.plane.constraints.create(
        CreateConstraint(name="small", expression=SMALL_WHERE_LABELLED), ADMIN
    )
    await one.running("vm")
    await two.plane.follower.catch_up()

    def label(rig: Rig) -> Awaitable[object]:
        return rig.plane.hosts.set_labels("h0", SetLabels(labels={"small": "yes"}), OPERATOR)

    asked = two.plane.vms.resize("vm", None, ResizeVM(cpu=4), OPERATOR)
    with pytest.raises(NoFit, match="does not let 'vm' grow on host 'h0'"):
        await meanwhile(two, GROWING, label, one, asked)


@pytest.mark.parametrize(
    "race",
    [
        one_grows_that_was_not_heard_of,
        one_grows_that_has_moved_unheard,
        one_grows_while_its_host_is_labelled,
    ],
    ids=lambda race: race.__name__,
)
def test_growth_is_judged_where_the_vm_is_and_by_what_its_host_is(
    postgres_url: str, race: Race
) -> None:
    run_two(postgres_url, race)


def test_creates_at_once_share_no_host_that_a_rule_gives_to_one(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await three_hosts(rig, rig)
        await rig.plane.constraints.create(ALONE, ADMIN)
        names = [f"vm-{n}" for n in range(5)]
        made = await asyncio.gather(*map(rig.create, names), return_exceptions=True)
        assert sum(isinstance(each, NoFit) for each in made) == 2
        assert await shared_hosts(rig) == []

    run(database_url, test)
