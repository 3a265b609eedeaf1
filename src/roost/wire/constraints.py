"""The bodies of constraints over HTTP, and what questions about them are narrowed down by.

A constraint is a rule about where VMs may be: a condition in the rule language, or the same as a
JSON tree, for the VMs that its scope names. `project`, `policy`, `selector` and `vm` narrow it down
together; without any of them it is for every VM of the fleet.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from roost.wire.bodies import (
    Labels,
    Name,
    ProjectName,
    RejectionBody,
    Reply,
    Request,
    Text,
)
from roost.wire.queries import After, Limit, Query

#: Constraints that may be there at once: each is asked about at every decision that it binds.
MOST_CONSTRAINTS = 1000
#: Those of one project, and those of all projects together: the rest is the fleet's own.
MOST_OF_A_PROJECT = 100
MOST_OF_PROJECTS = 800
#: Versions of one constraint that are kept.
MOST_VERSIONS = 100
#: VMs that one answer names.
MOST_NAMED = 1000

Kind = Literal["hard", "soft"]
Expression = (
    Annotated[
        str,
        Meta(
            min_length=1,
            max_length=16_384,
            description="A condition in the rule language, such as `host.zone in ['a', 'b']`.",
        ),
    ]
    | Annotated[
        dict[str, Any],
        Meta(
            min_length=1,
            max_length=5,
            description="The same as a tree: {left, operator, right} or "
            "{logicalOperator, subExpressions}.",
        ),
    ]
)
Description = Annotated[str, Meta(max_length=1000)]
Level = Annotated[int, Meta(ge=0, le=1_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Selector = Annotated[Labels, Meta(max_length=16)]
When = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=4096,
        description="A condition on `fleet.*`, its load or the time: `fleet.load > 0.8`.",
    ),
]
TimeZone = Annotated[str, Meta(min_length=1, max_length=64, description="Such as Europe/Berlin.")]
#: The least time between two switches of a rule.
Dwell = Annotated[int, Meta(ge=10, le=7 * 86400)]
Seconds = Annotated[int, Meta(ge=1, le=10 * 365 * 86400)]


class RuleFields(Request):
    """What a rule says, and whom it is for."""

    expression: Expression
    description: Description = ""
    kind: Kind = "hard"
    weight: Share = 1.0
    priority: Level = 0
    selector: Selector = field(default_factory=dict)
    vm: Text | None = None
    policy: Name | None = None
    enabled: bool = True
    expires_in_s: Seconds | None = None
    when: When | None = None
    until: When | None = None
    time_zone: TimeZone | None = None
    dwell_s: Dwell | None = None
    relax_after_s: Seconds | None = None


class CreateConstraint(RuleFields, kw_only=True):
    """A constraint. One that leaves some VMs without any host is refused unless by `force`.

    With `when` it holds once that is true, until `until` is (without one: until `when` is not), and
    is switched at most once in `dwell_s` (60 unless given). With `relax_after_s` a hard one is soft
    for a VM that has waited so long.
    """

    name: Name
    project: ProjectName | None = None
    force: bool = False


class ChangeConstraint(Request):
    """What is to be different; what is left out stays. `expires_in_s` null: it does not expire.

    `when` null: it always holds; `relax_after_s` null: it does not relax.

    With `version` the change is refused when somebody else has changed it since.
    """

    expression: Expression | UnsetType = UNSET
    description: Description | UnsetType = UNSET
    kind: Kind | UnsetType = UNSET
    weight: Share | UnsetType = UNSET
    priority: Level | UnsetType = UNSET
    selector: Selector | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    expires_in_s: Seconds | UnsetType | None = UNSET
    when: When | UnsetType | None = UNSET
    until: When | UnsetType | None = UNSET
    time_zone: TimeZone | UnsetType | None = UNSET
    dwell_s: Dwell | UnsetType | None = UNSET
    relax_after_s: Seconds | UnsetType | None = UNSET
    version: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET
    force: bool = False


class DryRunConstraint(RuleFields, kw_only=True):
    """A constraint that is tried and not made; with the name of one that is there, in its place."""

    name: Name = "dry-run"
    project: ProjectName | None = None


class ConstraintBody(Reply):
    """A constraint as it is now.

    `id` is what paths name: the name, and before it the project and a slash where it belongs to
    one. `expression` is its text in the rule language, `tree` the same as a JSON tree or null where
    a tree cannot say it; `form` is how it was written. `holds` says whether it binds VMs now: it is
    enabled, and `when` let it (`active`), which it does since `switched_at`.
    """

    id: str
    name: str
    project: str | None
    description: str
    expression: str
    tree: dict[str, Any] | None
    form: str
    kind: str
    weight: float
    priority: int
    selector: dict[str, str]
    vm: str | None
    policy: str | None
    enabled: bool
    expires_at: str | None
    version: int
    created_at: str
    created_by: str
    changed_at: str
    changed_by: str
    holds: bool = True
    when: str | None = None
    until: str | None = None
    time_zone: str | None = None
    dwell_s: int | None = None
    active: bool = True
    switched_at: str | None = None
    relax_after_s: int | None = None


class ConstraintVersion(Reply):
    """What a constraint was at one version."""

    version: int
    expression: str
    kind: str
    weight: float
    priority: int
    selector: dict[str, str]
    enabled: bool
    changed_at: str
    changed_by: str
    when: str | None = None
    until: str | None = None
    relax_after_s: int | None = None


class ConflictBody(Reply):
    """Rules that do not go together, or one that no host passes now.

    `kind` is contradiction (whatever the hosts), no_host (no host passes all of them, though some
    pass each) or unsatisfied (no host passes it); `parts` are those of the rules, in their order.
    """

    kind: str
    rules: list[str]
    parts: list[str]
    says: str


class ConstraintDetail(ConstraintBody, kw_only=True):
    """A constraint with its versions, the newest first.

    When it is made or changed, and not by force, `conflicts` says with which other rules it leaves
    VMs no host that nobody has created yet.
    """

    versions: list[ConstraintVersion]
    conflicts: list[ConflictBody] = field(default_factory=list)


class ConstraintPage(Reply):
    """Some constraints; `next` continues the list when there are more."""

    constraints: list[ConstraintBody]
    next: str | None = None


class RepairBody(Reply):
    """One move after which a violation is none: of the VM itself, or of another on its host.

    It fits now and moves the least memory and disk of the moves that were tried.
    """

    action: str
    vm: str
    name: str
    project: str
    to: str
    memory_bytes: int
    disk_bytes: int


class ViolationBody(Reply):
    """A VM that a rule finds in the wrong place. It stays, and may be stopped, started, shrunk.

    `part` is the part of the rule that is not true there, `rule_since` since when the rule is as it
    is, `since` since when the VM is known to be in the wrong place there; null until that is kept.
    """

    vm: str
    name: str
    project: str
    host: str
    rule: str
    part: str
    rule_since: str
    since: str | None = None
    repair: RepairBody | None = None  # the cheapest single move
    in_the_way: RejectionBody | None = None  # why the VM cannot move, where no move helps


class ViolationsBody(Reply):
    """Which VMs hard rules find in the wrong place now; `total` counts those left out, too.

    Repairs are looked for of the first `repaired` of them.
    """

    total: int
    violations: list[ViolationBody]
    repaired: int = 0


class ClassBody(Reply):
    """VMs for which a rule means the same: how many there are, and how many hosts pass.

    `asks` is what is left of the rule once such a VM is known, `example` one of them; a class
    without VMs stands for a VM that nobody has created yet.
    """

    asks: str
    vms: int
    example: str
    hosts: int


class ConstraintDryRunBody(Reply):
    """What a rule would say of the fleet as it is: who would be in the wrong place, who has a host.

    Free room and the VMs' own constraints are left out of account, and other rules but for
    `conflicts`: hard ones that hold now, with which no VM or no host could satisfy it.
    `holds_now` says whether its `when` would let it hold at once; the rest is told as if it did.
    `hosts` counts all hosts, `locks_out` says that some VMs would have none, by this rule or by its
    conflicts, and `says` tells it in sentences. A conflict of two scopes that no VM is in does not
    lock out.
    """

    hosts: int
    vms: int
    classes: list[ClassBody]
    violated: int
    violations: list[ViolationBody]
    locks_out: bool
    says: list[str]
    holds_now: bool = True
    conflicts: list[ConflictBody] = field(default_factory=list)


class ListConstraints(Query):
    """Which constraints to list."""

    project: Name | None = None
    kind: Kind | None = None
    limit: Limit = 100
    after: After | None = None


class OneConstraint(Query):
    """Which project a constraint's name belongs to; without one it is the fleet's."""

    project: Annotated[Name, Meta(description="Whose it is; the fleet's when left out.")] | None = (
        None
    )


class CheckConstraints(Query):
    """Which rules to ask."""

    project: Name | None = None
    rule: Annotated[str, Meta(max_length=127, description="Only this one, by id.")] | None = None
