"""The tour of `roost demo`: each step does something over the HTTP API and shows what came of it.

Every wait is for an event of the control plane and has a limit; what a step found goes into the
summary too, which is what `-o json` prints.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import msgspec
from rich.console import RenderableType
from rich.text import Text

from roost.app.demo import HOSTS, TIMERS, VICTIM, ZONES, VirtualStage
from roost.base.clock import Clock
from roost.base.errors import InvariantBroken, NoFit
from roost.base.units import GIB
from roost.cli.demo.runner import Screen, Try, typed, typed_command
from roost.cli.demo.served import ServedTour
from roost.cli.fleet.applying import apply_files
from roost.cli.show import sentences, tables
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand
from roost.wire.bodies import CreateVM, DemandBody, EventBody, HostBody, RejectionBody, VMBody

BATCH = 200
EACH = 3  # VMs of each strategy
CORDONED = "host-07"
SHOP = """\
projects: [{name: shop, quota: {cpu: 32, memory: 64GiB}}]
flavors: [{name: m1, demand: {cpu: 1, memory: 2GiB, disk: 10GiB}}]
hosts: [{name: host-01, labels: {tier: gold}}]
groups: [{name: web, project: shop, rule: anti-affinity}]
vms:
  - {name: shop-1, project: shop, flavor: m1, groups: [web], labels: {app: shop}}
  - {name: shop-2, project: shop, flavor: m1, groups: [web], labels: {app: shop}}
