"""The bodies of flavors over HTTP: the amounts of VMs, by name."""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from roost.wire.bodies import DemandBody, Name, Reply, Request

#: Flavors that a fleet may have.
MOST_FLAVORS = 1000

Description = Annotated[str, Meta(max_length=1000)]


class CreateFlavor(Request):
    """A flavor: VMs that name it are created with this demand."""

    name: Name
    demand: DemandBody
    description: Description = ""


class ChangeFlavor(Request):
    """What is to be different, for VMs to come; what is left out stays."""

    demand: DemandBody | UnsetType = UNSET
    description: Description | UnsetType = UNSET


class FlavorBody(Reply):
    """A flavor, its demand as it was said and in whole numbers."""

    name: str
    demand: DemandBody
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    gpu: int
    description: str
    created_at: str
    created_by: str
    changed_at: str
    changed_by: str


class FlavorPage(Reply):
    """All flavors, by name."""

    flavors: list[FlavorBody]
