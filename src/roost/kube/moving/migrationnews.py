"""Whom a migration tells of itself: the descheduler by a note on the pod, people by events."""

import contextlib

from roost.base.clock import Clock
from roost.base.errors import InvalidRequest, NotFound
from roost.kube.base.client import EVENTS, PODS, VMS, Kube
from roost.kube.base.moments import moment_text
from roost.kube.base.names import EVICTION_IN_PROGRESS_ANNOTATION, MANAGER
from roost.kube.base.objects import Object, key_of
from roost.kube.moving.migrationrecord import sentence


class News:
    """Writes notes on pods and events on VMs."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock

    async def descheduler(self, pod: Object, *, moving: bool) -> None:
        """Note on the source that its eviction goes on; taking it off tells that it does not.

        The descheduler counts such pods as leaving, and asks again only when the note is gone.
        """
        noted = EVICTION_IN_PROGRESS_ANNOTATION in (pod["metadata"].get("annotations") or {})
        if noted != moving:
            value = MANAGER if moving else None
            await self.note(pod, EVICTION_IN_PROGRESS_ANNOTATION, value)

    async def note(self, pod: Object, key: str, value: str | None) -> None:
        """Write an annotation of a pod, or take it off."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        with contextlib.suppress(NotFound):  # whoever looks next sees that it is gone
            change = {"metadata": {"annotations": {key: value}}}
            await self._kube.patch(PODS, name, change, namespace)

    async def event(self, vm: Object, migration: Object) -> None:
        """Leave an event on the VM; its name follows from the number, so it comes once."""
        namespace, name = key_of(vm)
        event = {
            "metadata": {
                "name": f"{name}.migration.{vm['metadata']['uid'][:8]}.{migration['number']}",
                "namespace": namespace,
            },
            "involvedObject": {
                "apiVersion": VMS.api_version, "kind": VMS.kind, "name": name,
                "namespace": namespace, "uid": vm["metadata"]["uid"],
            },
            "type": "Normal" if migration["phase"] == "Succeeded" else "Warning",
            "reason": "Migrated" if migration["phase"] == "Succeeded" else "MigrationFailed",
            "message": sentence(migration),
            "source": {"component": MANAGER},
            "firstTimestamp": moment_text(self._clock.wall_ms()),
            "lastTimestamp": moment_text(self._clock.wall_ms()),
            "count": 1,
        }  # fmt: skip
        with contextlib.suppress(InvalidRequest):  # a namespace that goes takes no events
            await self._kube.ensure(EVENTS, event, namespace)
