"""Having Kubernetes count a disruption budget again that it could not count before.

Its disruption controller tries at once and once more, then leaves such a budget, which allows
nothing, until one of the pods under it changes. Causes go away by themselves: it has not heard
of VMs yet (it asks what there is every 30 s), they were known without their scale until a moment
ago, or an API server was restarted. So one of those pods is touched while the budget says so, less
and less often. Nothing but an annotation is changed.
"""

import contextlib
import logging

from roost.base.backoff import BackOff
from roost.base.clock import Clock, RealClock
from roost.base.errors import NotFound
from roost.kube.base.client import PODS, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.base.moments import moment_text
from roost.kube.base.names import GROUP
from roost.kube.base.objects import Key, Object, key_of
from roost.kube.base.workqueue import WorkQueue
from roost.kube.moving.budgets import selects, uncounted
from roost.kube.vms.launchers import is_going

log = logging.getLogger("roost.kube")

#: On a pod: when it was last touched to have its budget counted.
TOUCHED_ANNOTATION = f"{GROUP}/recounted"
#: Each pause is so much longer than the last: nobody waits for us half as long again as is needed.
_WAITS = BackOff(1.0, 300.0, factor=1.5)


class Recounting:
    """Touches a pod of every budget that cannot be counted."""

    def __init__(
        self, kube: Kube, budgets: Mirror, pods: Mirror, clock: Clock | None = None
    ) -> None:
        self._kube, self._budgets, self._pods = kube, budgets, pods
        self._clock = clock or RealClock()
        self._queue = WorkQueue(
            self._look, self._clock, kube.random, what="disruption budget", at_once=1
        )
        self._due: dict[Key, tuple[float, int]] = {}  # when next, and the attempt then

    async def start(self) -> None:
        """Start looking at disruption budgets."""
        self._queue.start()
        self._budgets.listen(self._heard)

    async def stop(self) -> None:
        """Stop looking at disruption budgets."""
        self._budgets.forget(self._heard)
        await self._queue.stop()

    def _heard(self, before: Object | None, after: Object | None) -> None:
        self._queue.add(key_of(after or before or {}))

    async def _look(self, key: Key) -> float | None:
        budget = self._budgets.objects.get(key)
        if budget is None or uncounted(budget) is None:
            self._due.pop(key, None)
            return None
        now = self._clock.monotonic()
        # The first time, too: it is tried once more without us.
        due, attempt = self._due.setdefault(key, (now + _WAITS.wait_s(0), 1))
        if now < due:
            return due - now
        wait_s = _WAITS.wait_s(attempt)
        self._due[key] = now + wait_s, attempt + 1
        await self._touch(budget)
        return wait_s

    async def _touch(self, budget: Object) -> None:
        (namespace, name), selector = key_of(budget), budget["spec"].get("selector")
        covered = sorted(
            key
            for key, pod in self._pods.objects.items()
            if key[0] == namespace
            and selects(selector, pod["metadata"].get("labels") or {})
            and not is_going(pod)
        )
        if covered:
            log.info("disruption budget %s/%s: asking for another count", namespace, name)
            noted = {TOUCHED_ANNOTATION: moment_text(self._clock.wall_ms(), micro=True)}
            with contextlib.suppress(NotFound):
                change = {"metadata": {"annotations": noted}}
                await self._kube.patch(PODS, covered[0][1], change, namespace)
