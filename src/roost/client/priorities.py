"""Priority classes and preemptions in both clients: their calls and methods."""

from roost.client.binding import Method
from roost.client.calls import Call, nothing, path, query, reads
from roost.wire import priorities as wire

_read_class = reads(wire.PriorityClassBody)


def list_priority_classes() -> Call[wire.PriorityClassPage]:
    """Return all priority classes, the most important first."""
    return Call("GET", path("priority-classes"), reads(wire.PriorityClassPage))


def get_priority_class(name: str) -> Call[wire.PriorityClassBody]:
    """Return a priority class."""
    return Call("GET", path("priority-classes", name), _read_class)


def create_priority_class(
    priority_class: wire.CreatePriorityClass, *, key: str | None = None
) -> Call[wire.PriorityClassBody]:
    """Create a priority class."""
    body = priority_class
    return Call("POST", path("priority-classes"), _read_class, body=body, creates=True, key=key)


def change_priority_class(
    name: str, change: wire.ChangePriorityClass
) -> Call[wire.PriorityClassBody]:
    """Change a priority class, but for its value; what is left out stays."""
    return Call("POST", path("priority-classes", name, "change"), _read_class, body=change)


def delete_priority_class(name: str, *, force: bool = False) -> Call[None]:
    """Delete a priority class; with `force` also one that VMs have."""
    asked = query(force="true" if force else None)
    return Call("DELETE", path("priority-classes", name), nothing, asked)


def list_preemptions(
    *, limit: int | None = None, after: str | None = None
) -> Call[wire.PreemptionPage]:
    """Return one page of the preemptions under way."""
    asked = query(limit=limit, after=after)
    return Call("GET", path("preemptions"), reads(wire.PreemptionPage), asked)


def get_preemption(vm: str, *, project: str | None = None) -> Call[wire.PreemptionAnswer]:
    """Return who makes room for a VM that waits, or who would."""
    read = reads(wire.PreemptionAnswer)
    return Call("GET", path("vms", vm, "preemption"), read, query(project=project))


def preempt_for_vm(vm: str, *, project: str | None = None) -> Call[wire.PreemptionAnswer]:
    """Let others make room for a VM that waits."""
    read = reads(wire.PreemptionAnswer)
    return Call("POST", path("vms", vm, "preempt"), read, query(project=project))


class PriorityMethods:
    """What clients do with priority classes."""

    list_priority_classes = Method(list_priority_classes)
    get_priority_class = Method(get_priority_class)
    create_priority_class = Method(create_priority_class)
    change_priority_class = Method(change_priority_class)
    delete_priority_class = Method(delete_priority_class)
    list_preemptions = Method(list_preemptions)
    get_preemption = Method(get_preemption)
    preempt_for_vm = Method(preempt_for_vm)
