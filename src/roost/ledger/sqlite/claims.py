"""The claim path on SQLite, written against sqlite3 itself.

Runs in the writer's transaction, for batches that `whole` could not keep as a whole or must
not try: proposals are gone through step by step, so that each loser is found and only the losers
lose. Rows of many go in one statement as far as it is known that none of them loses.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import astuple

from roost.ledger.claims import capacity
from roost.ledger.claims.capacity import Charge
from roost.ledger.claims.holding import (
    READ_COUNTERS_HELD,
    READ_HOLDS,
    READ_SPECIAL,
    WRITE_COUNTER_HELD,
    WRITE_HELD,
    changed_counters,
    held_by_rows,
)
from roost.ledger.claims.proposals import (
    KEPT,
    HostCharge,
    Outcome,
    Proposal,
    Verdict,
    charges,
    charging_counters,
    coming_to,
    group_charges,
    host_row,
    joined_groups,
    outpaced,
    project_row,
    quota_charges,
    reconsidered,
    spec_rows,
    special_hosts,
    user_data_rows,
)
from roost.ledger.schema.rows import ClaimRow
from roost.ledger.schema.tables import claims, decisions, idempotency, vm_specs, vm_user_data, vms
from roost.ledger.sqlite.rows import charge_rows, insert_rows
from roost.model.kept import Kept

_VM = tuple(vms.c.keys())
_SPEC = tuple(vm_specs.c.keys())
_USER_DATA = tuple(vm_user_data.c.keys())
_CLAIM = tuple(claims.c.keys())
_DECISION = tuple(decisions.c.keys())
_KEY = tuple(idempotency.c.keys())
_MEMBER = ("group_id", "vm")


class SqliteClaims:
    """Commits one batch of proposals in a SQLite transaction."""

    def __init__(
        self,
        raw: sqlite3.Connection,
        proposals: Sequence[Proposal],
        snapshot: int,
        at_ms: int,
        perhaps_ms: Sequence[int] = (),
    ) -> None:
        self.cursor = raw.cursor()
        self.proposals = proposals
        self.snapshot = snapshot
        self.at_ms = at_ms
        self.perhaps_ms = perhaps_ms  # what the time may be as well (`Tx`)
        self.outcomes = [KEPT] * len(proposals)
        self.generations: dict[str, int] = {}  # of the groups that got members
        self.held: dict[int, Kept] = {}  # what hosts hold now, where it has changed
        self._special: list[int] = []  # hosts that are settled with their claims
        self._coming: dict[int, list[ClaimRow]] = defaultdict(list)  # charged, not inserted yet

    def commit(self) -> list[Outcome]:
        """Commit the proposals that fit, step by step, and return a verdict on each."""
        self._use_keys()
        self._insert_vms()
        self._charge_hosts()
        self._charge_counters()
        self._charge_projects()
        self._advance_groups()
        self._insert_rest()
        for host in self._special:
            self._settle(host, ())
        return reconsidered(self.proposals, self.outcomes)

    def _alive(self) -> list[int]:
        return [index for index, outcome in enumerate(self.outcomes) if outcome is KEPT]

    def _kept(self) -> list[Proposal]:
        return [self.proposals[index] for index in self._alive()]

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
            self._charge(capacity.CHARGE_PROJECTS, (vm.project, *vm.amounts.negative(), -1))
        if counters is None or claim is None:
            return
        back = (claim.host, None, *claim.amounts.negative(), -1)
        self._charge(capacity.CHARGE_HOSTS, back)
        for counter, amount in proposal.counters[:counters]:
            self._charge(capacity.CHARGE_COUNTERS, (claim.host, counter, -amount))

    def _charge(self, charge: Charge, row: Sequence[int | str | None]) -> bool:
        return charge_rows(self.cursor, charge, [row]) == 1

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
        self._special = special_hosts(self.proposals, self._alive())
        for host, charge in charges(self.proposals, self._alive()).items():
            if self._charge_together(host, charge):
                continue
            for index in charge.proposals:  # together they do not fit: one after the other
                if not self._charge_alone(self.proposals[index]):
                    self._turn_away(index, Outcome(Verdict.STALE, "host"))

    def _charge_together(self, host: int, charge: HostCharge) -> bool:
        """Charge all that a host is asked at once, and settle it once; False when not all fit.

        Each is then charged alone: a claim only ever makes a host's load greater, so who fits
        with all the others fits with those before, too.
        """
        if host not in self._special:
            return self._charge(capacity.CHARGE_HOSTS, charge.row(host))
        if len(charge.claims) == 1:
            return False
        self._settle(host, [claim for claim in charge.claims if claim.is_special])
        if self._charge(capacity.CHARGE_HOSTS, charge.row(host)):
            return True
        self._settle(host, ())
        return False

    def _charge_alone(self, proposal: Proposal) -> bool:
        """Charge one proposal to its host, which holds less or more with a claim that ends."""
        claim = proposal.claim
        if claim is None or not claim.is_special:
            return self._charge(capacity.CHARGE_HOSTS, host_row(proposal))
        coming = self._coming[claim.host]
        self._settle(claim.host, [*coming, claim])
        if self._charge(capacity.CHARGE_HOSTS, host_row(proposal)):
            coming.append(claim)
            return True
        self._settle(claim.host, coming)
        return False

    def _settle(self, host: int, coming: Sequence[ClaimRow]) -> None:
        """Write what a host must hold, of its rows and of claims that are not inserted yet."""
        of_holds = self.cursor.execute(READ_HOLDS.replace("@", "?"), (host,)).fetchall()
        of_claims = self.cursor.execute(READ_SPECIAL.replace("@", "?"), (host,)).fetchall()
        held = held_by_rows(of_holds, of_claims, coming, (self.at_ms, *self.perhaps_ms))
        self.cursor.execute(WRITE_HELD.replace("@", "?"), (host, *held.limits))
        if self.cursor.rowcount:
            self.held[host] = held
        before = self.cursor.execute(READ_COUNTERS_HELD.replace("@", "?"), (host,)).fetchall()
        for counter, amount in changed_counters(before, held.counters):
            self.cursor.execute(WRITE_COUNTER_HELD.replace("@", "?"), (host, counter, amount))
            self.held[host] = held

    def _charge_counters(self) -> None:
        for index in charging_counters(self.proposals, self._alive()):
            proposal = self.proposals[index]
            claim = proposal.claim
            if claim is None:
                continue
            for done, (counter, amount) in enumerate(proposal.counters):
                if not self._charge(capacity.CHARGE_COUNTERS, (claim.host, counter, amount)):
                    self._turn_away(index, Outcome(Verdict.STALE, counter), counters=done)
                    if claim.is_special:  # what it was to draw is held again, before the next asks
                        self._settle(claim.host, coming_to(claim.host, self._kept()))
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
                    row = dict(zip(names, found, strict=True))
                    detail = capacity.passed_limits(row, proposal.vm.amounts, 1)
                    outcome = Outcome(Verdict.QUOTA, quota=detail)
                self._turn_away(index, outcome, counters=len(proposal.counters))

    def _charge_project(self, project: str, asking: list[int]) -> bool:
        return self._charge(capacity.CHARGE_PROJECTS, project_row(project, self.proposals, asking))

    def _advance_groups(self) -> None:
        """Check what was seen of constraints, groups and label rules; nobody is turned away after.

        Last of all, so that a generation moves only together with members and their event.
        """
        self.cursor.execute("SELECT constraints FROM counters WHERE name = 'events'")
        constraints = self.cursor.fetchone()[0]
        for index in self._alive():
            if self.proposals[index].constraints not in (None, constraints):
                self._moved_on(index, "constraints")
        labelled = [i for i in self._alive() if self.proposals[i].rules is not None]
        if labelled:
            self.cursor.execute("SELECT value FROM counters WHERE name = 'rules'")
            current = self.cursor.fetchone()[0]
            for index in labelled:
                if self.proposals[index].rules != current:
                    self._moved_on(index, "label rules")
        asking = group_charges(self.proposals)
        current, spread = {}, []
        for group in joined_groups(self.proposals):
            self.cursor.execute("SELECT generation, rule, hard FROM groups WHERE id = ?", (group,))
            for generation, rule, hard in self.cursor.fetchall():
                current[group] = generation
                if hard and rule == "spread":
                    spread.append(group)
        while True:
            lost = [(index, "amounts") for index in self._misjudged()] or [
                (index, "group")
                for index in outpaced(self.proposals, self._alive(), asking, current, spread)
            ]
            for index, what in lost:
                self._moved_on(index, what)
            if not lost:
                break
        for group, indices in asking.items():
            kept = sum(self.outcomes[index] is KEPT for index in indices)
            if kept:
                self.generations[group] = current[group] + kept
        self.cursor.executemany(
            "UPDATE groups SET generation = ? WHERE id = ?",
            [(generation, group) for group, generation in self.generations.items()],
        )

    def _misjudged(self) -> list[int]:
        """Return those whose rules read what their host or project has not come to in the end."""
        found = []
        for index in self._alive():
            proposal = self.proposals[index]
            if proposal.host_after is not None and proposal.claim is not None:
                self.cursor.execute(
                    f"SELECT {capacity.PROMISED} FROM host_amounts WHERE host = ?",
                    (proposal.claim.host,),
                )
                limits = self.cursor.fetchone()
                self.cursor.execute(
                    capacity.PROMISED_EXTENDED.replace("@host", "?"), (proposal.claim.host,)
                )
                counters = self.cursor.fetchall()
                now = capacity.Promised.of_rows(limits, counters)
                if not proposal.host_after.is_as_read(now, special=proposal.claim.is_special):
                    found.append(index)
                    continue
            if proposal.project_after is not None:
                self.cursor.execute(
                    f"SELECT {capacity.PROJECT_USE} FROM projects WHERE name = ?",
                    (proposal.vm.project,),
                )
                if capacity.ProjectUse.of_row(self.cursor.fetchone()) != proposal.project_after:
                    found.append(index)
        return found

    def _moved_on(self, index: int, what: str) -> None:
        counters = len(self.proposals[index].counters)
        self._turn_away(index, Outcome(Verdict.STALE, what), counters=counters, project=True)

    def _insert_rest(self) -> None:
        kept = self._kept()
        insert_rows(self.cursor, "vm_specs", _SPEC, spec_rows(kept))
        insert_rows(self.cursor, "vm_user_data", _USER_DATA, user_data_rows(kept))
        taken = [astuple(p.claim) for p in kept if p.claim is not None]
        insert_rows(self.cursor, "claims", _CLAIM, taken)
        joined = [(group, p.vm.id) for p in kept for group, _ in p.groups]
        insert_rows(self.cursor, "members", _MEMBER, joined)
        decided = [
            (p.vm.id, self.snapshot, "create", p.answer, self.at_ms) for p in kept if p.answer
        ]
        insert_rows(self.cursor, "decisions", _DECISION, decided)
