"""Say what is wrong with the fleet now, and what one plan would do about each of it.

Goals are drafted one after the other on copies of the fleet; nothing is kept. What is urgent comes
first: broken rules, hosts that run short, hosts that may not be lost, then uneven loads, VMs far
from those they talk with, and hosts that need not run. Whoever asks within some seconds gets the
same answer: every viewer may ask, and each one costs six drafts.
"""

from roost.base.clock import Clock
from roost.control.memory.oneatatime import OneAtATime
from roost.control.plans.planning import Planning
from roost.control.plans.reading import taken_vms
from roost.control.plans.record import Asked, blocker_body, found_in, picture_body
from roost.ledger.store import Store
from roost.planner.drafting import Draft
from roost.wire.plans import FleetRecommendation, FleetRecommendations

#: The goals that are tried, in the order in which they matter.
GOALS = ("repair", "headroom", "spare", "balance", "talkers", "consolidate")
#: Hosts of a fleet whose losses are rehearsed for an answer; of a larger one that is a plan's work.
MOST_SPARED = 200
#: Blockers that one recommendation names.
_MOST_BLOCKERS = 20


#: For how long an answer is good enough for others who ask.
FRESH_S = 10.0


class Recommending:
    """Answers everybody who asks, with one answer at a time."""

    def __init__(self, store: Store, planning: Planning, clock: Clock) -> None:
        self._store, self._planning, self._clock = store, planning, clock
        self._turns = OneAtATime("recommendations")
        self._answer: FleetRecommendations | None = None
        self._at = 0.0

    async def fleet(self) -> FleetRecommendations:
        """Return what plans would do about the fleet as it is now; idle ones are left out."""
        async with self._turns.turn():
            if self._answer is None or self._clock.monotonic() - self._at > FRESH_S:
                self._answer, self._at = await self._ask(), self._clock.monotonic()
            return self._answer

    async def _ask(self) -> FleetRecommendations:
        taken = await self._store.read(taken_vms)
        found = []
        for goal in GOALS:
            if goal == "spare" and len(self._planning.host_names()) > MOST_SPARED:
                continue
            draft = await self._planning.draft(Asked(goal), taken=taken)
            if draft.moves or draft.blockers:
                found.append(_recommendation(self._planning, draft))
        return FleetRecommendations(recommendations=found)


def _recommendation(planning: Planning, draft: Draft) -> FleetRecommendation:
    kept = found_in(draft, planning.host_names())
    return FleetRecommendation(
        goal=draft.goal,
        what=_wrong(draft),
        moves=len(draft.moves),
        waves=draft.waves,
        eta_s=kept.eta_s,
        sent_bytes=draft.sent_bytes,
        before=picture_body(kept.before),
        after=picture_body(kept.after),
        blocked=[blocker_body(each) for each in kept.blocked[:_MOST_BLOCKERS]],
        command=f"roost plan create --goal {draft.goal}",
    )


def _wrong(draft: Draft) -> str:
    """Say what is wrong in one line, with its numbers."""
    before, after = draft.before, draft.after
    match draft.goal:
        case "repair":
            count = len(draft.moves) + len(draft.blockers)
            vms = "1 VM is where a rule does not want it"
            if count != 1:
                vms = f"{count} VMs are where a rule does not want them"
            return f"{vms}; {len(draft.moves)} can move"
        case "headroom":
            return (
                f"the fullest host is at {100 * before.fullest:.0f}%, "
                f"and would be at {100 * after.fullest:.0f}%"
            )
        case "spare":
            count = len(draft.blockers)
            told = f"not every host could be lost and all be restarted; {len(draft.moves)} moves "
            return told + ("would do" if not count else f"help, and {count} VMs have no other host")
        case "talkers":
            return f"{len(draft.moves)} VMs are farther than they need be from those they talk with"
        case "balance":
            return f"loads are spread by {before.spread:.3f}, and would be by {after.spread:.3f}"
    return f"{before.in_use} hosts are in use, and {after.in_use} would do"
