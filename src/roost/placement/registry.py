"""Every filter, in the order in which hosts are asked and refusals are counted.

An ordered literal: no scanning, no decorators. State before rules before amounts, so that
"insufficient resources" is only said of hosts on which all else was right.
"""

from roost.placement.filtering import Filter
from roost.placement.filters import (
    admin,
    affinity,
    anti_affinity,
    architecture,
    capabilities,
    cpu,
    devices,
    disk,
    driver,
    excluded,
    extended,
    health,
    held,
    inventory,
    labels,
    max_vms,
    memory,
    numa,
    pinned,
    predicate,
    rack,
    site,
    spread,
    taints,
    zone,
)

FILTERS: tuple[Filter, ...] = (
    health.FILTER,
    admin.FILTER,
    inventory.FILTER,
    pinned.FILTER,
    excluded.FILTER,
    labels.FILTER,
    taints.FILTER,
    architecture.FILTER,
    driver.FILTER,
    capabilities.FILTER,
    zone.FILTER,
    rack.FILTER,
    site.FILTER,
    predicate.FILTER,
    affinity.FILTER,
    anti_affinity.FILTER,
    spread.FILTER,
    max_vms.FILTER,
    cpu.FILTER,
    memory.FILTER,
    disk.FILTER,
    extended.FILTER,
    held.FILTER,
    devices.FILTER,
    numa.FILTER,
)
