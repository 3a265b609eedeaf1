"""What a VM's status keeps of a migration, and what it says of it. Pure.

`migrating` writes these records; the webhook, the command line and reports read them.
"""

from roost.kube.base.moments import moment_ms, moment_text
from roost.kube.base.objects import Object
from roost.kube.cluster.nodes import is_ready
from roost.kube.moving.cooldown import CoolDown, Past, cools_until
from roost.kube.moving.precopy import Copy
from roost.kube.vms.launchers import is_going
from roost.kube.vms.status import status_of

#: What takes the mark off a VM.
UNMARKED: Object = {"evacuationNodeName": None, "evacuation": None}
#: Fields of a migration, so that one that begins leaves nothing of the one before.
_FIELDS = (
    "number", "phase", "reason", "cause", "sourceNode", "sourcePod", "targetPod",
    "targetNode", "wantedNode", "forcedNode", "startedAt", "copyingAt", "endedAt", "rounds",
    "copiedBytes", "progress", "copySeconds", "downtimeMs",
)  # fmt: skip


def migration_of(vm: Object) -> Object:
    """Return the migration that a VM's status tells of, which may be over; {} when none."""
    return status_of(vm).get("migration") or {}


def new_migration(vm: Object, pod: Object) -> Object:
    """Return one that has not begun, with nothing of the one before; `pod` is what is left."""
    last, asked = migration_of(vm), status_of(vm).get("evacuation") or {}
    number = int(last.get("number") or 0)
    return dict.fromkeys(_FIELDS) | {
        "number": number if last.get("phase") == "Waiting" else number + 1,
        "phase": "Waiting",
        "cause": asked.get("cause") or "request",
        "sourceNode": pod["spec"]["nodeName"],
        "sourcePod": pod["metadata"]["name"],
        "wantedNode": asked.get("wantedNode"),
        "forcedNode": asked.get("forcedNode"),
    }


def ended_status(vm: Object, ended: Object, history: int, cool_down: CoolDown) -> Object:
    """Return what the status says once a migration has ended; so many are remembered."""
    whole = {key: value for key, value in (migration_of(vm) | ended).items() if value is not None}
    kept = [*(status_of(vm).get("migrations") or ()), whole][-history:]
    past = [
        Past(moment_ms(each["endedAt"]) / 1000, each.get("phase") == "Succeeded") for each in kept
    ]
    cools_s = cools_until(past, cool_down)
    return UNMARKED | {
        "migration": ended,
        "migrations": kept,
        "coolDownUntil": moment_text(round(cools_s * 1000)) if cools_s is not None else None,
    }


def figures(copy: Copy) -> Object:
    """Return how far a copy is, in figures."""
    return {
        "rounds": len(copy.rounds),
        "copiedBytes": round(copy.copied_bytes),
        "progress": round(copy.progress, 3),
        "copySeconds": round(min(copy.now_s, copy.ended_s) - copy.began_s, 3),
        "downtimeMs": round(copy.downtime_s * 1000, 1),
    }


def why_lost(pod: Object | None, node: Object | None, what: str) -> str:
    """Return why a pod of a migration is of no use any more; '' when it is."""
    if pod is None:
        return f"the {what} pod is gone"
    if is_going(pod):
        return f"the {what} pod was deleted"
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return f"the {what} pod has ended"
    name = pod["spec"].get("nodeName")
    if name and node is None:
        return f"node {name} of the {what} is gone"
    if node is not None and not is_ready(node):
        return f"node {name} of the {what} is not ready"
    return ""


def runs(pod: Object) -> bool:
    """Say whether a pod runs and is ready."""
    status = pod.get("status") or {}
    ready = any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in status.get("conditions") or ()
    )
    return status.get("phase") == "Running" and ready


def sentence(migration: Object) -> str:
    """Return what became of a migration, for people."""
    source, target = migration.get("sourceNode"), migration.get("targetNode")
    if migration.get("phase") != "Succeeded":
        return f"migration from {source} failed: {migration.get('reason', 'no reason is known')}"
    wanted, forced = migration.get("wantedNode"), migration.get("forcedNode")
    if forced:
        chosen = f"forced to {forced}"
    elif wanted:
        same = "and so did the scheduler" if wanted == target else f"scheduler chose {target}"
        chosen = f"wanted {wanted}, {same}"
    else:
        chosen = f"scheduler chose {target}"
    return f"moved from {source} to {target}: {chosen}"
