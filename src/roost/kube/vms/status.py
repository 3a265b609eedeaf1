"""What a VM's status says, read off its pod; pure.

Pending -> Scheduling -> Scheduled -> Running
   no pod   no node       starting       |
     ^                                   v
     +------------ back-off ---------- Failed
"""

from roost.base.units import exact_cpu, parse_cpu
from roost.kube.base.names import CPU_CORES_ANNOTATION, MEMORY_BYTES_ANNOTATION
from roost.kube.base.objects import Object
from roost.kube.base.quantities import bytes_quantity

#: Phases of a migration that is not over.
UNDER_WAY = ("Waiting", "Scheduling", "Copying", "Handover")


def status_of(item: Object) -> Object:
    """Return a VM's status, empty when nobody wrote one."""
    return item.get("status") or {}


def migration_target(status: Object) -> str | None:
    """Return the pod that a migration under way brings up."""
    migration = status.get("migration") or {}
    return migration.get("targetPod") or None if migration.get("phase") in UNDER_WAY else None


def pod_status(pod: Object, before: Object, now: str) -> Object:
    """Return what the status says of a VM with this pod; None stands for no such field."""
    told, node = pod.get("status") or {}, pod["spec"].get("nodeName")
    noted = pod["metadata"].get("annotations") or {}
    phase = "Scheduling" if not node else "Scheduled"
    reason: str | None = None
    if told.get("phase") == "Running":
        phase = "Running"
    elif told.get("phase") in ("Failed", "Unknown", "Succeeded"):
        phase, reason = "Failed", why_ended(pod)
    elif not node:
        reason = why_unscheduled(pod)
    else:
        reason = _why_not_started(told)
    cores, memory = noted.get(CPU_CORES_ANNOTATION), noted.get(MEMORY_BYTES_ANNOTATION)
    return {
        "phase": phase,
        "podName": pod["metadata"]["name"],
        "nodeName": node or None,
        "reason": reason,
        "allocatedCpu": exact_cpu(parse_cpu(cores)) if cores else None,
        "allocatedMemory": bytes_quantity(int(memory)) if memory else None,
        "conditions": _conditions(phase, reason, before, now),
        **_scale(1, before),
    }


def idle_status(phase: str, reason: str, now: str, item: Object) -> Object:
    """Return what the status says of a VM without a pod."""
    return {
        "phase": phase,
        "podName": None,
        "nodeName": None,
        "reason": reason,
        "allocatedCpu": None,
        "allocatedMemory": None,
        "conditions": _conditions(phase, reason, status_of(item), now),
        **_scale(0, status_of(item)),
    }


def _scale(pods: int, before: Object) -> Object:
    # By its default it is there, unless this cluster's definition of a VM is an older one: then it
    # would be dropped, and be written again at every look.
    return {"replicas": pods} if "replicas" in before else {}


def why_unscheduled(pod: Object) -> str | None:
    """Return the scheduler's own words on why a pod has no node; None before it has tried."""
    for each in (pod.get("status") or {}).get("conditions") or ():
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return str(each.get("message") or each.get("reason") or "") or None
    return None


def why_ended(pod: Object) -> str:
    """Return why a pod is over."""
    told = pod.get("status") or {}
    words = [told.get("reason"), told.get("message")]
    for container in told.get("containerStatuses") or ():
        if ended := (container.get("state") or {}).get("terminated"):
            words += [ended.get("reason"), f"exit code {ended.get('exitCode')}"]
    said = ": ".join(str(word) for word in words if word)
    return said or f"its pod is {told.get('phase', 'over')}"


def _why_not_started(told: Object) -> str | None:
    for container in told.get("containerStatuses") or ():
        if waiting := (container.get("state") or {}).get("waiting"):
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message")))) or None
    return None


def _conditions(phase: str, reason: str | None, before: Object, now: str) -> list[Object]:
    """Return one condition of each type; those of others stay as they are."""
    known: dict[str, Object] = {each["type"]: each for each in before.get("conditions") or ()}
    scheduled, ready = phase in ("Scheduled", "Running"), phase == "Running"
    for kind, holds in (("Scheduled", scheduled), ("Ready", ready)):
        old, status = known.get(kind) or {}, "True" if holds else "False"
        fresh: Object = {
            "type": kind,
            "status": status,
            "reason": phase,
            "message": "" if holds else reason or "",
            "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == status else now,
        }
        known[kind] = fresh
    return list(known.values())


def changed(before: Object, wanted: Object) -> Object:
    """Return the fields to write, so that a merge makes `before` say what is wanted."""
    return {key: value for key, value in wanted.items() if before.get(key) != value}
