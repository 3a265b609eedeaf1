"""The laws of moves, on the table of the move machine alone; and broken tables that break them."""

from collections.abc import Callable
from typing import get_args

import pytest

from roost.control.moves import machine
from roost.control.moves.machine import (
    CASES,
    OUTCOMES,
    PARTS,
    PHASES,
    TABLE,
    Abandon,
    Begin,
    Cancel,
    Case,
    Complete,
    Delete,
    DestroyCopies,
    GiveUpBoth,
    GoBack,
    Input,
    Late,
    NoteSent,
    Outcome,
    Recover,
    Refuse,
    Restored,
    SourceFenced,
    Swallow,
    TargetLost,
    case_of,
    orders,
    step,
)
from roost.model.flow import Move, Report
from roost.model.states import FailureClass, MoveMode, Phase, Seen
from tests.unit.control.moveworld import BEGUN, Broken, Fault, Walk

Patch = pytest.MonkeyPatch
FAULTS: tuple[Fault, ...] = get_args(Fault)
MODES: tuple[MoveMode, ...] = get_args(MoveMode)
FAILURES: tuple[FailureClass | None, ...] = (None, *get_args(FailureClass))
GENERATION = 9


def moved(phase: Phase, mode: MoveMode = "live") -> Move:
    return Move("vm", 1, 2, phase, mode, begun=BEGUN, generation=GENERATION)


def reports() -> list[Report]:
    return [
        Report(generation, seen, "code", "message", failure)
        for generation in (BEGUN - 1, BEGUN, GENERATION - 1, GENERATION)
        for seen in get_args(Seen)
        for failure in FAILURES
    ]


def inputs() -> list[Input]:
    found: list[Input] = [Begin(), Late("late"), Cancel("cancelled"), Restored()]
    found += [Delete(), Recover()]
    found += [TargetLost(fenced) for fenced in (None, "lease", "command", "operator", "removed")]
    found += [SourceFenced(fenced) for fenced in (None, "lease", "operator", "removed")]
    found += [machine.Seen(side, each) for side in ("source", "target") for each in reports()]
    return found


# The table


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase or "at rest")
@pytest.mark.parametrize("case", CASES)
def test_every_cell_says_what_follows(case: Case, phase: Phase) -> None:
    for kind in TABLE[case, phase]:
        assert kind in OUTCOMES or kind in (Refuse, Swallow)


def test_every_input_has_its_row_in_every_phase_and_every_row_is_reached() -> None:
    found = {
        case_of(moved(phase, mode), happened)
        for phase in PHASES
        for mode in MODES
        for happened in inputs()
        if step(moved(phase, mode), happened) is not None
    }
    assert found == set(CASES)


def test_every_phase_is_left_in_the_end() -> None:
    left = {phase for (_, phase), cell in TABLE.items() if any(kind in OUTCOMES for kind in cell)}
    assert left == set(PHASES)


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase or "at rest")
def test_at_most_one_host_is_told_to_run_a_vm(phase: Phase) -> None:
    told = [order.part for order in orders(moved(phase)).values()]
    assert told.count("run") <= 1
    assert len(told) == (1 if phase == "" else 2)


@pytest.mark.parametrize("kind", OUTCOMES, ids=lambda kind: kind.__name__)
def test_no_step_destroys_the_copy_at_home(kind: type[machine.Step]) -> None:
    outcome = OUTCOMES[kind]
    assert outcome.home is None or outcome.home not in (
        *outcome.destroys, outcome.holds, outcome.releases,
    )  # fmt: skip
    if outcome.phase:
        assert outcome == Outcome(outcome.phase, outcome.event)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_report_from_before_the_move_changes_nothing(side: machine.Side) -> None:
    for report in reports():
        for phase in PHASES:
            if report.generation < BEGUN:
                assert step(moved(phase), machine.Seen(side, report)) == ()


def test_only_the_targets_own_word_makes_it_the_home() -> None:
    for (case, _), cell in TABLE.items():
        assert Complete not in cell or case == "target arrived"


def test_a_move_is_never_taken_back_without_a_reason() -> None:
    silent = [each._replace(code="", message="") for each in reports()]
    heard = [machine.Seen(side, each) for side in ("source", "target") for each in silent]
    for happened in (*inputs(), *heard):
        for phase in PHASES:
            for mode in MODES:
                for effect in step(moved(phase, mode), happened):
                    assert getattr(effect, "why", "none").strip(" :"), (phase, happened, effect)


