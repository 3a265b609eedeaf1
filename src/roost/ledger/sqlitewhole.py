"""A whole batch of creates in one statement, on SQLite.

Python lets go of its lock around every step of a statement, and the writer must win it back from a
busy event loop each time. So the common case, in which nobody loses, is one INSERT into a view of
the connection: a trigger writes what each row stands for, and what does not fit ends the statement
and all that it did. Alone it is its own transaction; the writer then waits for the lock once.

    what      the row stands for                    ends the statement when
    'vm'      a VM, its spec, claim, decision,      its name or key is taken; its host has
              key and event                         changed or is full
    'project' what the batch takes of a quota       the quota or the project is not there
    'events'  how many events were appended         another sequence was reached than expected;
                                                    the constraints have changed
    NULL      nothing: it fills the statement up

`sqliteclaims` goes through a batch step by step where this one was refused, and where VMs have
groups, label rules or counters.
"""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from msgspec.structs import astuple

from roost.ledger.amounts import AMOUNTS
from roost.ledger.capacity import RUN, Charge
from roost.ledger.claims import (
    FIRST,
    KEPT,
    Proposal,
    constraints_seen,
    project_row,
    quota_charges,
    separable,
)
from roost.ledger.rows import Event
from roost.ledger.tables import vms

_VM = tuple(vms.c.keys())
#: What the trigger of a VM's row is given beside the VM's own columns.
_BESIDE = (
    "host_generation", "spec", "user_data", "counters", "devices", "cells", "answer",
    "scope", "key", "digest", "offset", "actor", "kind", "changes",
    "at_ms", "snapshot", "tx",
)  # fmt: skip
_COLUMNS = ("what", *(f"vm_{name}" for name in _VM), *_BESIDE, "number")
_WIDTH = len(_COLUMNS)
_NOTHING: tuple[Any, ...] = (None,) * _WIDTH

#: Rows of a statement: few sizes, so that prepared statements are used again, and none with more
#: parameters than SQLite takes, 32,766. A round number of VMs has a project and the events beside.
_SIZES = tuple(
    size
    for size in (3, 4, 5, 6, *(round(2 ** (n / 4)) + 2 for n in range(10, 60)))
    if size * _WIDTH <= 32_766
)


#: Somebody would lose, or a value cannot be written: its owner is found step by step.
_NOT_WRITTEN = (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)


class WholeBatch:
    """A batch of creates that is kept as a whole or not at all, ready to be written."""

    def __init__(
        self,
        proposals: Sequence[Proposal],
        events: Sequence[Event],
        snapshot: int,
        at_ms: int,
        tx: str,
    ) -> None:
        self.events = list(events)
        self.outcomes = [KEPT] * len(proposals)
        self.tx = tx
        rows = [
            _vm_row(proposal, event, offset, at_ms, snapshot, tx)
            for offset, (proposal, event) in enumerate(zip(proposals, events, strict=True), 1)
        ]
        rows += [
            _project_row(project_row(project, proposals, asking))
            for project, asking in quota_charges(proposals, range(len(proposals))).items()
        ]
        last: list[Any] = ["events", *_NOTHING[2:], len(events)]
        last[_COLUMNS.index("host_generation")] = constraints_seen(proposals)
        rows.append(tuple(last))
        size = next(size for size in _SIZES if size >= len(rows))
        self._text = _insert(size)
        #: Where the sequence is put that the ledger is expected to have reached.
        self._last_at = (len(rows) - 1) * _WIDTH + _COLUMNS.index("offset")
        rows += [_NOTHING] * (size - len(rows))
        self._values = list(chain.from_iterable(rows))

    @staticmethod
    def takes(proposals: Sequence[Proposal]) -> bool:
        """Say whether a batch can be one statement: what it asks for, and how many rows it has."""
        projects = {proposal.vm.project for proposal in proposals}
        return separable(proposals) and len(proposals) + len(projects) + 1 <= _SIZES[-1]

    def write(self, raw: sqlite3.Connection, last: int) -> bool:
        """Write the batch behind the event `last`; False, and nothing done, when a VM would lose.

        Outside of a transaction it is durable when this returns.
        """
        self._values[self._last_at] = last
        try:
            raw.execute(self._text, self._values)
        except (*_NOT_WRITTEN, OverflowError):
            return False
        return True


def _vm_row(
    proposal: Proposal, event: Event, offset: int, at_ms: int, snapshot: int, tx: str
) -> tuple[Any, ...]:
    spec, claim = proposal.spec, proposal.claim
    held = (claim.counters, claim.devices, claim.cells) if claim is not None else _NOTHING[:3]
    return (
        "vm",
        *astuple(proposal.vm),
        proposal.host_generation,
        spec.text,
        spec.user_data or None,
        *held,
        proposal.answer or None,
        *(proposal.key or _NOTHING[:3]),
        offset,
        event.actor,
        event.kind,
        event.changes,
        at_ms,
        snapshot,
        tx,
        None,
    )


