"""Why a host was refused: one enumerated, countable cause per filter.

The order of the members is the order in which filters are asked and counted: a host is counted
under its first failing reason, state before rules before amounts, so that "insufficient" is only
ever said of hosts on which everything else was right.
"""

from enum import StrEnum


class Reason(StrEnum):
    """A cause of refusal."""

    NOT_ONLINE = "not_online"
    NOT_OPEN = "not_open"
    INVENTORY_UNKNOWN = "inventory_unknown"
    PRESSURE = "pressure"
    NOT_PINNED = "not_pinned"
    EXCLUDED = "excluded"
    LABELS = "labels"
    TAINT = "taint"
    ARCHITECTURE = "architecture"
    DRIVER = "driver"
    CAPABILITY = "capability"
    ZONE = "zone"
    RACK = "rack"
    SITE = "site"
    PREDICATE = "predicate"
    RULE = "rule"
    RULE_ERROR = "rule_error"
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti_affinity"
    SPREAD = "spread"
    MAX_VMS = "max_vms"
    CPU = "cpu"
    MEMORY = "memory"
    DISK = "disk"
    EXTENDED = "extended"
    HELD = "held"
    DEVICE = "device"
    NUMA = "numa"


#: Reasons that speak of amounts: waiting or adding hosts can cure them.
RESOURCE_REASONS = frozenset(
    {
        Reason.MAX_VMS,
        Reason.CPU,
        Reason.MEMORY,
        Reason.DISK,
        Reason.EXTENDED,
        Reason.HELD,
        Reason.DEVICE,
        Reason.NUMA,
    }
)
