"""Rows: from the order of a live move to "moved" in the ledger, beside the same migration by hand.

Two hosts pass one guest to and fro; a guest on the same command line is passed on by hand, with
QEMU's defaults and the same bandwidth. While one moves the other is paused. The stand-still of both
is counted from the source's STOP to the target's RESUME, by the clock of the QEMUs themselves; what
a reader of the serial console would have noticed is told beside it. Every counter must go on at +1.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.agent import byhand
from benchmarks.agent.byhand import HandVM
from benchmarks.agent.consoles import Console, stand_still_s
from benchmarks.agent.guests import Guest, Missing
from benchmarks.agent.hosts import HERE, THERE, WATCH, Hosts, QemuHosts
from benchmarks.agent.qmp import Conversation
from benchmarks.agent.sizes import Sizes, spread
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, skipped
from roost.wire.bodies import VMBody

NAME = "move"
_GOAL_S, _AIM_S = 0.5, 0.1
_GOAL_RATIO, _AIM_RATIO = 1.2, 1.05
#: QEMU's own default, which by hand nobody would change.
_BANDWIDTH = 128 << 20
#: Fine enough to see a short stand-still, rare enough to leave a guest idle.
_TICKS = "roost.tick_us=4000"
#: Kinds of guests, what they are told, and the word that says that they have begun.
_KINDS = (
    ("idle guest", _TICKS, b"TICK 100 "),
    ("guest that writes 32 MiB at 20 MiB/s", f"{_TICKS} roost.dirty=32:20", b"DIRTY 32 MiB"),
)
_TICKS_AFTER = 25
_OVERHEAD, _RATIO = "overhead until moved in the ledger", "stand-still over that by hand"


@dataclass(frozen=True, slots=True)
class Move:
    """What one move took."""

    total_s: float
    ready_s: float  # of it until the target waited
    stand_still_s: float  # from STOP to RESUME
    silent_s: float  # on the serial console, beyond the usual
    downtime_ms: float  # QEMU's own figure


def jobs(sizes: Sizes, folder: Path, hosts: QemuHosts) -> Iterator[Job]:
    """Return the jobs of this topic."""
    for number, (kind, words, begun) in enumerate(_KINDS):
        name = f"{NAME}, {kind}"
        place = folder / f"moves-{number}"
        yield Job(name, partial(_rows, name, sizes, place, hosts, words, begun))


def _rows(
    name: str, sizes: Sizes, folder: Path, machines: QemuHosts, words: str, begun: bytes
) -> Iterator[Result]:
    try:
        hosts, files = machines.get()
    except Missing as missing:
        yield skipped(f"{name}: {_OVERHEAD}", "s", str(missing))
        yield skipped(f"{name}: {_RATIO}", "x", str(missing))
        return
    pairs = list(_pairs(sizes, hosts, files, folder, words, begun))
    ours, hand = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    more = [o.total_s - h.total_s for o, h in pairs]
    yield at_most(
        f"{name}: {_OVERHEAD}",
        median(more),
        "s",
        sizes.goal(_GOAL_S),
        sizes.goal(_AIM_S),
        note=f"median of {len(pairs)} pairs, {spread(more)}; ours "
        f"{spread([o.total_s for o in ours])}, target waiting after "
        f"{median([o.ready_s for o in ours]):.2f}; by hand {spread([h.total_s for h in hand])}, "
        f"{median([h.ready_s for h in hand]):.2f}",
    )
    yield at_most(
        f"{name}: {_RATIO}",
        _median_ms(ours, "stand_still_s") / _median_ms(hand, "stand_still_s"),
        "x",
        sizes.goal(_GOAL_RATIO),
        sizes.goal(_AIM_RATIO),
        note=f"STOP to RESUME: ours {_spread_ms(ours, 'stand_still_s')}, by hand "
        f"{_spread_ms(hand, 'stand_still_s')}; QEMU's figure {_downtimes(ours)} and "
        f"{_downtimes(hand)}; silence on the console {_spread_ms(ours, 'silent_s')} and "
        f"{_spread_ms(hand, 'silent_s')}",
    )


def _pairs(
    sizes: Sizes, hosts: Hosts, files: Guest, folder: Path, words: str, begun: bytes
) -> Iterator[tuple[Move, Move]]:
    vm = hosts.create(files.vm(f"moved-{folder.name}", HERE, THERE, words=words))
    assert vm.host is not None
    argv = hosts.argv(vm.host, vm.id)
    with closing(ByHand(argv, folder)) as hand:
        with Console(hosts.console(vm.host, vm.id)) as console:
            console.wait_for(begun)
        _pause(hosts, vm)
        hand.wait_for(begun)
        for number in range(sizes.moves):
            if number % 2:
                by_hand = hand.move()
                yield _ours(hosts, vm), by_hand
            else:
                mine = _ours(hosts, vm)
                yield mine, hand.move()
    hosts.delete(vm)


class ByHand:
    """The guest that is passed on by hand; it is paused while it does not move."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self._argv, self._folder, self._number = argv, folder, 0
        self._vm: HandVM = byhand.boot(argv, folder / "0")[0]

    def wait_for(self, begun: bytes) -> None:
        """Pause it once it has said a word."""
        with Console(self._vm.console) as console:
            console.wait_for(begun)
        self._vm.execute("stop")

    def move(self) -> Move:
        """Let it go on, move it, and pause it again."""
        self._number += 1
        folder = self._folder / str(self._number)
        source_log, target_log = self._vm.console, folder / self._vm.console.name
        with Console(source_log, _size(source_log)) as source, Console(target_log) as target:
            self._vm.execute("cont")
            source.wait_for_ticks(_TICKS_AFTER)
            self._vm, took = byhand.move(self._vm, self._argv, folder, _BANDWIDTH)
            target.wait_for_ticks(_TICKS_AFTER)
            self._vm.execute("stop")
        silent_s = stand_still_s(source, target)
        return Move(took.total_s, took.ready_s, took.stop_to_resume_s, silent_s, took.downtime_ms)

    def close(self) -> None:
        """End it."""
        self._vm.close()


