"""The bodies of the HTTP API: what `/api/v1` takes and gives, one struct each.

Both sides use them: the server decodes requests into them and documents itself by them, the client
decodes answers. Requests refuse unknown fields; answers may grow. Sizes may be typed ("8GiB") or
bytes; cpu may be cores (2, 0.5) or millicores ("250m"). Fields of an answer carry their unit.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from roost.model.states import OnNoFit, Restart

# "$" alone would also match before a line break at the end.
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$(?!\n)")]
ProjectName = Name
Moment = Annotated[
    str, Meta(max_length=40, description="A moment, such as `2026-11-20T08:00:00Z`.")
]
Amount = Annotated[int, Meta(ge=0, le=2**48)]
Size = Annotated[int, Meta(ge=0, le=2**48)] | Annotated[str, Meta(max_length=32)]
Cores = (
    Annotated[int, Meta(ge=0, le=2**38)]
    | Annotated[float, Meta(ge=0, le=2**38)]
    | Annotated[str, Meta(max_length=32)]
)
Text = Annotated[str, Meta(max_length=253)]
Words = Annotated[list[Text], Meta(max_length=256)]
#: A label is one line, and `=` ends its key.
Labels = dict[
    Annotated[str, Meta(pattern=r"^[^=\n]{1,253}$(?!\n)")],
    Annotated[str, Meta(pattern=r"^[^\n]{0,253}$(?!\n)")],
]
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
Weight = Annotated[int, Meta(ge=1, le=100)]

#: VMs in one POST /vms:batch.
MOST_IN_BATCH = 10_000

Role = Literal["viewer", "operator", "admin", "member"]


class Request(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A body that a caller sends."""


class Reply(Struct, kw_only=True):
    """A body that the server sends."""


# Asking for a VM


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

    `preempt` lets VMs of lower priority make room for it, as its priority class allows. A class
    gives the priority; with neither, the default class does, if there is one.
    """

    name: Name
    demand: DemandBody
    project: ProjectName = "default"
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
    """A VM to place without creating it."""

    runners_up: Annotated[int, Meta(ge=0, le=16)] = 2


class DryRunBatch(Request):
    """VMs to place on a copy of the fleet: one after the other, or `atomic`: all or none."""

    vms: Annotated[list[CreateVM], Meta(min_length=1, max_length=MOST_IN_BATCH)]
    atomic: bool = False


class CapacityQuestion(CreateVM):
    """How many more copies of this VM fit, also after the loss of a host, rack or zone."""

    survive: Literal["host", "rack", "zone"] | None = None
    losses: Annotated[int, Meta(ge=1, le=3)] = 1


# Answers about VMs


class ScoreTermBody(Reply):
    """One addend of a score."""

    name: str
    value: int


class RunnerUpBody(Reply):
    """A host that would have been next."""

    host: str
    score: int


class PredictedBody(Reply, omit_defaults=True):
    """What is predicted of a host with all of its VMs, its range, and the newest sample's time."""

    cpu_milli: int
    memory_bytes: int
    cpu_milli_range: tuple[int, int] | None = None
    memory_bytes_range: tuple[int, int] | None = None
    as_of_s: int | None = None


class ForeseenBody(Reply, omit_defaults=True):
    """The predictions that a placement went by: their digest, what they mean, and what they said.

    `quantile_milli`: 900 is the load that is passed one time in ten, until `until_s`. `host` is the
    chosen host without this VM, or with all VMs that were placed together.
    """

    digest: str
    quantile_milli: int | None = None
    until_s: int | None = None
    host: PredictedBody | None = None


class PlacementBody(Reply, tag="placement", tag_field="answer"):
    """Where a VM goes, and why; hard rules in `relaxed` were soft for it, after it had waited.

    `foreseen` is there where predictions were used.
    """

    vm: str
    host: str
    host_number: int
    strategy: str
    score: int
    devices: list[int] = []
    cells: list[int] = []
    breakdown: list[ScoreTermBody] = []
    runners_up: list[RunnerUpBody] = []
    confidence: float | None = None
    cursor: int = -1
    relaxed: list[str] = []
    foreseen: ForeseenBody | UnsetType = UNSET


