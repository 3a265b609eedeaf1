"""Rows: from the order of a VM to "running" in the ledger, beside the same boot by hand.

Ours is counted from before the request is sent until the event that says "running" is here, so the
ledger's commit and the way back are in it. By hand it is from the spawn until QEMU says "running".
Runs take turns, and who begins changes from pair to pair.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.agent import byhand
from benchmarks.agent.consoles import Console, check_unbroken
from benchmarks.agent.guests import Guest, Missing
from benchmarks.agent.hosts import HERE, Hosts, QemuHosts
from benchmarks.agent.sizes import Sizes, spread
from benchmarks.engine.measuring import Job
from benchmarks.results import Result, at_most, skipped

NAME = "boot"
_GOAL_S, _AIM_S = 0.5, 0.1
_RUNNING, _FIRST_LINE = "overhead until running in the ledger", "overhead until the first line"


def jobs(sizes: Sizes, folder: Path, hosts: QemuHosts) -> Iterator[Job]:
    """Return the job of this topic."""
    yield Job(NAME, partial(_rows, sizes, folder / "boots", hosts))


@dataclass(frozen=True, slots=True)
class Boot:
    """Seconds from the beginning of one boot."""

    running_s: float
    line_s: float


def _rows(sizes: Sizes, folder: Path, machines: QemuHosts) -> Iterator[Result]:
    try:
        hosts, files = machines.get()
    except Missing as missing:
        for row in (_RUNNING, _FIRST_LINE):
            yield skipped(f"{NAME}: {row}", "s", str(missing))
        return
    pairs = list(_pairs(sizes, hosts, files, folder))
    ours, hand = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    runs = f"median of {len(pairs)} pairs"
    more = [o.running_s - h.running_s for o, h in pairs]
    yield at_most(
        f"{NAME}: {_RUNNING}",
        median(more),
        "s",
        sizes.goal(_GOAL_S),
        sizes.goal(_AIM_S),
        note=f"{runs}, {spread(more)}; ours {spread([o.running_s for o in ours])}, by hand "
        f"{spread([h.running_s for h in hand])}",
    )
    more = [o.line_s - h.line_s for o, h in pairs]
    yield at_most(
        f"{NAME}: {_FIRST_LINE}",
        median(more),
        "s",
        None,
        note=f"on the serial console; {runs}, {spread(more)}; ours "
        f"{spread([o.line_s for o in ours])}, by hand {spread([h.line_s for h in hand])}",
    )


def _pairs(sizes: Sizes, hosts: Hosts, files: Guest, folder: Path) -> Iterator[tuple[Boot, Boot]]:
    first = hosts.create(files.vm("first", HERE))
    argv = hosts.argv(HERE, first.id)
    hosts.delete(first)
    for number in range(sizes.boots):
        ours = partial(_ours, hosts, files, number)
        by_hand = partial(_by_hand, argv, folder / f"hand-{number}")
        if number % 2:
            hand = by_hand()
            yield ours(), hand
        else:
            mine = ours()
            yield mine, by_hand()


def _ours(hosts: Hosts, files: Guest, number: int) -> Boot:
    since = hosts.events.mark()
    request = files.vm(f"boot-{number}", HERE)
    began = time.perf_counter()
    vm = hosts.client.create_vm(request)
    ran = hosts.events.wait_for("vm.running", vm.id, since)
    line = _first_line(hosts.console(HERE, vm.id))
    hosts.delete(vm)
    return Boot(ran - began, line - began)


def _by_hand(argv: list[str], folder: Path) -> Boot:
    vm, began, ran = byhand.boot(argv, folder)
    try:
        line = _first_line(vm.console)
    finally:
        vm.close()
    return Boot(ran - began, line - began)


def _first_line(path: Path) -> float:
    """Return when the guest was up, and see that it counts."""
    with Console(path) as console:
        up = console.wait_for(b"GUEST-UP")
        console.wait_for_ticks(3)
    check_unbroken(console.text, str(path))
    return up
