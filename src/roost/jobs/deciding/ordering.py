"""In which order queued jobs are looked at: pure, by arrays of equal jobs.

| ordering | a job comes first that |
|---|---|
| fifo | was submitted first |
| shortest | is expected to run for the shortest time; of one that never ran, by its run limit |
| largest | takes the largest share of the pool's largest machine |
| fair | belongs to the project with the smallest dominant share of what the pool has assigned |

Priority goes before all of them. `fair` fills progressively: after each job its project's share has
grown, so projects take turns by what they take, not by how many jobs they have (dominant resource
fairness). The jobs of an array are looked at in the order of their index.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from roost.model.job import Ordering


@dataclass(frozen=True, slots=True)
class Queued:
    """The queued jobs of an array: how many, what each asks for, whose they are."""

    array: str
    project: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    number: int
    priority: int = 0
    run_s: float = 3600.0  # expected, or at most
    waits_s: float = 0.0  # since its submission, while none of its jobs has a machine


@dataclass(frozen=True, slots=True)
class Whole:
    """What a pool has in all, or its largest machine: shares are of this."""

    cpu_milli: int
    memory_bytes: int

    def share(self, cpu_milli: int, memory_bytes: int) -> float:
        """Return the dominant share that amounts are."""
        cpu = cpu_milli / self.cpu_milli if self.cpu_milli else 0.0
        memory = memory_bytes / self.memory_bytes if self.memory_bytes else 0.0
        return max(cpu, memory)


Used = Mapping[str, tuple[int, int]]  # cpu_milli and memory_bytes of each project


def in_order(
    queued: Sequence[Queued], ordering: Ordering, whole: Whole, used: Used
) -> Iterator[tuple[Queued, int]]:
    """Yield arrays with how many of their jobs come next, until all have come."""
    if ordering == "fair":
        yield from _fair(queued, whole, used)
        return
    for array in sorted(queued, key=lambda each: _key(each, ordering, whole)):
        yield array, array.number


def _key(array: Queued, ordering: Ordering, whole: Whole) -> tuple[float, float, str]:
    if ordering == "shortest":
        return -array.priority, array.run_s, array.array
    if ordering == "largest":
        return -array.priority, -whole.share(array.cpu_milli, array.memory_bytes), array.array
    return -array.priority, 0.0, array.array  # ids ascend with time


def _fair(queued: Sequence[Queued], whole: Whole, used: Used) -> Iterator[tuple[Queued, int]]:
    """Yield one job after the other, each of the project that has the least."""
    levels: dict[int, dict[str, list[Queued]]] = {}
    for array in sorted(queued, key=lambda each: each.array, reverse=True):
        levels.setdefault(array.priority, {}).setdefault(array.project, []).append(array)
    taken = {project: list(amounts) for project, amounts in used.items()}
    for priority in sorted(levels, reverse=True):
        projects = levels[priority]
        left = {project: arrays[-1].number for project, arrays in projects.items()}
        heap = [(whole.share(*taken.get(project, (0, 0))), project) for project in projects]
        heapq.heapify(heap)
        while heap:
            _, project = heapq.heappop(heap)
            arrays = projects[project]
            array = arrays[-1]
            yield array, 1
            amounts = taken.setdefault(project, [0, 0])
            amounts[0] += array.cpu_milli
            amounts[1] += array.memory_bytes
            left[project] -= 1
            if not left[project]:
                arrays.pop()
                if not arrays:
                    continue
                left[project] = arrays[-1].number
            heapq.heappush(heap, (whole.share(*amounts), project))