class ReasonBody(Reply, omit_defaults=True):
    """How many hosts a reason refused: as the first failing filter, and at all.

    Of rules, `rule` is the name and `part` the text of the condition that did not hold.
    """

    reason: str
    first: int
    total: int
    rule: str = ""
    part: str = ""


class ShortageBody(Reply, omit_defaults=True):
    """How much of one resource is missing; the fields of its unit are set, the others left out."""

    resource: str
    need_milli: int | UnsetType = UNSET
    free_milli: int | UnsetType = UNSET
    short_milli: int | UnsetType = UNSET
    need_bytes: int | UnsetType = UNSET
    free_bytes: int | UnsetType = UNSET
    short_bytes: int | UnsetType = UNSET
    need_count: int | UnsetType = UNSET
    free_count: int | UnsetType = UNSET
    short_count: int | UnsetType = UNSET

    @property
    def need(self) -> int:
        """Return the amount that is needed, in whatever unit it is given."""
        return self.need_milli or self.need_bytes or self.need_count or 0

    @property
    def free(self) -> int:
        """Return the amount that is free, in whatever unit it is given."""
        return self.free_milli or self.free_bytes or self.free_count or 0

    @property
    def short(self) -> int:
        """Return the amount that is missing, in whatever unit it is given."""
        return self.short_milli or self.short_bytes or self.short_count or 0


class NearestMissBody(Reply):
    """The host that lacks the least, and on how many hosts the same is missing."""

    host: str
    hosts: int
    shortages: list[ShortageBody] = []


class FixBody(Reply):
    """One change after which the VM fits, and where it would then go."""

    kind: str
    host: str
    rule: str = ""
    shortages: list[ShortageBody] = []


class VictimBody(Reply):
    """A VM that makes room, and how: moved elsewhere, or stopped to wait for another host.

    `state` says how far that is: planned, moving, stopped, gone.
    """

    vm: str
    name: str
    project: str
    priority: int
    how: str
    state: str = "planned"
    memory_bytes: int = 0
    disk_bytes: int = 0
    target: str = ""


class PreemptionBody(Reply):
    """Room that is being made for a VM on a host, or would be."""

    vm: str
    name: str
    project: str
    priority: int
    host: str
    phase: str
    victims: list[VictimBody]
    begun_at: str = ""


class IdleBody(Reply):
    """A VM that keeps room on a host and does not run there, with the command that frees it.

    Without a name: so many VMs together, which the asker may not see or which are too many to name.
    """

    host: str
    count: int
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    vm: str = ""
    project: str = ""
    state: str = ""
    remedy: str = ""


class RejectionBody(Reply, tag="rejection", tag_field="answer"):
    """Why a VM fits nowhere: counts, nearest miss and fixes, the smallest first."""

    vm: str
    code: str
    message: str
    strategy: str
    hosts: int
    reasons: list[ReasonBody] = []
    nearest_miss: NearestMissBody | None = None
    fixes: list[FixBody] = []
    larger_than_any_host: list[ShortageBody] = []
    preemption: PreemptionBody | None = None  # of a dry run: who would make room
    idle: list[IdleBody] = []  # who keeps room on the hosts that are named, and does not run


class RestrictionBody(Reply):
    """Something that keeps a batch from fitting: `kind` rule, group or constraint of its own VMs.

    `vms` are some of the VMs of the batch that it binds, `count` how many there are.
    """

    kind: str
    name: str
    vms: list[str]
    count: int


