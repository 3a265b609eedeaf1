"""The judge sees what is wrong: each law once on records that keep it, once on some that do not."""

from collections.abc import Callable

import msgspec
import pytest

from tests.campaign.ending import AMOUNTS, Copy, Ending, Row
from tests.campaign.history import Answer, History, Request, load_history
from tests.campaign.laws import violations
from tests.campaign.rest import unrest

Records = tuple[list[Request], Ending]


def asked(what: str, at: float, answer: Answer = "ok", **more: object) -> Request:
    """Return a request that took a tenth of a second."""
    return Request(0, what, at, at + 0.1, answer, **more)  # type: ignore[arg-type]


def create(name: str, at: float, answer: Answer = "ok", **more: object) -> Request:
    """Return a create with its key; one that is answered well is told the id vm-NAME."""
    given: dict[str, object] = {"key": f"key-{name}", "names": [name], "cpu_milli": 1000}
    if answer == "ok":
        given["ids"] = [f"vm-{name}"]
    return asked("create", at, answer, **(given | more))


def vm(name: str, host: str | None, **more: object) -> Row:
    """Return the row of a VM that runs."""
    return {
        "id": f"vm-{name}", "name": name, "project": "default", "host_name": host,
        "cpu_milli": 1000, "memory_bytes": 2, "disk_bytes": 3, "desired": "running",
        "generation": 1, "observed": "running", "observed_generation": 1, "phase": "",
        "pending": None, "spec": "{}",
    } | more  # fmt: skip


def claim(name: str, host: str, kind: str = "run") -> Row:
    """Return the claim of a VM."""
    return {
        "id": f"vm-{name}:{kind}", "vm": f"vm-{name}", "host_name": host, "kind": kind,
        "cpu_milli": 1000, "memory_bytes": 2, "disk_bytes": 3,
    }  # fmt: skip


def host(name: str, vms: int) -> Row:
    """Return a host that has promised room to so many VMs, and has room for three."""
    row: Row = {"name": name, "health": "online", "fenced": None}
    for amount, of_one in zip((*AMOUNTS, "vms"), (1000, 2, 3, 1), strict=True):
        row |= {f"{amount}_capacity": 3 * of_one, f"{amount}_committed": vms * of_one}
    return row


def project(vms: int) -> Row:
    """Return a project that is charged for so many VMs, and may have three."""
    row: Row = {"name": "default"}
    for amount, of_one in zip((*AMOUNTS, "vms"), (1000, 2, 3, 1), strict=True):
        row |= {f"{amount}_quota": 3 * of_one, f"{amount}_used": vms * of_one}
    return row


def records() -> Records:
    """Return records in which all is well: a and b were created, c was deleted."""
    requests = [
        create("a", 1.0, group="apart"),
        create("b", 2.0, "unknown", group="apart"),
        create("b", 2.5, group="apart"),
        create("c", 3.0),
        asked("delete", 4.0, vm="vm-c"),
        asked("read", 5.0, vm="vm-a"),
        asked("list", 6.0, ids=["vm-a", "vm-b"]),
    ]
    ending = Ending(
        hosts=[host("h1", 1), host("h2", 1)],
        vms=[vm("a", "h1"), vm("b", "h2")],
        claims=[claim("a", "h1"), claim("b", "h2")],
        projects=[project(2)],
        events=[{"number": 9, "first": 1, "last": 9, "counter": 9}],
        copies=[Copy("h1", "vm-a", "running", 1000), Copy("h2", "vm-b", "running", 1000)],
        told={"plane": dict.fromkeys(("h1", "h2"), ("online", 1000, 2, 3))},
    )
    return requests, ending


def test_nothing_is_said_where_all_is_well() -> None:
    requests, ending = records()
    assert violations(History(requests), ending) == []
    assert unrest(ending) == []


# What may never be


def lost(requests: list[Request], ending: Ending) -> None:
    """a was accepted as vm-a and is lost"""
    del ending.vms[0], ending.claims[0]
    ending.hosts[0], ending.projects[0] = host("h1", 0), project(1)


def double_by_key(requests: list[Request], ending: Ending) -> None:
    """key-a made a more than once: vm-a, vm-other"""
    requests.append(create("a", 1.5, ids=["vm-other"]))


def double_by_name(requests: list[Request], ending: Ending) -> None:
    """2 VMs are called default/a"""
    ending.vms.append(vm("a", None, id="vm-other"))
    ending.projects[0] = project(3)


def unasked(requests: list[Request], ending: Ending) -> None:
    """z (vm-z) exists, and nobody was promised it"""
    ending.vms.append(vm("z", None))
    ending.projects[0] = project(3)


def refused_and_made(requests: list[Request], ending: Ending) -> None:
    """z (vm-z) exists, and nobody was promised it"""
    requests.append(create("z", 7.0, "refused", code="insufficient_resources"))
    unasked(requests, ending)


def undead(requests: list[Request], ending: Ending) -> None:
    """c (vm-c) was deleted and is there"""
    ending.vms.append(vm("c", None))
    ending.projects[0] = project(3)