def _project_row(asked: Sequence[Any]) -> tuple[Any, ...]:
    row: list[Any] = list(_NOTHING)
    row[0] = "project"
    for name, value in zip(_PROJECT, asked, strict=True):
        row[_COLUMNS.index(name)] = value
    return tuple(row)


#: Where a row of `CHARGE_PROJECTS` stands in the view.
_PROJECT = ("vm_project", *(f"vm_{name}" for name in AMOUNTS), "number")


@lru_cache(maxsize=64)
def _insert(rows: int) -> str:
    row = f"({', '.join('?' * _WIDTH)})"
    return f"INSERT INTO claiming VALUES {', '.join([row] * rows)}"


# The view and its triggers


def install(raw: sqlite3.Connection, hosts: Charge, projects: Charge) -> None:
    """Give a connection the view that batches are written to; its file knows nothing of it."""
    raw.execute("DROP VIEW IF EXISTS claiming")  # its triggers go with it
    listed = ", ".join(f"NULL AS {name}" for name in _COLUMNS)
    raw.execute(f"CREATE TEMP VIEW claiming AS SELECT {listed}")
    for what, steps in (
        ("vm", _vm_steps(hosts)),
        ("project", (_in_trigger(projects, _PROJECT), _unless_changed("quota"))),
        ("events", (_COUNT_EVENTS, _unless_changed("sequence"))),
    ):
        raw.execute(
            f"CREATE TEMP TRIGGER claiming_{what} INSTEAD OF INSERT ON claiming"
            f" WHEN NEW.what = '{what}' BEGIN {' '.join(f'{step};' for step in steps)} END"
        )


_LAST = "(SELECT value FROM counters WHERE name = 'events')"
_COUNT_EVENTS = (
    "UPDATE counters SET value = value + NEW.number WHERE name = 'events' AND value = NEW.offset"
    " AND constraints = coalesce(NEW.host_generation, constraints)"
)


def _unless_changed(what: str, also: str = "") -> str:
    return f"SELECT RAISE(ABORT, '{what}') WHERE changes() = 0{also}"


def _vm_steps(hosts: Charge) -> tuple[str, ...]:
    """Return what is written for a VM, in the order in which `claims` gives rows."""
    row = ", ".join(f"NEW.vm_{name}" for name in _VM)
    asked = ("NEW.vm_host", "NEW.host_generation", *(f"NEW.vm_{name}" for name in AMOUNTS), "1")
    claim = {
        "id": f"NEW.vm_id || ':{RUN}'",
        "vm": "NEW.vm_id",
        "host": "NEW.vm_host",
        "kind": f"'{RUN}'",
        **{name: f"NEW.vm_{name}" for name in AMOUNTS},
        **{name: f"NEW.{name}" for name in ("counters", "devices", "cells")},
    }
    return (
        "INSERT INTO idempotency (scope, key, digest, answer, created_ms)"
        " SELECT NEW.scope, NEW.key, NEW.digest, NEW.vm_id, NEW.at_ms WHERE NEW.key IS NOT NULL",
        f"INSERT INTO vms ({', '.join(_VM)}) VALUES ({row})",
        _charge_text(hosts, dict(zip(hosts.columns, asked, strict=True))),
        _unless_changed("host", " AND NEW.vm_host IS NOT NULL"),
        f"INSERT INTO vm_specs (vm, version, spec) VALUES (NEW.vm_id, {FIRST}, NEW.spec)",
        "INSERT INTO vm_user_data (vm, user_data)"
        " SELECT NEW.vm_id, NEW.user_data WHERE NEW.user_data IS NOT NULL",
        f"INSERT INTO claims ({', '.join(claim)}) SELECT {', '.join(claim.values())}"
        " WHERE NEW.vm_host IS NOT NULL",
        "INSERT INTO decisions (vm, snapshot, cause, answer, at_ms)"
        " SELECT NEW.vm_id, NEW.snapshot, 'create', NEW.answer, NEW.at_ms"
        " WHERE NEW.answer IS NOT NULL",
        "INSERT INTO events (seq, at_ms, actor, kind, subject, project, changes, note, tx)"
        f" VALUES ({_LAST} + NEW.offset, NEW.at_ms, NEW.actor, NEW.kind, 'vm/' || NEW.vm_id,"
        " NEW.vm_project, NEW.changes, '', NEW.tx)",
    )


def _in_trigger(charge: Charge, columns: Sequence[str]) -> str:
    names = (f"NEW.{name}" for name in columns)
    return _charge_text(charge, dict(zip(charge.columns, names, strict=True)))


def _charge_text(charge: Charge, asked: Mapping[str, str]) -> str:
    """Return a charge of one row as triggers may say it: without an alias and without FROM."""
    text = charge.of("").replace("FROM  AS u\n", "")
    table = text.split()[1]
    text = text.replace(f"{table} AS t", table, 1)
    text = re.sub(r"\bt\.", f"{table}.", text)
    return re.sub(r"\bu\.(\w+)", lambda found: asked[found[1]], text)
