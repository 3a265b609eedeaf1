"""openb, FGD protocol: Alibaba's GPU nodes filled with pods that never leave.

Pods arrive in a seeded order until they ask for 130% of all GPUs; each is placed or refused at
once. The figure is the share of GPU allocated while the arrived demand rounds to 130%. Policies see
the node's free resources and the list of typical pods, which the protocol gives to all of them.
The order comes from NumPy's generator: the published simulator's own shuffles cannot be replayed.
"""

import csv
import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.packing.slots import SCALE, kernel, ratio

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WHOLE_GPU = 1000
ARRIVED_PCT = 130
COVERED = 0.95
CPU, MEMORY, GPUS, SHARE, MODELS, WEIGHT = 0, 1, 2, 3, 4, 5

BEST_FIT, FGD, FRAGMENTATION = 0, 1, 2
POLICIES = {"BestFit": BEST_FIT, "FGD": FGD, "fragmentation": FRAGMENTATION}

INFEASIBLE = 2**62


@dataclass(frozen=True)
class Workload:
    """Nodes in name order (cpu, memory, gpus, model bit) and the pods as indices into classes."""

    nodes: Ints
    classes: Ints
    pods: Ints
    typical: Ints
    frequency: Floats
    shapes: Ints

    @property
    def capacity(self) -> int:
        """GPU milli of all nodes."""
        return int(self.nodes[:, GPUS].sum()) * WHOLE_GPU

    def arrivals(self, seed: int) -> Ints:
        """Shuffle the list, then draw from it until the demand reaches 130% of capacity."""
        random = np.random.default_rng(seed)
        order = self.pods[random.permutation(len(self.pods))]
        demand = self.classes[:, GPUS] * self.classes[:, SHARE]
        arrived = int(demand[order].sum())
        extra = []
        while arrived * 100 < ARRIVED_PCT * self.capacity:
            extra.append(self.pods[random.integers(len(self.pods))])
            arrived += int(demand[extra[-1]])
        return np.concatenate([order, np.array(extra, dtype=np.int64)])


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a gzipped CSV file as dictionaries."""
    with gzip.open(path, "rt", newline="") as text:
        return list(csv.DictReader(text))


def covering(counts: Counter[tuple[int, ...]]) -> list[tuple[tuple[int, ...], int]]:
    """Keep the most frequent keys until they cover 95% of the pods."""
    kept, covered = [], 0
    for key, count in counts.most_common():
        if covered >= COVERED * counts.total():
            break
        kept.append((key, count))
        covered += count
    return kept


def load(folder: Path, name: str) -> Workload:
    """Read the GPU nodes and one pod list."""
    node_rows = sorted(
        read_rows(folder / "openb_node_list_gpu_node.csv.gz"), key=lambda row: row["sn"]
    )
    bits = {model: 1 << i for i, model in enumerate(sorted({r["model"] for r in node_rows}))}
    any_model = sum(bits.values())
    nodes = [
        (int(r["cpu_milli"]), int(r["memory_mib"]), int(r["gpu"]), bits[r["model"]])
        for r in node_rows
    ]
    pods: list[tuple[int, ...]] = []
    for row in sorted(
        read_rows(folder / f"openb_pod_list_{name}.csv.gz"), key=lambda row: row["name"]
    ):
        gpus = int(row["num_gpu"])
        spec = row["gpu_spec"]
        models = sum(bits.get(m, 0) for m in spec.split("|")) if spec else any_model
        share = int(row["gpu_milli"]) if gpus else 0
        pods.append((int(row["cpu_milli"]), int(row["memory_mib"]), gpus, share, models))
    index = {key: i for i, key in enumerate(dict.fromkeys(pods))}
    typical = covering(Counter((p[CPU], p[GPUS], p[SHARE], p[MODELS]) for p in pods))
    frequency = np.array([count for _, count in typical], dtype=np.float64)
    shapes = [(*key, key[GPUS] * key[SHARE]) for key, _ in covering(Counter(pods)) if key[GPUS]]
    return Workload(
        nodes=np.array(nodes, dtype=np.int64),
        classes=np.array(list(index), dtype=np.int64),
        pods=np.array([index[key] for key in pods], dtype=np.int64),
        typical=np.array([(c, 0, g, s, m) for (c, g, s, m), _ in typical], dtype=np.int64),
        frequency=frequency / frequency.sum(),
        shapes=np.array(shapes, dtype=np.int64),
    )


def run(workload: Workload, policy: int, seed: int) -> tuple[float, int]:
    """Return GPU allocation % at 130% arrived, and the number of refused pods."""
    typical = workload.shapes if policy == FRAGMENTATION else workload.typical
    return simulate(
        policy,
        workload.nodes,
        workload.classes,
        workload.arrivals(seed),
        typical,
        workload.frequency,
    )


@kernel
def fragment(node: Ints, gpu: Ints, typical: Ints, frequency: Floats) -> float:
    """Return FGD's F: the idle GPU milli that the typical pods cannot use, in expectation."""
    idle = gpu.sum()
    total = 0.0
    for t in range(len(typical)):
        need = typical[t]
        usable = 0
        short = 0
        for i in range(node[GPUS]):
            if gpu[i] >= need[SHARE]:
                usable += 1
            else:
                short += gpu[i]
        hosts = need[GPUS] > 0 and (need[MODELS] & node[3]) != 0
        hosts = hosts and node[CPU] >= need[CPU] and usable >= need[GPUS]
        total += frequency[t] * (short if hosts else idle)
    return total


