"""A whole batch of creates at once, on SQLite.

Python lets go of its lock around every step of a statement, and the writer must win it back from a
busy event loop each time. So the common case, in which nobody loses, is two statements: one puts
the VMs into a table of the connection, which is in memory, and one INSERT into a view writes all
that they stand for, table by table. A trigger opens each table once for all VMs, where one row of
each VM at a time took a third longer. What does not fit ends that statement and all that it did;
alone it is its own transaction.

    in this order                                   ends the statement when
    keys, VMs                                       a name or a key is taken
    sums of the hosts                               a host has changed or is full
    specs, user data, claims, decisions
    sums of the projects                            a quota or a project is not there
    the counter of events, the events               another sequence was reached than expected;
                                                    the constraints have changed

`claims` goes through a batch step by step where this one was refused, and where VMs have
groups, label rules or counters.
"""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from roost.ledger.claims.capacity import RUN, Charge
from roost.ledger.claims.proposals import FIRST, KEPT, Proposal, constraints_seen, separable
from roost.ledger.schema.amounts import AMOUNTS
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import vms

#: Binding a None takes Python ten times as long as a number: '' stands for it, which none of
#: these columns ever has.
_FILLED = tuple(column.name for column in vms.c if not column.nullable)
_MAYBE = tuple(column.name for column in vms.c if column.nullable)
_filled_of, _maybe_of = attrgetter(*_FILLED), attrgetter(*_MAYBE)
#: What stands for a VM beside its own columns.
_BESIDE = (
    "host_generation", "spec", "user_data", "counters", "devices", "cells", "answer",
    "scope", "key", "digest", "actor", "kind", "changes",
)  # fmt: skip
_COLUMNS = (*(f"vm_{name}" for name in (*_FILLED, *_MAYBE)), *_BESIDE)
_WIDTH = len(_COLUMNS)
_NOTHING: tuple[Any, ...] = (0,) * _WIDTH
_NO_KEY = ("", "", "")
#: What stands for the batch.
_BATCH = ("number", "at_ms", "snapshot", "tx", "last", "constraints")
_COMMIT = f"INSERT INTO claiming VALUES ({', '.join('?' * len(_BATCH))})"

#: Rows of a statement: few sizes, so that prepared statements are used again, and none with more
#: parameters than SQLite takes, 32,766.
_SIZES = tuple(
    size
    for size in (1, 2, 3, 4, *(round(2 ** (n / 4)) for n in range(10, 60)))
    if size * _WIDTH <= 32_766
)