def _ours(hosts: Hosts, vm: VMBody) -> Move:
    """Let the guest go on, move it to the other host, and pause it again."""
    here = hosts.client.get_vm(vm.id).host
    assert here is not None
    there = next(name for name in hosts.agents if name != here)
    source_log, target_log = hosts.console(here, vm.id), hosts.console(there, vm.id)
    with (
        Console(source_log, _size(source_log)) as source,
        Console(target_log) as target,
        closing(Conversation(hosts.vm_folder(here, vm.id), WATCH)) as leaving,
    ):
        since = hosts.events.mark()
        hosts.client.resume_vm(vm.id)
        hosts.events.wait_for("vm.running", vm.id, since)
        source.wait_for_ticks(_TICKS_AFTER)
        leaving.forget_events()
        since = hosts.events.mark()
        began = time.perf_counter()
        hosts.client.migrate_vm(vm.id, host=there, bandwidth=_BANDWIDTH)
        with closing(Conversation(hosts.vm_folder(there, vm.id), WATCH)) as arriving:
            leaving.event_s("MIGRATION", status="completed")
            # Asked at once: this QEMU is ended as soon as the ledger has the move.
            downtime_ms = byhand.downtime_ms(leaving)
            stood_still_s = arriving.event_s("RESUME") - leaving.event_s("STOP")
        ready = hosts.events.wait_for("vm.move_sending", vm.id, since)
        done = hosts.events.wait_for("vm.moved", vm.id, since)
        hosts.events.wait_for("vm.cleaned", vm.id, since)  # till then it cannot move again
        target.wait_for_ticks(_TICKS_AFTER)
        _pause(hosts, vm)
    silent_s = stand_still_s(source, target)
    return Move(done - began, ready - began, stood_still_s, silent_s, downtime_ms)


def _pause(hosts: Hosts, vm: VMBody) -> None:
    since = hosts.events.mark()
    hosts.client.pause_vm(vm.id)
    hosts.events.wait_for("vm.paused", vm.id, since)


def _size(path: Path) -> int:
    return path.stat().st_size


def _median_ms(moves: list[Move], field: str) -> float:
    return 1000 * median(getattr(each, field) for each in moves)


def _spread_ms(moves: list[Move], field: str) -> str:
    return spread([1000 * getattr(each, field) for each in moves], "ms", 0)


def _downtimes(moves: list[Move]) -> str:
    return f"{median(each.downtime_ms for each in moves):.0f} ms"