@kernel
def usable_value(node: Ints, gpu: Ints, shapes: Ints) -> int:
    """Return GPU milli still usable by each shape, summed, in 1/SCALE (see `slots`)."""
    value = 0
    for t in range(len(shapes)):
        need = shapes[t]
        if (need[MODELS] & node[3]) == 0:
            continue
        fit = 0
        for i in range(node[GPUS]):
            fit += gpu[i] // need[SHARE]
        slots = fit // need[GPUS] * SCALE
        slots = min(slots, ratio(node[CPU], need[CPU]), ratio(node[MEMORY], need[MEMORY]))
        value += need[WEIGHT] * slots
    return value


@kernel
def take(node: Ints, gpu: Ints, need: Ints, chosen: int, sign: int) -> None:
    """Commit a pod (sign 1) or give it back (-1); `chosen` is the GPU of a shared pod."""
    node[CPU] -= sign * need[CPU]
    node[MEMORY] -= sign * need[MEMORY]
    if need[GPUS] == 0:
        return
    if need[SHARE] < WHOLE_GPU:
        gpu[chosen] -= sign * need[SHARE]
        return
    left = need[GPUS]
    for i in range(chosen, node[GPUS]):
        if left > 0 and gpu[i] == (WHOLE_GPU if sign > 0 else 0):
            gpu[i] -= sign * WHOLE_GPU
            left -= 1


@kernel
def fits(node: Ints, gpu: Ints, need: Ints) -> bool:
    """Tell whether the node can host the pod now."""
    if node[CPU] < need[CPU] or node[MEMORY] < need[MEMORY] or (need[MODELS] & node[3]) == 0:
        return False
    enough = 0
    for i in range(node[GPUS]):
        if gpu[i] >= need[SHARE]:
            enough += 1
    return bool(enough >= need[GPUS])


@kernel
def score_after(
    policy: int, node: Ints, gpu: Ints, before: float, typical: Ints, frequency: Floats
) -> int:
    """Score the state left by a placement; lower is better."""
    if policy == BEST_FIT:
        left = 0.5 * node[CPU] / 128000 + 0.5 * gpu.sum() / 8000
        return -int(100 * (1 - left))
    if policy == FGD:
        gained = (before - fragment(node, gpu, typical, frequency)) / 1000
        return -int(100 / (1 + np.exp(-gained)))
    return int(before) - usable_value(node, gpu, typical)


@kernel
def score(
    policy: int,
    node: Ints,
    gpu: Ints,
    need: Ints,
    before: float,
    typical: Ints,
    frequency: Floats,
) -> tuple[int, int]:
    """Return the best score of a node and the GPU that gives it (the first, if not shared)."""
    if not fits(node, gpu, need):
        return INFEASIBLE, 0
    after_node = node.copy()
    after_gpu = gpu.copy()
    shared = need[GPUS] > 0 and need[SHARE] < WHOLE_GPU
    best, best_gpu = INFEASIBLE, 0
    for i in range(node[GPUS] if shared else 1):
        if shared and (gpu[i] < need[SHARE] or np.any(gpu[:i] == gpu[i])):
            continue
        after_node[:] = node
        after_gpu[:] = gpu
        take(after_node, after_gpu, need, i, 1)
        value = score_after(policy, after_node, after_gpu, before, typical, frequency)
        # FGD keeps the first of equal GPUs; the other two prefer the tightest.
        tighter = policy != FGD and value == best and gpu[i] < gpu[best_gpu]
        if value < best or tighter:
            best, best_gpu = value, i
    return best, best_gpu


@kernel
def node_value(policy: int, node: Ints, gpu: Ints, typical: Ints, frequency: Floats) -> float:
    """Return what `score_after` compares with: F, usable value, or nothing."""
    if policy == FGD:
        return fragment(node, gpu, typical, frequency)
    if policy == FRAGMENTATION:
        return float(usable_value(node, gpu, typical))
    return 0.0


@kernel
def simulate(
    policy: int, nodes: Ints, classes: Ints, arrivals: Ints, typical: Ints, frequency: Floats
) -> tuple[float, int]:
    """Place or refuse every arrival; a score is computed again only after its node changed."""
    count = len(nodes)
    free = nodes.copy()
    gpu = np.zeros((count, nodes[:, GPUS].max()), np.int64)
    value = np.zeros(count)
    for n in range(count):
        gpu[n, : nodes[n, GPUS]] = WHOLE_GPU
        value[n] = node_value(policy, free[n], gpu[n], typical, frequency)
    version = np.zeros(count, np.int64)
    seen = np.full((len(classes), count), -1, np.int64)
    scores = np.zeros((len(classes), count), np.int64)
    chosen = np.zeros((len(classes), count), np.int64)
    capacity = WHOLE_GPU * nodes[:, GPUS].sum()
    arrived, allocated, refused, samples, total = 0, 0, 0, 0, 0.0
    for k in arrivals:
        need = classes[k]
        best, best_score, best_idle = -1, INFEASIBLE, 0
        for n in range(count):
            if seen[k, n] != version[n]:
                scores[k, n], chosen[k, n] = score(
                    policy, free[n], gpu[n], need, value[n], typical, frequency
                )
                seen[k, n] = version[n]
            if scores[k, n] > best_score or scores[k, n] == INFEASIBLE:
                continue
            idle = gpu[n].sum() if policy == FRAGMENTATION else 0
            if scores[k, n] < best_score or idle < best_idle:
                best, best_score, best_idle = n, scores[k, n], idle
        arrived += need[GPUS] * need[SHARE]
        if best < 0:
            refused += 1
        else:
            take(free[best], gpu[best], need, chosen[k, best], 1)
            value[best] = node_value(policy, free[best], gpu[best], typical, frequency)
            version[best] += 1
            allocated += need[GPUS] * need[SHARE]
        if np.rint(100 * arrived / capacity) == ARRIVED_PCT:
            total += 100 * allocated / capacity
            samples += 1
    return total / samples, refused
