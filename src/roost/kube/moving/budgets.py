"""Which disruption budgets cover a VM, and whether it may be disturbed now. Pure.

A live migration counts as a disturbance for as long as it lasts: the guest slows down and stands
still for a moment. Kubernetes counts pods, and a VM that moves has two of them:

    minAvailable: 2      wanted 2                          healthy: every pod that is ready,
    minAvailable: 50%    wanted the half of the VMs,       the second pods of VMs that move, too
                         rounded up
    maxUnavailable: 1    wanted all VMs but one            allowed = healthy - wanted

In shares it counts VMs (each says by its scale that it is one), so what is wanted does not grow
with a second pod. What is allowed does, by each; so each is taken off again, or a migration would
seem to make room for the next. It is taken off before Kubernetes has counted it, too: that errs on
the side of waiting.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from roost.kube.base.objects import Object
from roost.kube.base.selectors import pod_selector

Labels = Mapping[str, str]


def selects(selector: Object | None, labels: Labels) -> bool:
    """Say whether a label selector picks something; none picks nothing, an empty one all."""
    return selector is not None and pod_selector(selector).matches(labels)


def covering(budgets: Iterable[Object], namespace: str, labels: Labels) -> list[Object]:
    """Return the budgets that cover pods of a namespace with these labels, by name."""
    found = [
        budget
        for budget in budgets
        if budget["metadata"].get("namespace") == namespace
        and selects(budget["spec"].get("selector"), labels)
    ]
    return sorted(found, key=lambda budget: str(budget["metadata"]["name"]))


class Room(NamedTuple):
    """Whether one more VM may be disturbed, and if not, why."""

    free: bool
    reason: str = ""


def room(
    budgets: Iterable[Object], namespace: str, labels: Labels, moving: Collection["Moving"]
) -> Room:
    """Say whether a VM whose pod has these labels may be disturbed besides those that move."""
    for budget in covering(budgets, namespace, labels):
        status = budget.get("status") or {}
        # What was counted for another wording of the budget says nothing about this one.
        allowed = 0 if _is_old(budget) else int(status.get("disruptionsAllowed") or 0)
        selector = budget["spec"].get("selector")
        under = [
            each
            for each in moving
            if each.namespace == namespace and selects(selector, each.labels)
        ]
        second_pods = sum(each.second_pods for each in under)
        if allowed - second_pods - len(under) < 1:
            return Room(False, _why(budget, len(under)))
    return Room(True)


class Moving(NamedTuple):
    """A VM whose migration is under way."""

    namespace: str
    labels: Labels
    second_pods: int = 1  # its pods besides its own that Kubernetes may count as healthy


def uncounted(budget: Object) -> str | None:
    """Return why Kubernetes cannot count what a budget covers; None when it can."""
    for condition in (budget.get("status") or {}).get("conditions") or ():
        if condition.get("reason") == "SyncFailed":
            return str(condition.get("message") or "")
    return None


def _is_old(budget: Object) -> bool:
    seen = (budget.get("status") or {}).get("observedGeneration") or 0
    return bool(seen < (budget["metadata"].get("generation") or 0))


def _why(budget: Object, moving: int) -> str:
    status = budget.get("status") or {}
    said = f"disruption budget {budget['metadata']['name']} allows no more VM to be disturbed now"
    if (trouble := uncounted(budget)) is not None:
        return f"{said}: Kubernetes cannot compute it ({trouble})"
    if _is_old(budget):
        return f"{said}: Kubernetes has yet to compute it"
    if moving:
        return f"{said}: {moving} under way"
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return f"{said}: {healthy} healthy, {wanted} wanted"