class BatchConflictBody(Reply):
    """The rules, groups and constraints without which a batch would fit, none of which can stay.

    Empty: amounts alone do not fit. `checked`: each was put back, and the batch was proven not to
    fit then; not so if time was up before that. `smallest`: no smaller set would do.
    """

    restrictions: list[RestrictionBody]
    checked: bool
    smallest: bool


class TogetherBody(Reply):
    """How all VMs of an atomic batch were placed, or why they were not.

    `how`: greedy, or exact search. `proven`: of a refusal, that there is no way at all; otherwise
    the search was cut short.
    """

    how: str
    proven: bool = True
    conflict: BatchConflictBody | None = None


class RuleRefusalBody(Reply):
    """A part of a rule that does not hold on a host: its text, what it read there, its error."""

    rule: str
    part: str
    values: dict[str, str]
    error: str


class VerdictBody(Reply, omit_defaults=True):
    """What the filters say of one host; where rules refuse it, which parts of them.

    Where something is predicted of the host, that; where all of its VMs' ends are expected, when
    the last will be gone, in seconds since the epoch.
    """

    host: str
    fits: bool
    score: int | None
    reasons: list[str]
    shortages: list[ShortageBody]
    rules: list[RuleRefusalBody] = []
    predicted: PredictedBody | None = None
    ends_s: int | None = None


AnswerBody: TypeAlias = PlacementBody | RejectionBody


class ExplanationBody(Reply):
    """Every host's verdict on a VM, and the answer that follows from them."""

    answer: AnswerBody
    hosts: int
    fitting: int
    reasons: list[ReasonBody]
    verdicts: list[VerdictBody]


class CapacityBody(Reply):
    """How many more copies fit, and what stops the next one."""

    answer: str
    count: int
    survive: str | None
    losses: int
    sampled: bool
    blocking: str
    refused: RejectionBody | None


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
    """What is to be another about a VM; what is left out stays."""

    restart: Restart | UnsetType = UNSET


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


# Hosts


class HostAmounts(Reply):
    """One resource of a host; `used` is measured and may be unknown."""

    capacity: int
    committed: int
    used: int | None = None


class HostBody(Reply):
    """A host as it is now. `virtual`: its driver only pretends to run VMs."""

    name: str
    number: int
    health: str
    admin: str
    driver: str
    virtual: bool
    zone: str
    rack: str
    site: str
    architecture: str
    labels: dict[str, str]
    taints: list[dict[str, str]]
    cpu_milli: HostAmounts
    memory_bytes: HostAmounts
    disk_bytes: HostAmounts
    extended: dict[str, HostAmounts]
    devices: list[dict[str, Any]]
    cells: list[dict[str, Any]]
    vms: int
    max_vms: int | None
    generation: int
    connected: bool  # its agent is connected to the process that answers
    guard: bool  # it registered a running fence guard
    fenced: str | None  # how it was fenced, while it is
    held: list[dict[str, Any]] = []  # VMs it runs that are not on its list
    unusable: str = ""  # why it is set aside: what it registered with cannot be loaded
    capabilities: list[str] = []  # what VMs may ask for by `capability`


class HostPage(Reply):
    """Hosts in the order of their numbers."""

    hosts: list[HostBody]
    next: str | None = None


class SchedulingInfo(Reply):
    """The six lines that describe a host to an operator."""

    host: str
    text: str


class SetLabels(Request):
    """A host's labels, all of them."""

    labels: Labels


class ConfirmDead(Request):
    """An operator's word that a host is off and stays off; `reason` goes into the events."""

    reason: Annotated[str, Meta(min_length=1, max_length=1000)]


class NotRecovered(Reply):
    """A VM of a dead host that could not be taken off it, and why."""

    vm: str
    why: str


class RecoveredBody(Reply):
    """What became of the VMs of a host that is off."""

    host: str
    restarted: list[str] = []
    queued: list[str] = []  # no host has room; they start when one has
    failed: list[NotRecovered] = []


