"""The claim path on SQLite, written against sqlite3 itself.

Runs in the writer's transaction. The common case, in which nobody loses, is one statement per
table. When a count is not what it should be, all of it is taken back and the proposals are gone
through step by step, so that each loser is found and only the losers lose.
"""

import sqlite3
from collections.abc import Sequence

from msgspec.structs import astuple

from roost.ledger.claims import (
    KEPT,
    HostCharge,
    Outcome,
    Proposal,
    Verdict,
    charges,
    group_charges,
    outpaced,
    quota_charges,
    quota_detail,
    reconsidered,
)
from roost.ledger.sqliterows import insert_rows, update_rows
from roost.ledger.tables import claims, decisions, idempotency, vms

_VM = tuple(vms.c.keys())
_CLAIM = tuple(claims.c.keys())
_DECISION = tuple(decisions.c.keys())
_KEY = tuple(idempotency.c.keys())
_MEMBER = ("group_id", "vm")
_CHARGE_HOST = """
UPDATE host_amounts SET
  cpu_milli_committed = cpu_milli_committed + ?1,
  memory_bytes_committed = memory_bytes_committed + ?2,
  disk_bytes_committed = disk_bytes_committed + ?3,
  vms_committed = vms_committed + ?4
WHERE host = ?5 AND generation = ?6
  AND cpu_milli_committed + ?1 <= cpu_milli_capacity
  AND memory_bytes_committed + ?2 <= memory_bytes_capacity
  AND disk_bytes_committed + ?3 <= disk_bytes_capacity
  AND vms_committed + ?4 <= vms_capacity
"""
_CHARGE_HOSTS = """
UPDATE host_amounts SET
  cpu_milli_committed = cpu_milli_committed + u.column3,
  memory_bytes_committed = memory_bytes_committed + u.column4,
  disk_bytes_committed = disk_bytes_committed + u.column5,
  vms_committed = vms_committed + u.column6
FROM @VALUES AS u
WHERE host = u.column1 AND generation = u.column2
  AND cpu_milli_committed + u.column3 <= cpu_milli_capacity
  AND memory_bytes_committed + u.column4 <= memory_bytes_capacity
  AND disk_bytes_committed + u.column5 <= disk_bytes_capacity
  AND vms_committed + u.column6 <= vms_capacity
"""
_UNCHARGE_HOST = """
UPDATE host_amounts SET
  cpu_milli_committed = cpu_milli_committed - ?1,
  memory_bytes_committed = memory_bytes_committed - ?2,
  disk_bytes_committed = disk_bytes_committed - ?3,
  vms_committed = vms_committed - 1
WHERE host = ?4
"""
_UNCHARGE_PROJECT = """
UPDATE projects SET
  cpu_milli_used = cpu_milli_used - ?1,
  memory_bytes_used = memory_bytes_used - ?2,
  disk_bytes_used = disk_bytes_used - ?3,
  vms_used = vms_used - 1
WHERE name = ?4
"""
_CHARGE_COUNTER = """
UPDATE host_counters SET committed = committed + ?1
WHERE host = ?2 AND counter = ?3 AND committed + ?1 <= capacity
"""
_CHARGE_PROJECT = """
UPDATE projects SET
  cpu_milli_used = cpu_milli_used + ?1,
  memory_bytes_used = memory_bytes_used + ?2,
  disk_bytes_used = disk_bytes_used + ?3,
  vms_used = vms_used + ?4
WHERE name = ?5
  AND (cpu_milli_quota IS NULL OR cpu_milli_used + ?1 <= cpu_milli_quota)
  AND (memory_bytes_quota IS NULL OR memory_bytes_used + ?2 <= memory_bytes_quota)
  AND (disk_bytes_quota IS NULL OR disk_bytes_used + ?3 <= disk_bytes_quota)
  AND (vms_quota IS NULL OR vms_used + ?4 <= vms_quota)
"""


