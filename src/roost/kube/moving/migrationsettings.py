"""How VMs are moved: what `migrating` and its parts go by."""

from msgspec import Struct

from roost.kube.moving.cooldown import CoolDown
from roost.kube.moving.precopy import Limits


class MigrationSettings(Struct, frozen=True, kw_only=True):
    """How VMs are moved."""

    at_once: int = 5  # in the whole cluster, as KubeVirt does
    per_node: int = 2  # that leave one node
    nic_mbps: float = 10_000.0  # of each node; shared by all that leave or arrive
    limits: Limits = Limits()
    cool_down: CoolDown = CoolDown()
    speed: float = 1.0  # seconds that copies count for each second of the clock
    scheduling_s: float = 30.0  # until the target has to run
    unschedulable_s: float = 5.0  # that the scheduler may go on saying that no node fits
    ramp_s: float = 2.0  # at least, between two writes of how far a copy is
    ramp_share: float = 0.1  # at least, too
    history: int = 10  # migrations that a VM remembers