#: Somebody would lose, or a value cannot be written: its owner is found step by step.
_NOT_WRITTEN = (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
#: What SQLite says when a sum is larger than any number that it has.
_TOO_LARGE = "integer overflow"


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
        values: list[Any] = []
        for proposal, event in zip(proposals, events, strict=True):
            values += _vm_row(proposal, event)
        size = next(size for size in _SIZES if size >= len(proposals))
        values += _NOTHING * (size - len(proposals))
        self._fill, self._values = _insert(size), values
        self._batch = (len(proposals), at_ms, snapshot, tx)
        self._constraints = constraints_seen(proposals)

    @staticmethod
    def takes(proposals: Sequence[Proposal]) -> bool:
        """Say whether a batch can be written at once: what it asks for, and how many it has."""
        return separable(proposals) and len(proposals) <= _SIZES[-1]

    def write(self, raw: sqlite3.Connection, last: int) -> bool:
        """Write the batch behind the event `last`; False, and nothing done, when a VM would lose.

        Outside of a transaction it is durable when this returns.
        """
        try:
            raw.execute(self._fill, self._values)
            raw.execute(_COMMIT, (*self._batch, last, self._constraints))
        except (*_NOT_WRITTEN, OverflowError):
            raw.execute(_FORGET)
            return False
        except sqlite3.Error as error:
            raw.execute(_FORGET)
            if _TOO_LARGE in str(error):
                return False
            raise
        return True


def _vm_row(proposal: Proposal, event: Event) -> tuple[Any, ...]:
    vm, spec, claim = proposal.vm, proposal.spec, proposal.claim
    held = (claim.counters, claim.devices, claim.cells) if claim is not None else ("", 0, 0)
    return (
        *_filled_of(vm),
        *["" if value is None else value for value in _maybe_of(vm)],
        proposal.host_generation,
        spec.text,
        spec.user_data,
        *held,
        proposal.answer,
        *(proposal.key or _NO_KEY),
        event.actor,
        event.kind,
        event.changes,
    )


@lru_cache(maxsize=64)
def _insert(rows: int) -> str:
    row = f"({', '.join('?' * _WIDTH)})"
    return f"INSERT INTO claimed ({', '.join(_COLUMNS)}) VALUES {', '.join([row] * rows)}"


# The table, the view and its trigger

_FORGET = "DELETE FROM claimed"
#: VMs of the batch, in its order; what fills the statement up stands behind them.
_VMS = "FROM claimed WHERE n <= NEW.number"
_PLACED = f"{_VMS} AND vm_host <> ''"
_COUNT_EVENTS = (
    "UPDATE counters SET value = value + NEW.number WHERE name = 'events' AND value = NEW.last"
    " AND constraints = coalesce(NEW.constraints, constraints)"
)


def install(raw: sqlite3.Connection, hosts: Charge, projects: Charge) -> None:
    """Give a connection what batches are written to; its file knows nothing of it."""
    raw.execute("DROP VIEW IF EXISTS claiming")  # its trigger goes with it
    raw.execute("DROP TABLE IF EXISTS claimed")
    raw.execute(f"CREATE TEMP TABLE claimed (n INTEGER PRIMARY KEY, {', '.join(_COLUMNS)})")
    listed = ", ".join(f"NULL AS {name}" for name in _BATCH)
    raw.execute(f"CREATE TEMP VIEW claiming AS SELECT {listed}")
    raw.execute(
        "CREATE TEMP TRIGGER claiming_all INSTEAD OF INSERT ON claiming"
        f" BEGIN {' '.join(f'{step};' for step in _steps(hosts, projects))} END"
    )


def _steps(hosts: Charge, projects: Charge) -> tuple[str, ...]:
    """Return what is written for a batch, in the order in which `proposals` gives rows."""
    columns = (*_FILLED, *_MAYBE)
    row = ", ".join(
        f"nullif(vm_{name}, '')" if name in _MAYBE else f"vm_{name}" for name in columns
    )
    sums = {**{name: f"sum(vm_{name})" for name in AMOUNTS}, "vms": "count(*)"}
    of_host = {"host": "vm_host", "generation": "host_generation"}
    claim = {
        "id": f"vm_id || ':{RUN}'",
        "vm": "vm_id",
        "host": "vm_host",
        "kind": f"'{RUN}'",
        **{name: f"vm_{name}" for name in AMOUNTS},
        **{name: name for name in ("counters", "devices", "cells")},
    }
    return (
        "INSERT INTO idempotency (scope, key, digest, answer, created_ms)"
        f" SELECT scope, key, digest, vm_id, NEW.at_ms {_VMS} AND scope <> ''",
        f"INSERT INTO vms ({', '.join(columns)}) SELECT {row} {_VMS}",
        *_charge_all(hosts, of_host, sums, _PLACED, "host"),
        f"INSERT INTO vm_specs (vm, version, spec) SELECT vm_id, {FIRST}, spec {_VMS}",
        "INSERT INTO vm_user_data (vm, user_data)"
        f" SELECT vm_id, user_data {_VMS} AND user_data <> ''",
        f"INSERT INTO claims ({', '.join(claim)}) SELECT {', '.join(claim.values())} {_PLACED}",
        "INSERT INTO decisions (vm, snapshot, cause, answer, at_ms)"
        f" SELECT vm_id, NEW.snapshot, 'create', answer, NEW.at_ms {_VMS} AND answer <> ''",
        *_charge_all(projects, {"name": "vm_project"}, sums, _VMS, "quota"),
        _COUNT_EVENTS,
        "SELECT RAISE(ABORT, 'sequence') WHERE changes() = 0",
        "INSERT INTO events (seq, at_ms, actor, kind, subject, project, changes, note, tx)"
        " SELECT NEW.last + n, NEW.at_ms, actor, kind, 'vm/' || vm_id, vm_project, changes, '',"
        f" NEW.tx {_VMS}",
        _FORGET,
    )


def _charge_all(
    charge: Charge, key: Mapping[str, str], sums: Mapping[str, str], asking: str, what: str
) -> tuple[str, str]:
    """Return a charge of what all VMs ask of each key, and what ends it when one cannot give.

    VMs that saw different generations of a host ask for two charges of it, of which it has one.
    """
    asked = {**key, **sums}
    listed = ", ".join(f"{asked[name]} AS {name}" for name in charge.columns)
    grouped = f"{asking} GROUP BY {', '.join(key.values())}"
    return (
        _in_trigger(charge).replace("@asked", f"(SELECT {listed} {grouped})"),
        f"SELECT RAISE(ABORT, '{what}')"
        f" WHERE changes() <> (SELECT count(*) FROM (SELECT 1 {grouped}))",
    )


def _in_trigger(charge: Charge) -> str:
    """Return a charge as triggers may say it: without an alias of its table."""
    table = charge.update.split()[1]
    text = charge.update.replace(f"{table} AS t", table, 1)
    return re.sub(r"\bt\.", f"{table}.", text)
