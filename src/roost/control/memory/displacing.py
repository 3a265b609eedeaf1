"""Say whether a VM may displace others: its policy's word comes before its priority class's."""

from roost.control.memory.roster import Roster

LOWER = "lower"


def may_displace(roster: Roster, priority_class: str, policy: str) -> bool:
    """Say whether VMs of a class, under a policy, displace lower ones; "" stands for none.

    Without a class, or with one that is gone, a VM displaces nobody: a number that somebody made up
    is no permission, and a policy gives no priority.
    """
    found = roster.classes.rows.get(priority_class)
    if found is None:
        return False
    return (roster.rulebook.preemption_of(policy) or found.preempts) == LOWER
