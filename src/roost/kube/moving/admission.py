"""What becomes of an eviction or deletion of a VM's pod: it becomes a migration. Pure.

    the pod is its VM's own   refused with 429, and the VM is marked to leave its node; the
                              descheduler knows the text and counts an eviction in the background
    the VM cools down         refused with 429 and until when, nothing is marked; unless its node
                              is cordoned: that is a drain, which nobody does to balance load
    it is a migration's target  refused: the VM is about to live there
    it has no node, or does not run  may be deleted: nothing is left in it that could be moved
    anything else             none of our business: allowed

A disruption budget without room does not refuse the mark: the migration waits for room and says
for which budget it does, so whoever evicts need not come again and again. A dry run is answered
in the same way and marks nothing.
"""

from typing import NamedTuple

from roost.base.errors import InvalidRequest
from roost.kube.base.names import POD_PREFIX
from roost.kube.base.objects import Object
from roost.kube.vms.launchers import is_going, is_protected, owner_of
from roost.kube.vms.status import UNDER_WAY, status_of

TOO_MANY, FORBIDDEN = 429, 403
EVICTION, DELETION = "eviction", "deletion"


class Asked(NamedTuple):
    """What the API server asks about."""

    uid: str
    action: str  # EVICTION, DELETION, or "" for what we do not judge
    namespace: str
    pod: str
    user: str
    dry_run: bool
    old: Object | None  # the pod as the API server has it; not given with an eviction


class Known(NamedTuple):
    """What is known of the pod that is asked about; None where there is none."""

    pod: Object | None
    vm: Object | None
    node_exists: bool = True
    node_cordoned: bool = False
    namespace_goes: bool = False
    cooling_until_s: float | None = None
    now_s: float = 0.0


class Verdict(NamedTuple):
    """The answer, and whether the VM has to be marked."""

    allowed: bool
    message: str = ""
    code: int = 200
    mark: bool = False


_ALLOWED = Verdict(True)


def read_review(review: Object) -> Asked:
    """Return what an AdmissionReview asks; InvalidRequest when it is none."""
    try:
        request = review["request"]
        resource = request["resource"]["resource"], request.get("subResource") or ""
        old = request.get("oldObject")
        # A deletion of many names none of them: each comes as the object that would go.
        name = request.get("name") or (old or {}).get("metadata", {}).get("name", "")
        actions = {
            ("CREATE", "pods", "eviction"): EVICTION,
            ("DELETE", "pods", ""): DELETION,
        }
        return Asked(
            uid=str(request["uid"]),
            action=actions.get((request["operation"], *resource), ""),
            namespace=request.get("namespace") or "",
            pod=name,
            user=(request.get("userInfo") or {}).get("username", ""),
            dry_run=bool(request.get("dryRun")),
            old=old,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"this is no AdmissionReview: {error!r} is missing") from error


def judge(asked: Asked, known: Known) -> Verdict:
    """Decide; the same question about the same things has the same answer."""
    pod, vm = known.pod, known.vm
    if not asked.action or not asked.pod.startswith(f"{POD_PREFIX}-"):
        return _ALLOWED
    if pod is None or vm is None or _is_free(pod, vm):
        return _ALLOWED
    if known.namespace_goes or _has_ended(pod):
        return _ALLOWED
    node = pod["spec"].get("nodeName") or ""
    if node and not known.node_exists:
        return _ALLOWED  # nothing is left that could be moved
    where = f"{asked.namespace}/{vm['metadata']['name']}"
    status = status_of(vm)
    migration = status.get("migration") or {}
    if _is_target(pod, migration):
        code = TOO_MANY if asked.action == EVICTION else FORBIDDEN
        return Verdict(False, f'pod is the target of a migration of VMI "{where}"', code)
    if (status.get("podName") or asked.pod) != asked.pod:
        return _ALLOWED  # a leftover: the controller takes it away, too
    if asked.action == DELETION and (not node or _stands_still(pod)):
        return _ALLOWED  # another pod takes its place, elsewhere if its node is not ready
    if not node:
        said = f'VMI "{where}" is not on a node yet: there is nothing to move'
        return Verdict(False, said, TOO_MANY)
    moving = migration.get("phase") in UNDER_WAY[1:]
    if moving and (migration["phase"] == "Handover" or migration.get("sourcePod") != asked.pod):
        # What is under way does not lead away from this pod, and its end takes any mark off.
        return Verdict(False, f'VMI "{where}" is being moved already', TOO_MANY)
    if not moving and status.get("evacuationNodeName") != node:
        if _is_cooling(known):
            return Verdict(False, _cools(where, status, known), TOO_MANY)
        return Verdict(False, triggered(where), TOO_MANY, mark=not asked.dry_run)
    return Verdict(False, triggered(where), TOO_MANY)


def triggered(where: str) -> str:
    """Return the words by which the descheduler knows an eviction that goes on in background."""
    return f'Eviction triggered evacuation of VMI "{where}"'


def answer(asked: Asked, verdict: Verdict) -> Object:
    """Return the AdmissionReview that tells a verdict."""
    response: Object = {"uid": asked.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        reasons = {TOO_MANY: "TooManyRequests", FORBIDDEN: "Forbidden"}
        response["status"] = {
            "status": "Failure",
            "message": verdict.message,
            "code": verdict.code,
            "reason": reasons.get(verdict.code, "InternalError"),
        }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _is_free(pod: Object, vm: Object) -> bool:
    """Say whether nobody keeps the pod: let go of, going already, or of a VM that is or was."""
    owner = owner_of(pod)
    return (
        not is_protected(pod)
        or is_going(pod)
        or owner is None
        or owner[1] != vm["metadata"]["uid"]
        or is_going(vm)
    )


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _stands_still(pod: Object) -> bool:
    # Kubernetes says so of the pods of a node that is not ready, too, before it evicts them.
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "False" for each in conditions)


def _is_target(pod: Object, migration: Object) -> bool:
    mine = pod["metadata"]["name"] == migration.get("targetPod")
    # After the handover the target is the VM's own pod, and is judged as such.
    return mine and migration.get("phase") in ("Scheduling", "Copying")


def _is_cooling(known: Known) -> bool:
    until_s = known.cooling_until_s
    return until_s is not None and known.now_s < until_s and not known.node_cordoned


def _cools(where: str, status: Object, known: Known) -> str:
    left_s = (known.cooling_until_s or 0.0) - known.now_s
    return (
        f'VMI "{where}" was moved a short while ago and stays until '
        f"{status.get('coolDownUntil', '')} ({left_s:.0f} s)"
    )
