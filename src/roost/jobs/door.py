"""The door of workers: they join, poll for as long as they live, and send logs.

A worker is its machine's and nothing else: the credential names the machine, and whatever it says
of other machines' attempts finds no row. Reports are recorded once, by the id of the attempt; those
that come again, or too late, are acknowledged and change nothing.
"""

import base64
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from hmac import compare_digest
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from roost.base.clock import Clock
from roost.base.errors import Conflict, Unauthorized
from roost.jobs.assigning import Assigner, Refused
from roost.jobs.bell import LOOK_S, Bell
from roost.jobs.books import Sums, end_attempts, job_name, mark_running, on_machine
from roost.jobs.rented import MOST_AT_ONCE, move_machine
from roost.jobs.rows import type_of
from roost.ledger.schema.jobtables import job_attempts, job_logs, jobs, machines
from roost.ledger.schema.tables import tokens
from roost.ledger.store import Store
from roost.ledger.writes.statements import Plus
from roost.ledger.writes.transaction import Tx
from roost.model.job import attempt_id
from roost.parts.access import Access, Principal, insert_token, revoke_tokens, token_parts
from roost.parts.part import Part
from roost.parts.roles import JOINING, WORKER
from roost.parts.routes import Route
from roost.wire.workerlink import (
    PROTOCOL,
    AttemptReport,
    LogChunk,
    LogOffset,
    LogsTaken,
    WorkerJoin,
    WorkerJoined,
    WorkerLogs,
    WorkerOrders,
    WorkerPoll,
)

log = logging.getLogger("roost.jobs")

#: How often a heartbeat of a worker that has nothing to say is written.
HEARD_S = 5.0
#: After how long a machine that is not heard of is forgotten here.
FORGET_S = 60.0
#: How long a worker may wait between two polls.
POLL_S = 5.0
#: Bytes of a log that are kept of one attempt and stream.
LOG_LIMIT = 1024 * 1024
_M, _L = machines.c, job_logs.c


