"""VMs that exist, over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import MEMBER, OPERATOR, VIEWER
from roost.parts.routes import CHANGING, NO_PLACE, Call, Route
from roost.wire import bodies as b
from roost.wire.queries import ExplainVM, ListVMs, OneVM, VMQuery

if TYPE_CHECKING:
    from roost.control.vms.lifecycle import Lifecycle


def _ref(call: Call) -> tuple[str, str | None]:
    """Return the VM reference of a call: an id or a name, and the project of a name."""
    return call.path["vm"], call.query.project


def _narrowed(asked: ListVMs) -> VMQuery:
    return VMQuery(
        project=asked.project,
        host=asked.host,
        state=asked.state,
        name=asked.name,
        labels=dict(label.split("=", 1) for label in asked.label),
        limit=asked.limit,
        after=asked.after,
    )


# fmt: off
def vm_routes(vms: "Lifecycle") -> tuple[Route, ...]:
    """Return the routes of VMs that exist."""
    return (
        Route(method="GET", path="/api/v1/vms", noun="vms", verb="list_vms",
              call=lambda call: vms.list(_narrowed(call.query), call.who), roles=VIEWER | MEMBER,
              summary="List VMs", query=ListVMs, reply=b.VMPage, errors=("not_found",)),
        Route(method="GET", path="/api/v1/vms/{vm}", noun="vms", verb="get",
              call=lambda call: vms.get(*_ref(call), call.who), roles=VIEWER | MEMBER,
              summary="Show a VM", query=OneVM, reply=b.VMBody),
        Route(method="DELETE", path="/api/v1/vms/{vm}", noun="vms", verb="delete",
              call=lambda call: vms.delete(*_ref(call), call.who), roles=OPERATOR | MEMBER,
              summary="Delete a VM", query=OneVM, reply=b.VMBody, statuses=(202,), errors=CHANGING),
        Route(method="PATCH", path="/api/v1/vms/{vm}", noun="vms", verb="set",
              call=lambda call: vms.set(*_ref(call), call.body, call.who),
              roles=OPERATOR | MEMBER,
              summary="Set a VM's name, labels, priority, hosts or restart",
              query=OneVM, body=b.SetVM, reply=b.VMBody, statuses=(202,), errors=CHANGING),
        Route(method="POST", path="/api/v1/vms/{vm}/start", noun="vms", verb="start",
              call=lambda call: vms.start(*_ref(call), call.who), roles=OPERATOR | MEMBER,
              summary="Start a VM", query=OneVM, reply=b.VMBody, statuses=(202,),
              errors=("conflict", "quota_exceeded", *NO_PLACE)),
        Route(method="POST", path="/api/v1/vms/{vm}/stop", noun="vms", verb="stop",
              call=lambda call: vms.stop(*_ref(call), call.who), roles=OPERATOR | MEMBER,
              summary="Stop a VM", query=OneVM, reply=b.VMBody, statuses=(202,), errors=CHANGING),
        Route(method="POST", path="/api/v1/vms/{vm}/restart", noun="vms", verb="restart",
              call=lambda call: vms.restart(*_ref(call), call.who), roles=OPERATOR | MEMBER,
              summary="Restart a VM", query=OneVM, reply=b.VMBody, statuses=(202,),
              errors=CHANGING),
        Route(method="POST", path="/api/v1/vms/{vm}/pause", noun="vms", verb="pause",
              call=lambda call: vms.pause(*_ref(call), call.who), roles=OPERATOR | MEMBER,
              summary="Pause a VM", query=OneVM, reply=b.VMBody, statuses=(202,), errors=CHANGING),
        Route(method="POST", path="/api/v1/vms/{vm}/resume", noun="vms", verb="resume",
              call=lambda call: vms.resume(*_ref(call), call.who), roles=OPERATOR | MEMBER,
              summary="Let a paused VM go on", query=OneVM, reply=b.VMBody, statuses=(202,),
              errors=CHANGING),
        Route(method="POST", path="/api/v1/vms/{vm}/resize", noun="vms", verb="resize",
              call=lambda call: vms.resize(*_ref(call), call.body, call.who),
              roles=OPERATOR | MEMBER, summary="Resize a VM", query=OneVM, body=b.ResizeVM,
              reply=b.VMBody, statuses=(202,), errors=("conflict", "quota_exceeded", *NO_PLACE)),
        Route(method="GET", path="/api/v1/vms/{vm}/explain", noun="vms", verb="explain",
              call=lambda call: vms.explain(*_ref(call), call.query.host, call.who),
              roles=VIEWER | MEMBER, summary="Explain a VM's placement host by host",
              query=ExplainVM, reply=b.ExplanationBody,
              errors=("conflict", "agent_service_unavailable")),
    )
# fmt: on
