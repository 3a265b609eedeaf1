"""Bodies of VMs that exist: how they are shown, and what may be changed about them."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from roost.model.states import Restart
from roost.wire.bodies.asking import BootBody, LabelTermBody, NicBody, TolerationBody
from roost.wire.bodies.decisions import AnswerBody, PlacementBody, RejectionBody, TogetherBody
from roost.wire.bodies.words import (
    Cores,
    Labels,
    Name,
    Priority,
    Reply,
    Request,
    Size,
    Words,
)


class AmountsBody(Reply):
    """The amounts of a VM in whole numbers."""

    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    gpu: int = 0
    extended: dict[str, int] = {}


class ProgressBody(Reply):
    """How far a move has come, as its source told last."""

    sent_bytes: int = 0
    left_bytes: int = 0
    dirty_bytes_per_s: int = 0
    passes: int = 0
    throttle_percent: int = 0
    downtime_ms: int | None = None


class MigrationBody(Reply):
    """A move under way. phase: preparing, moving, landing, cancelling, recalling."""

    source: str
    target: str
    phase: str
    mode: str = "live"
    progress: ProgressBody | None = None


class ProblemBody(Reply):
    """What went wrong on the host, for which generation; `host` when it refused the VM."""

    code: str
    message: str
    generation: int
    host: str = ""


class UseBody(Reply):
    """What a VM used when its host's agent read it last; rates are since the reading before.

    What could not be read is absent. `more` has all figures by name, see docs/reference/samples.md.
    """

    at: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    disk_read_bytes_per_s: int | None = None
    disk_write_bytes_per_s: int | None = None
    net_received_bytes_per_s: int | None = None
    net_sent_bytes_per_s: int | None = None
    more: dict[str, float] = {}


class VMBody(Reply):
    """A VM as it is now.

    state: pending, starting, running, pausing, paused, stopping, stopped, migrating, failed,
    unknown (its host is not heard of), deleting. `virtual` marks a VM that a driver only pretends
    to run. `restart_acknowledged` is false while its host has not said yet that it stops the VM
    when its lease ends: until then a lost lease does not bring the VM elsewhere.
    """

    id: str
    name: str
    project: str
    state: str
    desired: str
    observed: str
    host: str | None
    hypervisor_id: str | None  # the same as host, under the name that other systems use
    virtual: bool
    demand: AmountsBody
    strategy: str
    priority: int
    restart: str
    on_no_fit: str
    labels: dict[str, str]
    groups: list[str]
    generation: int
    observed_generation: int
    created_at: str
    pending: RejectionBody | None = None  # why it waits, as of the last try
    problem: ProblemBody | None = None
    migration: MigrationBody | None = None
    placement: PlacementBody | None = None  # of GET one VM and of create
    constraints: dict[str, Any] = {}
    boot: BootBody | None = None  # without user_data, which may hold secrets
    nics: list[NicBody] = []
    used: UseBody | None = None  # of GET one VM; none until it was read
    until: str | None = None  # when it is deleted
    reservation: str | None = None  # the one that it was told to draw on
    restart_acknowledged: bool = True
    policy: str | None = None
    priority_class: str = ""  # empty: none
    flavor: str = ""  # whose amounts it has; empty: none, or it has others by now


class VMPage(Reply):
    """Some VMs; `next` continues the list when there are more."""

    vms: list[VMBody]
    next: str | None = None


class BatchItem(Reply):
    """What became of one VM of a batch: an id and host, or the error it would have had alone."""

    name: str
    id: str | None = None
    host: str | None = None
    state: str | None = None
    error: dict[str, Any] | None = None


class BatchBody(Reply):
    """What became of each VM, in the order of the request."""

    results: list[BatchItem]
    created: int
    queued: int
    failed: int
    together: TogetherBody | None = None  # of an atomic batch


class AnswersBody(Reply):
    """One answer for each VM of a dry run; only one if they do not fit together."""

    answers: list[AnswerBody]
    together: TogetherBody | None = None  # of an atomic batch


# Changing a VM


class SetVM(Request):
    """What is to be another about a VM; what is left out stays.

    Each list, and `labels`, replaces all that were there. `label_terms` are conditions on labels of
    hosts, which a create calls `constraints.labels`. Where the VM is it stays: hosts, zones,
    racks, terms and tolerations count from its next placement on.
    """

    restart: Restart | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    hosts: Words | UnsetType = UNSET
    not_hosts: Words | UnsetType = UNSET
    zones: Words | UnsetType = UNSET
    racks: Words | UnsetType = UNSET
    label_terms: Annotated[list[LabelTermBody], Meta(max_length=64)] | UnsetType = UNSET
    tolerations: Annotated[list[TolerationBody], Meta(max_length=64)] | UnsetType = UNSET


class ResizeVM(Request):
    """New amounts; what is left out stays."""

    cpu: Cores | UnsetType = UNSET
    memory: Size | UnsetType = UNSET
    disk: Size | UnsetType = UNSET


class MigrateVM(Request):
    """Move a VM: to a named host, or to where the strategy sends it.

    A running VM moves live; `cold` stops it first and starts it there. `bandwidth` is per second,
    `limit_s` after how long the move is given up, and the VM stays. A move that the disruption
    budget of one of its groups does not allow now is refused, unless that is to be ignored.
    """

    host: Name | None = None
    cold: bool = False
    bandwidth: Size = 0  # 0: as the hosts are set
    downtime_ms: Annotated[int, Meta(ge=0, le=600_000)] = 0
    auto_converge: bool = True
    post_copy: bool = False
    limit_s: Annotated[int, Meta(ge=0, le=86_400)] = 0
    ignore_budget: bool = False


class ConsoleBody(Reply):
    """A piece of a VM's serial log; `start` and `end` are byte offsets, so `end` asks for more.

    The log is the host's. After a live move it goes on at `base`, with the end of the earlier
    host's log before it; else another host's log begins at 0.
    """

    vm: str
    text: str
    start: int
    end: int
    host: str = ""  # whose log it is
    base: int = 0  # where that host's own part begins
