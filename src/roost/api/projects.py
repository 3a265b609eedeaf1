"""Projects and quotas over HTTP."""

from roost.api.answers import Answer, body, empty
from roost.api.calls import Call
from roost.wire.bodies import CreateProject, SetQuota


async def list_projects(call: Call[None, None]) -> Answer:
    """List the projects that the caller may see."""
    return body(200, await call.plane.projects.list(call.who))


async def get(call: Call[None, None]) -> Answer:
    """Show one project."""
    return body(200, await call.plane.projects.get(call.path["name"], call.who))


async def create(call: Call[CreateProject, None]) -> Answer:
    """Create a project."""
    return body(201, await call.plane.projects.create(call.body, call.who, call.key))


async def set_quota(call: Call[SetQuota, None]) -> Answer:
    """Replace a project's quota."""
    return body(200, await call.plane.projects.set_quota(call.path["name"], call.body, call.who))


async def delete(call: Call[None, None]) -> Answer:
    """Delete an empty project."""
    await call.plane.projects.delete(call.path["name"], call.who)
    return empty()
