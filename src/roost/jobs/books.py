"""Jobs as rows: every change of a job's state, with the sums that go with it, in one transaction.

Sums (an array's counts, what a machine has promised) only move relatively, together with the rows
that they are sums of: a report that changes no row frees nothing. Whoever changes many rows locks
machines before jobs, jobs before arrays, each in the order of their names, and pools and accounts
last; jobs that wait for another array are locked behind their own array.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import Select, and_, bindparam, case, func, insert, or_, select, update

from roost.jobs.ends import After, Tried, after_attempt, cost_micro, share_of
from roost.jobs.rows import spec_of
from roost.ledger.schema.jobtables import (
    COUNTS,
    job_arrays,
    job_attempts,
    job_links,
    jobs,
    machines,
)
from roost.ledger.writes.transaction import Tx
from roost.model.job import FINAL, EndReason, JobState, attempt_id
from roost.wire.workerlink import AttemptReport

_encode = msgspec.json.Encoder().encode
_A, _J, _M = job_arrays.c, jobs.c, machines.c

#: In which count of its array a job of a state is.
COUNT_OF: dict[JobState, str] = {
    "waiting": "waiting",
    "queued": "queued",
    "scheduled": "live",
    "running": "live",
    "cancelling": "live",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "lost": "lost",
}

#: The jobs of a machine with what of their arrays an end needs.
ON_MACHINE = (
    select(
        jobs,
        _A.spec,
        _A.project,
        _A.cpu_milli.label("cpu_milli"),
        _A.memory_bytes.label("demand_memory"),
        _A.disk_bytes.label("disk_bytes"),
    )
    .join(job_arrays, _A.id == _J.array)
    .where(_J.machine == bindparam("on"))
    .order_by(_J.array, _J.idx)
)
_LOCKED_ON_MACHINE = ON_MACHINE.with_for_update(of=jobs)
_IDENTITY = and_(
    _J.array == bindparam("of_array"),
    _J.idx == bindparam("of_idx"),
    _J.attempt == bindparam("of_attempt"),
)
_END = (
    update(jobs)
    .where(_IDENTITY)
    .values(
        state=bindparam("to"),
        machine=None,
        finished_ms=bindparam("at"),
        reason=bindparam("why"),
        message=bindparam("said"),
        exit_code=bindparam("code"),
        run_ms=bindparam("ran"),
        cpu_ms=bindparam("cpu"),
        memory_bytes=bindparam("memory"),
        cost_micro=_J.cost_micro + bindparam("cost"),
        outputs=bindparam("left"),
    )
)
_AGAIN = (
    update(jobs)
    .where(_IDENTITY)
    .values(
        state="queued",
        machine=None,
        queued_ms=bindparam("at"),
        scheduled_ms=None,
        started_ms=None,
        not_before_ms=bindparam("wait_until"),
        retries=_J.retries + bindparam("more_retries"),
        restarts=_J.restarts + bindparam("more_restarts"),
        reason=bindparam("why"),
        message=bindparam("said"),
        cost_micro=_J.cost_micro + bindparam("cost"),
    )
)
_RUNNING = (
    update(jobs)
    .where(_IDENTITY, _J.state == "scheduled")
    .values(state="running", started_ms=bindparam("at"))
)
_MOVED = (
    update(job_arrays)
    .where(_A.id == bindparam("moved"))
    .values(
        {name: job_arrays.c[name] + bindparam(f"more_{name}") for name in COUNTS}
        | {
            "measured": _A.measured + bindparam("more_measured"),
            "run_ms": _A.run_ms + bindparam("more_run_ms"),
            "cost_micro": _A.cost_micro + bindparam("more_cost"),
        }
    )
)
_DONE = (
    update(job_arrays)
    .where(
        _A.id == bindparam("done"),
        _A.waiting == 0,
        _A.queued == 0,
        _A.live == 0,
        _A.finished_ms.is_(None),
    )
    .values(finished_ms=bindparam("at"))
    .returning(_A.id, _A.project, _A.size, _A.failed, _A.cancelled, _A.lost)
)
_FREED = (
    update(machines)
    .where(_M.id == bindparam("freed"))
    .values(
        cpu_milli_committed=_M.cpu_milli_committed - bindparam("cpu"),
        memory_bytes_committed=_M.memory_bytes_committed - bindparam("memory"),
        disk_bytes_committed=_M.disk_bytes_committed - bindparam("disk"),
        attempts_committed=_M.attempts_committed - bindparam("number"),
        idle_ms=case(
            (_M.attempts_committed == bindparam("number"), bindparam("at")), else_=_M.idle_ms
        ),
    )
)


@dataclass(slots=True)
class Sums:
    """How the sums of arrays and one machine move, collected while rows change."""

    counts: dict[str, dict[str, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    freed: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    ended: int = 0

    def moved(self, array: str, before: JobState, to: JobState, number: int = 1) -> None:
        """Count jobs of an array that have gone from one state to another."""
        moved = self.counts[array]
        moved[COUNT_OF[before]] -= number
        moved[COUNT_OF[to]] += number
        self.ended += number if to in FINAL else 0

    def free(self, cpu_milli: int, memory_bytes: int, disk_bytes: int) -> None:
        """Count what an attempt had on its machine."""
        for place, amount in enumerate((cpu_milli, memory_bytes, disk_bytes, 1)):
            self.freed[place] += amount

    def write(self, tx: Tx, machine: str | None = None) -> None:
        """Move the sums, finish arrays that have nothing left and free what waited for them."""
        if machine is not None and self.freed[3]:
            cpu, memory, disk, number = self.freed
            tx.connection.execute(
                _FREED,
                {"freed": machine, "cpu": cpu, "memory": memory, "disk": disk, "number": number,
                 "at": tx.at_ms},
            )  # fmt: skip
        for array in sorted(self.counts):
            moved = self.counts[array]
            row: dict[str, Any] = {f"more_{name}": moved.get(name, 0) for name in COUNTS}
            row |= {
                "more_measured": moved.get("measured", 0),
                "more_run_ms": moved.get("run_ms", 0),
                "more_cost": moved.get("cost", 0),
                "moved": array,
            }
            tx.connection.execute(_MOVED, row)
        if self.ended:
            for array in sorted(self.counts):
                finish_array(tx, array)


# Attempts that end


def on_machine(tx: Tx, machine: str) -> list[dict[str, Any]]:
    """Return the jobs that a machine has, locked."""
    return tx.rows(_LOCKED_ON_MACHINE, on=machine)


def end_attempts(
    tx: Tx,
    machine: dict[str, Any],
    ended: Sequence[tuple[dict[str, Any], AttemptReport]],
    sums: Sums,
) -> list[tuple[dict[str, Any], After]]:
    """Record how attempts on one machine have ended; each row is one of `on_machine`."""
    ends: list[dict[str, Any]] = []
    again: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []
    found: list[tuple[dict[str, Any], After]] = []
    for row, report in ended:
        spec = spec_of(row["spec"])
        reason, state = report.reason, row["state"]
        if row["reason"] == "run_limit" and state == "cancelling":
            # It was told to end because nobody had heard of its end. It may have been quick and
            # only its worker not heard: then what the worker says counts, or that it is gone.
            if report.outcome == "cancelled" or reason == "run_limit":
                reason = "run_limit"
            else:
                state = "running"
        tried = Tried(state, row["retries"], row["restarts"], spec.retries, spec.restarts)
        after = after_attempt(tried, report.outcome, reason)
        share = share_of(
            row["cpu_milli"],
            row["demand_memory"],
            machine["cpu_milli_capacity"],
            machine["memory_bytes_capacity"],
        )
        cost = cost_micro(machine["price_micro"], report.run_ms, share)
        change = {
            "of_array": row["array"],
            "of_idx": row["idx"],
            "of_attempt": row["attempt"],
            "at": tx.at_ms,
            "why": "" if after.state == "completed" else reason or report.outcome,
            "said": report.message,
            "cost": cost,
        }
        sums.moved(row["array"], row["state"], after.state)
        sums.free(row["cpu_milli"], row["demand_memory"], row["disk_bytes"])
        moved = sums.counts[row["array"]]
        moved["cost"] += cost
        if after.state == "queued":
            again.append(
                change
                | {
                    "wait_until": tx.at_ms + round(1000 * after.wait_s),
                    "more_retries": after.retries,
                    "more_restarts": after.restarts,
                }
            )
            kept.append(
                {
                    "array": row["array"],
                    "idx": row["idx"],
                    "attempt": row["attempt"],
                    "machine": machine["id"],
                    "reason": change["why"],
                    "message": report.message,
                    "exit_code": report.exit_code,
                    "scheduled_ms": row["scheduled_ms"] or tx.at_ms,
                    "started_ms": row["started_ms"],
                    "ended_ms": tx.at_ms,
                }
            )
        else:
            if after.state == "completed":
                moved["measured"] += 1
                moved["run_ms"] += report.run_ms
            ends.append(
                change
                | {
                    "to": after.state,
                    "code": report.exit_code,
                    "ran": report.run_ms,
                    "cpu": report.cpu_ms,
                    "memory": report.memory_bytes,
                    "left": _encode(report.outputs).decode() if report.outputs else "",
                }
            )
        found.append((row, after))
    if ends:
        tx.connection.execute(_END, ends)
    if again:
        tx.connection.execute(_AGAIN, again)
        tx.connection.execute(insert(job_attempts), kept)
    return found


def mark_running(tx: Tx, rows: Iterable[dict[str, Any]]) -> None:
    """Record that scheduled attempts run."""
    begun = [
        {"of_array": r["array"], "of_idx": r["idx"], "of_attempt": r["attempt"], "at": tx.at_ms}
        for r in rows
    ]
    if begun:
        tx.connection.execute(_RUNNING, begun)


def lose_machine(tx: Tx, machine: dict[str, Any], reason: EndReason, message: str) -> int:
    """End all attempts of a machine that is gone: tried again, lost, or cancelled as was wished."""
    rows = on_machine(tx, machine["id"])
    sums = Sums()
    reports = [
        AttemptReport(
            attempt=attempt_id(job_name(row["array"], row["idx"]), row["attempt"]),
            outcome="failed",
            reason=reason,
            message=message,
        )
        for row in rows
    ]
    end_attempts(tx, machine, list(zip(rows, reports, strict=True)), sums)
    sums.write(tx, machine["id"])
    return len(rows)


# Arrays


def job_name(array: str, index: int) -> str:
    """Return what a job is called between processes: always with its index."""
    return f"{array}.{index}"


def finish_array(tx: Tx, array: str) -> None:
    """Note that an array has ended if nothing of it is left, and free what waited for it."""
    done = tx.row(_DONE, done=array, at=tx.at_ms)
    if done is None:
        return
    bad = done["failed"] + done["cancelled"] + done["lost"]
    note = f"{done['size']} jobs" + (f", {bad} of them did not complete" if bad else "")
    tx.event("jobs.finished", f"job/{array}", {}, project=done["project"], note=note)
    waiting = select(job_links.c.array).where(job_links.c.needs == array)
    for row in tx.rows(waiting.order_by(job_links.c.array)):
        free_waiting(tx, row["array"])


_NEEDED = (
    select(_A.id, _A.finished_ms, (_A.failed + _A.cancelled + _A.lost).label("bad"))
    .join(job_links, job_links.c.needs == _A.id)
    .where(job_links.c.array == bindparam("by"))
)


def free_waiting(tx: Tx, array: str) -> None:
    """Queue the jobs of an array, or fail them, once all that it waits for has ended."""
    own = tx.find(job_arrays, lock=True, id=array)
    if own is None or not own["waiting"]:
        return
    needed = tx.rows(_NEEDED, by=array)
    if any(row["finished_ms"] is None for row in needed):
        return
    bad = [row["id"] for row in needed if row["bad"]]
    sums = Sums()
    change = update(jobs).where(_J.array == array, _J.state == "waiting")
    if bad and own["on_failure"] == "fail":
        said = f"{bad[0]} did not complete"
        values: dict[str, Any] = {
            "state": "failed", "finished_ms": tx.at_ms, "reason": "dependency", "message": said,
        }  # fmt: skip
        number = tx.connection.execute(change.values(values)).rowcount
        sums.moved(array, "waiting", "failed", number)
    else:
        number = tx.connection.execute(change.values(state="queued", queued_ms=tx.at_ms)).rowcount
        sums.moved(array, "waiting", "queued", number)
    sums.write(tx)


#: Jobs on a machine that a user can still cancel. One that was told to end because it ran too long
#: is tried again if its machine is lost, so it has to hear that nobody wants it any more.
_CAN_BE_TOLD = or_(
    _J.state.in_(("scheduled", "running")),
    and_(_J.state == "cancelling", _J.reason == "run_limit"),
)


def _to_cancel(array: str, index: int | None) -> Select[Any]:
    """Return the question that locks jobs in everybody's order and counts those on each machine."""
    locked = (
        select(_J.idx, _J.machine)
        .where(_J.array == array, or_(_J.state == "queued", _CAN_BE_TOLD))
        .order_by(_J.idx)
        .with_for_update()
    )
    if index is not None:
        locked = locked.where(_J.idx == index)
    each = locked.subquery().c
    return select(each.machine, func.count().label("number")).group_by(each.machine)


