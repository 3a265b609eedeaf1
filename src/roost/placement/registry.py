"""Every filter, in the order in which hosts are asked and refusals are counted.

An ordered literal: no scanning, no decorators. State before rules before amounts, so that
"insufficient resources" is only said of hosts on which all else was right.
"""

from roost.placement.filtering import Filter
from roost.placement.filters import predicate, rule, rule_error
from roost.placement.filters.amounts import (
    cpu,
    devices,
    disk,
    extended,
    held,
    max_vms,
    memory,
    numa,
)
from roost.placement.filters.attributes import (
    architecture,
    capabilities,
    driver,
    excluded,
    labels,
    pinned,
    rack,
    site,
    taints,
    zone,
)
from roost.placement.filters.neighbours import (
    affinity,
    anti_affinity,
    bandwidth,
    latency,
    spread,
)
from roost.placement.filters.state import admin, health, inventory, pressure

FILTERS: tuple[Filter, ...] = (
    health.FILTER,
    admin.FILTER,
    inventory.FILTER,
    pressure.FILTER,
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
    rule.FILTER,
    rule_error.FILTER,
    latency.FILTER,
    bandwidth.FILTER,
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
