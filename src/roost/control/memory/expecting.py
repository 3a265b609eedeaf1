"""What is expected of VMs, as this process has learnt it; asked whenever a VM is charged or placed.

A VM of which something was learnt counts as that, a new one as VMs like it, others as all that
they asked for. When a VM will be gone is known where its owner said so, and is else foretold from
how long VMs like it lived and how old it is. Filled by `control.learning`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from roost.analysis.lifetime import NO_LIVES, LifeTable, Path
from roost.fleet.layout import Int64Array
from roost.fleet.outlook import expected_vector
from roost.model.outlook import LATEST_S, NOTHING_EXPECTED, Expected


class Traits(NamedTuple):
    """What is known of a VM before anything was seen of it."""

    cpu_milli: int
    memory_bytes: int
    project: str = ""
    image: str = ""
    until_ms: int | None = None
    flavor: str = ""

    @property
    def path(self) -> Path:
        """Return the classes that it belongs to, from coarse to fine."""
        return class_path(self.cpu_milli, self.memory_bytes, self.project, self.image)

    @property
    def alike(self) -> tuple[Path, ...]:
        """Return the classes of VMs that may use what it will, from fine to coarse.

        All are of its shape. Those of its project come before those of its image and of its flavor
        in other projects: what an image or a flavor is for differs from project to project.
        """
        shape, project, image = self.path
        # No project is called so: its names have no equals sign.
        booted = (shape, f"image={image}")
        sizes = [(shape, project, image), (shape, project), *([booted] if image else []), (shape,)]
        if not self.flavor:
            return tuple(sizes)
        named = f"flavor={self.flavor}"
        return tuple(path for size in sizes for path in ((*size, named), size))


def class_path(cpu_milli: int, memory_bytes: int, project: str, image: str) -> Path:
    """Return the classes of VMs from coarse to fine: shape, project, image."""
    return f"{cpu_milli}/{memory_bytes}", project, image


class Expectations:
    """What is expected of VMs by their ids, and of new ones by what they are like."""

    def __init__(self, wall_ms: Callable[[], int] = lambda: 0) -> None:
        self._wall_ms = wall_ms
        self._vms: Mapping[str, Expected] = {}
        self._alike: Mapping[Path, Expected] = {}
        self._lives: LifeTable = NO_LIVES
        self._born_ms: Mapping[str, int] = {}

    def replace(self, vms: Mapping[str, Expected], alike: Mapping[Path, Expected]) -> None:
        """Take over what was learnt of use; what is left out is known no longer."""
        self._vms, self._alike = vms, alike

    def replace_lives(self, lives: LifeTable, born_ms: Mapping[str, int]) -> None:
        """Take over how long VMs live, and when those that are there were created."""
        self._lives, self._born_ms = lives, born_ms

    def of(self, vm: str, traits: Traits) -> Expected:
        """Return what is expected of a VM."""
        use = self._vms.get(vm) or self._like(traits)
        ends_s = self._ends_s(vm, traits)
        if ends_s is None or ends_s > LATEST_S:
            return use
        learnt = traits.until_ms is None
        return Expected(use.cpu_milli, use.memory_bytes, ends_s, learnt, use.day)

    def _like(self, traits: Traits) -> Expected:
        """Return what is expected of a new VM, by the finest class of which enough is known."""
        for path in traits.alike if self._alike else ():
            if (known := self._alike.get(path)) is not None:
                return known
        return NOTHING_EXPECTED

    def _ends_s(self, vm: str, traits: Traits) -> int | None:
        if traits.until_ms is not None:
            return traits.until_ms // 1000
        if not self._lives.digest:
            return None
        now_ms = self._wall_ms()
        age_s = max(0, now_ms - self._born_ms.get(vm, now_ms)) // 1000
        left_s = self._lives.left_s(traits.path, age_s)
        return None if left_s is None else now_ms // 1000 + left_s

    def vector(self, vm: str, traits: Traits) -> Int64Array | None:
        """Return the same in column order; None when nothing is."""
        expected = self.of(vm, traits)
        return None if expected is NOTHING_EXPECTED else expected_vector(expected)
