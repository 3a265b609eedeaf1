"""The laws of plans, each on rows that keep it and on rows that break it."""

import pytest

from roost.sim.laws.planned import Plan, PlanMove, PlannedMoves

ASKED = '{"per_host": 1, "at_once": 2}'
RUNS = Plan("running", ASKED)


def move(number: int, state: str, *, wave: int = 1, source: int = 0, target: int = 0) -> PlanMove:
    """Return a move from and to hosts of its own, unless they are given."""
    hosts = source or 10 * number, target or 10 * number + 1
    return PlanMove("p", number, wave, f"vm{number}", *hosts, state)


def told(laws: PlannedMoves, plan: Plan, *moves: PlanMove) -> str:
    """Commit what a plan and its moves are now; return what is wrong with it."""
    wrong = laws.apply({"p": plan}, {f"p|{each.number}": each for each in moves})
    return wrong or laws.check(
        {each.vm: ("preparing", each.target) for each in moves if each.state == "running"}
    )


def test_a_plan_that_goes_as_it_should_breaks_nothing() -> None:
    laws = PlannedMoves()
    assert told(laws, Plan("waiting", ASKED), move(1, "planned"), move(2, "planned", wave=2)) == ""
    assert told(laws, RUNS, move(1, "running")) == ""
    assert told(laws, RUNS, move(1, "done")) == ""
    assert told(laws, RUNS, move(2, "running", wave=2)) == ""
    assert laws.unended(0).startswith("p is running for ever")
    assert told(laws, Plan("done", ASKED), move(2, "done", wave=2)) == ""
    assert laws.unended(0) == ""


@pytest.mark.parametrize(
    ("plan", "moves", "words"),
    [
        (Plan("waiting", ASKED), [move(1, "running")], "though its plan is waiting"),
        (RUNS, [move(1, "planned"), move(2, "running", wave=2)], "before an earlier one was over"),
        (RUNS, [move(n, "running") for n in range(1, 4)], "beside 2 others"),
        (RUNS, [move(n, "running", source=7) for n in (1, 2)], "1 of them on its hosts"),
        (Plan("failed", ASKED), [move(1, "planned")], "has moves that wait"),
    ],
    ids=["not running", "next wave", "too many", "too many on a host", "left waiting"],
)
def test_rows_that_break_a_law_are_found(plan: Plan, moves: list[PlanMove], words: str) -> None:
    assert words in told(PlannedMoves(), plan, *moves)


def test_a_move_begins_with_its_vm() -> None:
    laws = PlannedMoves()
    assert laws.apply({"p": RUNS}, {"p|1": move(1, "running")}) == ""
    assert laws.check({"vm1": ("preparing", 99)}).startswith("move 1 of p has begun and vm1 is")


def test_what_is_over_stays_over_and_one_runs_at_a_time() -> None:
    laws = PlannedMoves()
    assert told(laws, Plan("cancelled", ASKED)) == ""
    assert told(laws, RUNS) == "p was cancelled and is running"
    laws = PlannedMoves()
    assert laws.apply({"p": RUNS, "q": RUNS}, {}) == ""
    assert laws.check({}) == "plans p and q run at once"


@pytest.mark.parametrize(("lost", "counts"), [("target", False), ("source", True)])
def test_a_move_to_a_lost_host_counts_no_more_and_one_from_it_does(lost: str, counts: bool) -> None:
    laws = PlannedMoves()
    first = move(1, "running", source=7, target=8)
    assert told(laws, RUNS, first) == ""
    laws.host_lost(8 if lost == "target" else 7)
    second = move(2, "running", source=7, target=9)
    assert bool(told(laws, RUNS, first, second)) is counts


@pytest.mark.parametrize(
    ("plan", "moves", "ends"),
    [
        (Plan("waiting", ASKED, 5_000), [], True),  # it begins later
        (Plan("waiting", ASKED, 500), [], False),
        (RUNS, [], False),
        (Plan("failed", ASKED), [move(1, "running")], False),
        (Plan("draft", ASKED), [move(1, "planned")], True),  # nobody has applied it
    ],
)
def test_every_plan_that_was_applied_ends(plan: Plan, moves: list[PlanMove], ends: bool) -> None:
    laws = PlannedMoves()
    laws.apply({"p": plan}, {f"p|{each.number}": each for each in moves})
    assert (laws.unended(1_000) == "") is ends


@pytest.mark.parametrize(("state", "keeps"), [("planned", True), ("done", False)])
def test_room_is_held_for_moves_that_wait_alone(state: str, keeps: bool) -> None:
    laws = PlannedMoves()
    told(laws, RUNS, move(1, state))
    assert (laws.held_for_nobody(["plan:vm1/p/00001"]) == "") is keeps
    assert "which does not wait" in laws.held_for_nobody(["plan:vm2/p/00002"])
