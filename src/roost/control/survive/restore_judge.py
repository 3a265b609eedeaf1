"""After an old ledger was restored: hosts say what they have, and VM by VM the ledger follows.

| what hosts say of a VM in doubt | what follows |
|---|---|
| it is leaving somewhere, or nobody can tell | wait, and ask again |
| it runs on one host | that is its home, whoever else is still silent: at most one copy runs |
| it is `restart: here`, its home was told so, and has it | home has it: it cannot have left |
| once everybody has answered, or is known to be off | |
| it lies on some hosts | the newest copy counts |
| it was sent off, and arrived nowhere | it boots anew where it was sent from |
| it was sent off, and a host still waits for it | the same, once that host has let go of it |
| a host has destroyed it since the copy | deleted, or lost: it has no host until somebody asks |
| nobody has heard of it | it is as the ledger says |

Each VM then gets a generation far beyond all that any host has seen of it: orders count again.

Not everything that hosts say counts (`countable`): an agent may lie, and the ledger may not be old
at all. A generation that no honest host can have reached does not count. Of a VM that runs where
the ledger has it, or lies there and cannot have left, strangers' words do not count; a stranger is
a host that the ledger does not know to have, or to have had, the VM. A stranger that says that it
runs the VM is believed only after its home was heard and asked again, twice: a VM that is started
or stopped at home is for a moment nowhere. If it runs at home, home has the last word. What is
destroyed is never destroyed for a stranger's word alone (`seen_to_leave`).
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from roost.control.memory.restore_detect import SETTLED, Lineage, doubted_among
from roost.control.moves.machine import is_proof
from roost.control.survive.restore_apply import Copy, Finding, bring_home
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import (
    claims,
    copies,
    doubts,
    hosts,
    roll_call,
    tombstones,
    vms,
)
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import MOST_TOLD, Examination
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.singleton import Singleton
from roost.wire.agentlimits import MOST_AHEAD
from roost.wire.agentlink import CopyInfo

#: VMs that are settled in one transaction.
_MOST_TOGETHER = 200
#: Times that a VM's home is asked again when a stranger says that it runs the VM too.
_ASK_AGAIN = 2
#: States that do not last, and are asked for again.
_PASSING = ("leaving", "ready", "unclear")


def countable(vm: VMRow, found: Sequence[Copy], had: Container[int]) -> list[Copy]:
    """Return what counts of all that hosts say of a VM; `had`: hosts known to have or had it."""
    said = [copy for copy in found if copy.generation <= vm.generation + MOST_AHEAD]
    known = [copy for copy in said if copy.host in had]
    if _lies_at_home_for_good(vm, known):
        return known
    if any(copy.state == "running" for copy in known):
        return known + [c for c in said if c.host not in had and c.state == "running"]
    return said


def _lies_at_home_for_good(vm: VMRow, found: Iterable[Copy]) -> bool:
    """Say whether a VM lies at home and cannot have left: its home was told so last, too.

    If home was told that the VM may run elsewhere, it was set so after the copy that was restored,
    and may have been started elsewhere since.
    """
    return vm.restart == "here" and any(
        copy.host == vm.host and copy.state == "stopped" and copy.restart != "elsewhere"
        for copy in found
    )


def seen_to_leave(vm: VMRow, found: Sequence[Copy], had: Container[int]) -> bool:
    """Say whether a host that had a VM has seen it leave, or an order that the ledger lacks.

    If a stranger has the VM, or had it, one of them has; unless it was away at that time. So if
    none has, the stranger may lie: it gets the VM, for it may run it, if it has room for it. What
    the others have of it is held, and that it is gone is not believed.
    """
    known = [copy for copy in found if copy.host in had]
    return any(copy.state != "stopped" or copy.generation > vm.generation for copy in known)


def _is_early(found: Sequence[Copy], had: set[int], silent: Container[int]) -> bool:
    """Say whether strangers alone say to run a VM, and one that had it has not been heard yet."""
    running = {copy.host for copy in found if copy.state == "running"}
    return bool(running) and not running & had and any(host in silent for host in had)


def _strangers_that_run(found: Sequence[Copy], had: set[int]) -> set[int]:
    """Return the strangers that say to run a VM which some other host has, or had."""
    running = {copy.host for copy in found if copy.state == "running"}
    return running - had if had else set()


def judge(vm: VMRow, found: Sequence[Copy], *, all_heard: bool) -> Finding | None:
    """Return where a VM is by what hosts say; None while that is open."""
    states = {copy.state for copy in found}
    if states & {"leaving", "unclear"}:
        return None
    if {"ready", "moved"} <= states:
        return _judge_sent(vm, found) if all_heard and "running" not in states else None
    running = [copy for copy in found if copy.state == "running"]
    if running:
        return Finding(running[0].host) if len(running) == 1 else None
    lying = [copy for copy in found if copy.state == "stopped"]
    if _lies_at_home_for_good(vm, lying):
        return Finding(vm.host)
    if not all_heard:
        return None
    if lying:
        return Finding(_newest(vm, lying).host)
    if moved := [copy for copy in found if copy.state == "moved"]:
        return Finding(_newest(vm, moved).host, boots=True)
    if any(copy.state == "gone" and copy.generation > vm.generation for copy in found):
        # A delete goes on where it was begun; else no room is kept for what is not there.
        return Finding(vm.host if vm.desired == "absent" else None, gone=True)
    return Finding(vm.host)


def _judge_sent(vm: VMRow, found: Sequence[Copy]) -> Finding | None:
    """Judge a VM that was sent while its target still waits: only the target can tell."""
    home = _newest(vm, [copy for copy in found if copy.state == "moved"]).host
    if vm.desired == "absent":
        return Finding(home)
    waits = [copy for copy in found if copy.state == "ready"]
    return Finding(home, boots=True, asks=waits[0].host) if len(waits) == 1 else None


def _newest(vm: VMRow, found: Iterable[Copy]) -> Copy:
    return max(found, key=lambda copy: (copy.generation, copy.host == vm.host, -copy.host))


class Settling(Part):
    """Settles VMs in doubt after a restore; runs where the lease is held."""

    singleton: Singleton

    def __init__(self, store: Store, lineage: Lineage, singleton: Singleton) -> None:
        self._store, self._lineage, self.singleton = store, lineage, singleton
        self._asked_again: dict[str, int] = {}  # how often, of VMs that a stranger says to run

    def examine(self, connection: Connection, found: Examination) -> None:
        """Report to the doctor which VMs are in doubt, and which hosts have not answered."""
        doubted, silent = what_is_open(connection)
        if not doubted:
            return
        waits = f"; these hosts have not answered: {', '.join(silent[:20])}" if silent else ""
        found.trouble(
            "restored", f"an old database was restored, {_count(doubted)} in doubt{waits}"
        )
        for vm, name, host in connection.execute(_IN_DOUBT):
            where = f"last known on host {host}" if host else "with no host"
            found.trouble("in_doubt", f"VM {name or '(deleted)'} ({vm}), {where}")

    async def look(self) -> None:
        """Settle every VM that can be, and end the state when none is left."""
        if not self._lineage.restored:
            self._asked_again.clear()
            return
        waited, last = self._lineage.has_waited, ""
        while True:
            found = await self._store.write(lambda tx: self._settle(tx, last, waited))  # noqa: B023
            if found is None:
                return
            last, asked = found
            for vm in asked:  # not before: a transaction may be repeated
                self._asked_again[vm] = self._asked_again.get(vm, 0) + 1

    def _settle(self, tx: Tx, after: str, waited: bool) -> tuple[str, list[str]] | None:
        """Settle one page of VMs in doubt; None when there was none.

        Returns the last one, and those whose homes are asked again.
        """
        self.singleton.check(tx)
        query = select(vms).join(doubts, doubts.c.vm == vms.c.id).where(vms.c.id > after)
        query = query.order_by(vms.c.id).limit(_MOST_TOGETHER).with_for_update()
        rows = [VMRow(**row) for row in tx.rows(query)]
        if not rows:
            if not after and tx.row(select(doubts.c.vm).limit(1)) is None:
                _end(tx)
            return None
        said = select(copies).where(copies.c.vm.in_([vm.id for vm in rows]))
        found: dict[str, list[Copy]] = {}
        for row in tx.rows(said.order_by(copies.c.vm, copies.c.host)):
            copy = Copy(row["host"], row["generation"], row["state"], row["restart"])
            found.setdefault(row["vm"], []).append(copy)
        silent = {row["number"]: row["fenced"] for row in tx.rows(_silent())}
        # No lease is a proof here: a VM may have been told since to stay with its host.
        known_off = all(is_proof("here", fenced) for fenced in silent.values())
        had = _who_had(tx, rows)
        asked: list[str] = []
        for vm in rows:
            proven = waited and known_off
            known = countable(vm, found.get(vm.id, []), had[vm.id])
            if not proven and _is_early(known, had[vm.id], silent):
                continue
            if strangers := _strangers_that_run(known, had[vm.id]):
                if self._asked_again.get(vm.id, 0) < _ASK_AGAIN:
                    _ask_again(tx, vm, had[vm.id])
                    asked.append(vm.id)
                    continue
                if any(c.state == "running" and c.host not in strangers for c in known):
                    known = [copy for copy in known if copy.host not in strangers]
            left = seen_to_leave(vm, known, had[vm.id])
            unconfirmed = not left and any(host not in silent for host in had[vm.id])
            if unconfirmed:
                known = [copy for copy in known if copy.host in had[vm.id] or copy.state != "gone"]
            finding = judge(vm, known, all_heard=proven)
            if finding is not None and finding.host not in {None, *had[vm.id]}:
                spares = frozenset() if left else had[vm.id] & {copy.host for copy in known}
                finding = replace(finding, spares=frozenset(spares), unconfirmed=unconfirmed)
            if finding is not None and bring_home(tx, vm, finding, known):
                tx.delete(doubts, doubts.c.vm == vm.id)
                tx.connection.execute(delete(copies).where(copies.c.vm == vm.id))
        return rows[-1].id, asked


def _ask_again(tx: Tx, vm: VMRow, had: set[int]) -> None:
    """Ask a VM's home again what it has."""
    for host in sorted(had):
        # What it said may be older than the stranger's word: it does not count any more.
        tx.delete(copies, copies.c.vm == vm.id, copies.c.host == host)
        tx.update(roll_call, roll_call.c.host == host, answered=False)


