"""The laws of plans: what their rows may say, commit by commit, and that every one of them ends.

| law | checked |
|---|---|
| one plan runs at a time, and one that is over stays over | at every commit |
| a move begins with its VM: in the commit that claims its target | at every commit |
| a move begins only in a plan that runs, and wave after wave | at every commit |
| no more moves are under way, in all and on a host, than was asked | at every commit |
| a plan that is over has no move that waits | at every commit |
| continuous mode neither chases VMs nor argues with plans (`unasked`) | at every commit |
| every plan that was applied ends, once faults have ended | at the end |
| room is held for moves that wait, and for no others | at the end |

That no host is over, no VM is twice and no budget is passed is said by other laws, of every move.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, select

from roost.ledger.schema.tables import plan_moves, plans
from roost.sim.laws.unasked import Unasked

_OVER = ("done", "failed", "cancelled")


class Plan(Struct, gc=False):
    """What the laws need of a plan's row."""

    state: str
    asked: str
    starts_ms: int | None = None
    created_by: str = ""


class PlanMove(Struct, gc=False):
    """What the laws need of a move's row."""

    plan: str
    number: int
    wave: int
    vm: str
    source: int
    target: int
    state: str
    begun_ms: int | None = None
    ended_ms: int | None = None


class _Limits(Struct):
    per_host: int = 2
    at_once: int = 8


_limits = msgspec.json.Decoder(_Limits).decode
#: Where a VM is in a move, and to which host.
Moving = Mapping[str, tuple[str, int | None]]


class PlannedMoves:
    """Follows plans and their moves."""

    def __init__(self) -> None:
        self._plans: dict[str, Plan] = {}
        self._moves: dict[str, dict[int, PlanMove]] = defaultdict(dict)
        self._begun: list[PlanMove] = []  # in this commit
        self._stuck: set[tuple[str, int]] = set()  # under way when their target was lost
        self._touched: dict[str, None] = {}
        self._unasked = Unasked()

    @classmethod
    def read(cls, connection: Connection) -> "PlannedMoves":
        """Begin with what a ledger says."""
        found = cls()
        for row in connection.execute(select(plans)).mappings():
            fields = {name: row[name] for name in Plan.__struct_fields__}
            found._plans[row["id"]] = Plan(**fields)
        for row in connection.execute(select(plan_moves)).mappings():
            fields = {name: row[name] for name in PlanMove.__struct_fields__}
            found._moves[row["plan"]][row["number"]] = PlanMove(**fields)
        return found

    def apply(
        self, changed: Mapping[str, Plan | None], moves: Mapping[str, PlanMove | None]
    ) -> str:
        """Take over what one event says; return what is wrong with it, or nothing."""
        wrong = ""
        for key, plan in changed.items():
            before = self._plans.get(key)
            self._touched[key] = None
            if plan is None:
                self._plans.pop(key, None)
                self._moves.pop(key, None)
                continue
            if before is not None and before.state in _OVER and plan.state != before.state:
                wrong = f"{key} was {before.state} and is {plan.state}"
            if before is None:
                others = [each.state for each in self._plans.values()]
                if told := self._unasked.made(plan.created_by, plan.state, others):
                    wrong = f"{key} {told}"
            self._plans[key] = plan
        for key, move in moves.items():
            if move is None:
                plan_id, _, number = key.rpartition("|")
                self._moves.get(plan_id, {}).pop(int(number), None)
                continue
            old = self._moves[move.plan].get(move.number)
            if move.state == "running" and (old is None or old.state != "running"):
                self._begun.append(move)
            if move.state == "done" and move.ended_ms is not None:
                self._unasked.ended(move.vm, move.plan, move.ended_ms)
            self._moves[move.plan][move.number] = move
        return wrong

    def host_lost(self, host: int) -> None:
        """Count no longer the moves to a host that is lost: such a VM is nobody's until it is back
        or fenced, and others go on. A move whose source is lost is waited for, and counts.
        """
        for moves in self._moves.values():
            for move in moves.values():
                if move.state == "running" and host == move.target:
                    self._stuck.add((move.plan, move.number))

    def check(self, moving: Moving) -> str:
        """Return which law a commit breaks, or nothing."""
        touched, begun = self._touched, self._begun
        self._touched, self._begun = {}, []
        if not touched:
            return ""
        runs = [key for key, plan in self._plans.items() if plan.state == "running"]
        if len(runs) > 1:
            return f"plans {' and '.join(runs)} run at once"
        for move in begun:
            if wrong := self._wrong_begin(move, moving):
                return f"move {move.number} of {move.plan} has begun {wrong}"
        for key in touched:
            plan = self._plans.get(key)
            waits = any(move.state == "planned" for move in self._moves[key].values())
            if plan is not None and plan.state in _OVER and waits:
                return f"{key} is {plan.state} and has moves that wait"
        return ""

    def _wrong_begin(self, move: PlanMove, moving: Moving) -> str:
        plan = self._plans.get(move.plan)
        if plan is None or plan.state != "running":
            return f"though its plan is {plan.state if plan else 'gone'}"
        if moving.get(move.vm, ("", None)) != ("preparing", move.target):
            return f"and {move.vm} is {moving.get(move.vm)}"
        under_way = [
            each
            for each in self._moves[move.plan].values()
            if each.state == "running" and (each.plan, each.number) not in self._stuck
        ]
        if any(
            each.state == "planned" and each.wave < move.wave
            for each in self._moves[move.plan].values()
        ):
            return f"in wave {move.wave} before an earlier one was over"
        limits = _limits(plan.asked)
        busy = Counter(host for each in under_way for host in (each.source, each.target))
        most = max(busy[move.source], busy[move.target])
        if len(under_way) > limits.at_once or most > limits.per_host:
            return f"beside {len(under_way) - 1} others, {most - 1} of them on its hosts"
        return self._unasked.begun(plan.created_by, move.vm, move.plan, move.begun_ms or 0)

    def held_for_nobody(self, held: Iterable[str]) -> str:
        """Return a hold, by its id, of a plan that has no such move waiting; empty when none."""
        for hold in held:
            plan, _, number = hold.partition("/")[2].partition("/")
            move = self._moves.get(plan, {}).get(int(number))
            if move is None or move.state != "planned":
                return f"room is held for move {int(number)} of {plan}, which does not wait"
        return ""

    def unended(self, now_ms: int) -> str:
        """Return a plan that was applied and is not over; empty when there is none."""
        for key, plan in self._plans.items():
            waits = plan.state == "waiting" and (plan.starts_ms or 0) > now_ms
            if plan.state in ("waiting", "running") and not waits:
                told = Counter(move.state for move in self._moves[key].values())
                return f"{key} is {plan.state} for ever: {dict(told)}"
            if any(move.state == "running" for move in self._moves[key].values()):
                return f"{key} is {plan.state} and moves for ever"
        return ""
