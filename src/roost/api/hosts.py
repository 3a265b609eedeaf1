"""Hosts over HTTP: thin handlers from call to use case."""

from roost.api.answers import Answer, body, empty
from roost.api.calls import Call
from roost.api.queries import ListHosts
from roost.wire.bodies import ConfirmDead, SetLabels
from roost.wire.queries import HostQuery


async def list_hosts(call: Call[None, ListHosts]) -> Answer:
    """List hosts."""
    asked = call.query
    query = HostQuery(
        health=asked.health,
        admin=asked.admin,
        zone=asked.zone,
        limit=asked.limit,
        after=asked.after,
    )
    return body(200, await call.plane.hosts.list(query))


async def get(call: Call[None, None]) -> Answer:
    """Show one host."""
    return body(200, await call.plane.hosts.get(call.path["name"]))


async def scheduling_info(call: Call[None, None]) -> Answer:
    """Describe one host as the scheduler sees it."""
    return body(200, await call.plane.hosts.scheduling_info(call.path["name"]))


async def cordon(call: Call[None, None]) -> Answer:
    """Keep new VMs off a host."""
    return body(200, await call.plane.hosts.cordon(call.path["name"], call.who))


async def uncordon(call: Call[None, None]) -> Answer:
    """Let new VMs onto a host again."""
    return body(200, await call.plane.hosts.uncordon(call.path["name"], call.who))


async def drain(call: Call[None, None]) -> Answer:
    """Begin to empty a host."""
    return body(202, await call.plane.hosts.drain(call.path["name"], call.who))


async def drain_state(call: Call[None, None]) -> Answer:
    """Say how far a drain has come."""
    return body(200, await call.plane.hosts.drain_state(call.path["name"]))


async def set_labels(call: Call[SetLabels, None]) -> Answer:
    """Replace a host's labels."""
    return body(200, await call.plane.hosts.set_labels(call.path["name"], call.body, call.who))


async def confirm_dead(call: Call[ConfirmDead, None]) -> Answer:
    """Take an operator's word that a host is off."""
    return body(200, await call.plane.hosts.confirm_dead(call.path["name"], call.body, call.who))


async def delete(call: Call[None, None]) -> Answer:
    """Forget a host that has no VMs."""
    await call.plane.hosts.delete(call.path["name"], call.who)
    return empty()