def cancel_jobs(tx: Tx, array: str, index: int | None) -> tuple[int, int, list[str]]:
    """Cancel jobs of an array; return how many at once, how many later, and their machines.

    What is queued or on a machine is locked before its array, as reports and plans do it. What
    waits for others is freed with its array locked, so there the array comes first. Jobs are only
    counted here: an array may have more of them than anybody wants to load while others wait.
    """
    own = tx.find(job_arrays, id=array)
    which = [_J.array == array, *([] if index is None else [_J.idx == index])]
    sums = Sums()
    ended = {"state": "cancelled", "finished_ms": tx.at_ms, "reason": "cancelled"}
    at_once = 0
    if own is not None and own["waiting"]:
        tx.find(job_arrays, lock=True, id=array)
        gone = update(jobs).where(*which, _J.state == "waiting").values(ended)
        at_once = tx.connection.execute(gone).rowcount
        sums.moved(array, "waiting", "cancelled", at_once)
    found = {row["machine"]: row["number"] for row in tx.rows(_to_cancel(array, index))}
    queued = found.pop(None, 0)
    if queued:
        tx.connection.execute(update(jobs).where(*which, _J.state == "queued").values(ended))
        sums.moved(array, "queued", "cancelled", queued)
    if found:
        told = update(jobs).where(*which, _CAN_BE_TOLD)
        tx.connection.execute(told.values(state="cancelling", reason="cancelled"))
    sums.write(tx)
    return at_once + queued, sum(found.values()), sorted(found)