def _who_had(tx: Tx, rows: Sequence[VMRow]) -> dict[str, set[int]]:
    """Return the hosts that have some VMs by the ledger, or must still clean up after them."""
    found = {vm.id: {host for host in (vm.host, vm.target) if host is not None} for vm in rows}
    for table in (claims, tombstones):
        for row in tx.rows(select(table.c.vm, table.c.host).where(table.c.vm.in_(list(found)))):
            found[row["vm"]].add(row["host"])
    return found


def _silent() -> Any:
    """Return the question for hosts that have not answered; one that was removed says nothing."""
    return (
        select(hosts.c.number, hosts.c.fenced)
        .join(roll_call, roll_call.c.host == hosts.c.number)
        .where(~roll_call.c.answered)
    )


def _end(tx: Tx) -> None:
    if tx.row(select(roll_call.c.host).limit(1)) is not None:
        tx.connection.execute(delete(roll_call))
        tx.connection.execute(delete(copies))
        tx.event(SETTLED, "ledger", {}, note="no VM is in doubt any more")


# What hosts say


def take_answer(tx: Tx, host: int, said: list[CopyInfo]) -> None:
    """Write down what a host has of the VMs in doubt."""
    if tx.row(select(roll_call.c.host).limit(1)) is None:
        return  # it is over
    wanted = doubted_among(tx, [copy.id for copy in said])
    if tx.update(roll_call, roll_call.c.host == host, answered=True) is None:
        tx.insert(roll_call, {"host": host, "answered": True})
    tx.connection.execute(delete(copies).where(copies.c.host == host))
    rows = [
        {
            "vm": copy.id,
            "host": host,
            "generation": copy.generation,
            "state": copy.is_,
            "restart": copy.restart or "",
        }
        for copy in {copy.id: copy for copy in said}.values()
        if copy.id in wanted
    ]
    if rows:
        tx.connection.execute(insert(copies), rows)