class SqliteClaims:
    """One batch in one transaction."""

    def __init__(
        self, raw: sqlite3.Connection, proposals: Sequence[Proposal], snapshot: int, at_ms: int
    ) -> None:
        self.cursor = raw.cursor()
        self.proposals = proposals
        self.snapshot = snapshot
        self.at_ms = at_ms
        self.outcomes = [KEPT] * len(proposals)
        self.generations: dict[str, int] = {}  # of the groups that got members

    def commit(self) -> list[Outcome]:
        """Keep what can be kept and return a verdict on each."""
        self.cursor.execute("SAVEPOINT together")
        if self._keep_all():
            self.cursor.execute("RELEASE together")
            return self.outcomes
        self.cursor.execute("ROLLBACK TO together")
        self.cursor.execute("RELEASE together")
        return self._keep_each()

    def _keep_all(self) -> bool:
        """Keep everybody in a few statements; False as soon as somebody would lose."""
        proposals = self.proposals
        keys = [(*p.key, p.vm.id, self.at_ms) for p in proposals if p.key is not None]
        if insert_rows(self.cursor, "idempotency", _KEY, keys, ignore=True) != len(keys):
            return False
        rows = [astuple(p.vm) for p in proposals]
        if insert_rows(self.cursor, "vms", _VM, rows, ignore=True) != len(rows):
            return False
        everybody = range(len(proposals))
        hosts = [
            (host, c.generation, c.cpu_milli, c.memory_bytes, c.disk_bytes, c.vms)
            for host, c in charges(proposals, everybody).items()
        ]
        if update_rows(self.cursor, _CHARGE_HOSTS, hosts) != len(hosts):
            return False
        self._charge_counters()
        if len(self._alive()) != len(proposals):
            return False
        for project, asking in quota_charges(proposals, everybody).items():
            if not self._charge_project(project, asking):
                return False
        self._advance_groups()
        if len(self._alive()) != len(proposals):
            return False
        self._insert_rest()
        return True

    def _keep_each(self) -> list[Outcome]:
        """Go through it step by step and turn away whoever loses."""
        self.outcomes = [KEPT] * len(self.proposals)
        self.generations.clear()
        self._use_keys()
        self._insert_vms()
        self._charge_hosts()
        self._charge_counters()
        self._charge_projects()
        self._advance_groups()
        self._insert_rest()
        return reconsidered(self.proposals, self.outcomes)

    def _alive(self) -> list[int]:
        return [index for index, outcome in enumerate(self.outcomes) if outcome is KEPT]

    def _turn_away(
        self, index: int, outcome: Outcome, *, counters: int | None = None, project: bool = False
    ) -> None:
        """Take back what a proposal has taken so far: rows, host with so many counters, quota.

        A key that belongs to somebody else stays: only this VM's own answer is removed.
        """
        self.outcomes[index] = outcome
        proposal = self.proposals[index]
        vm, claim = proposal.vm, proposal.claim
        self.cursor.execute("DELETE FROM vms WHERE id = ?", (vm.id,))
        if proposal.key is not None:
            scope, key, _ = proposal.key
            self.cursor.execute(
                "DELETE FROM idempotency WHERE scope = ? AND key = ? AND answer = ?",
                (scope, key, vm.id),
            )
        if project:
            self.cursor.execute(
                _UNCHARGE_PROJECT, (vm.cpu_milli, vm.memory_bytes, vm.disk_bytes, vm.project)
            )
        if counters is None or claim is None:
            return
        self.cursor.execute(
            _UNCHARGE_HOST, (claim.cpu_milli, claim.memory_bytes, claim.disk_bytes, claim.host)
        )
        for counter, amount in proposal.counters[:counters]:
            self.cursor.execute(
                "UPDATE host_counters SET committed = committed - ? WHERE host = ? AND counter = ?",
                (amount, claim.host, counter),
            )

    def _use_keys(self) -> None:
        keyed = [(i, p.key, p.vm.id) for i, p in enumerate(self.proposals) if p.key is not None]
        if not keyed:
            return
        rows = [(*key, vm_id, self.at_ms) for _, key, vm_id in keyed]
        if insert_rows(self.cursor, "idempotency", _KEY, rows, ignore=True) == len(keyed):
            return
        for index, (scope, key, digest), vm_id in keyed:
            found = self.cursor.execute(
                "SELECT digest, answer FROM idempotency WHERE scope = ? AND key = ?", (scope, key)
            ).fetchone()
            if found[1] == vm_id:
                continue
            verdict = Verdict.REPLAYED if found[0] == digest else Verdict.KEY_REUSED
            self.outcomes[index] = Outcome(verdict, found[1])

    def _insert_vms(self) -> None:
        alive = self._alive()
        rows = [astuple(self.proposals[i].vm) for i in alive]
        if insert_rows(self.cursor, "vms", _VM, rows, ignore=True) == len(alive):
            return
        for index in alive:
            vm = self.proposals[index].vm
            found = self.cursor.execute(
                "SELECT id FROM vms WHERE project = ? AND name = ?", (vm.project, vm.name)
            ).fetchone()
            if found[0] != vm.id:
                self._turn_away(index, Outcome(Verdict.NAME_TAKEN, found[0]))

    def _charge_hosts(self) -> None:
        for host, charge in charges(self.proposals, self._alive()).items():
            if self._charge(host, charge):
                continue
            for index in charge.proposals:  # together they do not fit: one after the other
                claim = self.proposals[index].claim
                assert claim is not None
                alone = HostCharge(
                    self.proposals[index].host_generation,
                    claim.cpu_milli,
                    claim.memory_bytes,
                    claim.disk_bytes,
                    1,
                )
                if not self._charge(host, alone):
                    self._turn_away(index, Outcome(Verdict.STALE, "host"))

    def _charge(self, host: int, charge: HostCharge) -> bool:
        amounts = (charge.cpu_milli, charge.memory_bytes, charge.disk_bytes, charge.vms)
        self.cursor.execute(_CHARGE_HOST, (*amounts, host, charge.generation))
        return self.cursor.rowcount == 1

    def _charge_counters(self) -> None:
        for index in self._alive():
            proposal = self.proposals[index]
            claim = proposal.claim
            if claim is None or not proposal.counters:
                continue
            for done, (counter, amount) in enumerate(proposal.counters):
                self.cursor.execute(_CHARGE_COUNTER, (amount, claim.host, counter))
                if self.cursor.rowcount != 1:
                    self._turn_away(index, Outcome(Verdict.STALE, counter), counters=done)
                    break

    def _charge_projects(self) -> None:
        for project, asking in quota_charges(self.proposals, self._alive()).items():
            if self._charge_project(project, asking):
                continue
            for index in asking:
                if self._charge_project(project, [index]):
                    continue
                self.cursor.execute("SELECT * FROM projects WHERE name = ?", (project,))
                names = [column[0] for column in self.cursor.description]
                found = self.cursor.fetchone()
                proposal = self.proposals[index]
                outcome = Outcome(Verdict.NO_PROJECT)
                if found is not None:
                    detail = quota_detail(dict(zip(names, found, strict=True)), proposal.vm)
                    outcome = Outcome(Verdict.QUOTA, quota=detail)
                self._turn_away(index, outcome, counters=len(proposal.counters))

    def _charge_project(self, project: str, asking: list[int]) -> bool:
        rows = [self.proposals[index].vm for index in asking]
        self.cursor.execute(
            _CHARGE_PROJECT,
            (
                sum(vm.cpu_milli for vm in rows),
                sum(vm.memory_bytes for vm in rows),
                sum(vm.disk_bytes for vm in rows),
                len(rows),
                project,
            ),
        )
        return self.cursor.rowcount == 1

    def _advance_groups(self) -> None:
        """Check what was seen of groups and label rules; nobody is turned away after this.

        Last of all, so that a generation moves only together with members and their event.
        """
        labelled = [i for i in self._alive() if self.proposals[i].rules is not None]
        if labelled:
            self.cursor.execute("SELECT value FROM counters WHERE name = 'rules'")
            current = self.cursor.fetchone()[0]
            for index in labelled:
                if self.proposals[index].rules != current:
                    self._moved_on(index, "label rules")
        asking = group_charges(self.proposals)
        current, spread = {}, []
        for group in asking:
            self.cursor.execute("SELECT generation, rule, hard FROM groups WHERE id = ?", (group,))
            for generation, rule, hard in self.cursor.fetchall():
                current[group] = generation
                if hard and rule == "spread":
                    spread.append(group)
        for index in outpaced(self.proposals, self._alive(), asking, current, spread):
            self._moved_on(index, "group")
        for group, indices in asking.items():
            kept = sum(self.outcomes[index] is KEPT for index in indices)
            if kept:
                self.generations[group] = current[group] + kept
        self.cursor.executemany(
            "UPDATE groups SET generation = ? WHERE id = ?",
            [(generation, group) for group, generation in self.generations.items()],
        )

    def _moved_on(self, index: int, what: str) -> None:
        counters = len(self.proposals[index].counters)
        self._turn_away(index, Outcome(Verdict.STALE, what), counters=counters, project=True)

    def _insert_rest(self) -> None:
        kept = [self.proposals[index] for index in self._alive()]
        taken = [astuple(p.claim) for p in kept if p.claim is not None]
        insert_rows(self.cursor, "claims", _CLAIM, taken)
        joined = [(group, p.vm.id) for p in kept for group, _ in p.groups]
        insert_rows(self.cursor, "members", _MEMBER, joined)
        decided = [
            (p.vm.id, self.snapshot, "create", p.answer, self.at_ms) for p in kept if p.answer
        ]
        insert_rows(self.cursor, "decisions", _DECISION, decided)
