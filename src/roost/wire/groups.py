"""The bodies of VM groups over HTTP, and what questions about them are narrowed down by."""

from typing import Annotated, Literal

from msgspec import Meta

from roost.wire.bodies import OWN_PROJECT, Name, ProjectName, Reply, Request, Text, Weight
from roost.wire.queries import After, Limit, Query

RuleName = Literal["affinity", "anti-affinity", "spread"]
ScopeName = Literal["host", "rack", "zone"]


class SetGroupRule(Request):
    """A group's rule, all of it."""

    rule: RuleName
    scope: ScopeName = "host"
    hard: bool = True
    max_skew: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    weight: Weight = 50


class CreateGroup(SetGroupRule, kw_only=True):
    """A group without members."""

    name: Name
    project: ProjectName = OWN_PROJECT  # none: a member's own, else `default`


class SetBudget(Request):
    """A disruption budget: so many members, or such a share of them, may be away at once.

    With neither, or null, the group has no budget. A share is rounded up.
    """

    at_most: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    share: Annotated[float, Meta(ge=0, le=1)] | None = None


class BudgetBody(Reply):
    """A disruption budget: how many members it allows to be away at once, and how many are."""

    at_most: int | None
    share: float | None
    allowed: int
    away: int


class GroupVMs(Request):
    """VMs of the group's project, by id or name, that shall be members or be none any more."""

    vms: Annotated[list[Text], Meta(min_length=1, max_length=1000)]


class GroupSummary(Reply):
    """A group: its rule and how many members it has.

    `id` is what paths name: the name, or for a rule about labels an id of its own. `selector` has
    the labels that make a VM a member of such a group.
    """

    id: str
    name: str
    project: str
    rule: str
    scope: str
    hard: bool
    max_skew: int
    weight: int
    selector: dict[str, str]
    members: int
    generation: int


class MemberBody(Reply):
    """A member, where it is, and the state that it is shown in."""

    id: str
    name: str
    state: str
    host: str | None
    rack: str
    zone: str


class GroupDetail(GroupSummary):
    """A group with its members.

    `holds` says whether the rule holds now for all members, `broken` by which it does not; `vms`
    are the members in the order of their ids, and `next` continues them when there are more.
    """

    holds: bool
    broken: list[str]
    vms: list[MemberBody]
    next: str | None = None
    budget: BudgetBody | None = None  # none: as many may be away as must


class GroupPage(Reply):
    """Some groups; `next` continues the list when there are more."""

    groups: list[GroupSummary]
    next: str | None = None


class OneGroup(Query):
    """Which project a group's name belongs to."""

    project: (
        Annotated[Name, Meta(description="Where to look for the group; `default` if left out.")]
        | None
    ) = None


class ShowGroup(OneGroup):
    """Which members of a group."""

    limit: Limit = 100
    after: After | None = None


class DeleteGroup(OneGroup):
    """Whether a group is deleted that has members."""

    force: Annotated[Literal["true", "false"], Meta(description="Let its members leave it.")] = (
        "false"
    )


class ListGroups(Query):
    """Which groups to list."""

    project: Name | None = None
    name: Name | None = None
    rule: RuleName | None = None
    limit: Limit = 100
    after: After | None = None
