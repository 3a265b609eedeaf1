"""The tour of `roost demo --plan`: an uneven fleet, a plan for it, its moves, and the calm after.

Every number that is shown was asked of the control plane; every wait is for one of its events.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text

from roost.app.demo import HOSTS, VirtualStage
from roost.base.clock import Clock
from roost.base.errors import InvariantBroken
from roost.cli.demo.runner import Screen, Try, typed, typed_command
from roost.cli.demo.served import ServedTour
from roost.cli.show import plans
from roost.wire.bodies import ConstraintsBody, CreateVM, DemandBody, EventBody
from roost.wire.plans import CreatePlan

if TYPE_CHECKING:
    from roost.wire.plans import HostLoadBody, PlanDetail

#: Hosts that take all VMs at first, and VMs.
FULL, VMS = 6, 90
DRAINED, PINNED = "host-01", "ledger-1"
SIZE = DemandBody(cpu=1, memory="2GiB", disk="10GiB")
#: Limits of waits, in seconds: many times what they take, for machines that are busy.
SOON_S, PLAN_S = 90.0, 240.0


class PlanTour(ServedTour[VirtualStage]):
    """The tour of plans on twenty virtual hosts."""

    about: ClassVar[tuple[str, ...]] = (
        "roost demo: an uneven fleet of 20 virtual hosts, a plan for it, and its moves.",
    )

    def __init__(self, clock: Clock, screen: Screen, stage: VirtualStage) -> None:
        super().__init__(clock, screen, stage)
        self.steps = (self.uneven, self.draft, self.moves, self.calm, self.drain, self.doctor)

    @classmethod
    async def prepare(cls) -> type[VirtualStage]:
        """Return the class of the stage."""
        return VirtualStage

    def tries(self) -> Sequence[Try]:
        """Return what can be tried while it serves."""
        roost = typed_command()
        return (
            (f"{roost} plan list", "what was done"),
            (f"{roost} plan create --goal consolidate --dry-run", "which hosts could be off"),
            (f"{roost} plan create --goal consolidate --apply", "then: plan watch PLAN"),
            (f"{roost} recommend", "what is wrong with the fleet now"),
            (f"{roost} topology map", "the network as it is assumed"),
        )

    # Steps

    async def uneven(self) -> None:
        """Fill a few hosts, and leave the others empty."""
        self._screen.heading(
            f"An uneven fleet: {VMS} VMs on {FULL} of {HOSTS} hosts",
            "The other hosts are cordoned while the VMs are created, and opened again then.",
        )

        async def others_joined() -> bool:
            return len(await self._hosts()) == HOSTS - 1

        async def all_joined() -> bool:
            return sum(host.health == "online" for host in await self._hosts()) == HOSTS

        await self._stage.start_others()
        await self._tape.until(others_joined, within_s=SOON_S, what=f"{HOSTS - 1} hosts")
        await self._stage.start_host()
        await self._tape.until(all_joined, within_s=SOON_S, what=f"{HOSTS} hosts online")
        empty = [host.name for host in sorted(await self._hosts(), key=lambda h: h.name)][FULL:]
        for name in empty:
            await self._client.cordon_host(name)
        wanted = [CreateVM(name=f"app-{n:03}", demand=SIZE) for n in range(1, VMS)]
        pinned = ConstraintsBody(hosts=[DRAINED])
        wanted.append(CreateVM(name=PINNED, demand=SIZE, constraints=pinned))
        made = await self._client.create_vms(wanted)
        missing = {f"vm/{each.id}" for each in made.results if each.error is None}

        def seen(event: EventBody) -> bool:
            if event.kind == "vm.running":
                missing.discard(event.subject)
            return not missing

        await self._tape.watch(seen, within_s=SOON_S, what=f"{VMS} VMs running")
        for name in empty:
            await self._client.uncordon_host(name)
        self._screen.lines(f"{made.created} VMs run; {len(empty)} hosts are empty and open again.")
        self.summary["uneven"] = {"vms": made.created, "empty": len(empty)}

    async def draft(self) -> None:
        """Show a plan that nobody has kept."""
        self._screen.heading(
            "A plan, as a dry run",
            "The engine is asked about every move on a copy of the fleet. Nothing is kept.",
        )
        self._screen.lines(typed(f"{typed_command()} plan create --goal balance --dry-run"), "")
        began = self._clock.monotonic()
        found = await self._client.create_plan(CreatePlan(goal="balance", dry_run=True))
        took_s = self._clock.monotonic() - began
        self._screen.show(_short(found))
        self._screen.lines(f"Drafted in {took_s:.2f} s.")
        self.summary["draft"] = {"moves": found.moves, "seconds": round(took_s, 3)}

    async def moves(self) -> None:
        """Carry the plan out, and show the moves as they happen."""
        self._screen.heading(
            "The moves, as they happen",
            "Each claims its target when it begins; a wave begins when the last one is over.",
        )
        began = self._clock.monotonic()
        plan = await self._client.create_plan(CreatePlan(goal="balance", apply=True, at_once=12))
        self._screen.lines(typed(f"{typed_command()} plan watch {plan.id}"), "")
        await self._until_over(plan.id, began)
        done = await self._client.get_plan(plan.id)
        if done.state != "done" or done.failed:
            raise InvariantBroken(f"the plan is {done.state} {done.why}, {done.failed} failed")
        self._screen.lines(
            f"{done.done} moves in {done.wave} waves, {self._clock.monotonic() - began:.1f} s."
        )
        self.summary["moves"] = {"done": done.done, "waves": done.wave, "replans": done.replans}
        self._loads = done

    async def _until_over(self, plan: str, began: float) -> None:
        count = 0

        def seen(event: EventBody) -> bool:
            nonlocal count
            after_s = self._clock.monotonic() - began
            if event.kind == "vm.moved" and event.actor != "drain":
                count += 1
            elif event.subject == f"plan/{plan}" and event.kind in ("plan.wave", "plan.replanned"):
                self._screen.lines(f"{after_s:6.1f} s  {event.note}: {count} VMs have moved so far")
            return event.subject == f"plan/{plan}" and event.kind in (
                "plan.done", "plan.failed", "plan.cancelled",
            )  # fmt: skip

        await self._tape.watch(seen, within_s=PLAN_S, what=f"the end of plan {plan}")

    async def calm(self) -> None:
        """Show the fleet after the plan, and that another one finds nothing."""
        self._screen.heading("The calm afterwards", "The same goal again proposes nothing.")
        found = self._loads
        assert found.actual is not None
        self._screen.show(plans.loads(_some(found.hosts)))
        self._screen.lines(
            f"Spread of loads: {found.before.spread:.3f} before, {found.actual.spread:.3f} measured"
            " after.",
        )
        again = await self._client.create_plan(CreatePlan(goal="balance", dry_run=True))
        if again.moves:
            raise InvariantBroken(f"a second plan has {again.moves} moves more")
        self._screen.lines("A second plan has 0 moves.")
        self.summary["calm"] = {
            "before": found.before.spread, "after": found.actual.spread, "again": again.moves,
        }  # fmt: skip

    async def drain(self) -> None:
        """Drain a host by a plan that names its blocker first."""
        self._screen.heading(
            f"{DRAINED} is emptied", "What cannot leave is named before anything moves."
        )
        plan = await self._client.create_plan(CreatePlan(goal="drain", hosts=[DRAINED]))
        blocked = [each for each in plan.blocked if each.name == PINNED]
        if not blocked:
            raise InvariantBroken(f"{PINNED} is pinned to {DRAINED}, and the plan does not say so")
        self._screen.lines(
            f"{plan.moves} VMs would leave in about {plan.eta_s:.0f} s; "
            f"{PINNED} cannot: {blocked[0].why}."
        )
        began = self._clock.monotonic()
        await self._client.apply_plan(plan.id)
        await self._until_over(plan.id, began)
        left = (await self._client.list_vms(host=DRAINED, limit=1000)).vms
        names = ", ".join(vm.name for vm in left)
        self._screen.lines(f"{DRAINED} has {len(left)} VM left: {names}.")
        self.summary["drain"] = {"left": [vm.name for vm in left], "blocked": len(plan.blocked)}

    async def doctor(self) -> None:
        """Check every invariant on the live database."""
        self._screen.heading("Doctor", "Every promise, checked on the live database.")
        found = await self._client.doctor()
        if found.findings:
            told = "; ".join(each.message for each in found.findings)
            raise InvariantBroken(f"the doctor found: {told}")
        copies = await self._stage.running_copies()
        if twice := sorted(vm for vm, number in copies.items() if number > 1):
            raise InvariantBroken(f"{len(twice)} VMs run twice: {', '.join(twice[:5])}")
        self._screen.lines(
            f"{len(found.checked)} checks: all is well; {len(copies)} VMs run, none twice."
        )
        self.summary["doctor"] = {"ok": found.ok, "vms": len(copies)}


def _short(found: "PlanDetail") -> Text:
    first = ", ".join(f"{each.name} {each.source}→{each.target}" for each in found.listed[:4])
    return Text(
        f"{found.moves} moves in {found.waves} waves, about {found.eta_s:.0f} s, "
        f"{found.sent_bytes / 2**30:.0f} GiB sent.\n"
        f"Spread of loads {found.before.spread:.3f}, then {found.after.spread:.3f}; "
        f"fullest host {100 * found.before.fullest:.0f}%, then {100 * found.after.fullest:.0f}%.\n"
        f"First: {first} ..."
    )


def _some(hosts: "Sequence[HostLoadBody]") -> "list[HostLoadBody]":
    return sorted(hosts, key=lambda each: each.host)[:12]
