"""Whether a plan may begin moves at a moment: its windows are kept by who carries it out."""

from roost.base.timestamps import timestamp
from roost.control.plans.record import asked_of, predicted_of
from roost.ledger.schema.rows import PlanMoveRow, PlanRow


def why_closed(row: PlanRow, now_ms: int) -> str:
    """Return why a plan begins nothing now; empty when it may."""
    windows = asked_of(row).windows
    if row.starts_ms is not None and row.starts_ms > now_ms:
        return f"it begins at {timestamp(row.starts_ms)}"
    if not windows or any(each.start_ms <= now_ms < each.end_ms for each in windows):
        return ""
    later = [each.start_ms for each in windows if each.start_ms > now_ms]
    return f"its next window begins at {timestamp(min(later))}" if later else ""


def ends_in_window(row: PlanRow, move: PlanMoveRow, now_ms: int) -> bool:
    """Say whether a move that begins now is predicted to end before its window does."""
    for each in asked_of(row).windows:
        if each.start_ms <= now_ms < each.end_ms and not each.begin_until:
            return now_ms + 1000 * predicted_of(move).total_s <= each.end_ms
    return True