class WorkerDoor(Part):
    """Takes what workers say, and says what they should have."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        access: Access,
        assigner: Assigner,
        bell: Bell,
        planning: Callable[[], None],
    ) -> None:
        self._store, self._clock, self._access = store, clock, access
        self._assigner, self._bell, self._planning = assigner, bell, planning
        self._heard: dict[str, float] = {}  # when a machine's heartbeat was written last
        self._held: dict[str, WorkerPoll] = {}  # the one poll of each machine that waits here
        self._forgotten_at = 0.0

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        # fmt: off
        return (
            Route(method="POST", path="/api/v1/worker/join", noun="worker", verb="join_worker",
                  call=lambda call: self.join(call.body, call.token), roles=JOINING,
                  summary="Exchange a join token for the credential of one machine",
                  body=WorkerJoin, reply=WorkerJoined, statuses=(201,), errors=("conflict",)),
            Route(method="POST", path="/api/v1/worker/poll", noun="worker", verb="poll_worker",
                  call=lambda call: self.poll(call.body, call.who), roles=WORKER,
                  summary="Say what a machine has, and learn what it should have",
                  body=WorkerPoll, reply=WorkerOrders),
            Route(method="POST", path="/api/v1/worker/logs", noun="worker", verb="send_logs",
                  call=lambda call: self.logs(call.body, call.who), roles=WORKER,
                  summary="Send pieces of logs", body=WorkerLogs, reply=LogsTaken),
        )
        # fmt: on

    # Joining

    async def join(self, body: WorkerJoin, bearer: str) -> WorkerJoined:
        """Trade a machine's join token for its credential; an older one is revoked."""
        if body.protocol != PROTOCOL:
            raise Conflict(
                f"this server speaks version {PROTOCOL} of the workers' protocol, not "
                f"{body.protocol}",
                hint="Maybe bring worker and server to the same release.",
            )
        token_id, digest = token_parts(bearer)
        row, text = self._access.prepare(
            "worker", f"machine/{body.machine}", "worker", host=body.machine
        )

        def change(tx: Tx) -> None:
            found = tx.find(tokens, lock=True, id=token_id)
            if (
                found is None
                or found["kind"] != "worker_join"
                or not compare_digest(str(found["hash"]), digest)
                or found["host"] != body.machine
            ):
                raise Unauthorized("the join token is not known, or is another machine's")
            if found["expires_ms"] is not None and found["expires_ms"] <= tx.at_ms:
                raise Unauthorized("the join token has expired")
            # The token works until the machine has spoken with its credential: the answer to this
            # may be lost, and the worker must be able to ask again.
            old = select(tokens.c.id).where(
                tokens.c.kind == "worker", tokens.c.host == body.machine
            )
            gone = [each["id"] for each in tx.rows(old)]
            if gone:
                tx.delete(tokens, tokens.c.id.in_(gone))
                tx.event(
                    "token.deleted", f"machine/{body.machine}", {"tokens": dict.fromkeys(gone)}
                )
            insert_token(tx, row)

        await self._store.write(change, f"machine/{body.machine}")
        return WorkerJoined(machine=body.machine, credential=text)

    # Polling

    async def poll(self, body: WorkerPoll, who: Principal) -> WorkerOrders:
        """Take what a worker says; answer at once if there is anything to say, else later.

        One poll of a machine is held at a time: an older one is answered when the next comes.
        """
        machine = str(who.host)
        until = self._clock.monotonic() + body.wait_s
        answer = await self._take(machine, body)
        if _says_something(answer) or body.wait_s == 0:
            return answer
        self._held[machine] = body
        self._bell.ring([f"machine/{machine}"])
        try:
            # What there is to say is said to the newest.
            while not _says_something(answer) and self._held.get(machine) is body:
                left = until - self._clock.monotonic()
                if left <= 0:
                    break
                await self._bell.wait(f"machine/{machine}", min(left, LOOK_S))
                if self._held.get(machine) is body:
                    answer = await self._look(machine, body)
        finally:
            if self._held.get(machine) is body:
                del self._held[machine]
        return answer

    async def _take(self, machine: str, body: WorkerPoll) -> WorkerOrders:
        now = self._clock.monotonic()
        beat = now - self._heard.get(machine, -HEARD_S) >= HEARD_S
        news = body.finished or body.logs or body.capacity is not None or body.notice or beat
        if not news and all(each.state != "running" for each in body.attempts):
            return await self._look(machine, body)
        return await self._write(machine, body, now)

    async def _look(self, machine: str, body: WorkerPoll) -> WorkerOrders:
        """Return what a machine should have; what no worker may be told is ended before."""
        answer, refused = await self._store.read(lambda c: self._ordered(c, machine, body))
        return await self._write(machine, body, self._clock.monotonic()) if refused else answer

    async def _write(self, machine: str, body: WorkerPoll, now: float) -> WorkerOrders:
        answer, changed = await self._store.write(
            lambda tx: self._record(tx, machine, body), f"machine/{machine}"
        )
        self._note_heard(machine, now, answer)
        if changed:
            self._planning()
        return answer

    def _note_heard(self, machine: str, now: float, answer: WorkerOrders) -> None:
        """Remember when a heartbeat was written; who leaves or fell silent is forgotten."""
        if now >= self._forgotten_at + FORGET_S:
            self._forgotten_at = now
            self._heard = {m: at for m, at in self._heard.items() if now - at < FORGET_S}
        if answer.leave:
            self._heard.pop(machine, None)
        else:
            self._heard[machine] = now

    def _record(self, tx: Tx, machine: str, body: WorkerPoll) -> tuple[WorkerOrders, bool]:
        """Write all that a poll says; return the orders, and whether room has changed."""
        row = tx.find(machines, lock=True, id=machine)
        if row is None or row["ended_ms"] is not None:
            return _leave(body), False
        row, changed = self._hear(tx, row, body)
        mine = {
            attempt_id(job_name(each["array"], each["idx"]), each["attempt"]): each
            for each in on_machine(tx, machine)
        }
        ended = []
        for report in body.finished:
            found = mine.pop(report.attempt, None)
            if found is not None:
                ended.append((found, report))
        sums = Sums()
        end_attempts(tx, row, ended, sums)
        begun = [
            mine[each.attempt]
            for each in body.attempts
            if each.state == "running"
            and each.attempt in mine
            and mine[each.attempt]["state"] == "scheduled"
        ]
        mark_running(tx, begun)
        for each in begun:
            each["state"] = "running"
        orders, refused = self._orders(tx.connection, row, list(mine.values()), body)
        end_attempts(tx, row, [(dict(each), _denied(each, why)) for each, why in refused], sums)
        sums.write(tx, machine)
        keep_chunks(tx, body.logs, machine)
        return orders, changed or bool(ended) or bool(refused)

    def _hear(self, tx: Tx, row: dict[str, Any], body: WorkerPoll) -> tuple[dict[str, Any], bool]:
        values: dict[str, Any] = {
            "heard": Plus(1), "instance": body.instance, "sequence": body.sequence
        }  # fmt: skip
        if body.capacity is not None:
            # It is the last word on what it has, as often as it says it: a disk that was full may
            # be empty again. It never has more than was paid for.
            told, rented = body.capacity, type_of(row["type"])
            for name in ("cpu_milli", "memory_bytes", "disk_bytes"):
                values[f"{name}_capacity"] = min(getattr(rented, name), getattr(told, name))
            values["containers"] = told.containers
            values["attempts_capacity"] = MOST_AT_ONCE
        found = tx.change(machines, {"id": row["id"]}, **values) or row
        state = found["state"]
        if state in ("allocating", "allocated"):
            moved = move_machine(
                tx, row["id"], state, "ready", idle_ms=tx.at_ms,
                rented_ms=found["rented_ms"] or tx.at_ms,
            )  # fmt: skip
            # Its join token has done its work: whoever reads it on the machine opens nothing.
            revoke_tokens(tx, row["id"], ("worker_join",))
            return moved or found, moved is not None
        if state == "ready" and body.notice:
            why = "its provider takes it back" if body.notice == "reclaim" else "it leaves"
            moved = move_machine(tx, row["id"], "ready", "draining", reason=why)
            return moved or found, moved is not None
        return found, False

    def _ordered(
        self, connection: Connection, machine: str, body: WorkerPoll
    ) -> tuple[WorkerOrders, list[Refused]]:
        found = connection.execute(select(machines).where(_M.id == machine)).mappings().first()
        if found is None or found["ended_ms"] is not None:
            return _leave(body), []
        rows = self._assigner.rows(connection, machine)
        return self._orders(connection, dict(found), rows, body)

    def _orders(
        self,
        connection: Connection,
        row: Mapping[str, Any],
        mine: list[dict[str, Any]],
        body: WorkerPoll,
    ) -> tuple[WorkerOrders, list[Refused]]:
        """Return what a machine should have, from its row and the jobs that it has, and those of
        them that it may not have."""
        here = {
            attempt_id(job_name(each["array"], each["idx"]), each["attempt"]): each for each in mine
        }
        known = {each.attempt for each in body.attempts}
        reported = {each.attempt for each in body.finished}
        cancel = [
            attempt
            for attempt in known
            if attempt not in here or here[attempt]["state"] == "cancelling"
        ]
        new = [each for name, each in here.items() if name not in known and name not in reported]
        # Cancelled before the worker has heard of it: it says so, or how it ended here before.
        cancel += [
            name
            for name, each in here.items()
            if name not in known and name not in reported and each["state"] == "cancelling"
        ]
        leave = row["state"] in ("returning", "returned", "failed")
        told, refused = self._assigner.assignments(connection, [] if leave else new)
        orders = WorkerOrders(
            assignments=told,
            cancel=sorted(cancel),
            acknowledged=sorted(reported),
            drain=row["state"] == "draining",
            leave=leave,
            poll_s=POLL_S,
        )
        return orders, refused

    # Logs

    async def logs(self, body: WorkerLogs, who: Principal) -> LogsTaken:
        """Keep pieces of logs; those that are kept already change nothing."""
        machine = str(who.host)
        found = await self._store.write(
            lambda tx: keep_chunks(tx, body.chunks, machine), f"machine/{machine}"
        )
        self._bell.ring(f"log/{each.attempt}" for each in found)
        return LogsTaken(logs=found)


