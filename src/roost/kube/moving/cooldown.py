"""How long a VM that was moved is left in peace, from the history of its migrations. Pure.

Each migration is a disturbance, and a balancer that sees the load it moves away come back would
move a VM for ever. So evictions of a VM that was moved are refused for a while, for twice as long
with every further migration of the last day. What a user asks for is done all the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from roost.base.backoff import BackOff

_MINUTE_S, _HOUR_S = 60.0, 3600.0


class CoolDown(Struct, frozen=True, kw_only=True):
    """How long, in seconds."""

    base_s: float = 15 * _MINUTE_S
    most_s: float = 6 * _HOUR_S
    window_s: float = 24 * _HOUR_S
    #: After a migration that failed: the VM was not disturbed, but trying costs, too.
    retry_s: float = 20.0
    most_retry_s: float = 5 * _MINUTE_S


class Past(NamedTuple):
    """One migration that has ended."""

    ended_s: float
    succeeded: bool


def cools_until(history: Sequence[Past], settings: CoolDown | None = None) -> float | None:
    """Return until when evictions are refused; None when there is nothing to cool down from."""
    settings = settings or CoolDown()
    untils = [_after_moves(history, settings), _after_failures(history, settings)]
    return max((until for until in untils if until is not None), default=None)


def _after_moves(history: Sequence[Past], settings: CoolDown) -> float | None:
    ended = [past.ended_s for past in history if past.succeeded]
    if not ended:
        return None
    last = max(ended)
    counted = sum(last - each < settings.window_s for each in ended)
    return last + BackOff(settings.base_s, settings.most_s).wait_s(counted - 1)


def _after_failures(history: Sequence[Past], settings: CoolDown) -> float | None:
    last_move = max((past.ended_s for past in history if past.succeeded), default=float("-inf"))
    failed = [past.ended_s for past in history if not past.succeeded and past.ended_s > last_move]
    if not failed:
        return None
    return max(failed) + BackOff(settings.retry_s, settings.most_retry_s).wait_s(len(failed) - 1)
