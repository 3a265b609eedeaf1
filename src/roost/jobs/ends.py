"""What follows from the end of an attempt: the job has ended, or is tried again. Pure.

    outcome            while cancelling   else, with tries left   else
    completed          completed          completed               completed
    failed, its own    cancelled          queued (a retry)        failed
    failed, ours       cancelled          queued (a restart)      lost
    cancelled          cancelled          queued (a restart)      lost

Its own failures and ours are counted apart, and each has a back-off of its own.
"""

from dataclasses import dataclass

from roost.base.backoff import BackOff
from roost.model.job import INTERNAL, EndReason, JobState

RETRY = BackOff(1.0, 300.0)
RESTART = BackOff(1.0, 60.0)


@dataclass(frozen=True, slots=True)
class Tried:
    """How often a job may be tried and how often it was."""

    state: JobState
    retries: int
    restarts: int
    most_retries: int
    most_restarts: int


@dataclass(frozen=True, slots=True)
class After:
    """The state of a job after an attempt; `wait_s` before it is looked at again if queued."""

    state: JobState
    retries: int = 0  # more than before
    restarts: int = 0
    wait_s: float = 0.0


def after_attempt(tried: Tried, outcome: str, reason: EndReason) -> After:
    """Return what becomes of a job whose attempt has ended so."""
    if outcome == "completed":
        return After("completed")
    if tried.state == "cancelling":
        # A job that was told to end because it ran too long has failed by its own doing.
        return After("failed" if reason == "run_limit" else "cancelled")
    if outcome == "failed" and reason not in INTERNAL:
        if tried.retries < tried.most_retries:
            return After("queued", retries=1, wait_s=RETRY.wait_s(tried.retries))
        return After("failed")
    if tried.restarts < tried.most_restarts:
        return After("queued", restarts=1, wait_s=RESTART.wait_s(tried.restarts))
    return After("lost")


def share_of(
    cpu_milli: int, memory_bytes: int, cpu_milli_capacity: int, memory_bytes_capacity: int
) -> float:
    """Return the dominant share of a machine that a job takes, for what it costs."""
    cpu = cpu_milli / cpu_milli_capacity if cpu_milli_capacity else 0.0
    memory = memory_bytes / memory_bytes_capacity if memory_bytes_capacity else 0.0
    return min(1.0, max(cpu, memory))


def cost_micro(price_micro: int, run_ms: int, share: float) -> int:
    """Return what a job's run cost: its share of the machine for as long as it ran."""
    return round(price_micro * run_ms * share / 3_600_000)
