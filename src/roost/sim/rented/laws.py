"""What may never be in a world of jobs, whatever fails.

- Sums are those of their rows: of arrays, of machines, of pools and accounts; limits are kept.
- A result is recorded once, never changes, and is that of an attempt which ran so.
- No job is lost from its array; a job fails for its own doing and not for a machine's.
- A plan is committed by the one process that holds the planner's lease at that moment.
- Where users lower limits: what is beyond one only shrinks, and without faults only what leaves is.
- A machine that somebody uses is not ended; one that nobody's row has is ended within a bound.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from roost.jobs.rows import spec_of, type_of
from roost.ledger.schema.jobtables import COUNTS, accounts, job_arrays, jobs, machines, pools
from roost.model.job import FINAL, INTERNAL
from roost.sim.laws.checking import Broken
from roost.sim.rented.cloud import Rented

#: After its row has ended, so long a machine may still cost money; and one that no row ever named.
RETURNED_S, UNKNOWN_S = 60.0, 600.0
#: Without faults, so long machines may stay that are beyond a limit.
SHED_S = 40.0
_FINAL_WORDS = ("state", "attempt", "exit_code", "reason", "finished_ms", "run_ms", "cost_micro")


@dataclass(slots=True)
class Books:
    """The rows of jobs at one moment."""

    arrays: dict[str, dict[str, Any]]
    jobs: list[dict[str, Any]]
    machines: dict[str, dict[str, Any]]
    pools: list[dict[str, Any]]
    accounts: list[dict[str, Any]]

    @classmethod
    def read(cls, connection: Connection) -> "Books":
        """Read all rows from one view."""

        def rows(table: Any) -> list[dict[str, Any]]:
            return [dict(row) for row in connection.execute(select(table)).mappings()]

        return cls(
            {row["id"]: row for row in rows(job_arrays)},
            rows(jobs),
            {row["id"]: row for row in rows(machines)},
            rows(pools),
            rows(accounts),
        )


@dataclass(slots=True)
class JobLaws:
    """Everything that a world has seen, and what follows from it."""

    submitted: dict[str, int] = field(default_factory=dict)  # arrays that were answered
    cancelled: set[str] = field(default_factory=set)  # arrays that somebody cancelled
    began: Counter[tuple[str, str]] = field(default_factory=Counter)  # (machine, attempt)
    ran: dict[str, set[str]] = field(default_factory=dict)  # how attempts ended, by their names
    _final: dict[tuple[str, int], tuple[Any, ...]] = field(default_factory=dict)
    lowering: bool = False  # users lower limits below what is rented
    _row_gone: dict[str, float] = field(default_factory=dict)
    _had: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    _beyond: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def attempt_began(self, machine: str, attempt: str) -> None:
        """See an attempt begin."""
        self.began[machine, attempt] += 1
        if self.began[machine, attempt] > 1:
            raise Broken(f"{attempt} was begun twice on {machine}")

    def attempt_ended(self, attempt: str, how: str) -> None:
        """See how an attempt ended: exited:CODE, run_limit or cancelled."""
        self.ran.setdefault(attempt, set()).add(how)

    def planned(self, plane: str, quoted: int | None, held: int | None) -> None:
        """See a plan that is committed, with the token that its planner has and the ledger's."""
        if quoted is None or quoted != held:
            raise Broken(f"plane {plane} commits a plan by token {quoted}; the lease is at {held}")

    def check(self, books: Books) -> None:
        """State every law about rows again."""
        by_array: dict[str, list[dict[str, Any]]] = {name: [] for name in books.arrays}
        by_machine: dict[str, list[dict[str, Any]]] = {}
        for row in books.jobs:
            by_array[row["array"]].append(row)
            if row["machine"] is not None:
                by_machine.setdefault(row["machine"], []).append(row)
            self._check_job(row, books.arrays[row["array"]])
        for name, size in self.submitted.items():
            if name not in books.arrays:
                raise Broken(f"{name} was answered and is not there")
            if len(by_array[name]) != size:
                raise Broken(f"{name} has {len(by_array[name])} of {size} jobs")
        for name, array in books.arrays.items():
            _check_array(array, by_array[name])
        for name, machine in books.machines.items():
            _check_machine(machine, by_machine.get(name, []), books.arrays)
        for rows, column in ((books.pools, "pool"), (books.accounts, "account")):
            self._check_limits(rows, column, books.machines)

    def _check_job(self, row: dict[str, Any], array: dict[str, Any]) -> None:
        name = f"{row['array']}.{row['idx']}"
        key = row["array"], row["idx"]
        assigned = row["state"] in ("scheduled", "running", "cancelling")
        if assigned != (row["machine"] is not None):
            raise Broken(f"{name} is {row['state']} on {row['machine']}")
        if key in self._final or row["state"] in FINAL:
            words = tuple(row[word] for word in _FINAL_WORDS)
            if self._final.setdefault(key, words) != words:
                raise Broken(f"{name} ended {self._final[key]} and then {words}")
        if row["state"] in FINAL:
            self._check_end(name, row, array)

    def _check_end(self, name: str, row: dict[str, Any], array: dict[str, Any]) -> None:
        state, reason, how = row["state"], row["reason"], self.ran.get(f"{name}:{row['attempt']}")
        how = how or set()
        spec = spec_of(array["spec"])
        if state == "completed" and "exited:0" not in how:
            raise Broken(f"{name} completed and its attempt ended {how or 'never'}")
        if state == "failed" and reason in INTERNAL:
            raise Broken(f"{name} failed for {reason}, which is not its own doing")
        if state == "failed" and reason == "exit_code" and not any("exited" in h for h in how):
            raise Broken(f"{name} failed and its attempt ended {how or 'never'}")
        if state == "failed" and reason == "run_limit" and "run_limit" not in how:
            raise Broken(f"{name} did not run for longer than it may: {how or 'it never ran'}")
        if state == "lost" and row["restarts"] < spec.restarts:
            raise Broken(f"{name} is lost after {row['restarts']} restarts")
        if state == "cancelled" and row["array"] not in self.cancelled:
            raise Broken(f"{name} was cancelled by nobody")

    def _check_limits(
        self, rows: list[dict[str, Any]], column: str, rented: dict[str, dict[str, Any]]
    ) -> None:
        for row in rows:
            for name, found in _used(_live(rented, column, row["name"])).items():
                most = row[f"max_{name}"]
                if row[f"{name}_used"] != found:
                    said = row[f"{name}_used"]
                    raise Broken(f"{column} {row['name']} counts {said} {name}: {found}")
                if most is None:
                    continue
                before, had = self._had.get((column, row["name"], name), (most, most))
                self._had[column, row["name"], name] = most, found
                if found > most and not (self.lowering and (before > most or found <= had)):
                    raise Broken(f"{column} {row['name']} has {found} {name} and may have {most}")

    def check_shed(self, books: Books, now: float) -> None:
        """See that machines beyond a limit that was lowered leave within a bound."""
        still = {}
        for rows, column in ((books.pools, "pool"), (books.accounts, "account")):
            for row in rows:
                live = _live(books.machines, column, row["name"])
                stays = _used([m for m in live if m["state"] not in ("draining", "returning")])
                for name in _AMOUNTS:
                    key, most = (column, row["name"], name), row[f"max_{name}"]
                    if most is None or stays[name] <= most:
                        continue
                    still[key] = self._beyond.get(key, now)
                    if now - still[key] > SHED_S:
                        raise Broken(f"{column} {row['name']} keeps {stays[name]} {name} of {most}")
        self._beyond = still

    def check_money(self, rented: list[Rented], books: Books, now: float) -> None:
        """See that what costs money is somebody's, or was a moment ago."""
        for name, row in books.machines.items():
            if row["ended_ms"] is not None:
                self._row_gone.setdefault(name, now)
        for each in rented:
            if each.gone_at is not None:
                continue
            token = each.launch.token
            mine = books.machines.get(token)
            known = mine["cloud_id"] if mine is not None else ""
            if mine is not None and mine["ended_ms"] is None and known in (None, each.cloud_id):
                continue
            named = known == each.cloud_id
            since = self._row_gone.get(token, each.made_at)
            most = RETURNED_S if named else UNKNOWN_S
            if now - max(since, each.made_at) > most:
                raise Broken(f"{each.cloud_id} of {token} is rented and nobody's")

    def before_end(self, each: Rented, books: Books) -> None:
        """See that nobody uses a machine that is about to be ended by us."""
        row = books.machines.get(each.launch.token)
        if row is None or row["ended_ms"] is not None or each.twin:
            return
        if row["cloud_id"] in (None, each.cloud_id) and row["state"] != "returning":
            raise Broken(f"{each.cloud_id} is ended while its row is {row['state']}")


