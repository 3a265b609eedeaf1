"""Scenarios in the JSON form of the Scheduler Integration Summary's simulator.

    {NAME: [{"name": NODE, "cpu_usage": 0.4, ..., "vms": [VM, ...]}, ...], ...}

A VM has id, cpu_cores, memory_bytes, cpu_utilization and memory_utilization; an older form has
cpu_consumption and memory_consumption, its shares of a node. Where a VM stood is read over: where
it goes is the scheduler's choice. What nodes are said to use is not read either; it follows from
their VMs.
"""

import math
import re
from typing import Any

import msgspec
from msgspec import Struct

from roost.base.errors import InvalidRequest, NotFound
from roost.base.units import GIB
from roost.kube.base.names import HOSTNAME_LABEL
from roost.kube.base.objects import Object
from roost.kube.cluster.nodes import NodePool
from roost.kube.vms.spec import VM

#: A node of that simulator.
NODE_CORES, NODE_MEMORY = 32, 128 * GIB
#: What it takes for a VM of the older form.
_OLD_CORES, _OLD_MEMORY = 2, 4 * GIB
_MOST_NAME = 40


class _VM(Struct, kw_only=True):
    id: str
    cpu_cores: float | None = None
    memory_bytes: float | None = None
    cpu_utilization: float = 0.5
    memory_utilization: float = 0.8
    cpu_consumption: float | None = None
    memory_consumption: float | None = None


class _Node(Struct, kw_only=True):
    name: str
    vms: list[_VM] = []


def is_legacy(document: Any) -> bool:
    """Say whether a document has this form: every value a list of nodes."""
    return (
        isinstance(document, dict)
        and bool(document)
        and "about" not in document
        and all(
            isinstance(nodes, list) and all(isinstance(n, dict) and "name" in n for n in nodes)
            for nodes in document.values()
        )
    )


def read_legacy(
    document: dict[str, Any], wanted: str | None, namespace: str
) -> tuple[str, list[VM], list[Object]]:
    """Return name, VMs and nodes of the scenario that is wanted, or of the only one."""
    names = ", ".join(document)
    if wanted is None and len(document) > 1:
        raise InvalidRequest(f"there are several scenarios: {names}", hint="Maybe add ?name=NAME.")
    name = wanted if wanted is not None else next(iter(document))
    if name not in document:
        raise NotFound(f"there is no scenario {name!r}; there is {names}")
    try:
        nodes = msgspec.convert(document[name], list[_Node])
        vms = [_vm(each, namespace) for node in nodes for each in node.vms]
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidRequest(f"scenario {name!r}: {error}") from error
    seen: set[str] = set()
    for vm in vms:
        if vm.name in seen:
            raise InvalidRequest(f"scenario {name!r}: two VMs are called {vm.name!r}")
        seen.add(vm.name)
    return name, vms, [_node(node.name) for node in nodes]


def _vm(told: _VM, namespace: str) -> VM:
    cores, memory = told.cpu_cores, told.memory_bytes
    cpu_used, memory_used = told.cpu_utilization, told.memory_utilization
    if cores is None and told.cpu_consumption is not None:
        busy = told.cpu_consumption * NODE_CORES
        cores = max(_OLD_CORES, math.ceil(busy))
        cpu_used = busy / cores
    if memory is None and told.memory_consumption is not None:
        touched = told.memory_consumption * NODE_MEMORY
        memory = max(_OLD_MEMORY, math.ceil(touched))
        memory_used = touched / memory
    asked = {
        "name": _name(told.id),
        "namespace": namespace,
        "cpu_milli": round((_OLD_CORES if cores is None else cores) * 1000),
        "memory_bytes": round(_OLD_MEMORY if memory is None else memory),
        "cpu_utilization": round(cpu_used, 6),
        "memory_utilization": round(memory_used, 6),
    }
    return msgspec.convert(asked, VM)


def _name(told: str) -> str:
    """Return a name that Kubernetes takes: VM_7 becomes vm-7."""
    name = re.sub(r"[^a-z0-9]+", "-", told.lower()).strip("-")[:_MOST_NAME].strip("-")
    if not name:
        raise ValueError(f"{told!r} is no name for a VM")
    return name if name[0].isalpha() else f"vm-{name}"


def _node(name: str) -> Object:
    made = NodePool(count=1, cpu=str(NODE_CORES), memory=f"{NODE_MEMORY}B").node(0)
    made["metadata"]["name"] = made["metadata"]["labels"][HOSTNAME_LABEL] = name
    return made
