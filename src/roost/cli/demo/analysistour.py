"""The tour of `roost demo --analysis`: two weeks are learnt from, and a VM is placed by them.

One host has promised little and its VMs are about to be busy; another has promised much to VMs that
sleep at this hour. By promises alone the next VM goes to the first.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text

from roost.app.demoanalysis import CORES, HOSTS, AnalysisStage, Guest, two_weeks
from roost.base.clock import Clock
from roost.base.errors import InvariantBroken
from roost.cli.demo.runner import Screen, Try, limit, typed, typed_command
from roost.cli.demo.served import ServedTour
from roost.cli.show import fleetreports, profiles, tables
from roost.wire.bodies import CreateVM, DemandBody, DryRun, PlacementBody, VMBody

if TYPE_CHECKING:
    from roost.wire.bodies import PredictedBody

#: Limits of waits, in seconds; a look at what is new to learn comes every half minute.
SOON_S, LEARN_S = 60.0, 120.0
#: How much longer learning may take where the compiler is at work beside it, or has yet to be.
COMPILE_S = 600.0
_POLL_S = 1.0
#: Host, VMs, cores of each, and when they are busy: hours after the demo's.
_BUSY, _ASLEEP = 3.0, 15.0
_WORK = (("host-01", 3, 2, _BUSY), ("host-02", 5, 2, _ASLEEP), ("host-03", 6, 2, None))
_LOADS = {"busy": "mean=0.5,amplitude=0.48", "asleep": "mean=0.25,amplitude=0.23"}
NEXT_CORES = 3
NEXT = DemandBody(cpu=NEXT_CORES, memory="4GiB", disk="10GiB")


class AnalysisTour(ServedTour[AnalysisStage]):
    """The tour of three hosts with two weeks behind them."""

    about: ClassVar[tuple[str, ...]] = (
        "roost demo: a control plane and three virtual hosts, two weeks of what their VMs use, and",
        "a VM that is placed by it.",
    )

    def __init__(self, clock: Clock, screen: Screen, stage: AnalysisStage) -> None:
        super().__init__(clock, screen, stage)
        self.steps = (self.work, self.past, self.place, self.vm, self.fleet)
        self._vms: dict[str, list[VMBody]] = {}

    async def start(self, port: int) -> None:
        """Start the control plane; a first start on a machine may take long to learn."""
        await super().start(port)
        if self._stage.compiles:  # nothing is learnt before, and it compiles at low priority
            self.limit_s += COMPILE_S

    @classmethod
    async def prepare(cls) -> type[AnalysisStage]:
        """Return the class of the stage."""
        return AnalysisStage

    def tries(self) -> Sequence[Try]:
        """Return what can be tried while it serves."""
        roost = typed_command()
        return (
            (f"{roost} analyze vm busy-1", "what it does, and will do"),
            (f"{roost} analyze fleet --html fleet.html", "all of it on one page"),
            (f"{roost} vm explain by-predictions", "what every host is predicted to use"),
        )

    # Steps

    async def work(self) -> None:
        """Let the hosts join, and VMs run on them."""
        self._screen.heading(
            f"{HOSTS} hosts of {CORES} cores, which they promise twice",
            "host-01 runs three VMs that are busy at this time of the day, host-02 five that are "
            "busy twelve hours from now, host-03 six that always are.",
        )
        await self._stage.start_others()

        async def joined() -> bool:
            return sum(host.health == "online" for host in await self._hosts()) == HOSTS

        await self._tape.until(joined, within_s=SOON_S, what=f"{HOSTS} hosts online")
        hour = self._clock.wall_ms() / 3_600_000 % 24
        for host, count, cores, later in _WORK:
            kind = "steady" if later is None else "busy" if later == _BUSY else "asleep"
            peak = 0.0 if later is None else (hour + later) % 24
            load = (
                "steady:mean=0.6" if later is None
                else f"daily:{_LOADS[kind]},peak={peak:.1f},noise=0.05"
            )  # fmt: skip
            self._vms[host] = [
                await self._client.create_vm(
                    CreateVM(
                        name=f"{kind}-{number}",
                        demand=DemandBody(cpu=cores, memory="4GiB", disk="10GiB"),
                        labels={"load": load},
                        constraints={"hosts": [host]},  # type: ignore[arg-type]
                    )
                )
                for number in range(1, count + 1)
            ]
        self._screen.lines(*map(typed, self._stage.commands), "")
        listed = tables.table("host", "VMs", "cores promised")
        for host, count, cores, _ in _WORK:
            listed.add_row(host, str(count), f"{count * cores} of {2 * CORES}")
        self._screen.show(listed)

    async def past(self) -> None:
        """Bring in two weeks of readings, and wait until they are learnt from."""
        self._screen.heading(
            "Two weeks of readings",
            "What these hosts would have sent in a fortnight is brought in, as `roost analyze "
            "import` does; what is new is learnt from within half a minute.",
        )
        guests = {
            host: [Guest(vm.id, vm.name, _cores(vm), vm.labels["load"]) for vm in vms]
            for host, vms in self._vms.items()
        }
        began, moments = self._clock.monotonic(), 0
        for _, parts in two_weeks(guests, self._clock.wall_ms()):
            for part in parts:
                moments += (await self._client.import_series(part)).kept
        self._screen.lines(
            f"{moments:,} readings in {self._clock.monotonic() - began:.1f} s; now learning ..."
        )
        if self._stage.compiles:
            self._screen.lines("(once on a machine that waits for its kernels: some minutes)")
        predicted = await self._predictions()
        listed = tables.table("host", "cores promised", "predicted in the next 4 hours", "has")
        for host, count, cores, _ in _WORK:
            listed.add_row(
                host, f"{count * cores} of {2 * CORES}",
                f"up to {predicted[host].cpu_milli / 1000:.1f} cores", f"{CORES} cores",
            )  # fmt: skip
        self._screen.show(listed)
        self.summary["readings"] = moments
        self.summary["predicted_cpu_milli"] = {
            host: each.cpu_milli for host, each in predicted.items()
        }

    async def _predictions(self) -> "dict[str, PredictedBody]":
        """Return what is predicted of every host, once it is."""
        most_s = LEARN_S + (COMPILE_S if self._stage.compiles else 0.0)
        async with limit(most_s, "what is predicted of the hosts"):
            while True:
                found = await self._client.explain_vm("steady-1")
                told = {each.host: each.predicted for each in found.verdicts}
                known = {host: each for host, each in told.items() if each is not None}
                if len(known) == HOSTS:
                    return known
                await self._clock.sleep(_POLL_S)

    async def place(self) -> None:
        """Place the same VM by promises and by predictions."""
        self._screen.heading(
            "The next VM: by promises, and by what will be used",
            "The same VM of 3 cores, asked about twice: by `least_loaded` and by `metrics_based`.",
        )
        predicted = await self._predictions()
        chosen = {}
        listed = tables.table("strategy", "host", "it will use, with the VM", "of")
        for strategy in ("least_loaded", "metrics_based"):
            asked = DryRun(name="next", demand=NEXT, strategy=strategy)
            found = await self._client.dry_run(asked)
            if not isinstance(found, PlacementBody):
                raise InvariantBroken(f"no host for a VM of {NEXT_CORES} cores")
            host = chosen[strategy] = found.host
            used = predicted[host].cpu_milli / 1000 + NEXT_CORES
            short = used > CORES
            listed.add_row(
                strategy, host, Text(f"up to {used:.1f} cores", "red" if short else "green"),
                f"{CORES} cores",
            )  # fmt: skip
            self.summary[strategy] = {"host": host, "cores": round(used, 2), "short": short}
        self._screen.show(listed)
        if chosen["least_loaded"] == chosen["metrics_based"]:
            raise InvariantBroken("promises and predictions chose the same host")
        self._screen.lines(
            "",
            f"By promises it would have gone to {chosen['least_loaded']}, which promised least and "
            "is about to be short.",
        )
        made = CreateVM(name="by-predictions", demand=NEXT, strategy="metrics_based")
        self.summary["placed"] = (await self._client.create_vm(made)).host

    async def vm(self) -> None:
        """Show what was learnt of one VM."""
        self._screen.heading(
            "One VM: what it does, and will do", typed(f"{typed_command()} analyze vm busy-1")
        )
        found = await self._client.vm_profile("busy-1", hours=24)
        self._screen.show(profiles.profile(found, "cpu", 96))

    async def fleet(self) -> None:
        """Show the report on the fleet."""
        self._screen.heading("The fleet in one report", typed(f"{typed_command()} analyze fleet"))
        async with limit(SOON_S, "the report on the fleet"):
            while (found := (await self._client.fleet_report()).report) is None:
                pass
        self._screen.show(fleetreports.report(found))
        self.summary["report"] = {"vms": found.vms, "groups": found.group_count}


def _cores(vm: VMBody) -> int:
    return vm.demand.cpu_milli // 1000
