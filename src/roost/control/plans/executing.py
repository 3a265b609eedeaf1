"""Carry plans out, in one process for all: wave by wave, through the moves that are there.

    waiting --start--> running --all waves--> done
                         |  a move fails or the fleet has drifted: the rest is planned anew
                         '--too often, or its window is over--> failed

One plan runs at a time, so its limits are those of the fleet. A move is written as begun in the
transaction that claims its target, and how it ended is read from the VM's row: a process that dies
anywhere leaves nothing that the next one cannot see. Moves of a plan that was cancelled are taken
back as long as their VMs have not left.
"""

import logging
from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, select

from roost.base.clock import Clock
from roost.base.errors import Conflict, NotFound, Unavailable
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.moves.moving import Moving, take_back
from roost.control.plans import writing
from roost.control.plans.continuouslimits import AUTHOR, ContinuousLimits
from roost.control.plans.daymoves import day_moves
from roost.control.plans.forgetting import FORGET_EVERY_S, KEPT_S, PlanRetention
from roost.control.plans.keepingroom import KeepingRoom, hold_of
from roost.control.plans.opening import ends_in_window, why_closed
from roost.control.plans.ordering import order_of, unsendable
from roost.control.plans.planning import Planning
from roost.control.plans.reading import taken_vms
from roost.control.plans.record import (
    CANCELLED,
    DONE,
    DROPPED,
    FAILED,
    OVER,
    PAUSED,
    PLANNED,
    RUNNING,
    WAITING,
    Asked,
    asked_of,
    found_in,
    found_of,
)
from roost.control.plans.settling import BY_OTHERS, Outcome, disturbed, drifted, settle
from roost.control.plans.watching import MovesWatched
from roost.control.vms.lookup import relock
from roost.ledger.claims.capacity import CLEANUP, claim_id
from roost.ledger.schema.changes import PLANS, VMS, Changes
from roost.ledger.schema.rows import Event, PlanMoveRow, PlanRow, VMRow
from roost.ledger.schema.tables import plan_moves, plans, vms
from roost.ledger.store import Store
from roost.ledger.writes.statements import find_row, find_rows
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import Rejection
from roost.parts.part import Part
from roost.parts.singleton import Singleton

log = logging.getLogger("roost.plans")

#: How often the rest of one plan is planned anew before it is given up.
MOST_REPLANS = 5
#: Failures of one VM in a plan after which it is left where it is.
_MOST_FAILURES = 2
#: How long the end of a plan waits for hosts that clean up what they have sent.
_CLEANED_MS = 60_000

_OPEN = (
    select(plans)
    .where(plans.c.state.in_((WAITING, RUNNING)))
    .order_by(plans.c.begun_ms.is_(None), plans.c.begun_ms, plans.c.created_ms, plans.c.id)
)
#: Plans that begin nothing any more and have moves under way.
_TRAILING = (
    select(plans)
    .where(plans.c.state.in_((PAUSED, *OVER)))
    .where(plans.c.id.in_(select(plan_moves.c.plan).where(plan_moves.c.state == RUNNING)))
)