def taken_back(requests: list[Request], ending: Ending) -> None:
    """a was accepted as vm-a and refused afterwards: insufficient_resources"""
    requests.append(create("a", 7.0, "refused", code="insufficient_resources"))


def own_name_taken(requests: list[Request], ending: Ending) -> None:
    """key-d stands in its own way: d was refused with a conflict"""
    requests += [create("d", 7.0, "unknown"), create("d", 8.0, "refused", code="conflict")]


def half_a_batch(requests: list[Request], ending: Ending) -> None:
    """of the atomic batch key-a only a exist"""
    requests[0] = asked("batch", 1.0, "unknown", key="key-a", names=["a", "d"], atomic=True)
    requests[0].cpu_milli = 1000


def unseen_by_a_read(requests: list[Request], ending: Ending) -> None:
    """read of vm-a at 7.00 s did not find it"""
    requests.append(asked("read", 7.0, "refused", vm="vm-a", code="not_found"))


def unseen_by_a_list(requests: list[Request], ending: Ending) -> None:
    """the list at 7.00 s lacks vm-b, told at 2.60 s"""
    requests.append(asked("list", 7.0, ids=["vm-a"]))


def broken_server(requests: list[Request], ending: Ending) -> None:
    """stop vm-a at 7.00 s was refused: invariant_broken"""
    requests.append(asked("stop", 7.0, "refused", vm="vm-a", code="invariant_broken"))


def sick_while_it_ran(requests: list[Request], ending: Ending) -> None:
    """at 7.00 s the doctor found claims: one too many"""
    requests.append(asked("doctor", 7.0, ids=["claims: one too many"]))


def forgotten_stop(requests: list[Request], ending: Ending) -> None:
    """a has desired running; ordered last was {'stopped'}"""
    requests.append(asked("stop", 7.0, vm="vm-a"))


def forgotten_size(requests: list[Request], ending: Ending) -> None:
    """a has cpu_milli 1000; ordered last was {2000}"""
    requests.append(asked("resize", 7.0, vm="vm-a", cpu_milli=2000))


def together(requests: list[Request], ending: Ending) -> None:
    """2 members of apart are on h1"""
    ending.vms[1]["host_name"] = ending.claims[1]["host_name"] = "h1"
    ending.hosts = [host("h1", 2), host("h2", 0)]


def leaked_claim(requests: list[Request], ending: Ending) -> None:
    """claim vm-c:run holds room on h1 for nobody"""
    ending.claims.append(claim("c", "h1"))
    ending.hosts[0] = host("h1", 2)


def leaked_room(requests: list[Request], ending: Ending) -> None:
    """h1 has promised 2000 cpu_milli, its claims are 1000"""
    ending.hosts[0] = host("h1", 2)


def no_claim(requests: list[Request], ending: Ending) -> None:
    """b is on h2 without a claim"""
    del ending.claims[1]
    ending.hosts[1] = host("h2", 0)


def over_capacity(requests: list[Request], ending: Ending) -> None:
    """h1 has promised 1000 cpu_milli of 999"""
    ending.hosts[0]["cpu_milli_capacity"] = 999


def wrong_quota(requests: list[Request], ending: Ending) -> None:
    """project default uses 3 vms, its VMs ask for 2"""
    ending.projects[0] = project(3)


def over_quota(requests: list[Request], ending: Ending) -> None:
    """project default has 2 vms of 1"""
    ending.projects[0]["vms_quota"] = 1


def gap(requests: list[Request], ending: Ending) -> None:
    """8 events are numbered 1 to 9"""
    ending.events[0]["number"] = 8


BROKEN = (
    lost, double_by_key, double_by_name, unasked, refused_and_made, undead, taken_back,
    own_name_taken, half_a_batch, unseen_by_a_read, unseen_by_a_list, broken_server,
    sick_while_it_ran, forgotten_stop, forgotten_size, together, leaked_claim, leaked_room,
    no_claim, over_capacity, wrong_quota, over_quota, gap,
)  # fmt: skip


@pytest.mark.parametrize("doctor_it", BROKEN, ids=lambda each: each.__name__)
def test_a_broken_law_is_named(doctor_it: Callable[[list[Request], Ending], None]) -> None:
    requests, ending = records()
    doctor_it(requests, ending)
    found = violations(History(requests), ending)
    assert any(line.startswith(str(doctor_it.__doc__)) for line in found), found


# What has to come to rest


def silent_host(ending: Ending) -> None:
    """h1 is offline, fenced: lease"""
    ending.hosts[0] |= {"health": "offline", "fenced": "lease"}


def plane_with_other_books(ending: Ending) -> None:
    """plane says ('online', 0, 0, 0) of h1, the ledger"""
    ending.told["plane"]["h1"] = ("online", 0, 0, 0)


def never_gone(ending: Ending) -> None:
    """a is never gone"""
    ending.vms[0]["desired"] = "absent"


def endless_move(ending: Ending) -> None:
    """a is moving for ever"""
    ending.vms[0]["phase"] = "moving"


