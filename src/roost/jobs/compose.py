"""Jobs put together: the parts of one process, in the order in which a plane runs them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roost.jobs.accounts import Accounts
from roost.jobs.assigning import Assigner
from roost.jobs.bell import Bell
from roost.jobs.catalogue import Catalogue, Providers
from roost.jobs.desk import JobDesk
from roost.jobs.detecting import Detecting, Patience
from roost.jobs.door import WorkerDoor
from roost.jobs.fetching import Fetching
from roost.jobs.keeping import Keeping, KeptJobs
from roost.jobs.kinds import JobKinds
from roost.jobs.owner import Owner
from roost.jobs.planner import Planner
from roost.jobs.pools import Pools
from roost.jobs.renting import Renting
from roost.jobs.submitting import Submitting
from roost.parts.part import Part
from roost.parts.sharing import Bring, Shared


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What jobs need to know of the process that they run in."""

    providers: Providers
    server: Callable[[], tuple[str, str]]  # where workers reach it, and whom they trust
    outputs_to: str = ""  # where outputs go by default
    outputs_are_shared: bool = True  # machines of every provider reach that place
    patience: Patience = field(default_factory=Patience)
    kept: KeptJobs = field(default_factory=KeptJobs)
    outputs: Path | None = None  # the folder of `outputs_to`, if it is this server's own


def job_parts(settings: JobSettings) -> Bring:
    """Return what makes the parts of jobs for a plane."""

    def bring(shared: Shared) -> Sequence[Part]:
        store, clock = shared.store, shared.clock
        bell = Bell(clock)
        catalogue = Catalogue(store, clock, shared.seal, settings.providers)
        owner = Owner(store, shared.ids)
        renting = Renting(
            store, clock, shared.access, shared.seal, catalogue, shared.leases.holder,
            owner.tag, settings.server, shared.able,
        )  # fmt: skip
        planner = Planner(
            store, clock, shared.ids, shared.leases.singleton("jobs"), catalogue, bell,
            renting.summons, shared.able,
        )  # fmt: skip
        renting.planning = planner.summons.ring
        ring = planner.summons.ring
        submitting = Submitting(
            store, clock, shared.ids, catalogue, shared.seal,
            outputs_are_shared=settings.outputs_are_shared,
        )  # fmt: skip
        return (
            JobDesk(
                store, clock, submitting, bell, ring,
                lambda pool: catalogue.types(pool, clock.monotonic())[0],
                Fetching(store, settings.outputs),
            ),
            JobKinds(store),
            Pools(store, catalogue, ring),
            Accounts(store, shared.seal, catalogue, settings.patience.untracked_s),
            WorkerDoor(
                store, clock, shared.access, Assigner(settings.outputs_to, shared.seal), bell,
                ring,
            ),
            planner,
            renting,
            Keeping(clock, settings.kept, settings.outputs),
            Detecting(
                store, clock, shared.leases.singleton("machines"), catalogue, owner.tag,
                settings.patience, bell, ring, renting.summons.ring,
            ),
        )  # fmt: skip

    return bring