class PlanRunner(Part):
    """Carries out plans that were applied."""

    singleton: Singleton
    follows = (VMS,)
    wakes = (PLANS, VMS)

    def __init__(
        self,
        store: Store,
        roster: Roster,
        moving: Moving,
        planning: Planning,
        lineage: Lineage,
        singleton: Singleton,
        clock: Clock,
        patience_s: float = 900.0,
        keep_s: int = KEPT_S,
        limits: ContinuousLimits | None = None,
    ) -> None:
        self._limits = limits or ContinuousLimits()  # of the plans that nobody asked for
        self._store, self._roster, self._moving = store, roster, moving
        self._planning, self._lineage, self._clock = planning, lineage, clock
        self.singleton = singleton
        self._patience_s, self._retention = patience_s, PlanRetention(store, singleton, keep_s)
        self._room, self._watched = KeepingRoom(store, roster), MovesWatched()
        self._waits: dict[tuple[str, int], float] = {}  # moves that cannot begin, since when
        self._lost: dict[tuple[str, int], float] = {}  # those under way with a host that is lost
        self._forget_at = clock.monotonic()
        self._any_open = True  # at the last look

    def follow(self, event: Event, changes: Changes) -> None:
        """Note how far the moves of plans are, and how long VMs stood still."""
        self._watched.follow(event, changes)

    async def may_look(self) -> bool:
        """Allow looking only once the ledger is known not to be a restored old copy."""
        return await self._lineage.is_sure()

    def gained(self) -> None:
        """Count times anew: another process may have looked meanwhile."""
        self._waits.clear()
        self._lost.clear()
        self._any_open = True

    def is_due(self) -> bool:
        """Say whether a plan waits or runs, or old ones are to be forgotten."""
        return self._any_open or self._clock.monotonic() >= self._forget_at

    async def look(self) -> None:
        """Take the running plan a step further; let the next one begin when none runs."""
        if self._clock.monotonic() >= self._forget_at:
            more = await self._retention.forget_old(self._clock.wall_ms())
            self._forget_at = self._clock.monotonic() + (0.0 if more else FORGET_EVERY_S)
        opened = await self._store.read(lambda c: _plans(c, _OPEN))
        trailing = await self._store.read(lambda c: _plans(c, _TRAILING))
        self._any_open = True  # until this look has come to its end
        for row in (*trailing, *await self._told_late()):
            await self._settle(row)
            if row.state == CANCELLED:
                await self._take_back(row)
        held = await self._room.converge(self.singleton.check)
        running = next((row for row in opened if row.state == RUNNING), None)
        # What a plan waits for while it is paused, or behind another, is no sign of failure.
        now = running.id if running is not None else None
        self._waits = {key: since for key, since in self._waits.items() if key[0] == now}
        if running is None:
            running = await self._begin_next(opened)
        if running is not None:
            await self._tend(running)
        self._any_open = bool(opened or trailing or held)

    async def _told_late(self) -> list[PlanRow]:
        """Return the plans of moves of which more was told after they were done."""
        keys = self._watched.plans_told_late()
        if not keys:
            return []
        return await self._store.read(
            lambda c: _plans(c, select(plans).where(plans.c.id.in_(keys)))
        )

    async def _begin_next(self, opened: Sequence[PlanRow]) -> PlanRow | None:
        """Let the first plan begin whose start has come."""
        now = self._clock.wall_ms()
        for row in opened:
            if why_closed(row, now):
                continue
            found = await self._store.write(lambda tx: self._start(tx, row))  # noqa: B023
            if found is not None:
                log.info("plan %s (%s) begins", found.id, found.goal)
                return found
        return None

    def _start(self, tx: Tx, row: PlanRow) -> PlanRow | None:
        self.singleton.check(tx)
        if writing.locked_plan(tx, row.id).state != WAITING:
            return None
        begun = row.begun_ms or tx.at_ms
        return writing.change(tx, row.id, "plan.begun", state=RUNNING, begun_ms=begun, why="")

    # One plan

    async def _tend(self, row: PlanRow) -> None:
        moves = await self._settle(row)
        waiting = [each for each in moves if each.state == PLANNED]
        running = [each for each in moves if each.state == RUNNING]
        # A VM whose target is lost in the middle is nobody's until that comes back or is fenced:
        # the others need not wait for it.
        under_way = [each for each in running if self._takes(each.target)]
        if row.ends_ms is not None and self._clock.wall_ms() >= row.ends_ms and waiting:
            made = sum(each.state == DONE for each in moves)
            await self._end(row, FAILED, f"its window is over: {made} moves were made")
            return
        # What failed since the last draft; those of earlier drafts were planned around already.
        if not under_way and self._failed_since(row, moves):
            await self._plan_anew(row, moves, "a move failed")
            return
        if not waiting:
            if not running and not self._still_cleaned(moves):
                await self._end(row, DONE, _stayed(row, moves))
            return
        if why := why_closed(row, self._clock.wall_ms()):
            if not under_way:
                await self._wait(row, why)
            return
        wave = min(each.wave for each in waiting)
        if any(each.wave < wave for each in under_way):
            return  # a wave begins when the last is over
        now = self._clock.wall_ms()
        ready = [each for each in waiting if each.wave == wave and ends_in_window(row, each, now)]
        if row.wave != wave and not await self._enter(row, wave, waiting):
            return
        for each in ready:
            if not await self._begin(row, each):
                return

    async def _wait(self, row: PlanRow, why: str) -> None:
        """Let other plans have their turn until the next window of this one opens."""

        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            if writing.locked_plan(tx, row.id).state == RUNNING:
                writing.change(tx, row.id, "plan.waits", state=WAITING, why=why, note=why)

        await self._store.write(change)

    def _takes(self, host: int) -> bool:
        entry = self._roster.hosts.get(host)
        return entry is not None and entry.row.health != "offline"

    def _still_cleaned(self, moves: Sequence[PlanMoveRow]) -> bool:
        """Say whether a host has yet to destroy what it sent: its room is not free until then."""
        numbers, now = self._roster.fleet.vms.numbers, self._clock.wall_ms()
        return any(
            claim_id(each.vm, CLEANUP) in numbers and now - (each.ended_ms or 0) < _CLEANED_MS
            for each in moves
            if each.state == DONE
        )

    def _failed_since(self, row: PlanRow, moves: Sequence[PlanMoveRow]) -> bool:
        return any(each.state == FAILED and each.draft == row.replans for each in moves)

    async def _enter(self, row: PlanRow, wave: int, waiting: Sequence[PlanMoveRow]) -> bool:
        """Look at what is left before a wave begins; False when it was planned anew instead."""
        found = await self._store.read(lambda c: _vms(c, waiting))
        later = _later_legs(waiting)
        outcomes = {
            each.number: (None if each.number in later else drifted(each, found.get(each.vm)))
            or (None if self._takes(each.target) else Outcome(FAILED, "its target is offline"))
            for each in waiting
        }
        moot = [
            _ended(each, outcome, self._clock.wall_ms())
            for each in waiting
            if (outcome := outcomes[each.number]) is not None
        ]
        strange = [each for each in moot if each.state == FAILED or "another host" in each.why]

        def change(tx: Tx) -> bool:
            self.singleton.check(tx)
            if writing.locked_plan(tx, row.id).state != RUNNING:
                return False
            writing.change(tx, row.id, "plan.wave", moot, wave=wave, note=f"wave {wave}")
            return True

        if not await self._store.write(change):
            return False
        if strange:
            moves = await self._store.read(lambda c: _moves(c, row.id))
            await self._plan_anew(row, moves, f"VM {strange[0].name!r} {strange[0].why}")
            return False
        return not moot  # the next look sees what is left

    async def _begin(self, row: PlanRow, move: PlanMoveRow) -> bool:
        """Begin one move; False when the plan cannot go on in this look."""
        target = self._roster.host_name(move.target)
        vm = await self._store.read(lambda c: find_row(c, vms, {"id": move.vm}))
        if vm is None or target is None:
            await self._fail(row, move, "its target is gone" if vm else "the VM is gone")
            return False
        # A wave may have begun long ago: it waited for this VM, or was paused.
        seen = VMRow(**vm)
        outcome = drifted(move, seen) or disturbed(seen, self._clock.wall_ms()) or unsendable(move)
        if outcome is not None:
            return await self._leave(row, move, outcome)
        order = order_of(row, move)

        def also(tx: Tx) -> None:
            self.singleton.check(tx)
            now = writing.locked_plan(tx, row.id)
            if now.state != RUNNING:
                raise Conflict(f"plan {row.id!r} is {now.state}", plan=row.id)
            begun = msgspec.structs.replace(move, state=RUNNING, begun_ms=tx.at_ms)
            note = f"move {move.number}: {move.name} to {target}"
            writing.change(tx, row.id, "plan.move_begun", [begun], note=note)

        try:
            held = await self._store.read(lambda c: hold_of(c, move))
            found = await self._moving.begin(seen, row.id, order, only=target, also=also, held=held)
        except (Conflict, Unavailable, NotFound) as error:
            since = self._waits.setdefault((row.id, move.number), self._clock.monotonic())
            if self._clock.monotonic() - since > self._patience_s:
                await self._fail(row, move, f"it waited too long: {error.message}")
                return False
            log.info("VM %s waits to move: %s", move.name, error.message)
            return True
        self._waits.pop((row.id, move.number), None)
        if isinstance(found, Rejection) or found is None:
            why = "its target takes it no more" if found is None else found.message
            await self._fail(row, move, why)
            return False
        self._watched.add(move.vm)
        return True

    async def _leave(self, row: PlanRow, move: PlanMoveRow, outcome: Outcome) -> bool:
        """Give up a move that was not begun; False when the rest has to be planned anew."""
        await self._fail(row, move, outcome.why, outcome.state)
        if "another host" in outcome.why:
            moves = await self._store.read(lambda c: _moves(c, row.id))
            await self._plan_anew(row, moves, f"VM {move.name!r} {outcome.why}")
            return False
        return outcome.state != FAILED

    # How moves end

    async def _settle(self, row: PlanRow) -> list[PlanMoveRow]:
        """Write down how moves ended; return all moves as they are then."""
        moves = await self._store.read(lambda c: _moves(c, row.id))
        under_way = [each for each in moves if each.state == RUNNING]
        for each in under_way:
            self._watched.add(each.vm)
        found = await self._store.read(lambda c: _vms(c, under_way))
        ended = []
        for each in under_way:
            outcome = settle(each, found.get(each.vm), self._watched.note_of(each.vm))
            outcome = outcome or self._lost_for_long(each)
            if outcome is not None:
                now = self._clock.wall_ms()
                ended.append(self._watched.settled(_ended(each, outcome, now)))
        late = [each for each in map(self._watched.stood_late, moves) if each is not None]
        if not ended and not late:
            return moves

        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            writing.locked_plan(tx, row.id)
            note = ", ".join(f"{each.name} {each.state}" for each in ended[:5])
            writing.change(tx, row.id, "plan.moves_ended", [*ended, *late], note=note)

        await self._store.write(change)
        for each in ended:
            log.info("plan %s: move of VM %s is %s %s", row.id, each.name, each.state, each.why)
        return await self._store.read(lambda c: _moves(c, row.id))

    def _lost_for_long(self, move: PlanMoveRow) -> Outcome | None:
        """Give a move up whose source or target is lost: it may be so for ever, and a plan ends.

        The VM is still in the middle of its move; it is settled when the host comes back or is
        fenced, whatever this plan is by then.
        """
        key = (move.plan, move.number)
        lost = next((host for host in (move.target, move.source) if not self._takes(host)), None)
        if lost is None:
            self._lost.pop(key, None)
            return None
        now = self._clock.monotonic()
        if now - self._lost.setdefault(key, now) <= self._patience_s:
            return None
        del self._lost[key]
        name = self._roster.host_name(lost) or f"number {lost}"
        return Outcome(FAILED, f"host {name!r} was lost in the middle of the move, and is not back")

    async def _fail(self, row: PlanRow, move: PlanMoveRow, why: str, state: str = FAILED) -> None:
        ended = _ended(move, Outcome(state, why), self._clock.wall_ms())
        log.info("plan %s: VM %s does not move: %s", row.id, move.name, why)
        kind = "plan.move_failed" if state == FAILED else "plan.moves_ended"

        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            if writing.locked_plan(tx, row.id).state == RUNNING:  # else it was dropped meanwhile
                note = f"move {move.number}: {why}"
                writing.change(tx, row.id, kind, [ended], note=note)

        await self._store.write(change)

    async def _plan_anew(self, row: PlanRow, moves: Sequence[PlanMoveRow], why: str) -> None:
        """Draft the rest of a plan on the fleet as it is now."""
        if row.replans >= MOST_REPLANS:
            made = sum(each.state == DONE for each in moves)
            told = (
                f"it was planned anew {MOST_REPLANS} times and still {why}; {made} moves were made"
            )
            await self._end(row, FAILED, told)
            return
        failures: dict[str, int] = {}
        for each in moves:
            failures[each.vm] = failures.get(each.vm, 0) + (each.state == FAILED)
        tired = {vm for vm, times in failures.items() if times >= _MOST_FAILURES}
        asked, held = await self._what_is_left(row, moves)
        taken = await self._store.read(lambda c: taken_vms(c, row.id))
        draft = await self._planning.draft(
            asked, taken=taken, held=held, failed=tired, refusable=False, own=row.id
        )
        last = max((each.number for each in moves), default=0)
        wave = max((each.wave for each in moves if each.state != PLANNED), default=0)
        found = found_in(draft, self._planning.host_names())
        found.before, found.waves = found_of(row).before, wave + draft.waves

        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            now = writing.locked_plan(tx, row.id)
            if now.state != RUNNING:
                return
            dropped = writing.dropped_moves(tx, row.id, why)
            fresh = self._planning.rows(row.id, draft, last + 1, wave, now.replans + 1)
            writing.change(
                tx, row.id, "plan.replanned", dropped, fresh=fresh,
                replans=now.replans + 1, found=row_json(found),
                note=f"{why}: {len(fresh)} moves instead of {len(dropped)}",
            )  # fmt: skip

        await self._store.write(change)
        log.info("plan %s is planned anew: %s", row.id, why)

    async def _what_is_left(
        self, row: PlanRow, moves: Sequence[PlanMoveRow]
    ) -> tuple[Asked, dict[str, str]]:
        """Return what may still be asked for a plan, and the VMs that it may not move any more."""
        asked = asked_of(row)
        made = sum(each.state in (DONE, RUNNING) for each in moves)
        most, held = max(0, asked.most - made), dict[str, str]()
        if row.created_by == AUTHOR:
            now_ms = self._clock.wall_ms()
            moved = await self._store.read(lambda c: day_moves(c, now_ms))
            most, held = min(most, moved.left(self._limits)), moved.held(self._limits)
        if asked.goal == "move" and asked.to is None:
            # Wherever such a VM is by now, a draft would look for another host for it again.
            gone = {each.vm for each in moves if _has_moved(each)}
            asked.vms = [vm for vm in asked.vms if vm not in gone]
        return msgspec.structs.replace(asked, most=most), held

    async def _end(self, row: PlanRow, state: str, why: str) -> None:
        found = found_of(row)
        found.actual = await self._planning.numbers()

        def change(tx: Tx) -> None:
            self.singleton.check(tx)
            now = writing.locked_plan(tx, row.id)
            if now.state != RUNNING:
                return
            writing.change(tx, row.id, "plan.measured", found=row_json(found))
            writing.end(tx, now, state, why)

        await self._store.write(change)
        log.info("plan %s is %s %s", row.id, state, why)

    async def _take_back(self, row: PlanRow) -> None:
        """Take back the moves of a cancelled plan whose VMs have not left their hosts."""
        for each in await self._store.read(lambda c: _moves(c, row.id)):
            if each.state != RUNNING:
                continue
            try:
                await self._store.write(lambda tx: self._undo(tx, row, each))  # noqa: B023
            except (Conflict, NotFound, Unavailable) as error:
                log.info("the move of VM %s goes on: %s", each.name, error.message)

    def _undo(self, tx: Tx, row: PlanRow, move: PlanMoveRow) -> None:
        self.singleton.check(tx)
        vm = relock(tx, move.vm)
        if vm.phase in ("preparing", "moving") and vm.target == move.target:
            take_back(tx, vm, row.why)