class DrainBody(Reply):
    """How far a drain has come."""

    host: str
    state: str  # draining, blocked, empty
    left: int
    moving: str | None = None
    blocked: list[dict[str, Any]] = []  # VMs that fit nowhere else, each with its rejection


# Projects, tokens


class QuotaBody(Request):
    """Limits of a project; null means none."""

    cpu: Cores | None = None
    memory: Size | None = None
    disk: Size | None = None
    vms: Amount | None = None


class CreateProject(Request):
    """A project with its quota."""

    name: ProjectName
    quota: QuotaBody = field(default_factory=QuotaBody)


class SetQuota(Request):
    """A project's quota, all of it."""

    quota: QuotaBody


class LimitBody(Reply):
    """One limit and how much of it is in use."""

    used: int
    quota: int | None


class ProjectBody(Reply):
    """A project, what it uses, and the policy of its VMs that name none."""

    name: str
    cpu_milli: LimitBody
    memory_bytes: LimitBody
    disk_bytes: LimitBody
    vms: LimitBody
    policy: str | None = None


class ProjectPage(Reply):
    """All projects that the caller may see."""

    projects: list[ProjectBody]


class CreateToken(Request):
    """A token. Members need a project and see only that."""

    name: Name
    role: Role = "viewer"
    project: ProjectName | None = None
    expires_in_s: Annotated[int, Meta(ge=1, le=10 * 365 * 86400)] | None = None


class CreateJoinToken(Request):
    """A one-time token with which one agent joins; it may be bound to a host's name."""

    host: Name | None = None
    expires_in_s: Annotated[int, Meta(ge=1, le=30 * 86400)] = 3600


class TokenBody(Reply):
    """A token; the secret is shown once, when it is made."""

    id: str
    name: str
    role: str
    project: str | None
    created_at: str
    expires_at: str | None
    secret: str | None = None


class TokenPage(Reply):
    """All tokens, without their secrets."""

    tokens: list[TokenBody]


class JoinBody(Request):
    """An agent's first word: who it is. The one-time token comes as the bearer token."""

    host: Name


class JoinedBody(Reply):
    """The credential of one host's agent."""

    host: str
    credential: str


# Events, health


class EventBody(Reply):
    """One change: who did what to whom, and what is different now."""

    seq: int
    at: str
    actor: str
    kind: str
    subject: str  # vm/ID, host/NAME, project/NAME, token/ID
    project: str | None
    changes: dict[str, Any]
    note: str = ""
    tx: str = ""  # its transaction: with it a reader can tell that an older ledger was restored


class EventPage(Reply):
    """Events in order; `next` is the sequence to ask from to go on."""

    events: list[EventBody]
    next: int


class FindingBody(Reply):
    """One thing that a check found, in words."""

    check: str
    message: str


class DoctorBody(Reply):
    """What the checks of a live database found: broken invariants, troubles of the fleet, notes.

    `ok` means neither findings nor troubles; a note is worth knowing, but nothing is wrong.
    """

    ok: bool
    checked: dict[str, int]
    findings: list[FindingBody]
    troubles: list[FindingBody] = []
    notes: list[FindingBody] = []


class UpgradeBody(Reply):
    """What finishing an upgrade has done; all zeros when there was nothing left to do."""

    specs_stored: int = 0
    bodies_emptied: int = 0
    events_cleaned: int = 0
    sealed: int = 0  # VMs whose user data was not


class HealthBody(Reply):
    """Whether the process lives, or is ready and what it waits for."""

    status: str
    detail: str = ""


class StrategyBody(Reply):
    """A strategy by name."""

    name: str
    summary: str


class StrategiesBody(Reply):
    """All strategies, and which one is used when a request names none."""

    default: str
    strategies: list[StrategyBody]


class ErrorDetail(Reply):
    """What went wrong, in one shape for every error."""

    code: str
    message: str
    details: dict[str, Any] = {}
    hint: str | None = None


class ErrorBody(Reply):
    """The one shape of errors."""

    error: ErrorDetail
