"""Questions over HTTP: what would happen, and how much more fits."""

from roost.api.answers import Answer, body
from roost.api.calls import Call
from roost.wire.bodies import CapacityQuestion, DryRun, DryRunBatch


async def dry_run(call: Call[DryRun, None]) -> Answer:
    """Place one VM without creating it; fitting nowhere is an answer, not an error."""
    return body(200, await call.plane.questions.dry_run(call.body, call.who))


async def dry_run_many(call: Call[DryRunBatch, None]) -> Answer:
    """Place VMs one after the other on a copy of the fleet."""
    return body(200, await call.plane.questions.dry_run_many(call.body, call.who))


async def capacity(call: Call[CapacityQuestion, None]) -> Answer:
    """Say how many more copies of a VM fit."""
    return body(200, await call.plane.questions.capacity(call.body, call.who))


async def strategies(call: Call[None, None]) -> Answer:
    """List the strategies."""
    return body(200, await call.plane.questions.strategies())
