"""The doctor on a bare database: every check of a plane's parts, without a plane that runs."""

from roost.base.clock import RealClock
from roost.base.ids import IdSource
from roost.control.admin.doctor import doctor as examine
from roost.control.plane import Plane, PlaneSettings
from roost.jobs.compose import JobSettings, job_parts
from roost.ledger.store import Store
from roost.parts.part import Part
from roost.testing.jobs import ModelCloud, ModelClouds
from roost.wire.bodies import DoctorBody


def parts_on(store: Store) -> tuple[Part, ...]:
    """Return the parts of a plane on this database, jobs too, as they are before any load."""
    clock = RealClock()
    jobs = job_parts(JobSettings(ModelClouds(ModelCloud()), server=lambda: ("", "")))
    return Plane(store, clock, IdSource(clock.wall_ms), PlaneSettings(), bring=jobs).parts


async def doctor(store: Store) -> DoctorBody:
    """Check every invariant."""
    return await examine(store, parts_on(store))