def _later_legs(waiting: Sequence[PlanMoveRow]) -> set[int]:
    """Return moves of VMs that have an earlier one to make: where they begin is not so yet."""
    seen, later = set[str](), set[int]()
    for each in sorted(waiting, key=lambda each: each.number):
        if each.vm in seen:
            later.add(each.number)
        seen.add(each.vm)
    return later


def _has_moved(move: PlanMoveRow) -> bool:
    """Say whether a move was made or is under way, by the plan or by others."""
    return move.state in (DONE, RUNNING) or (move.state == DROPPED and move.why in BY_OTHERS)


def _stayed(row: PlanRow, moves: Sequence[PlanMoveRow]) -> str:
    """Say what a plan that is done has left where it was."""
    stuck = [each.vm for each in found_of(row).blocked]
    if row.goal == "move":
        # A move that was under way when the rest was planned anew may have failed since.
        last = {each.vm: each for each in sorted(moves, key=lambda each: each.number)}
        failed = (vm for vm, each in last.items() if each.state == FAILED)
        stuck += [vm for vm in failed if vm not in stuck]
    return f"{len(stuck)} VMs could not move" if stuck else ""


def _ended(move: PlanMoveRow, outcome: Outcome, now_ms: int) -> PlanMoveRow:
    why = outcome.why or move.why
    return msgspec.structs.replace(move, state=outcome.state, why=why, ended_ms=now_ms)


def _plans(connection: Connection, query: object) -> list[PlanRow]:
    return [PlanRow(**row) for row in connection.execute(query).mappings()]  # type: ignore[call-overload]


def _moves(connection: Connection, plan: str) -> list[PlanMoveRow]:
    return [PlanMoveRow(**row) for row in find_rows(connection, plan_moves, {"plan": plan})]


def _vms(connection: Connection, moves: Sequence[PlanMoveRow]) -> dict[str, VMRow]:
    found = (find_row(connection, vms, {"id": each.vm}) for each in moves)
    return {row["id"]: VMRow(**row) for row in found if row is not None}
