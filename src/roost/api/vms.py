"""VMs over HTTP: thin handlers from call to use case."""

from roost.api.answers import Answer, Header, body
from roost.api.calls import Call
from roost.api.ports import Created, CreatedMany
from roost.api.queries import ExplainVM, ListVMs, OneVM, ReadConsole
from roost.wire.bodies import CreateVM, CreateVMs, MigrateVM, ResizeVM
from roost.wire.queries import VMQuery

REPLAYED: Header = (b"idempotency-replayed", b"true")


async def create(call: Call[CreateVM, None]) -> Answer:
    """Create a VM."""
    return created(await call.plane.admit.create(call.body, call.who, call.key, call.digest))


def created(result: Created) -> Answer:
    """Answer 201, 202 while it waits for room, or 200 when the same request came before."""
    if result.replayed:
        return body(200, result.vm, REPLAYED)
    return body(202 if result.vm.state == "pending" else 201, result.vm)


async def create_many(call: Call[CreateVMs, None]) -> Answer:
    """Create many VMs."""
    return created_many(
        await call.plane.admit.create_many(call.body, call.who, call.key, call.digest)
    )


def created_many(result: CreatedMany) -> Answer:
    """Answer 200 with what became of each."""
    return body(200, result.batch, REPLAYED) if result.replayed else body(200, result.batch)


async def list_vms(call: Call[None, ListVMs]) -> Answer:
    """List VMs."""
    asked = call.query
    query = VMQuery(
        project=asked.project,
        host=asked.host,
        state=asked.state,
        name=asked.name,
        labels=dict(label.split("=", 1) for label in asked.label),
        limit=asked.limit,
        after=asked.after,
    )
    return body(200, await call.plane.vms.list(query, call.who))


async def get(call: Call[None, OneVM]) -> Answer:
    """Show one VM."""
    return body(200, await call.plane.vms.get(call.path["vm"], call.query.project, call.who))


async def delete(call: Call[None, OneVM]) -> Answer:
    """Delete one VM."""
    return body(202, await call.plane.vms.delete(call.path["vm"], call.query.project, call.who))


async def start(call: Call[None, OneVM]) -> Answer:
    """Start one VM."""
    return body(202, await call.plane.vms.start(call.path["vm"], call.query.project, call.who))


async def stop(call: Call[None, OneVM]) -> Answer:
    """Stop one VM."""
    return body(202, await call.plane.vms.stop(call.path["vm"], call.query.project, call.who))


async def restart(call: Call[None, OneVM]) -> Answer:
    """Restart one VM."""
    return body(202, await call.plane.vms.restart(call.path["vm"], call.query.project, call.who))


async def pause(call: Call[None, OneVM]) -> Answer:
    """Pause one VM."""
    return body(202, await call.plane.vms.pause(call.path["vm"], call.query.project, call.who))


async def resume(call: Call[None, OneVM]) -> Answer:
    """Resume one VM."""
    return body(202, await call.plane.vms.resume(call.path["vm"], call.query.project, call.who))


async def resize(call: Call[ResizeVM, OneVM]) -> Answer:
    """Resize one VM."""
    vm, project = call.path["vm"], call.query.project
    return body(202, await call.plane.vms.resize(vm, project, call.body, call.who))


async def migrate(call: Call[MigrateVM, OneVM]) -> Answer:
    """Move one VM."""
    vm, project = call.path["vm"], call.query.project
    return body(202, await call.plane.vms.migrate(vm, project, call.body, call.who))


async def cancel_migration(call: Call[None, OneVM]) -> Answer:
    """Call off the move of one VM."""
    vm, project = call.path["vm"], call.query.project
    return body(202, await call.plane.vms.cancel_migration(vm, project, call.who))


async def console(call: Call[None, ReadConsole]) -> Answer:
    """Show a piece of one VM's serial log."""
    asked = call.query
    return body(
        200,
        await call.plane.vms.console(
            call.path["vm"], asked.project, asked.start, asked.limit, call.who
        ),
    )


async def explain(call: Call[None, ExplainVM]) -> Answer:
    """Say what every host's filters make of one VM."""
    vm, project = call.path["vm"], call.query.project
    return body(200, await call.plane.vms.explain(vm, project, call.query.host, call.who))