def hosts_to_ask(connection: Connection) -> set[int]:
    """Return the hosts that have not answered, or whose answer may not hold for long.

    A stranger is asked for as long as its word keeps a VM in doubt: it may take it back.
    """
    unheard = select(roll_call.c.host).where(~roll_call.c.answered)
    twice = (
        select(copies.c.vm)
        .where(copies.c.state == "running")
        .group_by(copies.c.vm)
        .having(func.count() > 1)
    )
    passing = select(copies.c.vm).where(copies.c.state.in_(_PASSING))
    again = select(copies.c.host).where(copies.c.vm.in_(passing.union(twice)))
    strangers = (
        select(copies.c.host)
        .join(vms, vms.c.id == copies.c.vm)
        .where(vms.c.host.is_distinct_from(copies.c.host))
    )
    return set(connection.execute(unheard.union(again, strangers)).scalars())


_IN_DOUBT = (
    select(doubts.c.vm, vms.c.name, hosts.c.name)
    .outerjoin(vms, vms.c.id == doubts.c.vm)
    .outerjoin(hosts, hosts.c.number == vms.c.host)
    .order_by(doubts.c.vm)
    .limit(MOST_TOLD + 1)
)


def _count(number: int) -> str:
    return f"{number} VM is" if number == 1 else f"{number} VMs are"


def what_is_open(connection: Connection) -> tuple[int, list[str]]:
    """Return how many VMs are in doubt, and the names of the hosts that have not answered."""
    count = connection.execute(select(func.count()).select_from(doubts)).scalar_one()
    names = (
        select(hosts.c.name)
        .join(roll_call, roll_call.c.host == hosts.c.number)
        .where(~roll_call.c.answered)
        .order_by(hosts.c.name)
    )
    return int(count), list(connection.execute(names).scalars())
