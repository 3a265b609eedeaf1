"""Plan maintenance of many hosts: in groups that rules and N+1 allow. A question; nothing is kept.

Who carries it out asks again before every group, so that each is right for the fleet as it is then:
`roost maintenance run` drains a group by a plan, takes its hosts out of service, does what it was
told to do, and brings them back.
"""

from roost.base.errors import InvalidRequest
from roost.control.memory.roster import Roster
from roost.control.plans.planning import Planning
from roost.wire.plans import (
    BlockerBody,
    MaintenanceBlocked,
    MaintenanceBody,
    MaintenanceGroup,
    PlanMaintenance,
)


async def plan_maintenance(
    planning: Planning, roster: Roster, asked: PlanMaintenance
) -> MaintenanceBody:
    """Return the groups of hosts in their order, and hosts that cannot be emptied."""
    for name in asked.hosts:
        if roster.entry(name) is None:
            raise InvalidRequest(f"there is no host {name!r}", host=name)
    wanted = set(asked.hosts)
    entries = [
        entry
        for entry in sorted(roster.hosts.values(), key=lambda each: each.name)
        if (entry.name in wanted if wanted else entry.row.admin == "open")
    ]
    away = [entry.name for entry in entries if entry.row.health != "online"]
    online = [entry for entry in entries if entry.row.health == "online"]
    found = await planning.roll(
        [entry.fleet_row for entry in online], asked.at_once, spare=asked.spare
    )
    names = planning.host_names()
    offline = BlockerBody(vm="", name="", guard="at_rest", why="the host is not online")
    return MaintenanceBody(
        groups=[
            MaintenanceGroup(
                hosts=[names[row] for row in group.hosts],
                moves=group.moves,
                sent_bytes=group.sent_bytes,
                eta_s=round(group.eta_s, 1),
            )
            for group in found.groups
        ],
        left=[
            *(
                MaintenanceBlocked(
                    host=names[row],
                    blocked=[
                        BlockerBody(vm=e.vm, name=e.name, guard=e.guard.value, why=e.why)
                        for e in vetoes
                    ],
                )
                for row, vetoes in found.left
            ),
            *(MaintenanceBlocked(host=name, blocked=[offline]) for name in away),
        ],
    )