# Every history of a move


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_history_keeps_the_laws_and_ends_when(fault: Fault, mode: MoveMode) -> None:
    walk = Walk(frozenset({fault}), mode)
    walk.run()
    assert any(world.at_rest and world.home == "target" for world in walk.worlds)


# Broken tables

BROKEN: dict[str, tuple[frozenset[Fault], Callable[[Patch], None]]] = {}


def broken(*faults: Fault) -> Callable[[Callable[[Patch], None]], None]:
    def add(breaks: Callable[[Patch], None]) -> None:
        assert breaks.__doc__
        BROKEN[breaks.__doc__] = (frozenset(faults), breaks)

    return add


@broken("copy lost")
def _(patch: Patch) -> None:
    """the ledger switches on the source's word"""
    patch.setitem(TABLE, ("source moved", "moving"), (Complete,))


@broken("cancel")
def _(patch: Patch) -> None:
    """a cancelled move is over without asking the source"""
    patch.setitem(TABLE, ("cancelled", "moving"), (Abandon,))


@broken("late")
def _(patch: Patch) -> None:
    """a late move is over without asking the target"""
    patch.setitem(TABLE, ("late", "landing"), (GoBack,))


@broken("stuck")
def _(patch: Patch) -> None:
    """the source goes on when it cannot tell"""
    patch.setitem(TABLE, ("source stuck", "moving"), (Abandon,))


@broken("copy lost")
def _(patch: Patch) -> None:
    """nobody asks for what was lost on its way"""
    patch.setitem(TABLE, ("target failed for good", "landing"), ())


@broken("cancel")
def _(patch: Patch) -> None:
    """what has arrived although it was cancelled is forgotten"""
    for phase in ("cancelling", "recalling"):
        patch.setitem(TABLE, ("target arrived", phase), ())


@broken("source fenced")
def _(patch: Patch) -> None:
    """nobody asks the target when the source is fenced"""
    for phase in PHASES:
        patch.setitem(TABLE, ("source fenced", phase), ())


@broken("target fenced")
def _(patch: Patch) -> None:
    """a fenced target is waited for"""
    for phase in PHASES:
        patch.setitem(TABLE, ("target fenced", phase), ())


@broken("cancel")
def _(patch: Patch) -> None:
    """a VM that has arrived is called back"""
    patch.setitem(OUTCOMES, Complete, Outcome("", "vm.moved", home="source", destroys=("target",)))


@broken("late")
def _(patch: Patch) -> None:
    """both hosts are told to run it while the target is asked"""
    patch.setitem(PARTS, "recalling", ("run", "withdrawn"))


@broken("cancel")
def _(patch: Patch) -> None:
    """words of an earlier move count"""

    def every_word(move: Move, report: Report) -> Case:
        return real(move, Report(move.generation, *report[1:]))

    real = machine._target_case
    patch.setattr(machine, "_target_case", every_word)


@broken("cancel")
def _(patch: Patch) -> None:
    """a move is taken for sent before it can have been"""
    patch.setitem(TABLE, ("old report", "moving"), (NoteSent,))
    patch.setitem(TABLE, ("target failed for good", "landing"), (GoBack,))


@broken("recovered")
def _(patch: Patch) -> None:
    """a VM that was sent is recovered before its target is asked"""
    for phase in ("moving", "landing", "cancelling", "recalling"):
        patch.setitem(TABLE, ("recovered", phase), (GiveUpBoth,))


@broken("recovered")
def _(patch: Patch) -> None:
    """a recovery in the middle of a move leaves what the target has made ready"""
    patch.setitem(OUTCOMES, GiveUpBoth, Outcome("", "vm.recovered", None, destroys=("source",)))


@broken("deleted")
def _(patch: Patch) -> None:
    """a deletion leaves the copy at the target"""
    patch.setitem(
        OUTCOMES, DestroyCopies, Outcome("", "vm.delete_asked", None, destroys=("source",))
    )


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_a_broken_table_breaks_a_law(
    case: tuple[frozenset[Fault], Callable[[Patch], None]], monkeypatch: Patch
) -> None:
    faults, breaks = case
    breaks(monkeypatch)
    with pytest.raises(Broken):
        Walk(faults).run()
