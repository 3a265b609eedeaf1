"""What the VMs of each project ask for together, and the projects' quotas: for rules to read.

A VM counts from its creation to its deletion, wherever it is and whether or not it has a host, as
the ledger counts it towards the quota. Moving a VM therefore changes nothing here. Amounts are in
the order of `BASE_RESOURCES`; a quota of None is no limit.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

#: Amounts of the base resources, and VMs.
Use = tuple[int, int, int, int]
#: The same as a project may have at most; None where there is no limit.
Quota = tuple[int | None, int | None, int | None, int | None]

NO_USE: Use = (0, 0, 0, 0)
NO_QUOTA: Quota = (None, None, None, None)

#: One VM: its project and what it asks for.
Counted = tuple[str, tuple[int, int, int]]


class ProjectAccounts:
    """VMs by key with their projects, and the sums of each project."""

    __slots__ = ("_quotas", "_same", "_sums", "_vms")

    def __init__(self) -> None:
        self._vms: dict[str, Counted] = {}
        self._sums: dict[str, Use] = {}
        self._quotas: dict[str, Quota] = {}
        self._same: dict[Counted, Counted] = {}  # VMs of one size share one entry

    def put(self, key: str, project: str, amounts: Sequence[int]) -> Counted | None:
        """Count a VM as one that asks for this; return what it was counted as before."""
        cpu, memory, disk = amounts
        counted = (project, (cpu, memory, disk))
        before = self._vms.get(key)
        if before == counted:
            return before
        if before is not None:
            self._add(before, -1)
        self._vms[key] = self._same.setdefault(counted, counted)
        self._add(counted, 1)
        return before

    def put_new(self, found: Iterable[tuple[str, str, int, int, int]]) -> None:
        """Count many VMs that are not counted yet: key, project and amounts. For loading a fleet.

        VMs of one size are added up together.
        """
        sizes: Counter[Counted] = Counter()
        for key, project, cpu, memory, disk in found:
            counted = (project, (cpu, memory, disk))
            self._vms[key] = counted = self._same.setdefault(counted, counted)
            sizes[counted] += 1
        for counted, count in sizes.items():
            self._add(counted, count)

    def project_of(self, key: str) -> str:
        """Return the project of a VM; empty if it is not counted."""
        counted = self._vms.get(key)
        return "" if counted is None else counted[0]

    def drop(self, key: str) -> Counted | None:
        """Count a VM no longer; return what it was counted as."""
        before = self._vms.pop(key, None)
        if before is not None:
            self._add(before, -1)
        return before

    def _add(self, counted: Counted, times: int) -> None:
        project, (cpu, memory, disk) = counted
        has = self._sums.get(project, NO_USE)
        now = (
            has[0] + times * cpu,
            has[1] + times * memory,
            has[2] + times * disk,
            has[3] + times,
        )
        if now[3]:
            self._sums[project] = now
        else:
            del self._sums[project]
            self._same = {each: each for each in self._same if each[0] != project}

    def set_quota(self, project: str, quota: Quota) -> None:
        """Give a project a quota."""
        if quota == NO_QUOTA:
            self._quotas.pop(project, None)
        else:
            self._quotas[project] = quota

    def use(self, project: str, without: str = "") -> Use:
        """Return what the VMs of a project ask for together, but for the one of a key."""
        found, own = self._sums.get(project, NO_USE), self._vms.get(without)
        if own is None or own[0] != project:
            return found
        cpu, memory, disk = own[1]
        return found[0] - cpu, found[1] - memory, found[2] - disk, found[3] - 1

    def quota(self, project: str) -> Quota:
        """Return how much a project may have."""
        return self._quotas.get(project, NO_QUOTA)

    def copy(self) -> "ProjectAccounts":
        """Return an independent copy."""
        other = ProjectAccounts()
        other._vms, other._sums = dict(self._vms), dict(self._sums)
        other._quotas, other._same = dict(self._quotas), dict(self._same)
        return other

    def __len__(self) -> int:
        return len(self._vms)
