"""VMs on their way to a node: how many wait and for want of what, and how long the scheduler took.

Fed by single events of pods, as `usage` is. Kubernetes keeps times in whole seconds, and binding
takes milliseconds; so the time from creation to binding is measured here, between the two events,
for every pod that was seen waiting.
"""

import re
from bisect import bisect_left
from collections import Counter
from datetime import datetime

from roost.base.clock import Clock
from roost.kube.base.names import APP, APP_LABEL
from roost.kube.base.objects import Key, Object, key_of

BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)

#: Words of the scheduler by class, in the order in which it asks: the later, the closer was a node
#: to fit. A pod is counted under the last that stands in its message.
_CLASSES = (
    ("cordoned", r"unschedulable"),
    ("taint", r"\btaint"),
    ("node-rules", r"node affinity|node selector|nodeSelector"),
    ("pods", r"Too many pods"),
    ("resources", r"Insufficient "),
    ("memory", r"Insufficient memory"),
    ("cpu", r"Insufficient cpu"),
    ("spread", r"topology spread"),
    ("affinity", r"pod affinity"),
    ("anti-affinity", r"anti-affinity"),
)
_WORDS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _CLASSES)
REASONS = ("new", "gated", "other", *(name for name, _ in _CLASSES))


def reason_of(pod: Object) -> str:
    """Return the class of what keeps a pod from its node."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            if condition.get("reason") == "SchedulingGated":
                return "gated"
            return reason_class(condition.get("message") or "")
    return "new"  # not tried yet


def reason_class(message: str) -> str:
    """Return the class of the scheduler's own words."""
    # What follows speaks of making room by preemption, and repeats some of the words.
    said = message.partition("preemption:")[0]
    found = [name for name, words in _WORDS if words.search(said)]
    return found[-1] if found else "other"


class Pending:
    """The VMs that wait, and a histogram of how long others did."""

    def __init__(self, clock: Clock) -> None:
        self.reasons: Counter[str] = Counter()
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0
        self._clock = clock
        self._waits: dict[Key, tuple[float, str]] = {}  # since when, for want of what

    def __len__(self) -> int:
        return len(self._waits)

    def heard(self, before: Object | None, after: Object | None) -> None:
        """Take in what a mirror of pods tells."""
        item = after if after is not None else before
        if item is None or (item["metadata"].get("labels") or {}).get(APP_LABEL) != APP:
            return
        key = key_of(item)
        waited = self._waits.pop(key, None)
        if waited is not None:
            self.reasons[waited[1]] -= 1
        if after is None or (after.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return
        now = self._clock.monotonic()
        if after["spec"].get("nodeName"):
            if waited is not None:
                self._bound(now - waited[0])
        else:
            since = waited[0] if waited is not None else now - self._age(after)
            reason = reason_of(after)
            self._waits[key] = since, reason
            self.reasons[reason] += 1

    def _age(self, pod: Object) -> float:
        """Return how long a pod has waited that is seen for the first time."""
        created = pod["metadata"].get("creationTimestamp")
        if not created:
            return 0.0
        at = datetime.fromisoformat(created.replace("Z", "+00:00")).timestamp()
        age = self._clock.wall_ms() / 1000 - at
        # One that is younger than what the time is given in has just come.
        return age if age >= 2.0 else 0.0

    def _bound(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds
