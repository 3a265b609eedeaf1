"""The methods of both clients, listed once: `Client` answers them, `AsyncClient` awaits them.

Each names the function that makes its call; arguments, answer and docstring are that function's.
A type checker sees `client.get_vm("web-1")` as a `VMBody`, and the same of an `AsyncClient` as a
coroutine of one. A noun with a file of its own brings its methods along as a base class.
"""

from roost.client import routes
from roost.client.binding import Method
from roost.client.constraints import ConstraintMethods
from roost.client.flavors import FlavorMethods
from roost.client.groups import GroupMethods
from roost.client.jobs import JobMethods
from roost.client.plans import PlanMethods
from roost.client.policies import PolicyMethods
from roost.client.priorities import PriorityMethods
from roost.client.recommendations import RecommendationMethods
from roost.client.reservations import ReservationMethods
from roost.client.series import SeriesMethods
from roost.client.topology import TopologyMethods


class Methods(
    ConstraintMethods,
    FlavorMethods,
    GroupMethods,
    JobMethods,
    PlanMethods,
    PolicyMethods,
    PriorityMethods,
    RecommendationMethods,
    ReservationMethods,
    SeriesMethods,
    TopologyMethods,
):
    """Every route as a method; a client adds how calls are sent."""

    create_vm = Method(routes.create_vm)
    create_vms = Method(routes.create_vms)
    list_vms = Method(routes.list_vms)
    get_vm = Method(routes.get_vm)
    delete_vm = Method(routes.delete_vm)
    start_vm = Method(routes.start_vm)
    stop_vm = Method(routes.stop_vm)
    restart_vm = Method(routes.restart_vm)
    pause_vm = Method(routes.pause_vm)
    resume_vm = Method(routes.resume_vm)
    recover_vm = Method(routes.recover_vm)
    resize_vm = Method(routes.resize_vm)
    set_vm = Method(routes.set_vm)
    migrate_vm = Method(routes.migrate_vm)
    cancel_migration = Method(routes.cancel_migration)
    read_console = Method(routes.read_console)
    explain_vm = Method(routes.explain_vm)
    list_hosts = Method(routes.list_hosts)
    get_host = Method(routes.get_host)
    scheduling_info = Method(routes.scheduling_info)
    cordon_host = Method(routes.cordon_host)
    uncordon_host = Method(routes.uncordon_host)
    set_maintenance = Method(routes.set_maintenance)
    drain_host = Method(routes.drain_host)
    get_drain = Method(routes.get_drain)
    set_labels = Method(routes.set_labels)
    set_host = Method(routes.set_host)
    confirm_dead = Method(routes.confirm_dead)
    recover_host = Method(routes.recover_host)
    adopt_held = Method(routes.adopt_held)
    destroy_held = Method(routes.destroy_held)
    delete_host = Method(routes.delete_host)
    dry_run = Method(routes.dry_run)
    dry_run_batch = Method(routes.dry_run_batch)
    capacity = Method(routes.capacity)
    strategies = Method(routes.strategies)
    list_projects = Method(routes.list_projects)
    get_project = Method(routes.get_project)
    create_project = Method(routes.create_project)
    set_quota = Method(routes.set_quota)
    delete_project = Method(routes.delete_project)
    list_tokens = Method(routes.list_tokens)
    create_token = Method(routes.create_token)
    delete_token = Method(routes.delete_token)
    create_join_token = Method(routes.create_join_token)
    join = Method(routes.join)
    list_events = Method(routes.list_events)
    doctor = Method(routes.doctor)
    finish_upgrade = Method(routes.finish_upgrade)
    health = Method(routes.health)
    readiness = Method(routes.readiness)
    metrics = Method(routes.metrics)
    openapi = Method(routes.openapi)
