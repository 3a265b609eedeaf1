"""Every kind of fault that a world knows, and where in roost it has struck.

A world counts each fault as `fault.X` and as `fault.X@site`; a site is the function whose commit,
write or message it was, or what the victim was doing. `at@site` counts how often a site was passed,
struck or not. `coverage_table` puts that together, and names what a campaign has never tried.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from types import CodeType
from typing import Any

from msgspec import Struct

#: Faults of commits: they can strike wherever a plane writes.
COMMITS = (
    "fault.die_before_commit",
    "fault.die_after_commit",
    "fault.db_refuse",
    "fault.db_doubt",
    "fault.db_full",
    "fault.db_away",
    "fault.power_loss",
)
#: Faults of an agent's writes, and of its changes of VMs.
WRITES = (
    "fault.die_before_write",
    "fault.die_after_write",
    "fault.disk_full",
    "fault.driver",
    "fault.refused",
    "fault.blind",
)
#: Faults of single messages.
MESSAGES = ("net.lost", "net.twice", "net.late")
#: Faults of whole processes, machines and wires.
VICTIMS = (
    "fault.kill_agent",
    "fault.power_off",
    "fault.freeze_agent",
    "fault.crash_vm",
    "fault.lose_incoming",
    "fault.clock_step",
    "fault.cut",
    "fault.rough",
    "fault.slow",
    "fault.kill_plane",
    "fault.freeze_plane",
    "fault.slow_database",
    "fault.restore_database",
)
FAULTS = (*VICTIMS, *WRITES, *MESSAGES, *COMMITS)

#: Faults that end a process.
CRASHES = (
    "fault.kill_agent",
    "fault.power_off",
    "fault.die_before_write",
    "fault.die_after_write",
    "fault.kill_plane",
    "fault.die_before_commit",
    "fault.die_after_commit",
    "fault.power_loss",
    "fault.restore_database",
)

#: Which faults can strike at a site, by how its name begins.
_REACH = {"commit:": COMMITS, "write:": WRITES[:3], "vm:": WRITES, "look:": ("fault.blind",)}


def is_fault(kind: str) -> bool:
    """Say whether an event is a fault."""
    return kind.startswith("fault.") or kind in MESSAGES


def site_of(work: Callable[..., Any]) -> str:
    """Return the function of roost that made a commit, by its module and name."""
    while isinstance(work, partial):
        work = work.func
    work = getattr(work, "__func__", work)
    code = getattr(work, "__code__", None)
    if code is None:
        return type(work).__name__
    return _site(code, work.__module__)


@cache
def _site(code: CodeType, module: str) -> str:
    made_by = code.co_qualname.partition(".<locals>")[0]
    return f"{module.removeprefix('roost.')}.{made_by}"


class Row(Struct):
    """One site: how often it was passed, and how often each fault struck there."""

    site: str
    passed: int
    struck: dict[str, int]


class CoverageTable(Struct):
    """Faults by site, and what is missing."""

    rows: list[Row]
    never: list[str]  # faults that did not fire at all
    untouched: list[str]  # sites that were passed and at which nothing ever went wrong

    def lines(self) -> list[str]:
        """Return the table as text: one line per site, the faults that struck there with counts."""
        wide = max((len(row.site) for row in self.rows), default=0)
        lines = []
        for row in self.rows:
            struck = "  ".join(f"{_short(kind)} {n}" for kind, n in row.struck.items())
            lines.append(f"  {row.site:{wide}}  {row.passed or '':>8}  {struck or '-'}")
        if self.untouched:
            lines.append(f"nothing went wrong at: {', '.join(self.untouched)}")
        return lines


def coverage_table(coverage: Mapping[str, int]) -> CoverageTable:
    """Return which faults struck where, and what never did."""
    sites: dict[str, Row] = {}
    for key, count in sorted(coverage.items()):
        kind, at, site = key.partition("@")
        if not at:
            continue
        row = sites.setdefault(site, Row(site, 0, {}))
        if kind == "at":
            row.passed = count
        else:
            row.struck[kind] = count
    rows = [sites[site] for site in sorted(sites)]
    return CoverageTable(
        rows,
        never=[kind for kind in FAULTS if not coverage.get(kind)],
        untouched=[row.site for row in rows if row.passed and not row.struck],
    )


def _short(kind: str) -> str:
    return kind.removeprefix("fault.")
