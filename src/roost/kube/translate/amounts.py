"""Amounts of nodes and pods: cpu in thousandths, everything else in whole units.

A pod asks for the most it needs at any time: its containers together, or one init container with
the sidecars started before it; then whatever its runtime needs besides.
"""

from collections.abc import Iterable

from roost.kube.base.objects import Object
from roost.kube.base.quantities import parse_quantity

CPU, MEMORY, DISK, PODS = "cpu", "memory", "ephemeral-storage", "pods"
Amounts = dict[str, int]
#: Resources that the pod as a whole may ask for; the other ones only its containers can.
_WHOLE_POD = (CPU, MEMORY)
_HUGE_PAGES = "hugepages-"


def parse_amounts(listed: Object | None) -> Amounts:
    """Return a resource list in whole numbers."""
    return {
        name: parse_quantity(str(text), milli=name == CPU) for name, text in (listed or {}).items()
    }


def pod_amounts(pod: Object) -> Amounts:
    """Return what a pod is charged for."""
    spec = pod["spec"]
    now = _added(_container(pod, each) for each in spec.get("containers") or ())
    sidecars: Amounts = {}
    starting: Amounts = {}
    for each in spec.get("initContainers") or ():
        asked = _container(pod, each)
        if each.get("restartPolicy") == "Always":
            now = _added((now, asked))
            sidecars = _added((sidecars, asked))
            asked = sidecars
        else:
            asked = _added((sidecars, asked))
        starting = _largest(starting, asked)
    total = _largest(now, starting)
    for name, amount in parse_amounts((spec.get("resources") or {}).get("requests")).items():
        if name in _WHOLE_POD or name.startswith(_HUGE_PAGES):
            total[name] = amount
    return _added((total, parse_amounts(spec.get("overhead"))))


def _container(pod: Object, container: Object) -> Amounts:
    """Return what one container asks for, or has while it is being resized: the larger one."""
    asked = parse_amounts((container.get("resources") or {}).get("requests"))
    status = pod.get("status") or {}
    told = (status.get("containerStatuses") or []) + (status.get("initContainerStatuses") or [])
    for each in told:
        if each["name"] == container["name"] and each.get("resources"):
            actual = parse_amounts(each["resources"].get("requests"))
            allocated = parse_amounts(each.get("allocatedResources"))
            asked = _largest(_largest(asked, actual), allocated)
    return asked


def _added(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _largest(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in one | other}
