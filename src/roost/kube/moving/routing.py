"""Whose migration a change concerns: news of VMs, pods, nodes and budgets become VMs to look at.

News says only that something may be due; `migrating` looks at how things are and decides.
"""

from collections.abc import Callable

from roost.kube.base.mirror import Heard, Mirror
from roost.kube.base.names import NAME_LABEL
from roost.kube.base.objects import Key, Object, key_of
from roost.kube.cluster.nodes import is_ready
from roost.kube.moving.knownvms import KnownVMs
from roost.kube.moving.turns import Turns
from roost.kube.vms.status import status_of


class Hearing:
    """Listens to mirrors for as long as it is asked to."""

    def __init__(
        self,
        vms: Mirror,
        pods: Mirror,
        nodes: Mirror,
        budgets: Mirror,
        *,
        known: KnownVMs,
        turns: Turns,
        look: Callable[[Key], None],
    ) -> None:
        self._vms, self._known, self._turns, self._look = vms, known, turns, look
        self._ears: list[tuple[Mirror, Heard]] = [
            (vms, self._vm_heard),
            (pods, self._pod_heard),
            (nodes, self._node_heard),
            (budgets, self._budget_heard),
        ]

    def start(self) -> None:
        """Begin, with everything that is there."""
        for mirror, heard in self._ears:
            mirror.listen(heard)

    def stop(self) -> None:
        """Stop routing changes of mirrors."""
        for mirror, heard in self._ears:
            mirror.forget(heard)

    def _vm_heard(self, before: Object | None, after: Object | None) -> None:
        key = key_of(after or before or {})
        if after is None:
            self._known.gone(key)
        self._look(key)

    def _pod_heard(self, before: Object | None, after: Object | None) -> None:
        metadata = (after or before or {})["metadata"]
        if name := (metadata.get("labels") or {}).get(NAME_LABEL):
            self._look((metadata["namespace"], name))

    def _node_heard(self, before: Object | None, after: Object | None) -> None:
        if after is None:
            for key in self._turns.begun:
                self._look(key)
        if (before is not None and is_ready(before)) != (after is not None and is_ready(after)):
            name = (after or before or {})["metadata"]["name"]
            for vm in self._vms:
                if status_of(vm).get("evacuationNodeName") == name:
                    self._look(key_of(vm))

    def _budget_heard(self, before: Object | None, after: Object | None) -> None:
        self._turns.settle(key_of(after or before or {}))
