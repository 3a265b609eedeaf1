"""An old database is put back, or the power fails under it: nothing runs twice, nothing is lost."""

from pathlib import Path
from random import Random

import pytest

from roost.control.agents import intake
from roost.control.memory.restore_detect import Lineage
from roost.sim.actors.database import Disk
from roost.sim.histories.history import Action, History
from roost.sim.world import run_history

ELSEWHERE = {"cpu": 1, "restart": "elsewhere"}
COPY = Action(5.0, "backup_database")


def put_back(at: float, for_s: float = 2.0) -> Action:
    return Action(at, "restore_database", "", {"for": for_s})


#: What happened between a copy and its return, and what users do then.
HISTORIES = {
    "recovered, and its old host comes back": [
        Action(0.0, "create", "vm0", ELSEWHERE),
        COPY,
        Action(6.0, "power_off", "source of vm0", {"for": 60.0}),
        put_back(45.0),
        Action(90.0, "stop", "vm0"),
        Action(95.0, "start", "vm0"),
    ],
    "moved, and changed again and again": [
        Action(0.0, "create", "vm0", {"cpu": 1}),
        COPY,
        Action(6.0, "migrate", "vm0"),
        put_back(30.0),
        *(Action(40.0 + n, "resize", "vm0", {"cpu": 1 + n % 2}) for n in range(8)),
        Action(60.0, "stop", "vm0"),
        Action(62.0, "start", "vm0"),
    ],
    "placed after it had waited": [
        *(Action(0.0, "create", f"big{n}", {"cpu": 4}) for n in range(3)),
        Action(3.0, "create", "vm0", {"cpu": 4, "queue": True}),
        COPY,
        Action(6.0, "delete", "big0"),
        put_back(30.0),
        Action(31.0, "delete", "big1"),
    ],
}


def world(actions: list[Action], **given: int) -> History:
    return History(1, hosts=3, planes=given.get("planes", 1), calm_s=240.0, actions=actions)


@pytest.mark.parametrize("planes", [1, 2])
@pytest.mark.parametrize("name", HISTORIES)
def test_no_vm_runs_twice_that_was(name: str, planes: int) -> None:
    verdict = run_history(world(HISTORIES[name], planes=planes))
    assert verdict.broken == ""
    assert verdict.coverage["fault.restore_database"] == 1
    assert verdict.coverage["commit.ledger.restored"] >= 1
    assert verdict.coverage["commit.vm.adopted"] == 1


@pytest.mark.parametrize("name", HISTORIES)
def test_without_its_lineage_a_restored_ledger_starts_a_second_copy_of_what_was(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hear(self: Lineage, hello: object) -> None:
        return None

    def believe(self: Lineage, sure: bool) -> None:
        return None

    monkeypatch.setattr(Lineage, "hear", hear)
    monkeypatch.setattr(Lineage, "sure", property(lambda self: True, believe), raising=False)
    monkeypatch.setattr(intake, "doubt_all", lambda tx, note: None)
    verdict = run_history(world(HISTORIES[name]))
    assert " runs on " in verdict.broken


def test_what_was_created_since_the_copy_runs_on() -> None:
    made = Action(6.0, "create", "vm0", {"cpu": 1})
    verdict = run_history(
        world([COPY, made, put_back(30.0), Action(60.0, "create", "vm0", {"cpu": 1})])
    )
    assert verdict.broken == ""
    assert verdict.coverage["commit.vm.created"] == 2


def test_what_was_deleted_since_the_copy_has_no_host_until_somebody_asks() -> None:
    history = [
        Action(0.0, "create", "vm0", {"cpu": 1}),
        COPY,
        Action(6.0, "delete", "vm0"),
        put_back(30.0),
        Action(70.0, "start", "vm0"),
    ]
    verdict = run_history(world(history))
    assert verdict.broken == ""
    assert verdict.coverage["commit.vm.vanished"] == 1
    assert verdict.coverage["commit.vm.placed"] == 1


def test_a_copy_that_is_put_back_twice_is_set_right_twice() -> None:
    history = [
        Action(0.0, "create", "vm0", ELSEWHERE),
        COPY,
        Action(6.0, "migrate", "vm0"),
        put_back(30.0),
        Action(60.0, "migrate", "vm0"),
        put_back(90.0),
    ]
    verdict = run_history(world(history, planes=2))
    assert verdict.broken == ""
    assert verdict.coverage["fault.restore_database"] == 2


def test_a_power_loss_in_a_commit_loses_nothing_that_was_promised() -> None:
    history = [
        *(
            Action(2.0 + 10.0 * n, "power_loss", "", {"commits": n % 4, "for": 1.0})
            for n in range(8)
        ),
        *(Action(3.0 + 5.0 * n, "create", f"vm{n}", {"cpu": 1, "queue": True}) for n in range(14)),
    ]
    verdict = run_history(world(history, planes=2))
    assert verdict.broken == ""
    assert verdict.coverage["fault.power_loss"] == 8
    assert "commit.ledger.restored" not in verdict.coverage


def test_a_torn_disk_lies_between_before_and_after(tmp_path: Path) -> None:
    random = Random(7)
    before, after = Disk(b"same", b"aaaa"), Disk(b"same", b"aabbcc")
    for _ in range(50):
        torn = before.torn(after, random)
        assert torn.whole == b"same"
        assert torn.ahead[:2] == b"aa"
        assert 4 <= len(torn.ahead) <= 6
    moved_on = before.torn(Disk(b"else", b"aabbcc"), random)
    assert moved_on.ahead == b"aabbcc"  # all of it was there before the file was touched
    moved_on.write(tmp_path / "db")
    assert Disk.read(tmp_path / "db").ahead == b"aabbcc"


def test_a_disk_that_forgets_what_it_promised_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(self: Disk, after: Disk, random: Random) -> Disk:
        return Disk(self.whole, self.ahead[: len(self.ahead) // 2])

    monkeypatch.setattr(Disk, "torn", forgets)
    history = [
        Action(0.0, "create", "vm0", {"cpu": 1}),
        Action(5.0, "power_loss", "", {"commits": 1, "for": 1.0}),
    ]
    assert "were promised" in run_history(world(history)).broken
