"""Projects over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import ADMIN, MEMBER, VIEWER
from roost.parts.routes import Route
from roost.wire import bodies as b

if TYPE_CHECKING:
    from roost.control.admin.projects import Projects


# fmt: off
def project_routes(projects: "Projects") -> tuple[Route, ...]:
    """Return the routes of projects."""
    return (
        Route(method="GET", path="/api/v1/projects", noun="projects", verb="list_projects",
              call=lambda call: projects.list(call.who), roles=VIEWER | MEMBER,
              summary="List projects", reply=b.ProjectPage),
        Route(method="POST", path="/api/v1/projects", noun="projects", verb="create",
              call=lambda call: projects.create(call.body, call.who, call.key), roles=ADMIN,
              summary="Create a project", body=b.CreateProject, reply=b.ProjectBody,
              statuses=(201,), errors=("conflict",), keyed=True, makes=("name", "name")),
        Route(method="GET", path="/api/v1/projects/{name}", noun="projects", verb="get",
              call=lambda call: projects.get(call.path["name"], call.who), roles=VIEWER | MEMBER,
              summary="Show a project and what it uses", reply=b.ProjectBody),
        Route(method="PUT", path="/api/v1/projects/{name}/quota", noun="projects", verb="set_quota",
              call=lambda call: projects.set_quota(call.path["name"], call.body, call.who),
              roles=ADMIN, summary="Replace a project's quota", body=b.SetQuota,
              reply=b.ProjectBody, errors=("conflict",)),
        Route(method="DELETE", path="/api/v1/projects/{name}", noun="projects", verb="delete",
              call=lambda call: projects.delete(call.path["name"], call.who), roles=ADMIN,
              summary="Delete an empty project", statuses=(204,), errors=("conflict",)),
    )
# fmt: on