def _check_array(array: dict[str, Any], mine: list[dict[str, Any]]) -> None:
    found = dict.fromkeys(COUNTS, 0)
    words = {"scheduled": "live", "running": "live", "cancelling": "live"}
    for row in mine:
        found[words.get(row["state"], row["state"])] += 1
    said = {each: array[each] for each in COUNTS}
    if found != said:
        raise Broken(f"{array['id']} counts {said} and has {found}")
    done = [row for row in mine if row["state"] == "completed"]
    sums = len(done), sum(row["run_ms"] for row in done), sum(row["cost_micro"] for row in mine)
    if sums != (array["measured"], array["run_ms"], array["cost_micro"]):
        raise Broken(f"{array['id']} has sums that are not those of its jobs: {sums}")
    over = not (found["waiting"] or found["queued"] or found["live"])
    if over != (array["finished_ms"] is not None):
        raise Broken(f"{array['id']} has {found} and finished at {array['finished_ms']}")


def _check_machine(
    machine: dict[str, Any], mine: list[dict[str, Any]], arrays: dict[str, dict[str, Any]]
) -> None:
    if machine["ended_ms"] is not None and mine:
        raise Broken(f"{machine['id']} has ended and has jobs")
    cpu = sum(arrays[row["array"]]["cpu_milli"] for row in mine)
    memory = sum(arrays[row["array"]]["memory_bytes"] for row in mine)
    said = tuple(machine[f"{n}_committed"] for n in ("cpu_milli", "memory_bytes", "attempts"))
    if said != (cpu, memory, len(mine)):
        raise Broken(f"{machine['id']} has promised {said} and has {(cpu, memory, len(mine))}")


_AMOUNTS = ("machines", "cpu_milli", "micro")


def _used(live: list[dict[str, Any]]) -> dict[str, int]:
    cpu = sum(type_of(m["type"]).cpu_milli for m in live)
    return {"machines": len(live), "cpu_milli": cpu, "micro": sum(m["price_micro"] for m in live)}


def _live(rented: dict[str, dict[str, Any]], column: str, name: str) -> list[dict[str, Any]]:
    return [m for m in rented.values() if m["ended_ms"] is None and m[column] == name]
