"""Every kind of fault that a world knows, by the name of its event, for reports of coverage."""

FAULTS = (
    "fault.kill_agent",
    "fault.power_off",
    "fault.freeze_agent",
    "fault.die_before_write",
    "fault.die_after_write",
    "fault.crash_vm",
    "fault.lose_incoming",
    "fault.clock_step",
    "fault.cut",
    "fault.rough",
    "net.lost",
    "net.twice",
    "net.late",
    "fault.kill_plane",
    "fault.freeze_plane",
    "fault.die_before_commit",
    "fault.die_after_commit",
    "fault.db_refuse",
    "fault.db_doubt",
    "fault.db_full",
)
