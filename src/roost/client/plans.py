"""Plans in both clients: their calls and methods."""

from roost.client.binding import Method
from roost.client.calls import Call, path, query, reads
from roost.wire import plans as wire

_read_one = reads(wire.PlanDetail)


def list_plans(
    *, state: str | None = None, limit: int | None = None, after: str | None = None
) -> Call[wire.PlanPage]:
    """Return one page of plans, the newest first."""
    asked = query(state=state, limit=limit, after=after)
    return Call("GET", path("plans"), reads(wire.PlanPage), asked)


def get_plan(
    plan: str,
    *,
    move_state: str | None = None,
    limit: int | None = None,
    after: int | None = None,
) -> Call[wire.PlanDetail]:
    """Return a plan with one page of its moves, all or those of a state."""
    asked = query(move_state=move_state, limit=limit, after=after)
    return Call("GET", path("plans", plan), _read_one, asked)


def create_plan(plan: wire.CreatePlan, *, key: str | None = None) -> Call[wire.PlanDetail]:
    """Plan moves towards a goal; a dry run keeps nothing."""
    return Call("POST", path("plans"), _read_one, body=plan, creates=True, key=key)


def apply_plan(plan: str) -> Call[wire.PlanDetail]:
    """Let a plan begin, now or at its start."""
    return Call("POST", path("plans", plan, "apply"), _read_one)


def pause_plan(plan: str) -> Call[wire.PlanDetail]:
    """Begin no more moves of a plan; those under way end."""
    return Call("POST", path("plans", plan, "pause"), _read_one)


def resume_plan(plan: str) -> Call[wire.PlanDetail]:
    """Go on with a plan that was paused."""
    return Call("POST", path("plans", plan, "resume"), _read_one)


def cancel_plan(plan: str) -> Call[wire.PlanDetail]:
    """End a plan; moves that have not left their hosts are taken back."""
    return Call("POST", path("plans", plan, "cancel"), _read_one)


def recommend_fleet() -> Call[wire.FleetRecommendations]:
    """Say what is wrong with the fleet now, and what one plan would do about each of it."""
    return Call("GET", path("recommendations"), reads(wire.FleetRecommendations))


def plan_maintenance(asked: wire.PlanMaintenance) -> Call[wire.MaintenanceBody]:
    """Put hosts into groups that may be away together; nothing is kept."""
    return Call("POST", path("maintenance"), reads(wire.MaintenanceBody), body=asked)


def get_continuous() -> Call[wire.ContinuousBody]:
    """Return what continuous mode may do, and what its last look said."""
    return Call("GET", path("continuous"), reads(wire.ContinuousBody))


class PlanMethods:
    """What clients do with plans."""

    list_plans = Method(list_plans)
    get_plan = Method(get_plan)
    create_plan = Method(create_plan)
    apply_plan = Method(apply_plan)
    pause_plan = Method(pause_plan)
    resume_plan = Method(resume_plan)
    cancel_plan = Method(cancel_plan)
    recommend_fleet = Method(recommend_fleet)
    plan_maintenance = Method(plan_maintenance)
    get_continuous = Method(get_continuous)
