"""The tour of `roost demo --qemu`: real guests are booted, moved, killed and found again.

Every step is a command that anybody could type; it is shown, run, and its answer shown as it came.
Counters are read from the consoles' own files: what is said of a move is what the guest did.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from rich.text import Text

from roost.app.childprocess import kill_all
from roost.app.demoqemu import (
    HOSTS,
    Console,
    Counted,
    QemuStage,
    build_guest,
    counted_across,
    first_write,
    read_counter,
)
from roost.base.clock import Clock
from roost.base.errors import InvariantBroken, Unavailable
from roost.cli.demo.runner import Screen, Try, limit, typed, typed_command
from roost.cli.demo.served import ServedTour
from roost.wire.bodies import EventBody, VMBody

T = TypeVar("T")

GUESTS = ("web-1", "web-2", "web-3")
SIZE = ("--cpu", "1", "--memory", "96MiB", "--disk", "0GiB")
#: Limits of waits, in seconds: many times what they take, for machines that are busy.
SOON_S, BOOT_S = 60.0, 120.0
_LOOK_S = 0.05


class QemuTour(ServedTour[QemuStage]):
    """The tour of real guests on two hosts."""

    about: ClassVar[tuple[str, ...]] = (
        "roost demo: a control plane, two hosts and three real guests as processes of this",
        "machine, and a tour.",
    )

    def __init__(self, clock: Clock, screen: Screen, stage: QemuStage) -> None:
        super().__init__(clock, screen, stage)
        self.steps = (
            self.hosts, self.guests, self.move, self.drain, self.crash, self.agent, self.doctor
        )  # fmt: skip

    @classmethod
    async def prepare(cls) -> Callable[[Path, Clock, Callable[[str], None]], QemuStage]:
        """Return what makes a stage whose hosts have the small guest."""
        return partial(QemuStage, guest=await build_guest())

    def tries(self) -> Sequence[Try]:
        """Return what can be tried while it serves."""
        roost = typed_command()
        return (
            (f"{roost} vm console web-1 --follow", "it counts; Ctrl-C ends the looking"),
            (f"{roost} vm migrate web-1 --wait", "while you look"),
            (f"{roost} plan create --goal drain --host qemu-1", "what it would take"),
            (f"{roost} vm migrate web-1 --bandwidth 4MiB", "slowly"),
            (f"{roost} vm migrate web-1 --cancel", "and then not"),
            (f"{roost} vm pause web-2", "and resume"),
            (f"{roost} host drain qemu-1 --wait", "then: host uncordon qemu-1"),
            (f"{roost} events --follow", ""),
            ("pgrep -a qemu-system", "any of them may be killed; so may the agents"),
        )

    # Steps

    async def hosts(self) -> None:
        """Let the hosts join."""
        self._screen.heading(
            f"Hosts: {len(HOSTS)} agents with the QEMU driver",
            "Each has a folder of its own and a share of this machine; guests run by software "
            "emulation.",
        )
        for host in HOSTS:
            await self._stage.start_host(host)
        # The second differs from the first in its name alone.
        self._screen.lines(*map(typed, self._stage.commands[:-1]), "$ ...", "")

        async def joined() -> bool:
            return sum(host.health == "online" for host in await self._hosts()) == len(HOSTS)

        await self._until_true(f"{len(HOSTS)} hosts online", joined)
        self._screen.lines(f"{' and '.join(HOSTS)} are online.")
        self.summary["hosts"] = list(HOSTS)

    async def guests(self) -> None:
        """Boot three real guests."""
        self._screen.heading(
            f"{len(GUESTS)} real guests",
            "Each boots a Linux kernel in a QEMU of its own, and then counts on its serial "
            "console, 20 times a second.",
        )
        began = self._clock.monotonic()
        for name in GUESTS:
            await self._roost("vm", "create", name, *SIZE, "--wait")
        with self._consoles(await self._vms()) as consoles:
            await self._counting(consoles, 20)
        booted_s = self._clock.monotonic() - began
        self._screen.lines(f"All of them are up and count, {booted_s:.1f} s after the first order.")
        self._screen.lines("")
        await self._roost("vm", "list")
        await self._roost("vm", "console", GUESTS[0], "--bytes", "60")
        self.summary["guests"] = {"running": len(GUESTS), "counting_after_s": round(booted_s, 1)}

    async def move(self) -> None:
        """Move one guest by a plan while it counts."""
        vm = await self._client.get_vm(GUESTS[0])
        source = str(vm.host)
        target = next(host for host in HOSTS if host != source)
        self._screen.heading(
            f"{vm.name} moves to {target} by a plan, while it counts",
            "The plan says what the move will cost. Then memory is copied while the VM runs; at "
            f"the end it stands still for a moment. The copy on {source} is destroyed only when "
            f"{target} says that the VM has arrived.",
        )
        there = self._stage.console_path(target, vm.id)
        with self._consoles([vm]) as consoles:
            arriving = asyncio.create_task(first_write(there, self._clock))
            try:
                wish = ("--goal", "move", "--vm", vm.name, "--to", target)
                await self._roost("plan", "create", *wish, "--apply")
                plan = (await self._client.list_plans(limit=1)).plans[0].id
                await self._roost("plan", "watch", plan)
                counted = await self._counted(vm, consoles[vm.id], target)
                silent_ms = 1000 * (await arriving - consoles[vm.id].written_at())
            finally:
                arriving.cancel()
        made = (await self._client.get_plan(plan)).listed[0]
        if made.state != "done" or made.actual is None:
            raise InvariantBroken(f"the move of {vm.name} in plan {plan} is {made.state}")
        self._screen.lines(
            f"Last line of {vm.name} on {source}:   TICK {counted.last}",
            f"First line of {vm.name} on {target}:  TICK {counted.first}"
            "    (+1: none lost, none twice)",
            f"Between the two it was silent for {silent_ms:.0f} ms (it counts every 50 ms); the "
            f"whole move took {made.actual.total_s:.1f} s, {made.predicted.total_s:.1f} s were "
            "predicted.",
        )
        self.summary["move"] = {
            "vm": vm.name,
            "from": source,
            "to": target,
            "last": counted.last,
            "first": counted.first,
            "silent_ms": round(silent_ms),
            "plan": plan,
            "predicted_s": made.predicted.total_s,
            "seconds": made.actual.total_s,
        }

    async def drain(self) -> None:
        """Empty a host, for its maintenance."""
        vms = await self._vms()
        host = max(HOSTS, key=lambda each: sum(vm.host == each for vm in vms))
        leaving = [vm for vm in vms if vm.host == host]
        self._screen.heading(
            f"{host} is drained",
            f"Its {len(leaving)} VMs move away, one after the other, and count on.",
        )
        with self._consoles(leaving) as consoles:
            await self._roost("host", "drain", host, "--wait")
            moved = {vm.id: await self._client.get_vm(vm.id) for vm in leaving}
            told = {
                vm.name: await self._counted(vm, consoles[vm.id], str(moved[vm.id].host))
                for vm in leaving
            }
        await self._roost("vm", "list")
        listed = "; ".join(f"{name} {each.last} -> {each.first}" for name, each in told.items())
        self._screen.lines(f"Counters on both sides: {listed}.", "")
        await self._roost("host", "uncordon", host)
        self.summary["drain"] = {
            "host": host,
            "counters": {name: each._asdict() for name, each in told.items()},
        }

    async def crash(self) -> None:
        """Kill the QEMU process of a VM."""
        vm = await self._client.get_vm(GUESTS[1])
        pid = (await self._stage.qemus())[vm.id][str(vm.host)]
        self._screen.heading(
            f"The QEMU of {vm.name} is killed",
            "A QEMU that ends unasked is a crash; the VM is started again where it is.",
        )
        self._screen.lines(f"$ kill -9 {pid}")
        began = self._clock.monotonic()
        crashed = False

        def seen(event: EventBody) -> bool:
            nonlocal crashed
            if event.subject == f"vm/{vm.id}":
                crashed = crashed or event.kind == "vm.crashed"
                return crashed and event.kind == "vm.running"
            return False

        with self._consoles([vm]) as consoles:
            await kill_all([pid])
            before = len(read_counter(consoles[vm.id].text()))
            await self._tape.watch(seen, within_s=SOON_S, what=f"{vm.name} running again")
            after_s = self._clock.monotonic() - began
            self._screen.lines(f"{after_s:.1f} s later it runs again, and boots.")
            await self._until(
                f"{vm.name} counting from 1 again",
                lambda: 1 in read_counter(consoles[vm.id].text())[before:],
            )
        self.summary["crash"] = {"vm": vm.name, "running_after_s": round(after_s, 2)}

    async def agent(self) -> None:
        """Kill the agent of a host."""
        vms = await self._vms()
        host = str(vms[0].host)
        mine = [vm for vm in vms if vm.host == host]
        names = ", ".join(vm.name for vm in mine)
        self._screen.heading(
            f"The agent of {host} is killed",
            "Guests do not need it: they run on, and the next start of the agent adopts them.",
        )
        before = await self._stage.qemus()
        self._screen.lines(f"$ kill -9 {self._stage.agent_pid(host)}")
        await self._stage.kill_agent(host)
        with self._consoles(mine) as consoles:
            await self._counting(consoles, 20)
        self._screen.lines(f"Without an agent they count on: {names}.")

        async def back() -> bool:
            found = await self._hosts()
            return all(each.health == "online" and each.connected for each in found)

        await self._stage.start_host(host)
        self._screen.lines(
            f"The same command as before starts it, now as process {self._stage.agent_pid(host)}."
        )
        await self._until_true(f"{host} back", back)
        await self._roost("vm", "list")
        after = await self._stage.qemus()
        if before != after:
            raise InvariantBroken(f"QEMUs were {before} and are {after}")
        if any(len(hosts) != 1 for hosts in after.values()):
            raise InvariantBroken(f"not one QEMU for each VM: {after}")
        pids = ", ".join(str(after[vm.id][host]) for vm in mine)
        self._screen.lines(f"The same QEMUs as before run them: {pids}.")
        self.summary["adopted"] = {"host": host, "vms": [vm.name for vm in mine]}

    async def doctor(self) -> None:
        """Check every invariant on the live database."""
        self._screen.heading("Doctor", "Every promise, checked on the live database.")
        await self._roost("doctor")
        found = await self._client.doctor()
        self.summary["doctor"] = {"ok": found.ok, "checked": found.checked}

    # What several steps do

    async def _roost(self, *words: str) -> None:
        """Run a command of the command line, and show it with its answer."""
        self._screen.show(Text(f"$ {typed_command()} {' '.join(words)}", style="bold"))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "roost.cli.main",
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(self._stage.environment),
        )
        try:
            said, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        lines = [line.rstrip() for line in said.decode(errors="replace").splitlines()]
        self._screen.lines(*lines, "")
        if process.returncode:
            raise Unavailable(f"`roost {' '.join(words)}` failed: {' '.join(lines)}")

    @contextmanager
    def _consoles(self, vms: Iterable[VMBody]) -> Iterator[dict[str, Console]]:
        """Hold the consoles of VMs open where they are now; by id."""
        with ExitStack() as held:
            yield {
                vm.id: held.enter_context(
                    closing(Console(self._stage.console_path(str(vm.host), vm.id)))
                )
                for vm in vms
            }

    async def _counting(self, consoles: Mapping[str, Console], more: int) -> None:
        """Wait until guests have counted so much further than now."""
        before = {vm_id: len(read_counter(each.text())) for vm_id, each in consoles.items()}

        def count() -> bool:
            return all(
                len(read_counter(each.text())) >= before[vm_id] + more
                for vm_id, each in consoles.items()
            )

        await self._until("guests counting", count)

    async def _counted(self, vm: VMBody, source: Console, target: str) -> Counted:
        """Return the counter on both sides of a move; it must have gone on by one."""
        with closing(Console(self._stage.console_path(target, vm.id))) as there:

            def counted() -> Counted | None:
                return counted_across(source.text(), there.text())

            found = await self._until(f"{vm.name} counting on {target}", counted)
        if found.first != found.last + 1:
            raise InvariantBroken(f"{vm.name} counted {found.last}, then {found.first}")
        return found

    async def _until(self, what: str, probe: Callable[[], T | None]) -> T:
        """Poll until a probe returns a value; a file notifies nobody that it grows."""

        async def look() -> T | None:
            return probe()

        return await self._until_true(what, look)

    async def _until_true(self, what: str, probe: Callable[[], Awaitable[T | None]]) -> T:
        async with limit(BOOT_S, what):
            while not (found := await probe()):
                self._stage.check_agents()
                await self._clock.sleep(_LOOK_S)
        return found

    async def _vms(self) -> list[VMBody]:
        return (await self._client.list_vms(limit=100)).vms
