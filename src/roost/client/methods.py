"""The methods of both clients, listed once: `Client` answers them, `AsyncClient` awaits them.

Each names the function of `routes` that makes its call; arguments, answer and docstring
are that function's. A type checker sees `client.get_vm("web-1")` as a `VMBody`, and the same of an
`AsyncClient` as a coroutine of one. A new route is one function there and one line here.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from roost.client import routes
from roost.client.calls import Call

P = ParamSpec("P")
T = TypeVar("T")


class Sends(Protocol):
    """A client that waits for its answers."""

    def send(self, call: Call[T], /) -> T: ...


class SendsAsync(Protocol):
    """A client for asyncio."""

    def send(self, call: Call[T], /) -> Coroutine[Any, Any, T]: ...


class _Method(Generic[P, T]):
    """A method that makes a call and sends it."""

    def __init__(self, make: Callable[P, Call[T]]) -> None:
        self._make = make

    @overload
    def __get__(self, client: None, kind: type, /) -> Callable[P, Call[T]]: ...
    @overload
    def __get__(self, client: Sends, kind: type, /) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: SendsAsync, kind: type, /) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, kind: type, /) -> Callable[P, Any]:
        make = self._make
        if client is None:  # asked of the class, as help() does
            return make

        @functools.wraps(make)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(make(*args, **kwargs))

        return method


class Methods:
    """Every route as a method; a client adds how calls are sent."""

    create_vm = _Method(routes.create_vm)
    create_vms = _Method(routes.create_vms)
    list_vms = _Method(routes.list_vms)
    get_vm = _Method(routes.get_vm)
    delete_vm = _Method(routes.delete_vm)
    start_vm = _Method(routes.start_vm)
    stop_vm = _Method(routes.stop_vm)
    restart_vm = _Method(routes.restart_vm)
    pause_vm = _Method(routes.pause_vm)
    resume_vm = _Method(routes.resume_vm)
    resize_vm = _Method(routes.resize_vm)
    migrate_vm = _Method(routes.migrate_vm)
    cancel_migration = _Method(routes.cancel_migration)
    read_console = _Method(routes.read_console)
    explain_vm = _Method(routes.explain_vm)
    list_hosts = _Method(routes.list_hosts)
    get_host = _Method(routes.get_host)
    scheduling_info = _Method(routes.scheduling_info)
    cordon_host = _Method(routes.cordon_host)
    uncordon_host = _Method(routes.uncordon_host)
    drain_host = _Method(routes.drain_host)
    get_drain = _Method(routes.get_drain)
    set_labels = _Method(routes.set_labels)
    confirm_dead = _Method(routes.confirm_dead)
    delete_host = _Method(routes.delete_host)
    dry_run = _Method(routes.dry_run)
    dry_run_batch = _Method(routes.dry_run_batch)
    capacity = _Method(routes.capacity)
    strategies = _Method(routes.strategies)
    list_projects = _Method(routes.list_projects)
    get_project = _Method(routes.get_project)
    create_project = _Method(routes.create_project)
    set_quota = _Method(routes.set_quota)
    delete_project = _Method(routes.delete_project)
    list_tokens = _Method(routes.list_tokens)
    create_token = _Method(routes.create_token)
    delete_token = _Method(routes.delete_token)
    create_join_token = _Method(routes.create_join_token)
    join = _Method(routes.join)
    list_events = _Method(routes.list_events)
    doctor = _Method(routes.doctor)
    finish_upgrade = _Method(routes.finish_upgrade)
    health = _Method(routes.health)
    readiness = _Method(routes.readiness)
    metrics = _Method(routes.metrics)
    openapi = _Method(routes.openapi)
