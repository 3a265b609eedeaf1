"""Rows of the cost model: what plans predicted of real moves, beside what those moves took.

Two hosts pass guests on QEMU to and fro, each move by a plan of its own; guests write their memory
at several rates. What was predicted and what was measured are those of the plan, as `roost plan
show` has them. The first moves are predicted by the model alone, later ones also by what was learnt
of those before. Every guest must run when its moves are over, and every move must be done.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.agent.agents import wait_for
from benchmarks.agent.consoles import Console
from benchmarks.agent.guests import Guest, Missing
from benchmarks.agent.hosts import HERE, THERE, Hosts, QemuHosts
from benchmarks.api.verifying import Wrong
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, skipped
from roost.base.errors import NotFound
from roost.wire.bodies import VMBody
from roost.wire.plans import CreatePlan, PlanDetail, PlanMoveBody

NAME = "cost error"
_ROWS = {"total time": 0.2, "bytes": 0.2, "stand-still": None}
#: Guests by the MiB per second that they write, each over 32 MiB; what they are told and say then.
_KINDS = {
    "0": ("", b"TICK 20 "),
    "10": ("roost.dirty=32:10", b"DIRTY 32 MiB"),
    "20": ("roost.dirty=32:20", b"DIRTY 32 MiB"),
    "40": ("roost.dirty=32:40", b"DIRTY 32 MiB"),
}
#: What must have been read of a guest before it moves. A host measures one VM after the other.
_READ = frozenset({"dirty_bytes_per_s", "guest_resident_bytes"})
_READ_S, _MOVE_S = 180.0, 120.0
#: The old host tells bytes and stand-still after the move, or never if it missed the last moment.
_TOLD_S = 15.0
#: Readings after which one tells of a measurement that was begun while the guest wrote: the first
#: may be of before, the second tells what was under way.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """One move: predicted and measured seconds, bytes and stand-still, and who moved.

    What was not told is 0, and counts for nothing.
    """

    kind: str
    total_s: tuple[float, float]
    sent_bytes: tuple[float, float]
    stand_still_s: tuple[float, float]


def jobs(folder: Path, *, short: bool) -> Iterator[Job]:
    """Return the job of these rows; it puts its hosts into a folder below this one."""
    kinds = ("0", "20") if short else tuple(_KINDS)
    yield Job(NAME, partial(_rows, folder, kinds, 2 if short else 6))


def _rows(folder: Path, writing: Sequence[str], moves: int) -> Iterator[Result]:
    folder.mkdir(parents=True, exist_ok=True)
    pairs: list[Pair] = []
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        QemuHosts(Path(place) / "hosts") as machines,
    ):
        try:
            hosts, files = machines.get()
        except Missing as missing:
            for row in _ROWS:
                yield skipped(f"{NAME}: {row}", "", str(missing))
            return
        for kind in writing:
            pairs += _passed_on(hosts, files, kind, moves)
    figures = {
        "total time": [each.total_s for each in pairs],
        "bytes": [each.sent_bytes for each in pairs],
        "stand-still": [each.stand_still_s for each in pairs],
    }
    for row, goal in _ROWS.items():
        kinds = [each.kind for each in pairs]
        yield at_most(
            f"{NAME}: {row}", _error(figures[row]), "", goal, note=_note(row, figures[row], kinds)
        )


def _passed_on(hosts: Hosts, files: Guest, kind: str, moves: int) -> Iterator[Pair]:
    """Boot a guest, let it be read, and move it to and fro by plans."""
    words, begun = _KINDS[kind]
    vm = hosts.client.create_vm(files.vm(f"writes-{kind}", HERE, THERE, words=words))
    assert vm.host is not None
    wait_for(f"{vm.name} to run", lambda: _state(hosts, vm) == "running", _MOVE_S)
    with Console(hosts.console(vm.host, vm.id)) as console:
        console.wait_for(begun)
    at = vm.host
    read: dict[str, None] = {}

    def is_read() -> bool:
        """Say whether a dirty rate was measured since the guest began to write."""
        used = hosts.client.get_vm(vm.id).used
        if used is not None and used.more.keys() >= _READ:
            read[used.at] = None
        return len(read) >= _ROUNDS

    wait_for(f"readings of {vm.name}", is_read, _READ_S, every_s=0.2)
    for _ in range(moves):
        at = THERE if at == HERE else HERE
        yield _pair(kind, _move(hosts, vm, at))
    if _state(hosts, vm) != "running":
        raise Wrong(f"{vm.name} does not run after {moves} moves")
    hosts.client.delete_vm(vm.id)
    wait_for(f"{vm.name} to be gone", lambda: _state(hosts, vm) == "", _MOVE_S)


def _state(hosts: Hosts, vm: VMBody) -> str:
    """Return the state of a guest; empty when it is gone."""
    try:
        return hosts.client.get_vm(vm.id).state
    except NotFound:
        return ""


def _move(hosts: Hosts, vm: VMBody, to: str) -> PlanMoveBody:
    """Move a guest by a plan; return the plan's move when all of it is known."""
    wish = CreatePlan(goal="move", vms=[vm.id], to=to, apply=True)
    plan = hosts.client.create_plan(wish).id
    found: list[PlanDetail] = []
    done_at = 0.0

    def is_known() -> bool:
        nonlocal done_at
        found[:] = [hosts.client.get_plan(plan)]
        if found[0].state in ("failed", "cancelled"):
            raise Wrong(f"the plan of {vm.name} is {found[0].state}: {found[0].why}")
        made = found[0].listed[0]
        if found[0].state != "done" or made.actual is None:
            return False
        done_at = done_at or time.perf_counter()
        return made.actual.stand_still_s is not None or time.perf_counter() - done_at > _TOLD_S

    wait_for(f"the end of {plan}", is_known, _MOVE_S, every_s=0.1)
    return found[0].listed[0]


def _pair(kind: str, made: PlanMoveBody) -> Pair:
    predicted, actual = made.predicted, made.actual
    assert actual is not None
    told = actual.stand_still_s is not None
    return Pair(
        kind,
        (predicted.total_s, actual.total_s),
        (float(predicted.sent_bytes or 0), float(actual.sent_bytes or 0) if told else 0.0),
        (predicted.stand_still_s or 0.0, actual.stand_still_s or 0.0),
    )


def _error(figures: list[tuple[float, float]]) -> float:
    """Return the median of how far predictions are off, as a share of what was measured."""
    known = [abs(predicted - actual) / actual for predicted, actual in figures if actual]
    if not known:
        raise Wrong("no old host has told what its moves took")
    return median(known)


def _note(row: str, figures: list[tuple[float, float]], kinds: list[str]) -> str:
    """Say for every kind of guest what was predicted and measured, in the median."""
    scale, unit, digits = {
        "total time": (1.0, "s", 2), "bytes": (2.0**-20, "MiB", 0), "stand-still": (1e3, "ms", 0)
    }[row]  # fmt: skip
    told = []
    for kind in dict.fromkeys(kinds):
        mine = [each for each, of in zip(figures, kinds, strict=True) if of == kind and each[1]]
        if not mine:
            continue
        middle = [scale * median(side) for side in zip(*mine, strict=True)]
        told.append(f"{kind} MiB/s {middle[0]:.{digits}f}, took {middle[1]:.{digits}f} {unit}")
    known = sum(actual > 0 for _, actual in figures)
    return f"predicted for {known} moves of guests that write " + "; ".join(told)
