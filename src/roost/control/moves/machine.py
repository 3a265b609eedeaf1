"""The moves of VMs, pure: what has happened to one -> what follows, as typed effects.

    ''  --migrate-->  preparing  --target: ready-->  moving  --source: moved-->  landing
    moving, landing, cancelling, recalling  --target: arrived-->  '' at the target
    preparing  --target: failed-->  '' at the source
    moving  --cancelled, late-->  cancelling  --source: has it-->  '' at the source
    moving, cancelling, landing  --unclear-->  recalling  --target: absent-->  '' at the source
    any  --deleted-->  '' nowhere        '', preparing  --source fenced, recovered-->  '' elsewhere

`TABLE` says it all: a row for each thing that can happen, a column for each phase. `case_of` finds
the row, `step` reads the cell. `OUTCOMES` says what each effect makes of the move, its claims and
its copies, and `PARTS` what both hosts are told in each phase. Reports come in through
`agents/intake.py`, time limits and lost targets through `limits.py`, cancels through `moving.py`,
fenced sources and recoveries through `survive/recover.py`, deletions through `vms/lifecycle.py`;
`handover.py` carries the effects out. Only `survive/restore_apply.py` writes a move without a step:
it puts hosts' copies in the place of a ledger that is too old to be asked. This module never looks
anywhere and never remembers.

A VM changes its home only when the target says that it has arrived: until then the source keeps
what it sent, and after that it never goes on by itself. Before the switch-over the source decides
whether the VM stays, afterwards the target does; nobody guesses. Both hosts are charged until both
have reported: the target by `migrate_in` from the beginning, the one that loses the VM by a `hold`
until it says that its copy is gone. So at most one copy executes at every instant, whoever dies
when, and exactly one in the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, assert_never, get_args

from roost.model.flow import Move, Order, Report
from roost.model.states import FenceMethod, KeptRestart, Part, Phase

Side = Literal["source", "target"]
PHASES: tuple[Phase, ...] = get_args(Phase)

#: How a host is known to execute nothing: it was fenced, or it was taken out of the fleet.
Proof = FenceMethod | Literal["removed"]

# What can happen to a move


@dataclass(frozen=True, slots=True)
class Begin:
    """A user or a drain begins the move."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The source or the target has reported on its copy."""

    side: Side
    report: Report


@dataclass(frozen=True, slots=True)
class Late:
    """The move has been in its phase for longer than its limit."""

    why: str


@dataclass(frozen=True, slots=True)
class TargetLost:
    """The target is offline; fenced in this way, if it is."""

    fenced: Proof | None


@dataclass(frozen=True, slots=True)
class SourceFenced:
    """The source is fenced; and the target in this way, if it is."""

    target: Proof | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """A user cancels the move."""

    why: str


@dataclass(frozen=True, slots=True)
class Restored:
    """An old ledger was restored, and the VM runs at the source."""


@dataclass(frozen=True, slots=True)
class Delete:
    """A user deletes the VM."""


@dataclass(frozen=True, slots=True)
class Recover:
    """The source is fenced, and the VM is to start on a third host."""


Input = Begin | Seen | Late | TargetLost | SourceFenced | Cancel | Restored | Delete | Recover

# What follows


@dataclass(frozen=True, slots=True)
class Prepare:
    """Order the target to prepare an incoming copy."""


@dataclass(frozen=True, slots=True)
class BeginSending:
    """Let the source send: the target waits at an endpoint."""

    endpoint: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NoteSent:
    """The source has sent everything and stands still: the target must have it, or say so."""


@dataclass(frozen=True, slots=True)
class AskBack:
    """Ask the source to keep the VM, if it still can."""

    why: str


@dataclass(frozen=True, slots=True)
class Recall:
    """Ask the target to destroy what it has, unless the VM has arrived; only it can tell."""

    why: str


@dataclass(frozen=True, slots=True)
class Complete:
    """The target has it: it is the VM's home now, and the source destroys what it kept."""

    generation: int  # that the target has acted upon


@dataclass(frozen=True, slots=True)
class Abandon:
    """The source has the VM, so the target cannot: it is charged until it has cleaned up."""

    why: str


