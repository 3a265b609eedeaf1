"""The bodies of constraints over HTTP, and what questions about them are narrowed down by.

A constraint is a rule about where VMs may be: a condition in the rule language, or the same as a
JSON tree, for the VMs that its scope names. `project`, `selector` and `vm` narrow the scope down
together; without any of them it is for every VM of the fleet.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from roost.wire.bodies import Labels, Name, ProjectName, Reply, Request, Text
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

Form = Literal["cel", "tree"]
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
    enabled: bool = True
    expires_in_s: Seconds | None = None


class CreateConstraint(RuleFields, kw_only=True):
    """A constraint. One that leaves some VMs without any host is refused unless by `force`."""

    name: Name
    project: ProjectName | None = None
    force: bool = False


class ChangeConstraint(Request):
    """What is to be different; what is left out stays. `expires_in_s` null: it does not expire.

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
    version: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET
    force: bool = False


class DryRunConstraint(RuleFields, kw_only=True):
    """A constraint that is tried and not made: by itself, whatever other rules there are."""

    name: Name = "dry-run"
    project: ProjectName | None = None


class ConstraintBody(Reply):
    """A constraint as it is now.

    `id` is what paths name: the name, and before it the project and a slash where it belongs to
    one. `expression` is its text in the rule language, `tree` the same as a JSON tree or null where
    a tree cannot say it; `form` is how it was written.
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
    enabled: bool
    expires_at: str | None
    version: int
    created_at: str
    created_by: str
    changed_at: str
    changed_by: str


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


class ConstraintDetail(ConstraintBody):
    """A constraint with its versions, the newest first."""

    versions: list[ConstraintVersion]


class ConstraintPage(Reply):
    """Some constraints; `next` continues the list when there are more."""

    constraints: list[ConstraintBody]
    next: str | None = None


class ViolationBody(Reply):
    """A VM that a rule finds in the wrong place. It stays, and may be stopped, started, shrunk.

    `part` is the part of the rule that is not true there, `rule_since` since when the rule is as it
    is.
    """

    vm: str
    name: str
    project: str
    host: str
    rule: str
    part: str
    rule_since: str


class ViolationsBody(Reply):
    """Which VMs hard rules find in the wrong place now; `total` counts those left out, too."""

    total: int
    violations: list[ViolationBody]


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

    Other rules, free room and the VMs' own constraints are left out of account.
    `hosts` counts all hosts, `locks_out` says that some VMs would have none, and `says` tells it in
    sentences.
    """

    hosts: int
    vms: int
    classes: list[ClassBody]
    violated: int
    violations: list[ViolationBody]
    locks_out: bool
    says: list[str]


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