def _denied(row: Mapping[str, Any], why: str) -> AttemptReport:
    """Return the end of an attempt that no worker is told: its submitter has to mend the job."""
    name = attempt_id(job_name(row["array"], row["idx"]), row["attempt"])
    return AttemptReport(attempt=name, outcome="failed", reason="image_denied", message=why)


def _leave(body: WorkerPoll) -> WorkerOrders:
    return WorkerOrders(
        leave=True,
        cancel=[each.attempt for each in body.attempts],
        acknowledged=[each.attempt for each in body.finished],
    )


def _says_something(answer: WorkerOrders) -> bool:
    return bool(
        answer.assignments or answer.cancel or answer.acknowledged or answer.leave or answer.drain
    )


def keep_chunks(tx: Tx, chunks: Iterable[LogChunk], machine: str) -> list[LogOffset]:
    """Append pieces of logs that continue what is kept; return how far each log is kept."""
    found: dict[tuple[str, str], LogOffset] = {}
    known: dict[tuple[str, str], bool] = {}
    for chunk in chunks:
        key = (chunk.attempt, chunk.stream)
        # What is kept of whom is decided by the attempt alone; only its own machine may add to it.
        if key not in known:
            known[key] = _is_of(tx, chunk.attempt, machine)
        if not known[key]:
            found[key] = LogOffset(chunk.attempt, chunk.stream, chunk.offset, enough=True)
            continue
        name = f"{machine}/{chunk.attempt}"
        end = tx.row(
            select(
                func.max(_L.start + _L.length).label("end"), func.sum(_L.dropped).label("lost")
            ).where(_L.attempt == name, _L.stream == chunk.stream)
        )
        kept = int((end or {}).get("end") or 0)
        if chunk.offset > kept:
            found[key] = LogOffset(chunk.attempt, chunk.stream, kept)
            continue
        data = chunk.data[kept - chunk.offset :]
        room = max(0, LOG_LIMIT - kept)
        lost = max(0, len(data) - room) + chunk.dropped
        data = data[:room]
        if data or (lost and not (end or {}).get("lost")):
            row = {
                "attempt": name, "stream": chunk.stream, "start": kept,
                "data": base64.b64encode(data).decode(), "length": len(data), "dropped": lost,
                "at_ms": tx.at_ms,
            }  # fmt: skip
            if data:
                tx.connection.execute(insert(job_logs), row)
            elif kept:
                tx.connection.execute(
                    update(job_logs)
                    .where(_L.attempt == name, _L.stream == chunk.stream, _L.start == 0)
                    .values(dropped=lost)
                )
        kept += len(data)
        found[key] = LogOffset(chunk.attempt, chunk.stream, kept, enough=kept >= LOG_LIMIT)
    return list(found.values())


def _is_of(tx: Tx, attempt: str, machine: str) -> bool:
    """Say whether an attempt is or was a machine's: only so many can fill the ledger with logs."""
    job, _, number = attempt.rpartition(":")
    array, _, index = job.rpartition(".")
    if not (_is_number(number) and _is_number(index)):
        return False
    row = tx.find(jobs, array=array, idx=int(index))
    if row is not None and row["attempt"] == int(number):
        return bool(row["ran_on"] == machine)
    before = tx.find(job_attempts, array=array, idx=int(index), attempt=int(number))
    return before is not None and before["machine"] == machine


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
