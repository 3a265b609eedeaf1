"""How long the control plane waits for what: one record of times, handed to every use case."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timers:
    """Time limits and periods of the control plane, in seconds."""

    heartbeat_s: float = 5.0
    lease_s: float = 60.0
    suspect_s: float = 15.0
    offline_s: float = 60.0
    full_list_s: float = 300.0
    flush_s: float = 1.0
    watch_s: float = 2.0
    singleton_s: float = (
        15.0  # silence after which another process takes over what one does for all
    )
    move_s: float = 600.0  # a move that does not begin to send by then is abandoned
    plan_s: float = 900.0  # how long a move of a plan may wait for something before it has failed
    purge_s: float = 300.0  # how often what is too old is deleted
    fence_margin: float = 1.05
