"""The bodies of priority classes and preemptions over HTTP."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from roost.model.states import Preempts
from roost.wire.bodies import Name, PreemptionBody, Priority, Reply, Request
from roost.wire.queries import After, Limit, Query

#: Priority classes that a fleet may have.
MOST_CLASSES = 1000

Description = Annotated[str, Meta(max_length=1000)]


class CreatePriorityClass(Request):
    """A priority class. There is one default: making another takes it from the one before."""

    name: Name
    value: Priority
    preempts: Preempts = "lower"
    default: bool = False
    description: Description = ""


class ChangePriorityClass(Request):
    """What is to be different; what is left out stays. The value never changes."""

    preempts: Preempts | UnsetType = UNSET
    default: bool | UnsetType = UNSET
    description: Description | UnsetType = UNSET


class PriorityClassBody(Reply):
    """A priority class; its VMs have `value` as their priority."""

    name: str
    value: int
    preempts: str
    default: bool
    description: str
    created_at: str
    created_by: str
    changed_at: str
    changed_by: str


class PriorityClassPage(Reply):
    """All priority classes, the most important first."""

    classes: list[PriorityClassBody]


class DeletePriorityClass(Query):
    """Whether a class is deleted that VMs have."""

    force: Annotated[
        Literal["true", "false"],
        Meta(description="Also if VMs have it: they keep their priority and displace nobody."),
    ] = "false"


class PreemptionAnswer(Reply):
    """Who would make room for a VM: a preemption, or why none helps."""

    preemption: PreemptionBody | None = None
    why: str = ""


class PreemptionPage(Reply):
    """Preemptions under way; `next` continues the list when there are more."""

    preemptions: list[PreemptionBody]
    next: str | None = None


class ListPreemptions(Query):
    """Which preemptions to list."""

    limit: Limit = 100
    after: After | None = None
