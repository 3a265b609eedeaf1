"""Taints and tolerations.

A roost toleration does not say which effect it tolerates, so the effect is part of the key where
it is not the usual one: `dedicated` for NoSchedule, `dedicated@NoExecute`. No key of Kubernetes has
an @. A cordon is a taint too: that is how a pod may tolerate it.
"""

from collections.abc import Iterable

from roost.kube.base.objects import Object
from roost.kube.translate.unsupported import Unsupported
from roost.model.constraints import Toleration
from roost.model.hosts import Taint, TaintEffect

NO_SCHEDULE, NO_EXECUTE, PREFER_NOT = "NoSchedule", "NoExecute", "PreferNoSchedule"
EFFECTS = (NO_SCHEDULE, NO_EXECUTE, PREFER_NOT)
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"


def node_taints(node: Object) -> list[Object]:
    """Return what keeps pods away: taints, the cordon, and that the kubelet is not ready.

    Kubernetes' node controller turns the last into a taint itself, a moment later.
    """
    taints = list(node.get("spec", {}).get("taints") or ())
    if node.get("spec", {}).get("unschedulable"):
        taints.append({"key": UNSCHEDULABLE, "effect": NO_SCHEDULE})
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = [each["status"] for each in conditions if each["type"] == "Ready"]
    if ready != ["True"] and not any(each["key"] == NOT_READY for each in taints):
        taints.append({"key": NOT_READY, "effect": NO_SCHEDULE})
    return taints


def translate_taint(taint: Object) -> Taint:
    """Return a node's taint in roost's words."""
    effect = taint["effect"]
    kept = TaintEffect.PREFER_NOT if effect == PREFER_NOT else TaintEffect.NO_PLACE
    return Taint(_key(taint["key"], effect), taint.get("value") or "", kept)


def tolerated(taint: Object, tolerations: Iterable[Object]) -> bool:
    """Say whether Kubernetes finds that a pod tolerates a taint."""
    return any(_covers(each, taint) for each in tolerations)


def _covers(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
    return False  # a comparison of numbers: not in roost, and off in Kubernetes by default


def translate_tolerations(
    pod: Object, known: Iterable[Object]
) -> tuple[tuple[Toleration, ...], list[Unsupported]]:
    """Return a pod's tolerations; `known` are the taints there are.

    A toleration of any key with one effect, or of any key with one value, names no key; it is
    written out for those that exist.
    """
    found: dict[Toleration, None] = {}
    unsupported = []
    for each in pod["spec"].get("tolerations") or ():
        operator = each.get("operator") or "Equal"
        if operator not in ("Exists", "Equal"):
            unsupported.append(
                Unsupported("tolerations", f"operator {operator} compares numbers; roost cannot")
            )
            continue
        effects = (each["effect"],) if each.get("effect") else EFFECTS
        value = None if operator == "Exists" else each.get("value") or ""
        if key := each.get("key"):
            for effect in effects:
                found[Toleration(_key(key, effect), value)] = None
        elif value is None and len(effects) > 1:
            found[Toleration()] = None
        else:
            for taint in known:
                if _covers(each, taint):
                    found[
                        Toleration(_key(taint["key"], taint["effect"]), taint.get("value") or "")
                    ] = None
    return tuple(found), unsupported


def _key(key: str, effect: str) -> str:
    return key if effect == NO_SCHEDULE else f"{key}@{effect}"
