"""How large everything is."""

from dataclasses import dataclass

from benchmarks.kube.workload import Case


@dataclass(frozen=True, slots=True)
class Sizes:
    """Goals are stated for the full sizes; a short run has none."""

    nodes: tuple[int, ...]
    cases: tuple[Case, ...]
    pods: int
    pods_all_nodes: int  # where kube-scheduler looks at every one of many nodes
    runs: int  # of kube-scheduler as it comes; the best one counts. With all nodes there is one
    rounds: int  # of the engine; the best one counts
    full: bool

    def count(self, nodes: int, *, all_nodes: bool) -> int:
        """Return how many pods a run has; all of them are one group where there is a rule."""
        return self.pods_all_nodes if all_nodes and nodes > 1_000 else min(self.pods, nodes)

    def goal(self, value: float) -> float | None:
        """Return a goal that holds for the full sizes only."""
        return value if self.full else None


FULL = Sizes(
    nodes=(1_000, 5_000), cases=tuple(Case), pods=1_000, pods_all_nodes=200, runs=2, rounds=5,
    full=True,
)  # fmt: skip
SHORT = Sizes(
    nodes=(1_000,), cases=(Case.PLAIN, Case.SPREAD), pods=300, pods_all_nodes=300, runs=1,
    rounds=3, full=False,
)  # fmt: skip