@dataclass(frozen=True, slots=True)
class GoBack:
    """The target's copy is gone and never executed: the source goes on with its own."""

    why: str


@dataclass(frozen=True, slots=True)
class GiveUpTarget:
    """The target is fenced, and nobody knows whether the VM ran there: the source boots it anew.

    What the source kept in memory may be older than what is on the disk by now.
    """

    why: str


@dataclass(frozen=True, slots=True)
class DestroyCopies:
    """Both hosts destroy what they have of a deleted VM, and are charged until they have."""


@dataclass(frozen=True, slots=True)
class GiveUpBoth:
    """The VM starts on a third host: the fenced source and the target destroy what they have.

    The source surely executes nothing, so its claim goes at once.
    """


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse the request; nothing changes, and the caller is told why."""

    why: str


@dataclass(frozen=True, slots=True)
class Swallow:
    """Ignore the report: nothing changes, and it does not count for a VM at rest either."""


Step = (
    Prepare
    | BeginSending
    | NoteSent
    | AskBack
    | Recall
    | Complete
    | Abandon
    | GoBack
    | GiveUpTarget
    | DestroyCopies
    | GiveUpBoth
)
Effect = Step | Refuse | Swallow


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step makes of a move.

    With no phase left the VM rests at `home`, or at neither host. `holds`: that host's claim
    becomes a hold. `releases`: it goes. `destroys`: these hosts are told to destroy their copies.
    """

    phase: Phase
    event: str
    home: Side | None = "source"
    holds: Side | None = None
    releases: Side | None = None
    destroys: tuple[Side, ...] = ()
    boots: bool = False  # the copy at home is started anew


_ABANDONED = "vm.move_abandoned"
_BOTH: tuple[Side, ...] = ("source", "target")
OUTCOMES: dict[type[Step], Outcome] = {
    Prepare: Outcome("preparing", "vm.move_begun"),
    BeginSending: Outcome("moving", "vm.move_sending"),
    NoteSent: Outcome("landing", "vm.move_sent"),
    AskBack: Outcome("cancelling", "vm.move_cancel_asked"),
    Recall: Outcome("recalling", "vm.move_recalled"),
    Complete: Outcome("", "vm.moved", home="target", holds="source", destroys=("source",)),
    Abandon: Outcome("", _ABANDONED, holds="target", destroys=("target",)),
    GoBack: Outcome("", _ABANDONED, releases="target"),
    GiveUpTarget: Outcome("", _ABANDONED, holds="target", destroys=("target",), boots=True),
    DestroyCopies: Outcome("", "vm.delete_asked", None, holds="target", destroys=_BOTH),
    GiveUpBoth: Outcome(
        "", "vm.recovered", None, holds="target", releases="source", destroys=_BOTH
    ),
}

#: What source and target are told in each phase.
PARTS: dict[Phase, tuple[Part, Part | None]] = {
    "": ("run", None),
    "preparing": ("run", "incoming"),
    "moving": ("outgoing", "incoming"),
    "landing": ("outgoing", "incoming"),  # and the target, that all was sent
    "cancelling": ("returning", "incoming"),
    "recalling": ("returning", "withdrawn"),
}

#: Phases in which the target may have the VM already.
SENT: frozenset[Phase] = frozenset({"moving", "landing", "cancelling", "recalling"})

# The table

Case = Literal[
    "begin",
    "target ready",
    "target arrived",
    "target failed",
    "target failed for good",
    "target absent",
    "target says no more",
    "source moved",
    "source switching",  # at the last step, still trying
    "source stuck",  # at the last step, and it will not try again
    "source runs",
    "source runs, cannot send",
    "source lies",
    "source lies, cannot send",
    "source has disk",  # it lies, and nothing but its disk was to be sent
    "source has disk, cannot send",
    "source failed",
    "source in between",
    "old report",
    "late",
    "target lost",
    "target fenced",
    "source fenced",
    "both fenced",
    "cancelled",
    "restored",
    "deleted",
    "recovered",
]
Cell = tuple[type[Effect], ...]

