"""Hosts over HTTP."""

from typing import TYPE_CHECKING

from roost.parts.roles import ADMIN, OPERATOR, VIEWER
from roost.parts.routes import NO_PLACE, Route
from roost.wire import bodies as b
from roost.wire.queries import CloseHost, HostQuery, ListHosts

if TYPE_CHECKING:
    from roost.control.admin.host_admin import Hosts


def _narrowed(asked: ListHosts) -> HostQuery:
    return HostQuery(
        health=asked.health,
        admin=asked.admin,
        zone=asked.zone,
        limit=asked.limit,
        after=asked.after,
    )


# fmt: off
def host_routes(hosts: "Hosts") -> tuple[Route, ...]:
    """Return the routes of hosts."""
    return (
        Route(method="GET", path="/api/v1/hosts", noun="hosts", verb="list_hosts",
              call=lambda call: hosts.list(_narrowed(call.query)), roles=VIEWER,
              summary="List hosts", query=ListHosts, reply=b.HostPage),
        Route(method="GET", path="/api/v1/hosts/{name}", noun="hosts", verb="get",
              call=lambda call: hosts.get(call.path["name"]), roles=VIEWER, summary="Show a host",
              reply=b.HostBody),
        Route(method="DELETE", path="/api/v1/hosts/{name}", noun="hosts", verb="delete",
              call=lambda call: hosts.delete(call.path["name"], call.who), roles=ADMIN,
              summary="Forget a host that has no VMs", statuses=(204,), errors=("conflict",)),
        Route(method="PATCH", path="/api/v1/hosts/{name}", noun="hosts", verb="set",
              call=lambda call: hosts.set(call.path["name"], call.body, call.who),
              roles=OPERATOR, summary="Set a host's labels, taints, overcommitment or reserve",
              body=b.SetHost, reply=b.HostBody, errors=("conflict",)),
        Route(method="GET", path="/api/v1/hosts/{name}/scheduling-info",
              noun="hosts", verb="scheduling_info",
              call=lambda call: hosts.scheduling_info(call.path["name"]), roles=VIEWER,
              summary="Describe a host as the scheduler sees it", reply=b.SchedulingInfo),
        Route(method="POST", path="/api/v1/hosts/{name}/cordon", noun="hosts", verb="cordon",
              call=lambda call: hosts.cordon(call.path["name"], call.who, call.query.reason),
              roles=OPERATOR, summary="Keep new VMs off a host", query=CloseHost,
              reply=b.HostBody, errors=("conflict",)),
        Route(method="POST", path="/api/v1/hosts/{name}/uncordon", noun="hosts", verb="uncordon",
              call=lambda call: hosts.uncordon(call.path["name"], call.who), roles=OPERATOR,
              summary="Let new VMs onto a host again", reply=b.HostBody, errors=("conflict",)),
        Route(method="PUT", path="/api/v1/hosts/{name}/maintenance", noun="hosts",
              verb="set_maintenance",
              call=lambda call: hosts.set_maintenance(call.path["name"], call.body, call.who),
              roles=OPERATOR, summary="Take an empty host out of service, or bring it back",
              body=b.SetMaintenance, reply=b.HostBody, errors=("conflict",)),
        Route(method="POST", path="/api/v1/hosts/{name}/drain", noun="hosts", verb="drain",
              call=lambda call: hosts.drain(call.path["name"], call.who), roles=OPERATOR,
              summary="Empty a host, two moves at a time", reply=b.DrainBody, statuses=(202,),
              errors=("conflict",)),
        Route(method="GET", path="/api/v1/hosts/{name}/drain", noun="hosts", verb="drain_state",
              call=lambda call: hosts.drain_state(call.path["name"]), roles=VIEWER,
              summary="Show how far a drain has come", reply=b.DrainBody, errors=("conflict",)),
        Route(method="PUT", path="/api/v1/hosts/{name}/labels", noun="hosts", verb="set_labels",
              call=lambda call: hosts.set_labels(call.path["name"], call.body, call.who),
              roles=OPERATOR, summary="Replace a host's labels", body=b.SetLabels,
              reply=b.HostBody, errors=("conflict",)),
        Route(method="POST", path="/api/v1/hosts/{name}/held/{vm}/destroy",
              noun="hosts", verb="destroy_held",
              call=lambda call: hosts.destroy_held(call.path["name"], call.path["vm"], call.who),
              roles=ADMIN, summary="Destroy a VM that a host holds and the ledger does not know",
              reply=b.HostBody, statuses=(202,), errors=("conflict",)),
        Route(method="POST", path="/api/v1/hosts/{name}/held/{vm}/adopt",
              noun="hosts", verb="adopt_held",
              call=lambda call: hosts.adopt_held(call.path["name"], call.path["vm"], call.who),
              roles=ADMIN, summary="Make a VM that a host holds the ledger's, on that host",
              reply=b.VMBody, statuses=(202,), errors=("conflict", "quota_exceeded", *NO_PLACE)),
        Route(method="POST", path="/api/v1/hosts/{name}/confirm-dead",
              noun="hosts", verb="confirm_dead",
              call=lambda call: hosts.confirm_dead(call.path["name"], call.body, call.who),
              roles=ADMIN, summary="Give your word that a host is off and stays off",
              body=b.ConfirmDead, reply=b.HostBody, errors=("conflict",)),
    )
# fmt: on
