"""What roost cannot say the way Kubernetes says it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Unsupported:
    """One rule of a pod that is not in the translation, or not exactly.

    A hard one may change which nodes are feasible; any other only which of them is preferred.
    """

    field: str  # of the pod, as Kubernetes names it
    why: str
    hard: bool = True

    def __str__(self) -> str:
        return f"{self.field}: {self.why}"
