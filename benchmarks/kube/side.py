"""Rows: one case on one cluster through everything."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.engine.measuring import Job
from benchmarks.kube import engine, scheduler, service
from benchmarks.kube.measuring import Sizes
from benchmarks.kube.workload import Case
from benchmarks.results import Result, at_least, at_most
from roost.kube.base.objects import Object
from roost.kube.cluster.local import LocalCluster

_ENGINE_GOAL, _ENGINE_AIM = 100.0, 1000.0
_API_GOAL, _API_AIM = 3.0, 10.0


@dataclass
class Side:
    """One cluster, brought up when the first case wants it."""

    sizes: Sizes
    nodes: int
    folder: Path
    open: Callable[[], LocalCluster]
    _cluster: LocalCluster | None = None
    _listed: list[Object] = field(default_factory=list)

    def jobs(self) -> Iterator[Job]:
        """Return one job per case."""
        for case in self.sizes.cases:
            name = f"{self.nodes:,} nodes, {case}"
            yield Job(name, partial(self._case, name, case))

    def _case(self, name: str, case: Case) -> Iterator[Result]:
        if self._cluster is None:
            self._cluster = self.open()
            self._listed = scheduler.nodes_of(self._cluster)
        sampled = self._best(case, all_nodes=False)
        yield self._row(f"{name}: kube-scheduler", sampled, "samples nodes, as it comes")
        full = self._best(case, all_nodes=True)
        yield self._row(f"{name}: kube-scheduler, all nodes", full, "percentageOfNodesToScore 100")
        yield from self._engine(name, case, sampled, full)
        yield from self._service(name, case, sampled, full)

    def _best(self, case: Case, *, all_nodes: bool) -> scheduler.Run:
        assert self._cluster is not None
        count = self.sizes.count(self.nodes, all_nodes=all_nodes)
        runs = [
            scheduler.measure(self._cluster, case, count, all_nodes=all_nodes)
            for _ in range(1 if all_nodes else self.sizes.runs)
        ]
        return max(runs, key=lambda run: run.pods_per_s)

    @staticmethod
    def _row(row: str, run: scheduler.Run, how: str) -> Result:
        note = f"{how}; {len(run.pods):,} pods; {run.cpu()}; load {run.load:.1f}"
        return at_least(row, run.pods_per_s, "pods/s", None, note=note)

    def _engine(
        self, name: str, case: Case, sampled: scheduler.Run, full: scheduler.Run
    ) -> Iterator[Result]:
        ways = (("one by one", engine.one_by_one), ("batch", engine.as_batch))
        for how, place in ways:
            row = f"{name}: engine, {how}"
            speed = engine.measure(row, case, self._listed, sampled.pods, place, self.sizes.rounds)
            yield at_least(
                row, speed.per_s, "VMs/s", None,
                note=f"in-process, nothing durable; CPU ms per VM {speed.cpu_us / 1e3:.3f}",
            )  # fmt: skip
            cpu_ms = speed.cpu_us / 1e3
            yield self._ratio(row, speed.per_s, cpu_ms, sampled, full, _ENGINE_GOAL, _ENGINE_AIM)

    def _service(
        self, name: str, case: Case, sampled: scheduler.Run, full: scheduler.Run
    ) -> Iterator[Result]:
        row = f"{name}: durable API"
        run = service.measure(row, case, self._listed, len(sampled.pods), self.folder)
        yield at_least(
            row, run.per_s, "VMs/s", None,
            note="roost serve on SQLite, synced to disk; one VM in a request, 64 connections",
        )  # fmt: skip
        yield at_most(f"{row}, CPU", run.cpu_ms, "ms", None, note="of the server per VM")
        yield self._ratio(row, run.per_s, run.cpu_ms, sampled, full, _API_GOAL, _API_AIM)

    def _ratio(
        self,
        row: str,
        per_s: float,
        cpu_ms: float,
        sampled: scheduler.Run,
        full: scheduler.Run,
        goal: float,
        aim: float,
    ) -> Result:
        """Compare with kube-scheduler as it comes, and beside that with its row of all nodes."""
        return at_least(
            f"{row} over kube-scheduler",
            per_s / sampled.pods_per_s,
            "x",
            self.sizes.goal(goal),
            self.sizes.goal(aim),
            # Other work on the machine moves the rates, and hardly what a pod costs.
            note=f"by CPU {sum(sampled.cpu_ms.values()) / cpu_ms:,.0f}x; over its row of all nodes "
            f"{per_s / full.pods_per_s:,.0f}x, by CPU {sum(full.cpu_ms.values()) / cpu_ms:,.0f}x",
        )