def not_as_wanted(ending: Ending) -> None:
    """a is ('running', 1) and should be ('running', 2)"""
    ending.vms[0]["generation"] = 2


def second_copy(ending: Ending) -> None:
    """a lies on [('h1', 'running', 1000), ('h2', 'stopped', 1000)] and should on"""
    ending.copies.append(Copy("h2", "vm-a", "stopped", 1000))


def elsewhere(ending: Ending) -> None:
    """a lies on [('h2', 'running', 1000)] and should on [('h1', 'running', 1000)]"""
    ending.copies[0] = Copy("h2", "vm-a", "running", 1000)


def nowhere(ending: Ending) -> None:
    """a lies on [] and should on [('h1', 'running', 1000)]"""
    del ending.copies[0]


def other_size(ending: Ending) -> None:
    """a lies on [('h1', 'running', 1500)] and should on"""
    ending.copies[0] = Copy("h1", "vm-a", "running", 1500)


def unknown_copy(ending: Ending) -> None:
    """vm-z lies on [('h1', 'running', 1)] and is in no ledger"""
    ending.copies.append(Copy("h1", "vm-z", "running", 1))


def held_claim(ending: Ending) -> None:
    """claim vm-a:hold is left over on h2"""
    ending.claims.append(claim("a", "h2", "hold"))


def large_claim(ending: Ending) -> None:
    """claim vm-a:run is not as large as its VM"""
    ending.claims[0]["cpu_milli"] = 1500


def grave(ending: Ending) -> None:
    """the tombstone of vm-c on h1 is left over"""
    ending.tombstones.append({"vm": "vm-c", "host_name": "h1"})


def waits_for_nothing(ending: Ending) -> None:
    """w waits, and fits on h1"""
    ending.vms.append(vm("w", None, pending="{}"))


RESTLESS = (
    silent_host, plane_with_other_books, never_gone, endless_move, not_as_wanted, second_copy,
    elsewhere, nowhere, other_size, unknown_copy, held_claim, large_claim, grave, waits_for_nothing,
)  # fmt: skip


@pytest.mark.parametrize("doctor_it", RESTLESS, ids=lambda each: each.__name__)
def test_what_is_not_at_rest_is_named(doctor_it: Callable[[Ending], None]) -> None:
    _, ending = records()
    doctor_it(ending)
    found = unrest(ending)
    assert any(line.startswith(str(doctor_it.__doc__)) for line in found), found


# What is allowed


def test_a_create_in_doubt_may_exist_or_not() -> None:
    requests, ending = records()
    requests += [create("d", 7.0, "unknown"), create("e", 7.0, "unknown")]
    ending.vms.append(vm("d", None, pending="{}"))
    ending.projects[0] = project(3)
    assert violations(History(requests), ending) == []


def test_a_delete_in_doubt_may_be_done_or_not() -> None:
    requests, ending = records()
    requests += [create("d", 6.5), asked("delete", 7.0, "unknown", vm="vm-d")]
    requests.append(asked("delete", 7.0, "unknown", vm="vm-a"))
    requests.append(asked("read", 8.0, "refused", vm="vm-d", code="not_found"))
    assert violations(History(requests), ending) == []


def test_an_order_in_doubt_may_come_after_one_that_was_answered() -> None:
    requests, ending = records()
    requests += [asked("stop", 7.0, "unknown", vm="vm-a"), asked("start", 8.0, vm="vm-a")]
    for desired in ("running", "stopped"):
        ending.vms[0]["desired"] = desired
        assert violations(History(requests), ending) == []


def test_of_two_orders_at_one_time_either_may_be_the_last() -> None:
    requests, ending = records()
    requests += [asked("stop", 7.0, vm="vm-a"), asked("start", 7.05, vm="vm-a")]
    for desired in ("running", "stopped"):
        ending.vms[0]["desired"] = desired
        assert violations(History(requests), ending) == []


def test_a_key_may_be_refused_once_what_it_made_was_deleted() -> None:
    requests, ending = records()
    requests.append(create("c", 7.0, "refused", code="conflict"))
    assert violations(History(requests), ending) == []


def test_a_vm_that_is_stopped_needs_no_copy() -> None:
    _, ending = records()
    ending.vms[0] |= {"desired": "stopped", "observed": "stopped"}
    del ending.copies[0]
    assert unrest(ending) == []


def test_a_vm_may_wait_where_all_room_is_beside_those_it_is_kept_apart_from() -> None:
    _, ending = records()
    member = '{"groups": [{"name": "apart"}]}'
    for row in ending.vms:
        row["spec"] = member
    ending.vms.append(vm("w", None, pending="{}", spec=member))
    assert unrest(ending) == []
    ending.vms[0]["spec"] = "{}"
    assert unrest(ending) == ["w waits, and fits on h1"]


def test_a_history_is_read_as_it_was_written(tmp_path) -> None:
    requests, _ = records()
    History(requests).save(tmp_path / "history.jsonl")
    found = load_history(tmp_path / "history.jsonl").requests
    assert msgspec.json.encode(found) == msgspec.json.encode(requests)
