"""Whatever two processes do at once on PostgreSQL, no claim is taken against a hard rule.

The laws are read from the events in their order, by counting: a host that a rule forbids takes
nothing, no host has more VMs and no project has more VMs than rules let them have. Plans are drawn
over every path by which a VM gets a host; one host is lost before a plan that recovers its VMs.
Plans that are known to break builds which do not compare what rules have read are run on such
builds, and must find them.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from roost.base.errors import RoostError
from roost.control.create import committing, placing
from roost.control.moves import moving
from roost.control.preempt import arriving
from roost.control.survive import rehoming
from roost.ledger.schema.tables import events, hosts
from roost.testing.clock import HandClock
from roost.wire.bodies import CreateVMs, ResizeVM
from roost.wire.constraints import ChangeConstraint, CreateConstraint
from roost.wire.plans import CreatePlan
from tests.databases import PostgresServer
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, body_of, digest_of, rig_on
from tests.integration.control.test_dead_hosts import LONG_S, WORD, recovery, switch_off
from tests.integration.control.test_preemption import classes
from tests.turns import draws_in_turn

#: These races are between processes: they do not take turns.
pytestmark = pytest.mark.turns(1)

MOST_ON_A_HOST, MOST_OF_A_PROJECT = 2, 5
RULES = (
    CreateConstraint(name="few", expression=f"host.vms < {MOST_ON_A_HOST}"),
    CreateConstraint(name="small", expression=f"project.vms < {MOST_OF_A_PROJECT}"),
    *(
        CreateConstraint(name=f"not-h{n}", expression=f'host.name != "h{n}"', enabled=False)
        for n in range(4)
    ),
)
Plan = list[tuple[int, str, int]]
plans = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(
            ["create", "queue", "pinned", "batch", "atomic", "delete", "resize", "migrate", "to",
             "drain", "forbid", "allow", "cordon", "uncordon", "follow", "round", "keep",
             "recover", "urgent", "tend", "member", "plan"]
        ),
        st.integers(0, 7),
    ),
    min_size=6,
    max_size=21,
)  # fmt: skip


async def act(rig: Rig, what: str, number: int, at: int) -> None:
    """Do one thing on one process; a refusal is as good as a success."""
    plane, vm, host = rig.plane, f"v{number}", f"h{number % 4}"
    match what:
        case "create":
            await rig.create(vm)
        case "queue":
            await rig.create(vm, on_no_fit="queue")
        case "pinned":
            await rig.create(vm, constraints={"hosts": [host]}, restart="elsewhere")
        case "batch" | "atomic":
            body = CreateVMs(vms=[body_of(f"b{at}-{n}") for n in range(2)], atomic=what == "atomic")
            await plane.admit.create_many(body, OPERATOR, None, digest_of(body))
        case "member":
            await rig.create(f"m{at}", groups=[{"name": "web", "rule": "anti-affinity"}])
        case "plan":
            asked = CreatePlan(goal="drain", hosts=[host], apply=True)
            await plane.plans.create(asked, OPERATOR)
        case "urgent":  # beside another VM there is no room for it
            await rig.create(
                f"u{at}", cpu=8, priority_class="high", on_no_fit="preempt",
                constraints={"hosts": [host]},
            )  # fmt: skip
        case "recover":
            await recovery(rig).vm(f"lost{number % 2}", None, OPERATOR)
        case "delete":
            await plane.vms.delete(vm, None, OPERATOR)
        case "resize":
            await plane.vms.resize(vm, None, ResizeVM(cpu=1 + number % 3), OPERATOR)
        case "migrate":
            await rig.migrate(vm)
        case "to":
            await rig.migrate(vm, host)
        case "drain":
            await plane.hosts.drain(host, OPERATOR)
        case "forbid" | "allow":
            change = ChangeConstraint(enabled=what == "forbid", force=True)
            await plane.constraints.change(f"not-{host}", None, change, ADMIN)
        case "cordon":
            await plane.hosts.cordon(host, OPERATOR)
        case "uncordon":
            await plane.hosts.uncordon(host, OPERATOR)
        case "follow":
            await plane.follower.catch_up()
        case "tend":
            await plane.preempting.look()
        case "keep":
            await plane.run_singletons()


async def broken_laws(rig: Rig) -> list[str]:
    """Return every claim that took something against a hard rule of its time."""
    names = {row["number"]: row["name"] for row in await rig.rows(select(hosts))}
    forbidden: set[str] = set()
    claims: dict[str, dict[str, Any]] = {}
    vms: set[str] = set()
    found = []
    for event in await rig.rows(select(events.c.seq, events.c.changes).order_by(events.c.seq)):
        changes = msgspec.json.decode(event["changes"])
        for vm, row in changes.get("vms", {}).items():
            (vms.add if row is not None else vms.discard)(vm)
        # What a VM had on a host: one that arrives was let in when its move began.
        had = {
            (row["vm"], row["host"]): row["cpu_milli"]
            for row in claims.values()
            if row["kind"] != "hold"
        }
        taken = []
        for claim, row in changes.get("claims", {}).items():
            claims.pop(claim, None)
            if row is None:
                continue
            claims[claim] = row
            # A VM that is recovered has the same claim on another host.
            grown = row["cpu_milli"] > had.get((row["vm"], row["host"]), -1)
            if row["kind"] != "hold" and grown:
                taken.append(row["host"])
        for host in taken:
            on_it = sum(row["host"] == host for row in claims.values())
            if names[host] in forbidden:
                found.append(f"{event['seq']}: {names[host]} is forbidden")
            if on_it > MOST_ON_A_HOST:
                found.append(f"{event['seq']}: {on_it} VMs on {names[host]}")
            if len(vms) > MOST_OF_A_PROJECT:
                found.append(f"{event['seq']}: {len(vms)} VMs of the project")
        for key, rule in changes.get("constraints", {}).items():
            if key.startswith("not-"):
                forbidden.discard(key.removeprefix("not-"))
                if rule is not None and rule["enabled"]:
                    forbidden.add(key.removeprefix("not-"))
    return found


async def lose_host(rig: Rig) -> None:
    """Lose a host for good, with two VMs that stay on it until somebody asks for them."""
    for n in range(4):
        await rig.plane.hosts.cordon(f"h{n}", OPERATOR)
    await rig.host("gone", cpu=8)
    for n in range(2):
        await rig.running(f"lost{n}")
    switch_off(rig, "gone")
    await rig.pass_by(LONG_S)
    await rig.plane.hosts.confirm_dead("gone", WORD, ADMIN)
    for n in range(4):
        await rig.plane.hosts.uncordon(f"h{n}", OPERATOR)
    await rig.plane.follower.catch_up()


async def interleave(url: str, plan: Plan) -> None:
    clock = HandClock()
    async with (
        rig_on(url, clock=clock, name="first") as one,
        rig_on(url, clock=clock, name="second") as two,
    ):
        two.agents = one.agents
        for n in range(4):
            await one.host(f"h{n}", cpu=8)
        await classes(one)
        if any(what == "recover" for _, what, _ in plan):
            await lose_host(one)
        for rule in RULES:
            await one.plane.constraints.create(rule, ADMIN)
        await two.plane.follower.catch_up()
        for start in range(0, len(plan), 3):  # three things at a time, on stale rosters
            some = plan[start : start + 3]
            acts = [
                act((one, two)[which], what, number, start + at)
                for at, (which, what, number) in enumerate(some)
            ]
            told = await asyncio.gather(*acts, return_exceptions=True)
            assert [e for e in told if e is not None and not isinstance(e, RoostError)] == []
            if any(what == "round" for _, what, _ in some):
                await one.one_round()
        assert await broken_laws(one) == []
        await one.settle(keep=True)
        await two.check()
        assert await broken_laws(one) == []


def run_plan(postgres: PostgresServer, plan: Plan) -> None:
    url = postgres.new_database("roost_template")
    asyncio.run(asyncio.wait_for(interleave(url, plan), 120))


@draws_in_turn(5)
@given(plan=plans)
def test_whatever_two_processes_do_no_hard_rule_is_broken(
    postgres: PostgresServer, plan: Plan
) -> None:
    run_plan(postgres, plan)


#: Creates for one host from both sides, and nobody hears of the other.
CROWD: Plan = [(n % 2, "pinned", 4 * n) for n in range(6)]
#: The same on different hosts: only their project is common to them.
SPLIT: Plan = [(n % 2, "pinned", n) for n in range(8)]
#: One side forbids a host, the other does not hear of it and creates there.
UNHEARD: Plan = [(0, "forbid", n) for n in range(3)] + [(1, "create", n) for n in range(3)]

#: One place is left, and both sides recover a VM of the lost host to it.
LAST_PLACE: Plan = [
    *[(0, "cordon", n) for n in (1, 2, 3)],
    *[(0, "pinned", 4), (0, "follow", 0), (1, "follow", 0)],
    *[(0, "recover", 0), (1, "recover", 1)],
]
#: One side forbids a host, the other does not hear of it and recovers a VM to it.
UNHEARD_LOSS: Plan = [*[(0, "cordon", n) for n in (1, 2, 3)], (1, "follow", 0), (1, "follow", 0),
                      (1, "follow", 0), (0, "forbid", 0), (0, "follow", 0), (0, "follow", 0),
                      (1, "recover", 0)]  # fmt: skip
#: Room is made on a host; before the VM arrives one side forbids it, the other does not hear of it.
UNHEARD_ROOM: Plan = [
    *[(1, "keep", 0), (1, "pinned", 0), (1, "follow", 4)],
    *[(1, "follow", 0), (1, "round", 0), (1, "follow", 0)],
    *[(1, "follow", 0), (1, "round", 0), (1, "follow", 0)],
    *[(1, "urgent", 0), (0, "follow", 0), (0, "follow", 0)],
    *[(1, "keep", 0), (0, "round", 0), (0, "follow", 0)],
    *[(1, "follow", 0), (0, "round", 0), (0, "follow", 0)],
    *[(1, "follow", 0), (0, "round", 0), (0, "follow", 0)],
    *[(0, "forbid", 0), (0, "follow", 0), (0, "follow", 0)],
    (1, "tend", 0),
]


#: One side forbids a host, the other does not hear of it and moves a VM there.
UNHEARD_MOVE: Plan = [
    *[(0, "cordon", n) for n in (1, 2, 3)],
    *[(0, "create", 1), (0, "follow", 0), (1, "follow", 0)],
    *[(0, "round", 0), (0, "follow", 0), (1, "follow", 0)],
    *[(0, "round", 0), (0, "follow", 0), (1, "follow", 0)],
    *[(0, "uncordon", 1), (0, "follow", 0), (0, "follow", 0)],
    *[(1, "follow", 0), (1, "follow", 0), (1, "follow", 0)],
    *[(0, "forbid", 1), (0, "follow", 0), (0, "follow", 0)],
    (1, "to", 1),
]
#: A plan empties a host, to the only one that is open; that is forbidden before it begins.
PLANNED: Plan = [
    *UNHEARD_MOVE[:-4],
    *[(1, "plan", 0), (1, "follow", 0), (1, "follow", 0)],
    *[(0, "forbid", 1), (0, "follow", 0), (0, "follow", 0)],
    *[(1, "keep", 0), (0, "keep", 0), (1, "follow", 0)],
    *[(1, "keep", 0), (0, "keep", 0), (1, "round", 0)],
]


def compares_no_hosts(patch: pytest.MonkeyPatch) -> None:
    for module in ("create.committing", "create.placing", "vms.ruling"):
        patch.setattr(f"roost.control.{module}.reads_amounts", lambda *_: False)
    compares_no_projects(patch)  # they would notice that somebody else was there


def compares_no_projects(patch: pytest.MonkeyPatch) -> None:
    for module in ("create.committing", "create.placing", "vms.ruling"):
        patch.setattr(f"roost.control.{module}.reads_project", lambda *_: False)


def compares_no_generation(patch: pytest.MonkeyPatch) -> None:
    propose = committing.propose

    def broken(*given: Any) -> Any:
        made = propose(*given)
        made.constraints = None
        return made

    patch.setattr(committing, "propose", broken)
    compares_no_hosts(patch)


def takes_without_generation(patch: pytest.MonkeyPatch) -> None:
    """Take claims of VMs that exist by whichever rules the process happens to know."""
    take = placing.take

    def broken(tx: Any, *given: Any) -> None:
        take(tx, *given)
        tx.constraints = None

    for module in (rehoming, arriving, moving):
        patch.setattr(module, "take", broken)


@pytest.mark.parametrize(
    ("plan", "mistake", "said"),
    [
        (CROWD, compares_no_hosts, "VMs on h0"),
        (SPLIT, compares_no_projects, "VMs of the project"),
        (UNHEARD, compares_no_generation, "is forbidden"),
        (LAST_PLACE, compares_no_hosts, "VMs on h0"),
        (UNHEARD_LOSS, takes_without_generation, "is forbidden"),
        (UNHEARD_ROOM, takes_without_generation, "is forbidden"),
        (UNHEARD_MOVE, takes_without_generation, "is forbidden"),
    ],
    ids=["hosts", "projects", "generation", "recover", "recover-generation", "preempt", "move"],
)
def test_a_build_that_does_not_compare_what_rules_read_is_found(
    postgres: PostgresServer,
    plan: Plan,
    mistake: Callable[[pytest.MonkeyPatch], None],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match=said):
        run_plan(postgres, plan)


@pytest.mark.parametrize(
    "plan",
    [CROWD, SPLIT, UNHEARD, LAST_PLACE, UNHEARD_LOSS, UNHEARD_ROOM, UNHEARD_MOVE, PLANNED],
    ids=[
        "crowd",
        "split",
        "unheard",
        "last-place",
        "unheard-loss",
        "unheard-room",
        "unheard-move",
        "planned",
    ],
)
def test_the_build_as_it_is_keeps_the_laws_in_those_plans(
    postgres: PostgresServer, plan: Plan
) -> None:
    run_plan(postgres, plan)
