"""The bodies of policies over HTTP.

A policy is a named, versioned bundle of how VMs are placed, kept and restarted: what a VM says
itself comes before. Whoever is created under it, by naming it or because it is the default of the
project, is bound by its rules from then on, in whatever version it is.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from roost.model.states import Restart
from roost.wire.bodies import Name, ProjectName, Reply, Request, Weight
from roost.wire.constraints import (
    ConflictBody,
    Description,
    Expression,
    Kind,
    Level,
    Share,
    ViolationBody,
)
from roost.wire.queries import After, Limit, Query

#: Policies that may be there at once, rules of one, and rules of all together.
MOST_POLICIES = 200
MOST_RULES = 100
MOST_RULES_IN_ALL = 1000
#: Versions of one policy that are kept.
MOST_VERSIONS = 100
#: Past requests that a dry run takes again at most, and those that one answer names.
MOST_REQUESTS = 10_000
MOST_NAMED = 1000

StrategyName = Annotated[str, Meta(max_length=64)]
Preemption = Literal["never", "lower"]
Ratio = Annotated[float, Meta(ge=0.01, le=16, description="Of what a host has; 2.5 is 250 %.")]
Part = Annotated[int, Meta(ge=0, le=100)]


class PolicyRuleBody(Request):
    """One rule of a policy: as a constraint is, for the VMs of the policy."""

    name: Name
    expression: Expression
    kind: Kind = "hard"
    weight: Share = 1.0
    priority: Level = 0
    description: Description = ""


class WeightsBody(Request):
    """Shares of the resources in the score of a strategy that weighs them."""

    cpu: Part = 0
    memory: Part = 0
    disk: Part = 0


class OvercommitBody(Request):
    """The most that a host promises for a VM of the policy; a host's own bound holds as well."""

    cpu: Ratio | None = None
    memory: Ratio | None = None
    disk: Ratio | None = None


class SpreadBody(Request):
    """How the VMs that one project has of the policy are spread."""

    scope: Literal["host", "rack", "zone"] = "host"
    kind: Kind = "soft"
    max_skew: Annotated[int, Meta(ge=1, le=1000)] = 1
    weight: Weight = 50


Rules = Annotated[list[PolicyRuleBody], Meta(max_length=MOST_RULES)]


class BundleFields(Request):
    """What a policy says; null or left out: it leaves that to others."""

    strategy: StrategyName | None = None
    weights: WeightsBody | None = None
    rules: Rules = field(default_factory=list)
    overcommit: OvercommitBody | None = None
    spread: SpreadBody | None = None
    preemption: Preemption | None = None
    restart: Restart | None = None


class CreatePolicy(BundleFields, kw_only=True):
    """A policy. One whose rules contradict each other, or that no host passes, needs `force`."""

    name: Name
    description: Description = ""
    force: bool = False


class ChangedFields(Request):
    """What a policy is to say differently; what is left out stays, null clears it."""

    strategy: StrategyName | UnsetType | None = UNSET
    weights: WeightsBody | UnsetType | None = UNSET
    rules: Rules | UnsetType = UNSET
    overcommit: OvercommitBody | UnsetType | None = UNSET
    spread: SpreadBody | UnsetType | None = UNSET
    preemption: Preemption | UnsetType | None = UNSET
    restart: Restart | UnsetType | None = UNSET


class ChangePolicy(ChangedFields, kw_only=True):
    """A change of a policy, all rules replaced where some are given.

    With `version` it is refused when somebody else has changed the policy since.
    """

    description: Description | UnsetType = UNSET
    version: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET
    force: bool = False


class RollBackPolicy(Request):
    """An earlier version that is to hold again, as a new version."""

    version: Annotated[int, Meta(ge=1, le=2**53)]
    force: bool = False


class DryRunPolicy(ChangedFields, kw_only=True):
    """A policy that is tried: one that exists, with what is different, or a new one.

    Past requests of its VMs, and all of `project` if one is named, are taken again under it.
    """

    name: Name = "dry-run"
    project: ProjectName | None = None
    requests: Annotated[int, Meta(ge=0, le=MOST_REQUESTS)] = 1000


class ApplyPolicy(Request):
    """The policy of a project's new VMs that name none; null: they have none."""

    policy: Name | None


class BrokenRule(Reply):
    """A hard rule that does not hold where a VM is, and its part that does not."""

    rule: str
    part: str


class VMPolicyBody(Reply):
    """The policy that a VM is under, and which hard rules its place breaks now."""

    vm: str
    name: str
    project: str
    policy: str | None
    version: int | None  # of the policy, when the VM was put under it
    host: str | None
    changed: bool  # whether it was under another one before
    violations: list[BrokenRule]


class PolicyFields(Reply):
    """What a policy says."""

    strategy: str | None
    weights: dict[str, int] | None
    rules: list[PolicyRuleBody]
    overcommit: dict[str, float] | None
    spread: SpreadBody | None
    preemption: str | None
    restart: str | None


class PolicyBody(PolicyFields):
    """A policy as it is now; `projects` have it as their default."""

    name: str
    description: str
    version: int
    projects: list[str]
    created_at: str
    created_by: str
    changed_at: str
    changed_by: str


class PolicyVersion(PolicyFields):
    """What a policy said at one version."""

    version: int
    description: str
    changed_at: str
    changed_by: str


class PolicyDetail(PolicyBody):
    """A policy with its versions, the newest first, and what to know about it."""

    versions: list[PolicyVersion]
    conflicts: list[ConflictBody] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class PolicyPage(Reply):
    """Some policies; `next` continues the list when there are more."""

    policies: list[PolicyBody]
    next: str | None = None


class DifferenceBody(Reply):
    """One thing that two versions or policies say differently; null: it is not said."""

    field: str
    before: str | None
    after: str | None


class PolicyDiffBody(Reply):
    """What is different between two versions of a policy, or between two policies."""

    before: str
    after: str
    differences: list[DifferenceBody]


class MovedBody(Reply):
    """A past request that would be answered differently; null: it is refused."""

    vm: str
    name: str
    project: str
    before: str | None
    after: str | None
    why: str = ""


class PolicyDryRunBody(Reply):
    """What a policy would do: past requests taken again as it is and as it would be.

    `elsewhere`, `refused` and `admitted` count requests that get another host, none any more, or
    one that they did not get; `requests` names them. `violated` counts VMs of today that hard
    rules would find in the wrong place and do not yet.
    """

    replayed: int
    under: int
    elsewhere: int
    refused: int
    admitted: int
    requests: list[MovedBody]
    violated: int
    violations: list[ViolationBody]
    conflicts: list[ConflictBody]
    says: list[str]


class ListPolicies(Query):
    """Which policies to list."""

    limit: Limit = 100
    after: After | None = None


class ComparePolicy(Query):
    """What a policy is compared with: its version `to`, or the other policy, as it is now."""

    of: (
        Annotated[int, Meta(ge=1, description="Version to begin with; the last but one.")] | None
    ) = None
    to: Annotated[int, Meta(ge=1, description="Version to end with; the newest.")] | None = None
    other: Annotated[Name, Meta(description="Another policy, instead of a version.")] | None = None
