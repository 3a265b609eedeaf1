"""Creating VMs over HTTP: the two lines that carry the load."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, OPERATOR
from roost.parts.routes import NO_PLACE, Answered, Call, Route
from roost.wire import bodies as b

if TYPE_CHECKING:
    from roost.control.create.admit import Admit

CREATING = ("invalid_strategy", "conflict", "quota_exceeded", "not_found", *NO_PLACE)


async def _create(admit: "Admit", call: Call) -> Answered:
    """Create a VM; answer 201, 202 while it is queued, or 200 for a repeated request."""
    found = await admit.create(call.body, call.who, call.key, call.digest)
    if found.replayed:
        return Answered(200, found.vm, replayed=True)
    return Answered(202 if found.vm.state == "pending" else 201, found.vm)


async def _create_many(admit: "Admit", call: Call) -> Answered:
    """Create a batch of VMs; answer 200 with the outcome of each."""
    found = await admit.create_many(call.body, call.who, call.key, call.digest, call.asker)
    return Answered(200, found.batch, found.replayed)


# fmt: off
def create_routes(admit: "Admit") -> tuple[Route, ...]:
    """Return the routes that create VMs."""
    return (
        Route(method="POST", path="/api/v1/vms", noun="vms", verb="create",
              call=lambda call: _create(admit, call), roles=OPERATOR | MEMBER,
              summary="Create a VM", body=b.CreateVM, reply=b.VMBody, statuses=(201, 202, 200),
              errors=CREATING, keyed=True, makes=("vm", "id"), hot=True),
        Route(method="POST", path="/api/v1/vms:batch", noun="vms", verb="create_many",
              call=lambda call: _create_many(admit, call), roles=OPERATOR | MEMBER,
              summary="Create many VMs", body=b.CreateVMs, reply=b.BatchBody, errors=CREATING,
              keyed=True, hot=True),
    )
# fmt: on