___: Cell = ()
prepare: Cell = (Prepare,)
send: Cell = (BeginSending,)
sent: Cell = (NoteSent,)
ask_back: Cell = (AskBack,)
recall: Cell = (Recall,)
complete: Cell = (Complete,)
abandon: Cell = (Abandon,)
go_back: Cell = (GoBack,)
give_up: Cell = (GiveUpTarget,)
both: Cell = (Recall, GiveUpTarget)
destroy: Cell = (DestroyCopies,)
leave: Cell = (GiveUpBoth,)
refuse: Cell = (Refuse,)
swallow: Cell = (Swallow,)

# fmt: off
_ROWS: dict[Case, tuple[Cell, Cell, Cell, Cell, Cell, Cell]] = {
    # happened, while the VM is         at rest   preparing moving    landing  cancelling recalling
    "begin":                          (prepare,  refuse,   refuse,   refuse,   refuse,   refuse),
    "target ready":                   (___,      send,     ___,      ___,      ___,      ___),
    "target arrived":                 (___,      ___,      complete, complete, complete, complete),
    "target failed":                  (___,      abandon,  ___,      ___,      ___,      ___),
    "target failed for good":         (___,      abandon,  ___,      recall,   ___,      ___),
    "target absent":                  (___,      ___,      ___,      ___,      ___,      go_back),
    "target says no more":            (___,      ___,      ___,      ___,      ___,      ___),
    "source moved":                   (___,      ___,      sent,     ___,      sent,     ___),
    "source switching":               (___,      ___,      ___,      ___,      recall,   ___),
    "source stuck":                   (___,      ___,      recall,   ___,      recall,   ___),
    "source runs":                    (___,      ___,      ___,      ___,      abandon,  abandon),
    "source runs, cannot send":       (___,      ___,      abandon,  ___,      abandon,  abandon),
    "source lies":                    (___,      ___,      ___,      ___,      recall,   swallow),
    "source lies, cannot send":       (___,      ___,      recall,   ___,      recall,   swallow),
    "source has disk":                (___,      ___,      ___,      ___,      abandon,  swallow),
    "source has disk, cannot send":   (___,      ___,      abandon,  ___,      abandon,  swallow),
    "source failed":                  (___,      ___,      recall,   ___,      recall,   swallow),
    "source in between":              (___,      ___,      ___,      ___,      swallow,  swallow),
    "old report":                     (___,      ___,      ___,      ___,      ___,      ___),
    "late":                           (___,      abandon,  ask_back, recall,   recall,   ___),
    "target lost":                    (___,      abandon,  ask_back, ___,      ___,      ___),
    "target fenced":                  (___,      abandon,  ask_back, give_up,  ___,      give_up),
    "source fenced":                  (___,      ___,      recall,   recall,   recall,   ___),
    "both fenced":                    (___,      ___,      both,     both,     both,     give_up),
    "cancelled":                      (refuse,   abandon,  ask_back, refuse,   ___,      ___),
    "restored":                       (___,      ___,      ask_back, ___,      ___,      ___),
    "deleted":                        (destroy,  destroy,  destroy,  destroy,  destroy,  destroy),
    "recovered":                      (leave,    leave,    refuse,   refuse,   refuse,   refuse),
}
# fmt: on
CASES: tuple[Case, ...] = get_args(Case)
TABLE: dict[tuple[Case, Phase], Cell] = {
    (case, phase): cell
    for case, row in _ROWS.items()
    for phase, cell in zip(PHASES, row, strict=True)
}


def step(move: Move, happened: Input) -> tuple[Effect, ...]:
    """Return the effects of an input on a move, in order; none when it changes nothing."""
    case = case_of(move, happened)
    return tuple(_effect(kind, move, happened) for kind in TABLE[case, move.phase])


def is_proof(restart: KeptRestart, fenced: Proof | None) -> bool:
    """Say whether a host that was fenced in this way surely does not execute a VM.

    A lease ends only VMs of which the host has said that it stops them then: those that may run
    elsewhere, not those that were only asked to. Of others the host must be heard, or an operator
    or the fence command must say that it is off.
    """
    return fenced is not None and (fenced != "lease" or restart == "elsewhere")


def orders(move: Move) -> dict[int, Order]:
    """Return the orders of a VM's hosts, in a move and at rest."""
    here, there = PARTS[move.phase]
    told: dict[int, Order] = {}
    if move.source is not None:
        told[move.source] = Order(here, move.target if there else None)
    if there is not None and move.target is not None:
        told[move.target] = Order(there, move.source, sent=move.phase == "landing")
    return told


