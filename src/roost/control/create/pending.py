"""A create on its way: what was asked, where it would go, what became of it, who waits for it.

`admit` makes one for each VM that is asked for and carries it from the request to the answer; the
errors that a create can end with are made here.
"""

import asyncio
from dataclasses import dataclass, field

from roost.base.errors import (
    Conflict,
    NotFound,
    PlacementContended,
    RoostError,
)
from roost.control.memory.host_entries import HostEntry
from roost.ledger.claims.proposals import Outcome, Verdict
from roost.ledger.schema.rows import VMRow
from roost.model.flow import Placement, PlaceRequest, Rejection
from roost.model.vm import NewSpec
from roost.parts.quotas import quota_exceeded
from roost.wire.bodies import CreateVM, PlacementBody

#: Times that a VM is placed again before it is called contended.
MOST_TRIES = 8


@dataclass(slots=True)
class PendingCreate:
    """One VM on its way: what was asked, where it would go, and who waits for the answer."""

    body: CreateVM
    spec: NewSpec
    actor: str
    request: PlaceRequest
    vm_id: str
    groups: tuple[str, ...]
    rules: int | None
    key: tuple[str, str, str] | None
    strategy: str
    begun: float
    groups_seen: int = 0  # changes of groups that were known when it named its own
    tries: int = 0
    placement: Placement | None = None
    rejection: Rejection | None = None
    charged: bool = False
    entry: HostEntry | None = None  # of the placement, with the generations that it rests on
    host_generation: int = 0
    group_generations: tuple[tuple[str, int], ...] = ()
    constraints: int = 0  # the generation of those that it was placed under
    shown: PlacementBody | None = None  # the placement as the ledger and the answer have it
    row: VMRow | None = None
    kept: bool = False
    error: RoostError | None = None
    replay: str = ""  # the id of the VM that the key made before
    done: asyncio.Future[None] | None = None
    draws_on: str | None = None  # the reservation that its placement takes room from
    line: str = field(default="", repr=False)

    @property
    def refused(self) -> bool:
        """Say whether the VM fits nowhere and must not be queued."""
        return self.rejection is not None and self.body.on_no_fit == "fail"


def all_replayed(asks: list[PendingCreate]) -> bool:
    """Say whether every create of a batch was made by an earlier request with the same key."""
    return bool(asks) and all(ask.replay for ask in asks)


def error_json(error: RoostError) -> dict[str, object]:
    """Return what stands under `error` in the one shape of errors."""
    shape = error.as_json()["error"]
    assert isinstance(shape, dict)
    return shape


def error_of(ask: PendingCreate, outcome: Outcome) -> RoostError:
    """Return the error that a create which was turned away ends with."""
    body = ask.body
    match outcome.verdict:
        case Verdict.NAME_TAKEN:
            return Conflict(
                f"project {body.project!r} has a VM named {body.name!r} already", vm=body.name
            )
        case Verdict.NO_PROJECT:
            return NotFound(f"no project {body.project!r}", project=body.project)
        case Verdict.QUOTA:
            return quota_exceeded(body.project, f"for {body.name!r}", outcome.quota)
        case Verdict.KEY_REUSED:
            return Conflict(
                "the idempotency key was used before with another body",
                hint="Maybe use a new key.",
            )
    return PlacementContended(
        f"other writers took the room for {body.name!r} each of {MOST_TRIES} times",
        vm=body.name,
    )
