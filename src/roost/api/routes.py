"""The one table of routes: what exists, who may, what is taken and what is given.

Everything else is made from it: the router, the checks, the OpenAPI document and the tests that
walk over every line. To add a route, add a line and its handler; without roles it does not start.
"""

from roost.api import events, health, hosts, pages, projects, questions, tokens, vms
from roost.api.authorize import ADMIN, ANYONE, JOINING, MEMBER, OPERATOR, VIEWER
from roost.api.calls import Route
from roost.api.queries import ExplainVM, ListEvents, ListHosts, ListVMs, OneVM, ReadConsole
from roost.wire import bodies as b

#: Why a VM could get no place.
NO_PLACE = (
    "no_available_agents",
    "insufficient_resources",
    "constraints_unsatisfied",
    "placement_contended",
    "ledger_unsettled",
    "agent_service_unavailable",
)
#: Why a VM could not be changed.
CHANGING = ("conflict", "ledger_unsettled")
CREATING = ("invalid_strategy", "conflict", "quota_exceeded", "not_found", *NO_PLACE)

# fmt: off
ROUTES: tuple[Route, ...] = (
    Route(method="POST", path="/api/v1/vms", handler=vms.create, roles=OPERATOR | MEMBER,
          summary="Create a VM", body=b.CreateVM, reply=b.VMBody, statuses=(201, 202, 200),
          errors=CREATING, keyed=True),
    Route(method="POST", path="/api/v1/vms:batch", handler=vms.create_many, roles=OPERATOR | MEMBER,
          summary="Create many VMs", body=b.CreateVMs, reply=b.BatchBody, errors=CREATING,
          keyed=True),
    Route(method="GET", path="/api/v1/vms", handler=vms.list_vms, roles=VIEWER | MEMBER,
          summary="List VMs", query=ListVMs, reply=b.VMPage, errors=("not_found",)),
    Route(method="GET", path="/api/v1/vms/{vm}", handler=vms.get, roles=VIEWER | MEMBER,
          summary="Show a VM", query=OneVM, reply=b.VMBody),
    Route(method="DELETE", path="/api/v1/vms/{vm}", handler=vms.delete, roles=OPERATOR | MEMBER,
          summary="Delete a VM", query=OneVM, reply=b.VMBody, statuses=(202,),
          errors=CHANGING),
    Route(method="POST", path="/api/v1/vms/{vm}/start", handler=vms.start, roles=OPERATOR | MEMBER,
          summary="Start a VM", query=OneVM, reply=b.VMBody, statuses=(202,),
          errors=("conflict", "quota_exceeded", *NO_PLACE)),
    Route(method="POST", path="/api/v1/vms/{vm}/stop", handler=vms.stop, roles=OPERATOR | MEMBER,
          summary="Stop a VM", query=OneVM, reply=b.VMBody, statuses=(202,), errors=CHANGING),
    Route(method="POST", path="/api/v1/vms/{vm}/restart", handler=vms.restart,
          roles=OPERATOR | MEMBER, summary="Restart a VM", query=OneVM, reply=b.VMBody,
          statuses=(202,), errors=CHANGING),
    Route(method="POST", path="/api/v1/vms/{vm}/pause", handler=vms.pause, roles=OPERATOR | MEMBER,
          summary="Pause a VM", query=OneVM, reply=b.VMBody, statuses=(202,),
          errors=CHANGING),
    Route(method="POST", path="/api/v1/vms/{vm}/resume", handler=vms.resume,
          roles=OPERATOR | MEMBER, summary="Let a paused VM go on", query=OneVM, reply=b.VMBody,
          statuses=(202,), errors=CHANGING),
    Route(method="POST", path="/api/v1/vms/{vm}/resize", handler=vms.resize,
          roles=OPERATOR | MEMBER, summary="Resize a VM", query=OneVM, body=b.ResizeVM,
          reply=b.VMBody, statuses=(202,), errors=("conflict", "quota_exceeded", *NO_PLACE)),
    Route(method="POST", path="/api/v1/vms/{vm}/migrate", handler=vms.migrate, roles=OPERATOR,
          summary="Move a VM", query=OneVM, body=b.MigrateVM, reply=b.VMBody, statuses=(202,),
          errors=("conflict", *NO_PLACE)),
    Route(method="POST", path="/api/v1/vms/{vm}/cancel-migration", handler=vms.cancel_migration,
          roles=OPERATOR, summary="Call off the move of a VM", query=OneVM, reply=b.VMBody,
          statuses=(202,), errors=CHANGING),
    # Not for viewers: what a guest writes to its console may hold secrets.
    Route(method="GET", path="/api/v1/vms/{vm}/console", handler=vms.console,
          roles=OPERATOR | MEMBER, summary="Show a piece of a VM's serial log", query=ReadConsole,
          reply=b.ConsoleBody, errors=("conflict", "agent_service_unavailable")),
    Route(method="GET", path="/api/v1/vms/{vm}/explain", handler=vms.explain,
          roles=VIEWER | MEMBER, summary="Explain a VM's placement host by host", query=ExplainVM,
          reply=b.ExplanationBody, errors=("conflict", "agent_service_unavailable")),

    Route(method="GET", path="/api/v1/hosts", handler=hosts.list_hosts, roles=VIEWER,
          summary="List hosts", query=ListHosts, reply=b.HostPage),
    Route(method="GET", path="/api/v1/hosts/{name}", handler=hosts.get, roles=VIEWER,
          summary="Show a host", reply=b.HostBody),
    Route(method="DELETE", path="/api/v1/hosts/{name}", handler=hosts.delete, roles=ADMIN,
          summary="Forget a host that has no VMs", statuses=(204,), errors=("conflict",)),
    Route(method="GET", path="/api/v1/hosts/{name}/scheduling-info", handler=hosts.scheduling_info,
          roles=VIEWER, summary="Describe a host as the scheduler sees it", reply=b.SchedulingInfo),
    Route(method="POST", path="/api/v1/hosts/{name}/cordon", handler=hosts.cordon, roles=OPERATOR,
          summary="Keep new VMs off a host", reply=b.HostBody, errors=("conflict",)),
    Route(method="POST", path="/api/v1/hosts/{name}/uncordon", handler=hosts.uncordon,
          roles=OPERATOR, summary="Let new VMs onto a host again", reply=b.HostBody,
          errors=("conflict",)),
    Route(method="POST", path="/api/v1/hosts/{name}/drain", handler=hosts.drain, roles=OPERATOR,
          summary="Empty a host, one move at a time", reply=b.DrainBody, statuses=(202,),
          errors=("conflict",)),
    Route(method="GET", path="/api/v1/hosts/{name}/drain", handler=hosts.drain_state, roles=VIEWER,
          summary="Show how far a drain has come", reply=b.DrainBody, errors=("conflict",)),
    Route(method="PUT", path="/api/v1/hosts/{name}/labels", handler=hosts.set_labels,
          roles=OPERATOR, summary="Replace a host's labels", body=b.SetLabels, reply=b.HostBody,
          errors=("conflict",)),
    Route(method="POST", path="/api/v1/hosts/{name}/confirm-dead", handler=hosts.confirm_dead,
          roles=ADMIN, summary="Give your word that a host is off and stays off",
          body=b.ConfirmDead, reply=b.HostBody, errors=("conflict",)),

    Route(method="POST", path="/api/v1/placements:dry-run", handler=questions.dry_run,
          roles=VIEWER | MEMBER, summary="Place a VM without creating it", body=b.DryRun,
          reply=b.PlacementBody | b.RejectionBody,
          errors=("invalid_strategy", "not_found", "conflict", "agent_service_unavailable")),
    Route(method="POST", path="/api/v1/placements:dry-run-batch", handler=questions.dry_run_many,
          roles=VIEWER | MEMBER, summary="Place VMs one after the other without creating them",
          body=b.DryRunBatch, reply=b.AnswersBody,
          errors=("invalid_strategy", "not_found", "conflict", "agent_service_unavailable")),
    Route(method="POST", path="/api/v1/capacity", handler=questions.capacity,
          roles=VIEWER | MEMBER, summary="Ask how many more copies of a VM fit",
          body=b.CapacityQuestion, reply=b.CapacityBody,
          errors=("invalid_strategy", "not_found", "conflict", "agent_service_unavailable")),
    Route(method="GET", path="/api/v1/strategies", handler=questions.strategies,
          roles=VIEWER | MEMBER, summary="List the strategies", reply=b.StrategiesBody),

    Route(method="GET", path="/api/v1/projects", handler=projects.list_projects,
          roles=VIEWER | MEMBER, summary="List projects", reply=b.ProjectPage),
    Route(method="POST", path="/api/v1/projects", handler=projects.create, roles=ADMIN,
          summary="Create a project", body=b.CreateProject, reply=b.ProjectBody, statuses=(201,),
          errors=("conflict",), keyed=True),
    Route(method="GET", path="/api/v1/projects/{name}", handler=projects.get,
          roles=VIEWER | MEMBER, summary="Show a project and what it uses", reply=b.ProjectBody),
    Route(method="PUT", path="/api/v1/projects/{name}/quota", handler=projects.set_quota,
          roles=ADMIN, summary="Replace a project's quota", body=b.SetQuota, reply=b.ProjectBody,
          errors=("conflict",)),
    Route(method="DELETE", path="/api/v1/projects/{name}", handler=projects.delete, roles=ADMIN,
          summary="Delete an empty project", statuses=(204,), errors=("conflict",)),

    Route(method="GET", path="/api/v1/tokens", handler=tokens.list_tokens, roles=ADMIN,
          summary="List tokens", reply=b.TokenPage),
    Route(method="POST", path="/api/v1/tokens", handler=tokens.create, roles=ADMIN,
          summary="Make a token", body=b.CreateToken, reply=b.TokenBody, statuses=(201,),
          errors=("conflict", "not_found")),
    Route(method="DELETE", path="/api/v1/tokens/{id}", handler=tokens.delete, roles=ADMIN,
          summary="Revoke a token", statuses=(204,), errors=("conflict",)),
    Route(method="POST", path="/api/v1/join-tokens", handler=tokens.create_join_token,
          roles=OPERATOR, summary="Make a one-time token with which an agent joins",
          body=b.CreateJoinToken, reply=b.TokenBody, statuses=(201,), errors=("conflict",)),
    Route(method="POST", path="/api/v1/agents/join", handler=tokens.join, roles=JOINING,
          summary="Exchange a join token for the credential of one host", body=b.JoinBody,
          reply=b.JoinedBody, statuses=(201,), errors=("conflict",)),

    Route(method="GET", path="/api/v1/events", handler=events.list_events, roles=VIEWER | MEMBER,
          summary="List events, or follow them with Accept: text/event-stream", query=ListEvents,
          reply=b.EventPage, streams=True),
    Route(method="GET", path="/api/v1/doctor", handler=health.doctor, roles=ADMIN,
          summary="Check the invariants of the live database", reply=b.DoctorBody),
    Route(method="POST", path="/api/v1/ledger:finish-upgrade", handler=health.finish_upgrade,
          roles=ADMIN, summary="End what is done for processes of the release before",
          reply=b.UpgradeBody),

    Route(method="GET", path="/api/v1/openapi.json", handler=pages.openapi, roles=ANYONE,
          summary="This document", reply=dict),
    Route(method="GET", path="/api/v1/docs", handler=pages.docs, roles=ANYONE,
          summary="This document as a page", media="text/html; charset=utf-8", reply=str),
    Route(method="GET", path="/healthz", handler=health.healthz, roles=ANYONE,
          summary="Say that the process lives", reply=b.HealthBody),
    Route(method="GET", path="/readyz", handler=health.readyz, roles=ANYONE,
          summary="Say whether requests can be served", reply=b.HealthBody, statuses=(200, 503)),
    Route(method="GET", path="/metrics", handler=health.metrics, roles=ANYONE,
          summary="Metrics for Prometheus", media=health.PROMETHEUS, reply=str),
)
# fmt: on


def check(routes: tuple[Route, ...]) -> None:
    """Fail at start when a line of the table is incomplete."""
    seen: set[tuple[str, str]] = set()
    for route in routes:
        line = f"{route.method} {route.path}"
        if not route.roles:
            raise ValueError(f"the route {line} names no roles")
        if (route.method, route.path) in seen:
            raise ValueError(f"the route {line} is there twice")
        if route.reply is None and route.statuses != (204,):
            raise ValueError(f"the route {line} does not say what it gives")
        seen.add((route.method, route.path))