"""
SMALL = DemandBody(cpu=1, memory="2GiB", disk="10GiB")
LARGE = DemandBody(cpu=12, memory="24GiB", disk="100GiB")
#: Limits of waits, in seconds: many times what they take, for machines that are busy.
SOON_S, RECOVERY_S = 60.0, 90.0


class VirtualTour(ServedTour[VirtualStage]):
    """The tour of twenty virtual hosts."""

    about: ClassVar[tuple[str, ...]] = (
        "roost demo: a control plane and 20 virtual hosts as processes of this machine, and a",
        "tour of what they do.",
    )

    def __init__(self, clock: Clock, screen: Screen, stage: VirtualStage) -> None:
        super().__init__(clock, screen, stage)
        self.steps = (
            self.hosts, self.batch, self.files, self.strategies, self.no_room, self.kill,
            self.bring_back, self.doctor,
        )  # fmt: skip

    @classmethod
    async def prepare(cls) -> type[VirtualStage]:
        """Return the class of the stage."""
        return VirtualStage

    def tries(self) -> Sequence[Try]:
        """Return what can be tried while it serves."""
        roost = typed_command()
        return (
            (f"{roost} vm create web-1 --cpu 2 --memory 4GiB --disk 20GiB", "where, and why"),
            (f"{roost} vm explain web-1", "what every host says to it"),
            (f"{roost} vm list --host {VICTIM}", ""),
            (f"{roost} host list --watch", "redrawn when something happens"),
            (f"{roost} host drain host-03", "two moves at a time"),
            (f"{roost} capacity --cpu 4 --memory 16GiB", "how many more fit"),
            (f"{roost} events --follow", ""),
            (f"kill -9 {self._stage.agent_pid(VICTIM)}", f"{VICTIM} dies again"),
            (f"{roost} host confirm-dead {VICTIM} --reason 'it is off'", "proof by your word"),
        )

    # Steps

    async def hosts(self) -> None:
        """Let the hosts join."""
        self._screen.heading(
            f"Hosts: {HOSTS} of them in {len(ZONES)} zones",
            "Agents join the control plane; each host is virtual: it only pretends to run VMs.",
        )

        async def others_joined() -> bool:
            return len(await self._hosts()) == HOSTS - 1

        async def all_joined() -> bool:
            found = await self._hosts()
            guarded = any(host.name == VICTIM and host.guard for host in found)
            return guarded and sum(host.health == "online" for host in found) == HOSTS

        await self._stage.start_others()
        await self._tape.until(others_joined, within_s=SOON_S, what=f"{HOSTS - 1} hosts")
        await self._stage.start_host()
        await self._tape.until(all_joined, within_s=SOON_S, what=f"{HOSTS} hosts online")
        zones = Counter(host.zone for host in await self._hosts())
        listed = ", ".join(f"{number} in {zone}" for zone, number in sorted(zones.items()))
        self._screen.lines(*map(typed, self._stage.commands), "")
        self._screen.lines(
            f"{HOSTS} hosts are online: {listed}.",
            f"Only {VICTIM} has a process of its own, and a fence guard; it will be killed.",
        )
        self.summary["hosts"] = {"online": HOSTS, "zones": dict(zones), "timers_s": _timers()}

    async def batch(self) -> None:
        """Create many VMs at once."""
        self._screen.heading(
            f"A batch: {BATCH} VMs in one request",
            f"Each is placed by the default strategy, and durable when the request is answered."
            f" {CORDONED} is cordoned first, so it gets none.",
        )
        await self._client.cordon_host(CORDONED)
        wanted = [
            CreateVM(
                name=f"app-{number:03}",
                demand=SMALL,
                restart="elsewhere" if number % 3 == 0 else "here",
            )
            for number in range(1, BATCH + 1)
        ]
        began = self._clock.monotonic()
        found = await self._client.create_vms(wanted)
        placed_s = self._clock.monotonic() - began
        missing = {f"vm/{each.id}" for each in found.results if each.error is None}

        def seen(event: EventBody) -> bool:
            if event.kind == "vm.running":
                missing.discard(event.subject)
            return not missing

        await self._tape.watch(seen, within_s=SOON_S, what=f"{BATCH} VMs running")
        running_s = self._clock.monotonic() - began
        self._screen.lines(
            f"{found.created} of {BATCH} placed and durable in {placed_s * 1000:.0f} ms; all of "
            f"them run after {running_s:.1f} s.",
            "",
        )
        self._screen.show(_by_zone(await self._hosts()))
        self.summary["batch"] = {
            "created": found.created,
            "failed": found.failed,
            "placed_s": round(placed_s, 3),
            "running_s": round(running_s, 3),
        }

    async def files(self) -> None:
        """Bring the fleet to what a file says, twice."""
        path = self._stage.folder / "shop.yaml"
        path.write_text(SHOP)
        self._screen.heading(
            "A file: what shall be there, applied twice",
            "A project with its quota, a flavor, a label of a host, a group and its VMs. The second"
            " time there is nothing to do.",
        )
        self._screen.lines(*(f"  {line}" for line in SHOP.splitlines()), "")
        context = self._stage.context
        told = []
        for _ in range(2):
            self._screen.lines(f"$ roost apply -f {path.name}")
            steps, unchanged = await asyncio.to_thread(
                apply_files, context.server, context.token, [str(path)]
            )
            failed = [step for step in steps if "error" in step]
            if failed:
                raise InvariantBroken(f"apply could not do: {failed[0]}")
            lines = [f"{step['kind']} {step['name']} {step['result']}" for step in steps]
            self._screen.lines(*lines, f"{len(steps)} done, {unchanged} unchanged", "")
            told.append({"done": len(steps), "unchanged": unchanged})
        if told[1]["done"]:
            raise InvariantBroken("a second apply has found something to do")
        self.summary["apply"] = told

    async def strategies(self) -> None:
        """Create VMs by every strategy."""
        known = await self._client.strategies()
        self._screen.heading(
            f"Strategies: {EACH} VMs by each of {len(known.strategies)}",
            "The same demand every time; what differs is which host is taken for the best.",
        )
        listed = tables.table("strategy", "chooses", "went to", "why the last one")
        told = self.summary["strategies"] = []
        for strategy in known.strategies:
            vms = [
                await self._client.create_vm(
                    CreateVM(name=f"{strategy.name}-{number}", demand=SMALL, strategy=strategy.name)
                )
                for number in range(1, EACH + 1)
            ]
            hosts = [vm.host or "-" for vm in vms]
            listed.add_row(
                Text(strategy.name, style="bold"), strategy.summary, "\n".join(hosts), _why(vms[-1])
            )
            told.append({"strategy": strategy.name, "hosts": hosts})
        self._screen.show(listed, Text("scores: lower is better", style="dim"))

    async def no_room(self) -> None:
        """Refuse a VM with its reasons, queue it, and place it when room appears."""
        self._screen.heading(
            "One VM that fits nowhere, and one that waits for room",
            "A refusal counts the reasons and names the smallest fix. The same VM with "
            "on_no_fit: queue waits instead.",
        )
        try:
            await self._client.create_vm(CreateVM(name="warehouse-1", demand=LARGE))
        except NoFit as refusal:
            rejection = refusal.details["rejection"]
        else:
            raise InvariantBroken("warehouse-1 has found room where there is none")
        assert isinstance(rejection, dict)
        asked = PlaceRequest("warehouse-1", Demand(12_000, 24 * GIB, 100 * GIB))
        found = msgspec.convert(rejection, RejectionBody)
        self._screen.show(tables.rejection(found, asked), "")
        queued = await self._client.create_vm(
            CreateVM(name="warehouse-2", demand=LARGE, on_no_fit="queue")
        )
        self._screen.lines(
            f"warehouse-2 asks for the same with on_no_fit: queue, and is {queued.state}."
        )
        self._screen.lines(f"$ roost host uncordon {CORDONED}")
        began = self._clock.monotonic()
        await self._client.uncordon_host(CORDONED)
        await self._tape.watch(
            lambda event: event.kind == "vm.running" and event.subject == f"vm/{queued.id}",
            within_s=SOON_S,
            what="warehouse-2 running",
        )
        waited_s = self._clock.monotonic() - began
        placed = await self._client.get_vm(queued.id)
        self._screen.lines(f"{waited_s:.1f} s later it is {placed.state} on {placed.host}.")
        self.summary["refused"] = rejection
        self.summary["queued"] = {"host": placed.host, "running_s": round(waited_s, 3)}

    async def kill(self) -> None:
        """Kill a host, and watch its VMs be recovered with proof."""
        self._screen.heading(
            f"{VICTIM} dies",
            "VMs with restart: elsewhere start again on other hosts, but only after proof that "
            f"the old copies are stopped. Timers are short for the show: {_timers_text()}.",
        )
        here, elsewhere = _by_restart(await self._vms_on(VICTIM))
        guards = ", ".join(map(str, self._stage.guard_pids))
        self._screen.lines(
            f"{VICTIM} has {len(here) + len(elsewhere)} VMs: {len(elsewhere)} with restart: "
            f"elsewhere, {len(here)} with restart: here (the default).",
            f"$ kill -9 {self._stage.agent_pid(VICTIM)}    "
            f"(its agent; its fence guard, {guards}, lives)",
        )
        moments: dict[str, float] = {}
        began = self._clock.monotonic()
        await self._stage.kill_agent(VICTIM)
        recovered = await self._watch_recovery(began, elsewhere, moments)
        stayed = await self._vms_on(VICTIM)
        unknown = sum(vm.state == "unknown" for vm in stayed)
        await self._nothing_twice("The guard has stopped the old copies")
        self._screen.lines(
            f"The {len(stayed)} VMs with restart: here stay with their host: {unknown} are shown "
            "as unknown."
        )
        self.summary["killed"] = {
            "host": VICTIM,
            "after_s": {name: round(value, 2) for name, value in moments.items()},
            "recovered": recovered,
            "unknown": unknown,
        }

    async def _watch_recovery(
        self, began: float, elsewhere: Sequence[VMBody], moments: dict[str, float]
    ) -> list[dict[str, Any]]:
        names = {f"vm/{vm.id}": vm.name for vm in elsewhere}
        missing = dict(names)
        moved: dict[str, str] = {}

        def tell(subject: str, what: str, note: str = "") -> None:
            after_s = self._clock.monotonic() - began
            self._screen.show(
                Text.assemble(
                    (f"{after_s:6.1f} s  ", "dim"), (f"{subject:<9} ", "bold"), what,
                    (f"  {note}".rstrip(), "dim"),
                )
            )  # fmt: skip

        def seen(event: EventBody) -> bool:
            subject, (_, _, word) = event.subject, event.kind.partition(".")
            if subject == f"host/{VICTIM}" and word in ("suspect", "offline", "fenced"):
                moments[word] = self._clock.monotonic() - began
                tell(VICTIM, f"is {word}", event.note)
            elif event.kind == "vm.recovered" and subject in names:
                moved[subject] = event.note
                tell(names[subject], "is claimed anew", event.note)
            elif event.kind == "vm.running" and subject in moved and subject in missing:
                tell(missing.pop(subject), "runs again")
            return not missing and "fenced" in moments

        await self._tape.watch(seen, within_s=RECOVERY_S, what=f"the VMs of {VICTIM} recovered")
        moments["recovered"] = self._clock.monotonic() - began
        return [{"vm": names[subject], "move": note} for subject, note in moved.items()]

    async def bring_back(self) -> None:
        """Start the host again: old copies are destroyed, the others go on."""
        self._screen.heading(
            f"{VICTIM} comes back",
            "Its agent starts again. What was recovered elsewhere has a tombstone here; what "
            "stayed goes on.",
        )
        recovered = len(self.summary["killed"]["recovered"])
        began = self._clock.monotonic()
        await self._stage.start_host()
        self._screen.lines(
            f"The same command as before starts it, now as process {self._stage.agent_pid(VICTIM)}."
        )
        cleaned: set[str] = set()

        def seen(event: EventBody) -> bool:
            if event.kind == "vm.cleaned":
                cleaned.add(event.subject)
            return len(cleaned) == recovered

        what = f"the old copies on {VICTIM} destroyed"
        await self._tape.watch(seen, within_s=SOON_S, what=what)

        async def all_running() -> bool:
            return all(vm.state == "running" for vm in await self._vms_on(VICTIM))

        await self._tape.until(all_running, within_s=SOON_S, what=f"the VMs of {VICTIM} running")
        after_s = self._clock.monotonic() - began
        running = len(await self._vms_on(VICTIM))
        self._screen.lines(
            f"{after_s:.1f} s later {VICTIM} is online: {len(cleaned)} old copies were destroyed, "
            f"{running} VMs run as before."
        )
        copies = await self._nothing_twice("Counted on the disks of all hosts")
        self.summary["back"] = {
            "host": VICTIM,
            "destroyed": len(cleaned),
            "running": running,
            "after_s": round(after_s, 2),
        }
        self.summary["running_copies"] = copies

    async def _nothing_twice(self, about: str) -> dict[str, int]:
        """Count running copies where they are kept: no VM may have two."""
        copies = await self._stage.running_copies()
        twice = sorted(vm for vm, number in copies.items() if number > 1)
        if twice:
            raise InvariantBroken(f"{len(twice)} VMs run twice: {', '.join(twice[:5])}", vms=twice)
        self._screen.lines(f"{about}: {len(copies)} VMs run, none of them twice.")
        return {"vms": len(copies), "twice": 0}

    async def doctor(self) -> None:
        """Check every invariant on the live database."""
        self._screen.heading("Doctor", "Every promise, checked on the live database.")
        found = await self._client.doctor()
        if found.findings:
            told = "; ".join(each.message for each in found.findings)
            raise InvariantBroken(f"the doctor found: {told}")
        self._screen.lines(
            f"{len(found.checked)} checks on {sum(found.checked.values())} rows: all is well."
        )
        self.summary["doctor"] = {"ok": found.ok, "checked": found.checked}

    # What several steps ask

    async def _vms_on(self, host: str) -> list[VMBody]:
        return (await self._client.list_vms(host=host, limit=1000)).vms


def _why(vm: VMBody) -> str:
    if vm.placement is None:
        return ""
    found = vm.placement
    if not found.runners_up:
        return "its turn"
    following = found.runners_up[0]
    gap = following.score - found.score
    if not found.score and not gap:  # turns, draws and the first that fits have no score
        return f"next would be {following.host}"
    behind = f"{sentences.score(gap)} behind" if gap else "equal"
    return f"score {sentences.score(found.score)}\nnext {following.host} ({behind})"


def _by_restart(vms: Iterable[VMBody]) -> tuple[list[VMBody], list[VMBody]]:
    listed = list(vms)
    here = [vm for vm in listed if vm.restart == "here"]
    return here, [vm for vm in listed if vm.restart == "elsewhere"]


def _by_zone(hosts: Sequence[HostBody]) -> RenderableType:
    made = tables.table("zone", "hosts", "VMs", "cpu", "memory", right=("hosts", "VMs"))
    for zone in ZONES:
        inside = [host for host in hosts if host.zone == zone]
        cpu, memory = [_share(inside, of) for of in (_cpu, _memory)]
        made.add_row(
            Text(zone, style="bold"),
            str(len(inside)),
            str(sum(host.vms for host in inside)),
            tables.bar(cpu),
            tables.bar(memory),
        )
    return made


def _cpu(host: HostBody) -> tuple[int, int]:
    return host.cpu_milli.committed, host.cpu_milli.capacity


def _memory(host: HostBody) -> tuple[int, int]:
    return host.memory_bytes.committed, host.memory_bytes.capacity


def _share(hosts: Sequence[HostBody], of: Callable[[HostBody], tuple[int, int]]) -> float:
    pairs = [of(host) for host in hosts]
    return sum(committed for committed, _ in pairs) / sum(capacity for _, capacity in pairs)


def _timers() -> dict[str, int]:
    return {name: short for name, (short, _) in TIMERS.items()}


def _timers_text() -> str:
    return ", ".join(f"{name} {short} s (usual {usual})" for name, (short, usual) in TIMERS.items())
