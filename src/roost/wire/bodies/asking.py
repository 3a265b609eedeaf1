"""Bodies that ask for VMs: a create, a batch, a dry run, a question of capacity."""

from typing import Annotated, Literal

from msgspec import Meta

from roost.model.states import OnNoFit, Restart
from roost.wire.bodies.words import (
    MOST_IN_BATCH,
    OWN_PROJECT,
    Amount,
    Cores,
    Labels,
    Moment,
    Name,
    Priority,
    ProjectName,
    Request,
    Size,
    Text,
    Weight,
    Words,
)


class DeviceBody(Request):
    """GPUs or the like: `count` devices with `share_milli` thousandths free on each."""

    count: Annotated[int, Meta(ge=1, le=62)] = 1
    share_milli: Annotated[int, Meta(ge=1, le=1000)] = 1000
    models: Words = []
    memory: Size = 0


class DemandBody(Request):
    """The amounts one VM asks for."""

    cpu: Cores
    memory: Size
    disk: Size = 0
    gpu: Annotated[int, Meta(ge=0, le=62)] | DeviceBody = 0
    extended: dict[Annotated[str, Meta(min_length=1, max_length=63)], Amount] = {}
    numa: Literal["any", "one", "split"] = "any"


class LabelTermBody(Request):
    """One condition on a host's labels."""

    key: Annotated[str, Meta(min_length=1, max_length=253)]
    operator: Literal["in", "not-in", "exists", "absent", "gt", "lt"] = "exists"
    values: Words = []


class PreferenceBody(LabelTermBody):
    """A wish: a host without it pays `weight` hundredths of score."""

    weight: Weight = 50


class TolerationBody(Request):
    """A taint that does no harm; an empty key tolerates every taint, no value means any value."""

    key: Text = ""
    value: Text | None = None


class NearBody(Request):
    """How near another VM, or every member of a group, must be: latency in ms, Mbit/s."""

    vm: Text | None = None
    group: Text | None = None
    latency: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    bandwidth: Annotated[float, Meta(ge=0, le=1_000_000_000)] | None = None


class ConstraintsBody(Request):
    """What a VM asks of its host besides amounts."""

    labels: Annotated[list[LabelTermBody], Meta(max_length=64)] = []
    tolerations: Annotated[list[TolerationBody], Meta(max_length=64)] = []
    architecture: Text | None = None
    driver: Text | None = None
    capabilities: Words = []
    zones: Words = []
    racks: Words = []
    sites: Words = []
    hosts: Words = []  # one of these
    not_hosts: Words = []  # none of these
    preferences: Annotated[list[PreferenceBody], Meta(max_length=64)] = []
    near: Annotated[list[NearBody], Meta(max_length=16)] = []


class GroupBody(Request):
    """A group with its rule. The rule belongs to the group: the first to name it defines it."""

    name: Name
    rule: Literal["affinity", "anti-affinity", "spread"]
    scope: Literal["host", "rack", "zone"] = "host"
    hard: bool = True
    max_skew: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    weight: Weight = 50


class AffinityBody(Request):
    """A rule about every VM of the project that has these labels, this one included."""

    selector: Annotated[Labels, Meta(min_length=1)]
    rule: Literal["affinity", "anti-affinity", "spread"]
    scope: Literal["host", "rack", "zone"] = "host"
    hard: bool = True
    max_skew: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    weight: Weight = 50


Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$(?!\n)")]


class ImageBody(Request):
    """Bytes that hosts fetch and keep by their digest; without `url` a host must have them."""

    digest: Digest
    url: Annotated[str, Meta(pattern=r"^((https?|file)://[^\s]{1,2000})?$(?!\n)")] = ""


class BootBody(Request):
    """What a VM boots: a disk image, or a kernel directly; then the image only fills the disk."""

    image: ImageBody | None = None
    kernel: ImageBody | None = None
    initrd: ImageBody | None = None
    cmdline: Annotated[str, Meta(max_length=2048)] = ""
    user_data: Annotated[str, Meta(max_length=65536)] = ""  # cloud-init


class NicBody(Request):
    """A network card: the driver's own network, or a tap device on a bridge of the host."""

    mode: Literal["user", "tap"] = "user"
    bridge: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,15}$(?!\n)")] = ""
    mac: Annotated[str, Meta(pattern=r"^(([0-9a-f]{2}:){5}[0-9a-f]{2})?$(?!\n)")] = ""
    forward: Annotated[
        list[Annotated[str, Meta(pattern=r"^(tcp|udp):[0-9]{1,5}:[0-9]{1,5}$(?!\n)")]],
        Meta(max_length=32),
    ] = []


class CreateVM(Request):
    """A VM to create. `on_no_fit: queue` accepts a VM that fits nowhere yet and keeps trying.

    Its amounts are its `demand` or those of a `flavor`. `preempt` lets VMs of lower priority make
    room for it, as its priority class allows. A class gives the priority; with neither, the default
    class does, if there is one.
    """

    name: Name
    demand: DemandBody | None = None  # None: that of its flavor
    flavor: Name | None = None  # in place of the demand
    project: ProjectName = OWN_PROJECT  # none: a member's own, else `default`
    policy: Name | None = None  # None: the project's default, if it has one
    strategy: Annotated[str, Meta(max_length=64)] | None = None
    constraints: ConstraintsBody | None = None
    groups: Annotated[list[Name | GroupBody], Meta(max_length=32)] = []
    affinity: Annotated[list[AffinityBody], Meta(max_length=32)] = []
    labels: Labels = {}
    priority: Priority = 0
    priority_class: Name | None = None
    on_no_fit: OnNoFit = "fail"
    restart: Restart | None = None  # None: as the policy says, else here
    start: bool = True
    boot: BootBody | None = None  # None: what the host boots by default
    nics: Annotated[list[NicBody], Meta(max_length=8)] = []  # none: one of mode user
    until: Moment | None = None  # it is deleted then; none: it lives until somebody deletes it
    reservation: Name | None = None  # the one that it is to draw on


class CreateVMs(Request):
    """Many VMs; each is answered by itself unless `atomic`, which keeps all or none."""

    vms: Annotated[list[CreateVM], Meta(min_length=1, max_length=MOST_IN_BATCH)]
    atomic: bool = False


class DryRun(CreateVM):
    """A VM to place without creating it.

    With `moves` a refusal also says after which two moves of other VMs at most it would fit.
    """

    runners_up: Annotated[int, Meta(ge=0, le=16)] = 2
    moves: bool = False


class DryRunBatch(Request):
    """VMs to place on a copy of the fleet: one after the other, or `atomic`: all or none."""

    vms: Annotated[list[CreateVM], Meta(min_length=1, max_length=MOST_IN_BATCH)]
    atomic: bool = False


class CapacityQuestion(CreateVM):
    """How many more copies of this VM fit, also after the loss of a host, rack or zone."""

    survive: Literal["host", "rack", "zone"] | None = None
    losses: Annotated[int, Meta(ge=1, le=3)] = 1