# Which row of the table


def case_of(move: Move, happened: Input) -> Case:
    """Return the row of the table that an input falls under."""
    match happened:
        case Begin():
            return "begin"
        case Seen(side, report):
            heard = _source_case if side == "source" else _target_case
            return heard(move, report)
        case Late():
            return "late"
        case TargetLost(fenced):
            return "target fenced" if is_proof(move.restart, fenced) else "target lost"
        case SourceFenced(target):
            return "both fenced" if is_proof(move.restart, target) else "source fenced"
        case Cancel():
            return "cancelled"
        case Restored():
            return "restored"
        case Delete():
            return "deleted"
        case Recover():
            return "recovered"
    assert_never(happened)


def _target_case(move: Move, report: Report) -> Case:
    if report.generation < move.begun:
        return "old report"  # about another copy
    if report.seen == "arrived":
        return "target arrived"  # whatever it has heard of since
    if report.generation < move.generation:
        return "old report"
    match report.seen:
        case "ready":
            return "target ready"
        case "failed":
            return "target failed for good" if report.failure == "permanent" else "target failed"
        case "absent":
            return "target absent"
    return "target says no more"


def _source_case(move: Move, report: Report) -> Case:
    if report.generation < move.begun:
        return "old report"  # about another copy
    current = report.generation >= move.generation
    failed = report.failure == "permanent" and current
    match report.seen:
        case "moved":
            # It cannot have left by the order that only made the target ready.
            return "source moved" if report.generation > move.begun else "old report"
        case "switching":
            return "source stuck" if failed else "source switching"
    if not current:
        return "old report"
    match report.seen:
        case "running" | "paused":
            # A guest that executes or stands still here was not handed over.
            return "source runs, cannot send" if failed else "source runs"
        case "stopped" if move.mode == "cold":
            # The target does nothing with a disk before it hears that all was sent.
            return "source has disk, cannot send" if failed else "source has disk"
        case "stopped":
            # It may have died with its last word said: then the target has it.
            return "source lies, cannot send" if failed else "source lies"
    return "source failed" if failed else "source in between"


# Effects with their words


def _effect(kind: type[Effect], move: Move, happened: Input) -> Effect:
    report = happened.report if isinstance(happened, Seen) else _NO_REPORT
    if kind is BeginSending:
        return BeginSending(report.endpoint)
    if kind is Complete:
        return Complete(report.generation)
    if kind is Refuse:
        return Refuse(_refusal(move, happened))
    for plain in (Prepare, NoteSent, DestroyCopies, GiveUpBoth, Swallow):
        if kind is plain:
            return plain()
    for taken_back in (AskBack, Recall, Abandon, GoBack, GiveUpTarget):
        if kind is taken_back:
            return taken_back(_why(kind, move, happened))
    raise AssertionError(kind)


_NO_REPORT = Report(0, "absent")


def _refusal(move: Move, happened: Input) -> str:
    if isinstance(happened, Begin):
        return "is moving already"
    if isinstance(happened, Recover):
        return "may be at the target of its move"
    return "has left its host already" if move.phase else "is not moving"


def _why(kind: type[Effect], move: Move, happened: Input) -> str:
    """Return why a move is taken back, for people."""
    match happened:
        case Late(why) | Cancel(why):
            return why
        case TargetLost():
            fenced = " and fenced" if kind is GiveUpTarget else ""
            return f"its target is offline{fenced}"
        case SourceFenced():
            return "its target is fenced as well" if kind is GiveUpTarget else "its host is fenced"
        case Restored():
            return "an old ledger was restored"
        case Seen("target", report):
            if report.seen == "absent":
                return "its target does not have it"
            return report.words("its target cannot take it, and does not say why")
        case Seen(_, report):
            if report.seen == "switching":
                return report.message or "the source cannot tell who has it"
            if kind is Abandon and move.phase != "moving":
                return "its host has it"
            if kind is Abandon:
                return report.words("its host cannot send it, and does not say why")
            return report.words("it lies at its host")
    return ""
