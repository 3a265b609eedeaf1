"""Every law of the simulated world is seen broken: each gets a story in which somebody breaks it.

The stories are told as the ledger tells them, event by event, or as drivers do, copy by copy. Each
begins with one that every law allows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from msgspec.structs import asdict, replace
from sqlalchemy import Connection, create_engine, insert, select

from roost.agent.drivers.base import LocalVM
from roost.base.units import GIB
from roost.ledger.schema.rows import ClaimRow, Event, GroupRow, HostRow, VMRow
from roost.ledger.schema.tables import (
    claims,
    counters,
    host_amounts,
    hosts,
    metadata,
    projects,
    tombstones,
    vms,
)  # fmt: skip
from roost.ledger.writes.transaction import row_json
from roost.sim.laws.checking import Broken, Laws

CPU, MEMORY = 4000, 16 * GIB


@contextmanager
def breaks(words: str) -> Iterator[None]:
    with pytest.raises(Broken, match=words):
        yield


class Story:
    """Tells the laws what the ledger has written."""

    def __init__(self, hosts: int = 3, now: float = 1000.0) -> None:
        self.now = 0.0
        self.laws = Laws(lambda: self.now)
        self.seq = 0
        for number in range(1, hosts + 1):
            self.laws.add_host(f"h{number}", CPU, MEMORY)
            self.tell("host.registered", **host(number))
        self.now = now

    def tell(self, kind: str, **changes: Any) -> None:
        self.seq += 1
        self.laws.committed([event(self.seq, kind, changes)])

    def create(self, name: str, on: int | None, **more: Any) -> None:
        """Tell of a VM that was created, in groups or not."""
        groups = more.pop("groups", ())
        changes: dict[str, Any] = {"vms": {f"vm-{name}": vm(name, on, **more)}}
        if on is not None:
            changes["claims"] = {f"vm-{name}:run": claim(changes["vms"][f"vm-{name}"], on)}
        changes["members"] = {f"{group}|vm-{name}": {} for group in groups}
        self.tell("vm.created", **changes)

    def group(self, rule: str, **more: Any) -> None:
        self.tell("group.created", groups={"default/g": group(rule, **more)})


def event(seq: int, kind: str, changes: dict[str, Any], subject: str = "") -> Event:
    return Event(
        seq=seq, at_ms=0, actor="test", kind=kind, subject=subject, project=None,
        changes=row_json(changes), note="", tx="",
    )  # fmt: skip


def host_row(number: int, **more: Any) -> HostRow:
    inventory = row_json({"zone": "ab"[number % 2], "rack": f"r{number}"})
    return replace(
        HostRow(
            number=number, name=f"h{number}", inventory=inventory, labels=None, health="online",
            admin="open", instance="", version="", guard_stop_s=None, fenced=None, held="",
            registered_ms=0,
        ),
        **more,
    )  # fmt: skip


def host(number: int, **more: Any) -> dict[str, Any]:
    amounts = {
        "generation": 1, "cpu_milli_capacity": CPU, "memory_bytes_capacity": MEMORY,
        "disk_bytes_capacity": 100 * GIB, "vms_capacity": 3,
    }  # fmt: skip
    return {"hosts": {number: host_row(number, **more)}, "host_amounts": {number: amounts}}


def vm(name: str, on: int | None, **more: Any) -> VMRow:
    row = VMRow(
        id=f"vm-{name}", project="default", name=name, labels="", cpu_milli=1000,
        memory_bytes=GIB, disk_bytes=0, strategy="", priority=0, on_no_fit="fail", restart="here",
        desired="running", generation=1, host=on, created_ms=0,
    )  # fmt: skip
    return replace(row, **more)


def claim(row: VMRow, on: int, kind: str = "run") -> ClaimRow:
    return ClaimRow(
        id=f"{row.id}:{kind}", vm=row.id, host=on, kind=kind, cpu_milli=row.cpu_milli,
        memory_bytes=row.memory_bytes, disk_bytes=row.disk_bytes,
    )  # fmt: skip


def group(rule: str, *, scope: str = "host", hard: bool = True, max_skew: int = 1) -> GroupRow:
    return GroupRow(
        id="default/g", project="default", name="g", rule=rule, scope=scope, hard=hard,
        max_skew=max_skew, weight=50,
    )  # fmt: skip


def copy(name: str, state: str, **more: Any) -> LocalVM:
    given = {"cpu_milli": 1000, "memory_bytes": GIB, **more}
    return LocalVM(id=f"vm-{name}", name=name, state=state, **given)  # type: ignore[arg-type]


# Copies on hosts


def test_a_vm_may_run_after_another_copy_stopped_and_not_beside_it() -> None:
    laws = Story().laws
    laws.vm_changed("h1", "vm-a", copy("a", "running"))
    laws.vm_changed("h1", "vm-a", copy("a", "moved"))
    laws.vm_changed("h2", "vm-a", copy("a", "running", arrived=True))
    with breaks("vm-a runs on h1 and h2"):
        laws.vm_changed("h1", "vm-a", copy("a", "running", arrived=True))


def test_a_guest_that_is_being_sent_still_runs_here() -> None:
    laws = Story().laws
    laws.vm_changed("h1", "vm-a", copy("a", "sending"))
    with breaks("vm-a runs on h1 and h2"):
        laws.vm_changed("h2", "vm-a", copy("a", "running", arrived=True))


@pytest.mark.parametrize(
    ("more", "words"),
    [({"cpu_milli": 3001}, "millicores"), ({"memory_bytes": 16 * GIB}, "bytes of memory")],
    ids=["cpu", "memory"],
)
def test_no_host_runs_more_than_it_has(more: dict[str, int], words: str) -> None:
    laws = Story().laws
    laws.vm_changed("h1", "vm-a", copy("a", "running"))
    laws.vm_changed("h1", "vm-b", copy("b", "stopped", **more))
    with breaks(words):
        laws.vm_changed("h1", "vm-b", copy("b", "starting", **more))


def test_what_runs_on_a_host_is_summed_up_as_copies_come_grow_and_go() -> None:
    story, random = Story(), Random(5)
    laws, here = story.laws, {}
    for turn in range(300):
        name = f"v{random.randrange(6)}"
        new = copy(name, random.choice(("running", "stopped")), cpu_milli=random.randrange(600))
        here[name] = new
        laws.vm_changed("h1", f"vm-{name}", new)
        if turn % 7 == 0:
            laws.vm_changed("h1", f"vm-{name}", copy(name, "lost"))
            del here[name]
    running = sum(each.cpu_milli for each in here.values() if each.state == "running")
    laws.vm_changed("h1", "vm-last", copy("last", "running", cpu_milli=CPU - running))
    with breaks(f"h1 runs {CPU + 1} of {CPU} millicores"):
        laws.vm_changed("h1", "vm-more", copy("more", "running", cpu_milli=1))


def test_a_copy_goes_only_with_a_tombstone_or_a_withdrawal() -> None:
    story = Story()
    story.create("a", 1)
    for name in ("h1", "h2"):
        story.laws.vm_changed(name, "vm-a", copy("a", "stopped"))
    with breaks("vm-a was stopped on h2 and was destroyed without an order"):
        story.laws.vm_changed("h2", "vm-a", None)
    row = vm("a", 1, generation=2, target=3, phase="recalling")
    story.tell("vm.move_recalled", vms={"vm-a": row})
    story.laws.vm_changed("h3", "vm-a", copy("a", "ready"))
    story.laws.vm_changed("h3", "vm-a", None)
    story.tell(
        "vm.delete_asked",
        vms={"vm-a": vm("a", 1, generation=3, desired="absent")},
        tombstones={"vm-a|1": {"vm": "vm-a", "host": 1}},
    )
    story.laws.vm_changed("h1", "vm-a", None)


def test_a_tombstone_is_used_up_when_the_vm_is_wanted_there_again() -> None:
    story = Story()
    story.create("a", 1)
    story.tell("vm.moved", vms={"vm-a": vm("a", 2, generation=2)}, tombstones={"vm-a|1": {}})
    story.tell("vm.moved", vms={"vm-a": vm("a", 1, generation=3)})
    story.laws.vm_changed("h1", "vm-a", copy("a", "stopped"))
    with breaks("destroyed without an order"):
        story.laws.vm_changed("h1", "vm-a", None)


# The ledger


def test_events_have_no_gaps() -> None:
    story = Story()
    story.seq += 1
    with breaks("event 5 follows 3"):
        story.tell("vm.waits")


def test_an_accepted_create_exists_until_its_delete() -> None:
    story = Story()
    story.create("a", 1)
    story.laws.was_accepted("a", "vm-a")
    with breaks("b was accepted as vm-b, and is nowhere"):
        story.laws.was_accepted("b", "vm-b")
    assert story.laws.lost() == "b (vm-b) was accepted and is nowhere"
    gone = {"vms": {"vm-a": None}, "claims": {"vm-a:run": None}}
    with breaks("vm-a is gone by vm.deleted, and nobody deleted it"):
        story.tell("vm.deleted", **gone)
    story.create("b", 1)
    story.laws.deleted.add("vm-b")
    story.tell("vm.deleted", vms={"vm-b": None}, claims={"vm-b:run": None})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cpu_milli": 3001}, "h1 promises 4001 cpu_milli of 4000"),
        ({"memory_bytes": 16 * GIB}, "memory_bytes"),
        ({"disk_bytes": 101 * GIB}, "disk_bytes"),
    ],
    ids=["cpu", "memory", "disk"],
)
def test_no_host_promises_more_than_it_has(more: dict[str, int], words: str) -> None:
    story = Story()
    story.create("a", 1)
    with breaks(words):
        story.create("c", 1, **more)


def test_a_host_promises_to_no_more_vms_than_it_takes() -> None:
    story = Story()
    for name in "abc":
        story.create(name, 1)
    with breaks("h1 promises 4 vms of 3"):
        story.create("d", 1)


def test_both_hosts_of_a_move_have_promised() -> None:
    story = Story()
    story.create("a", 1, cpu_milli=3000)
    story.create("b", 2, cpu_milli=3000)
    moving = vm("a", 1, cpu_milli=3000, target=2, phase="preparing", generation=2)
    with breaks("h2 promises 6000 cpu_milli of 4000"):
        story.tell(
            "vm.move_begun",
            vms={"vm-a": moving},
            claims={"vm-a:migrate_in": claim(moving, 2, "migrate_in")},
        )


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"health": "offline"}, "which is offline"),
        ({"admin": "cordoned"}, "cordoned"),
        ({"admin": "draining"}, "draining"),
        ({"fenced": "lease", "health": "offline"}, "which is fenced"),
    ],
    ids=["offline", "cordoned", "draining", "fenced"],
)
def test_a_vm_is_placed_only_on_a_host_that_takes_vms(state: dict[str, str], words: str) -> None:
    story = Story()
    story.create("a", 1)
    story.tell("host.changed", **host(1, **state))
    story.tell("vm.running", vms={"vm-a": vm("a", 1, observed="running")})  # it was there before
    with breaks(words):
        story.create("b", 1)


def test_constraints_hold_wherever_a_vm_goes() -> None:
    for asked, words in (
        ({"zones": ["a"]}, "which it does not allow"),
        ({"racks": ["r2"]}, "which it does not allow"),
        ({"hosts": ["h2"]}, "which it does not allow"),
        ({"not_hosts": ["h1", "h3"]}, "which it does not allow"),
    ):
        text = row_json({"demand": {"cpu_milli": 1000}, "constraints": asked})
        story = Story()
        story.tell("vm.specified", vm_specs={"vm-a|1": {"spec": text}})
        story.create("a", 2)
        with breaks(words):
            story.tell("vm.recovered", vms={"vm-a": vm("a", 3, generation=2)})


def test_a_generation_never_goes_back() -> None:
    story = Story()
    story.create("a", 1)
    story.tell("vm.resized", vms={"vm-a": vm("a", 1, generation=3)})
    with breaks("generation of vm-a went back from 3 to 2"):
        story.tell("vm.stopped", vms={"vm-a": vm("a", 1, generation=2)})


# Hard rules


def test_members_of_an_anti_affinity_group_never_share_a_host() -> None:
    story = Story()
    story.group("anti-affinity")
    story.create("a", 1, groups=["default/g"])
    story.create("b", 2, groups=["default/g"])
    with breaks("two members of default/g are in the host h1"):
        story.tell("vm.moved", vms={"vm-b": vm("b", 1, generation=2)})


def test_the_target_of_a_move_counts_for_a_rule_as_its_source_does() -> None:
    story = Story()
    story.group("anti-affinity")
    story.create("a", 1, groups=["default/g"])
    story.tell("vm.move_begun", vms={"vm-a": vm("a", 1, target=2, phase="preparing", generation=2)})
    with breaks("two members of default/g"):
        story.create("b", 2, groups=["default/g"])


def test_a_soft_rule_and_a_rule_that_came_later_are_not_broken() -> None:
    story = Story()
    story.group("anti-affinity", hard=False)
    story.create("a", 1, groups=["default/g"])
    story.create("b", 1, groups=["default/g"])
    story.tell(
        "group.created",
        groups={"default/~l": replace(group("anti-affinity"), id="default/~l", selector="{}")},
        members={"default/~l|vm-a": {}, "default/~l|vm-b": {}},
    )
    with breaks("two members of default/~l"):
        story.create("c", 1, groups=["default/~l"])


def test_a_member_that_joins_and_a_rule_that_is_set_obey_at_once() -> None:
    story = Story()
    story.group("anti-affinity")
    story.create("a", 1, groups=["default/g"])
    story.create("b", 1)
    story.create("c", 2)
    story.tell("group.joined", members={"default/g|vm-c": {}})
    with breaks("two members of default/g are in the host h1"):
        story.tell("group.joined", members={"default/g|vm-b": {}})
    story = Story()
    story.group("affinity")
    story.create("a", 1, groups=["default/g"])
    story.create("b", 1, groups=["default/g"])
    story.tell("group.rule_set", groups={"default/g": group("anti-affinity", hard=False)})
    with breaks("two members of default/g are in the host h1"):
        story.tell("group.rule_set", groups={"default/g": group("anti-affinity")})


def test_a_group_that_is_gone_has_no_members() -> None:
    story = Story()
    story.group("anti-affinity")
    story.create("a", 1, groups=["default/g"])
    with breaks("default/g is gone by group.deleted and still has 1 members"):
        story.tell("group.deleted", groups={"default/g": None})


def test_rules_about_zones_look_at_zones() -> None:
    story = Story()
    story.group("anti-affinity", scope="zone")
    story.create("a", 1, groups=["default/g"])
    with breaks("in the zone b"):
        story.create("b", 3, groups=["default/g"])


def test_members_of_an_affinity_group_stay_together() -> None:
    story = Story()
    story.group("affinity")
    story.create("a", 1, groups=["default/g"])
    story.create("b", 1, groups=["default/g"])
    with breaks("c of default/g is in the host h2, alone"):
        story.create("c", 2, groups=["default/g"])


def test_a_spread_is_even_where_the_fleet_has_long_been_as_it_is() -> None:
    story = Story()
    story.group("spread", scope="zone")
    story.create("a", 1, groups=["default/g"])
    with breaks("default/g is uneven: b went to the zone b"):
        story.create("b", 3, groups=["default/g"])
    hasty = Story(now=5.0)
    hasty.group("spread", scope="zone")
    for name in "ab":
        hasty.create(name, 3, groups=["default/g"])


# Quotas


def test_a_project_never_grows_beyond_its_quota() -> None:
    story = Story()
    story.tell("project.quota", projects={"default": {"cpu_milli_quota": 2500, "vms_quota": 9}})
    story.create("a", 1)
    story.create("b", None)
    with breaks("project 'default' grew to 3000 cpu_milli of 2500 by c"):
        story.create("c", 2)


def test_growth_in_place_and_numbers_count_for_a_quota_too() -> None:
    story = Story()
    story.tell("project.quota", projects={"default": {"cpu_milli_quota": 1500, "vms_quota": 1}})
    story.create("a", 1)
    with breaks("2000 cpu_milli of 1500"):
        story.tell("vm.resized", vms={"vm-a": vm("a", 1, cpu_milli=2000, generation=2)})
    story = Story()
    story.tell("project.quota", projects={"default": {"vms_quota": 1}})
    story.create("a", 1)
    with breaks("grew to 2 vms of 1"):
        story.create("b", 1)


def test_a_quota_that_was_lowered_below_use_forbids_only_growth() -> None:
    story = Story()
    story.create("a", 1)
    story.create("b", 2)
    story.tell("project.quota", projects={"default": {"cpu_milli_quota": 500}})
    story.tell("vm.running", vms={"vm-a": vm("a", 1, observed="running")})
    story.tell("vm.resized", vms={"vm-a": vm("a", 1, cpu_milli=900, generation=2)})
    with breaks("grew to 1901 cpu_milli of 500"):
        story.tell("vm.resized", vms={"vm-a": vm("a", 1, cpu_milli=901, generation=3)})


def test_no_vm_is_in_a_project_that_does_not_exist() -> None:
    with breaks("'nowhere', which does not exist"):
        Story().create("a", 1, project="nowhere")


# The ledger's own sums, and its rows


@contextmanager
def ledger(story: Story, rows: list[VMRow]) -> Iterator[Connection]:
    """Give a connection to a ledger with these VMs."""
    engine = create_engine("sqlite://")
    try:
        with engine.connect() as connection:
            metadata.create_all(connection)
            fill(connection, story, rows)
            yield connection
    finally:
        engine.dispose()


def fill(connection: Connection, story: Story, rows: list[VMRow]) -> None:
    for number in range(1, 4):
        connection.execute(insert(hosts), asdict(host_row(number)))
        amounts = host(number)["host_amounts"][number]
        sums = dict.fromkeys(("cpu_milli", "memory_bytes", "disk_bytes", "vms"), 0)
        for row in rows:
            if row.host == number:
                sums["cpu_milli"] += row.cpu_milli
                sums["memory_bytes"] += row.memory_bytes
                sums["vms"] += 1
        committed = {f"{name}_committed": value for name, value in sums.items()}
        connection.execute(insert(host_amounts), {"host": number, **amounts, **committed})
    for row in rows:
        connection.execute(insert(vms), asdict(row))
        assert row.host is not None
        connection.execute(insert(claims), asdict(claim(row, row.host)))
    used = {
        "cpu_milli_used": sum(row.cpu_milli for row in rows),
        "memory_bytes_used": sum(row.memory_bytes for row in rows),
        "disk_bytes_used": 0,
        "vms_used": len(rows),
    }
    connection.execute(insert(projects), {"name": "default", **used})
    connection.execute(insert(counters), {"name": "events", "value": story.seq})


def test_sums_that_the_ledger_keeps_are_those_of_its_rows() -> None:
    story = Story()
    story.create("a", 1)
    assert story.laws.books.has_sums_to_compare
    with ledger(story, [vm("a", 1)]) as connection:
        story.laws.books.compare_sums(connection)
    assert not story.laws.books.has_sums_to_compare


def test_a_host_that_has_forgotten_a_promise_is_found() -> None:
    story = Story()
    story.create("a", 1)
    with ledger(story, [vm("a", 1)]) as connection:
        connection.execute(host_amounts.update().values(cpu_milli_committed=0))
        with breaks("host h1 promised 0 cpu_milli, and its rows 1000"):
            story.laws.books.compare_sums(connection)


def test_a_project_that_has_counted_wrong_is_found() -> None:
    story = Story()
    story.create("a", 1)
    with ledger(story, [vm("a", 1)]) as connection:
        connection.execute(projects.update().values(vms_used=2))
        with breaks("project default used 2 vms, and its rows 1"):
            story.laws.books.compare_sums(connection)


def test_after_a_restore_only_what_changed_since_the_copy_is_adrift() -> None:
    story = Story()
    story.create("old", 1)
    story.create("moved", 2)
    with ledger(story, [vm("old", 1), vm("moved", 2)]) as connection:
        story.tell("vm.moved", vms={"vm-moved": vm("moved", 3, generation=2)})
        story.create("new", 2)
        story.laws.was_accepted("new", "vm-new")
        story.laws.restored(connection)
        head = connection.execute(select(counters.c.value)).scalar_one()
        assert connection.execute(select(tombstones)).all() == []
    laws, story.seq = story.laws, head
    assert laws.adrift == {"vm-moved", "vm-new"}
    assert laws.lost() == ""
    story.tell("vm.running", vms={"vm-old": vm("old", 1, observed="running")})
    laws.vm_changed("h1", "vm-old", copy("old", "stopped"))
    laws.vm_changed("h2", "vm-new", copy("new", "stopped"))
    with breaks("vm-new was stopped on h2 and was destroyed without an order"):
        laws.vm_changed("h2", "vm-new", None)
    with breaks("h1 promises 4001 cpu_milli of 4000"):
        story.create("large", 1, cpu_milli=3001)


# The end


def test_at_the_end_hosts_take_part_and_no_copy_is_astray() -> None:
    story = Story()
    story.create("a", 1)
    story.laws.vm_changed("h1", "vm-a", copy("a", "running"))
    assert (story.laws.missing_hosts(), story.laws.strays()) == ("", "")
    story.laws.vm_changed("h2", "vm-b", copy("b", "stopped"))
    assert story.laws.strays() == "vm-b lies on ['h2'] and is in no ledger"
    story.tell("host.offline", **host(3, health="offline"))
    assert story.laws.missing_hosts() == "h3 is offline"
    story.laws.add_host("h9", CPU, MEMORY)
    story.tell("host.online", **host(3))
    assert story.laws.missing_hosts() == "h9 is not registered"
