"""The bodies of recommendations over HTTP: hosts in the order in which the engine would take them.

Asked for a VM that exists, by name, or for one that does not, as it would be created.
"""

from typing import Annotated

from msgspec import Meta

from roost.wire.bodies import (
    CreateVM,
    ProjectName,
    ReasonBody,
    RejectionBody,
    Reply,
    Request,
    RuleRefusalBody,
    ScoreTermBody,
    ShortageBody,
    Text,
)

#: Hosts that one answer ranks.
MOST_RANKED = 16


class AskRecommendations(Request):
    """Which VM: `vm` by name or id (`project` if the name needs it), or `new` as it would be."""

    vm: Text | None = None
    project: ProjectName | None = None
    new: CreateVM | None = None
    most: Annotated[int, Meta(ge=1, le=MOST_RANKED)] = 5


class RuleSaysBody(Reply):
    """What one rule says of a host; `parts` are those that are not true there, with its values.

    A hard rule (`kind`) that does not hold refuses the host, a soft one adds `charge` to its score.
    """

    rule: str
    kind: str
    holds: bool
    charge: int
    parts: list[RuleRefusalBody]


class RecommendationBody(Reply):
    """One host. `gain` is how much lower its score is than where the VM is; lower is better.

    `here`: the VM is there. A host that does not fit has no rank and no score, but reasons.
    """

    rank: int | None
    host: str
    here: bool
    score: int | None
    gain: int | None
    breakdown: list[ScoreTermBody]
    rules: list[RuleSaysBody]
    reasons: list[str]
    shortages: list[ShortageBody]


class RecommendationsBody(Reply):
    """Hosts for a VM, the best first, as if it were nowhere now.

    The host that it has stands at its place among them, or last if it does not fit there. `fitting`
    of `hosts` fit, `reasons` counts why the others do not, `rejection` says why none fits; of a VM
    that has a host both speak of the other hosts.
    """

    vm: str
    strategy: str
    hosts: int
    fitting: int
    recommendations: list[RecommendationBody]
    reasons: list[ReasonBody]
    rejection: RejectionBody | None = None
