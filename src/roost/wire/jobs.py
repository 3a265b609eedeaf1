"""The bodies of jobs, job kinds, pools, machines and accounts over HTTP.

A submission is an *array* of one job or of thousands that share a spec; what differs is an item
each. `job-ID` names the array and, if it has one job, that job; `job-ID.7` names its eighth. Money
is in millionths of the account's currency.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from roost.model.job import Fit, JobState, Market, Ordering
from roost.wire.bodies import Cores, DemandBody, Name, Priority, Reply, Request, Text
from roost.wire.queries import After, Limit, Query

#: Jobs of one submission.
MOST_JOBS = 200_000
MOST_KINDS = 2000
MOST_POOLS = 500
MOST_ACCOUNTS = 500
#: Arrays that one may wait for.
MOST_NEEDS = 64

_PRINTED = r"^[^\x00-\x1f\x7f]*\Z"
JobName = Annotated[str, Meta(min_length=1, max_length=160, pattern=_PRINTED)]
#: A file below a job's own folder: no way out of it.
FileName = Annotated[
    str,
    Meta(min_length=1, max_length=255, pattern=r"^(?!/)(?!.*(^|/)\.\.(/|$))[^\x00-\x1f\x7f]+\Z"),
]
Url = Annotated[
    str, Meta(min_length=1, max_length=2048, pattern=r"^(file|https?|s3):[^\x00-\x20\x7f]+\Z")
]
Digest = Annotated[str, Meta(pattern=r"^(|sha256:[0-9a-f]{64})\Z")]
#: Handed to a container engine as one word of its command line: it never looks like an option.
ImageName = Annotated[str, Meta(max_length=512, pattern=r"^(?!-)[^\x00-\x20\x7f]*\Z")]
Command = Annotated[
    list[Annotated[str, Meta(max_length=131_072, pattern=r"^[^\x00]*\Z")]], Meta(max_length=4096)
]
Environment = dict[
    Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}\Z")],
    Annotated[str, Meta(max_length=32_768, pattern=r"^[^\x00]*\Z")],
]
Parameters = dict[Annotated[str, Meta(min_length=1, max_length=255)], Any]
RunSeconds = Annotated[int, Meta(ge=1, le=30 * 86_400)]
Tries = Annotated[int, Meta(ge=0, le=100)]
Micro = Annotated[int, Meta(ge=0, le=2**53)]
Machines = Annotated[int, Meta(ge=0, le=100_000)]
Description = Annotated[str, Meta(max_length=1000)]
Options = dict[
    Annotated[str, Meta(min_length=1, max_length=64, pattern=_PRINTED)],
    Annotated[str, Meta(max_length=4096)],
]


# Asking for jobs


class InputBody(Request):
    """A file that is there when a job starts."""

    name: FileName
    url: Url
    digest: Digest = ""


class OutputBody(Request):
    """A file that a job leaves and that is kept."""

    name: FileName
    required: bool = True


class JobSpecBody(Request):
    """What is asked of a job. Fields that are left out have the kind's value, or the usual one."""

    command: Command | UnsetType = UNSET
    image: ImageName | UnsetType = UNSET
    demand: DemandBody | UnsetType = UNSET
    environment: Environment | UnsetType = UNSET
    parameters: Parameters | UnsetType = UNSET
    inputs: Annotated[list[InputBody], Meta(max_length=256)] | UnsetType = UNSET
    outputs: Annotated[list[OutputBody], Meta(max_length=256)] | UnsetType = UNSET
    outputs_to: Url | UnsetType = UNSET
    run_limit_s: RunSeconds | UnsetType = UNSET
    queue_limit_s: RunSeconds | UnsetType | None = UNSET
    retries: Tries | UnsetType = UNSET
    restarts: Tries | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    registry_account: Name | UnsetType = UNSET


class SubmitJobs(JobSpecBody, kw_only=True):
    """One job, `count` equal ones, or one for each of `items`.

    `{item}`, `{item.KEY}`, `{index}` and `{parameters.KEY}` in words of the command are filled in;
    `{{` is a brace. It begins when all arrays of `needs` have ended; if one of their jobs did not
    complete, these fail, unless `on_failure` is run.
    """

    project: Name | None = None  # else the caller's own, or `default`
    name: Text = ""
    pool: Name | None = None
    kind: Name | None = None
    count: Annotated[int, Meta(ge=1, le=MOST_JOBS)] = 1
    items: Annotated[list[Any], Meta(max_length=MOST_JOBS)] | None = None
    needs: Annotated[list[JobName], Meta(max_length=MOST_NEEDS)] = field(default_factory=list)
    on_failure: Literal["fail", "run"] = "fail"


class JobCounts(Reply):
    """How many jobs of an array are where; `live` ones have a machine."""

    waiting: int = 0
    queued: int = 0
    live: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0


class ArrayBody(Reply):
    """What was submitted in one call, and how far it has come.

    state: `waiting`, `queued`, `running`, or how it ended: `completed` when all its jobs did, else
    the worst that happened to one of them.
    """

    id: str
    name: str
    project: str
    pool: str
    kind: str | None
    state: str
    size: int
    jobs: JobCounts
    priority: int
    created_at: str
    created_by: str
    finished_at: str | None
    cost_micro: int
    estimate_micro: int | None
    estimate_s: float | None


class ArrayDetail(ArrayBody):
    """An array with its spec and what it waits for."""

    spec: dict[str, Any]
    needs: list[str]


class ArrayPage(Reply):
    """Some arrays, the newest first; `next` continues the list when there are more."""

    arrays: list[ArrayBody]
    next: str | None = None


class KeptOutput(Reply):
    """A file that a job has left."""

    name: str
    url: str
    bytes: int
    digest: str = ""


class AttemptBody(Reply):
    """An attempt after which a job was tried again."""

    attempt: int
    machine: str
    reason: str
    message: str
    exit_code: int | None
    scheduled_at: str
    started_at: str | None
    ended_at: str


class JobBody(Reply):
    """A job. `reason` says why it ended otherwise than well, `internal` that it was our doing."""

    id: str
    array: str
    index: int
    name: str
    project: str
    pool: str
    state: JobState
    item: Any
    attempt: int
    machine: str | None
    reason: str
    message: str
    internal: bool
    exit_code: int | None
    queued_at: str
    scheduled_at: str | None
    started_at: str | None
    finished_at: str | None
    run_ms: int
    cpu_ms: int
    memory_bytes: int
    cost_micro: int
    outputs: list[KeptOutput]


class JobDetail(JobBody):
    """A job with its earlier attempts."""

    attempts: list[AttemptBody]


class JobPage(Reply):
    """Some jobs; `next` continues the list when there are more."""

    jobs: list[JobBody]
    next: str | None = None


class ListArrays(Query):
    """Which arrays to list."""

    project: Name | None = None
    pool: Name | None = None
    state: Literal["open", "finished"] | None = None
    limit: Limit = 100
    after: After | None = None


class ListJobs(Query):
    """Which jobs to list: those of one array, in order."""

    array: JobName
    state: JobState | None = None
    limit: Limit = 100
    after: After | None = None


class AwaitArray(Query):
    """How long to wait for an array to end."""

    wait_s: Annotated[float, Meta(ge=0.0, le=30.0)] = 0.0


class CancelledBody(Reply):
    """How many jobs were cancelled at once, and how many are told to end."""

    cancelled: int
    cancelling: int


class ReadLogs(Query):
    """Which part of a log: of the last attempt unless another is named."""

    stream: Literal["stdout", "stderr"] = "stdout"
    attempt: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    start: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_048_576)] = 262_144


class LogBody(Reply):
    """A piece of a log, base64 in JSON; `next` is where the next one begins.

    ended: the attempt is over and nothing more comes. dropped: bytes that were over the limit.
    """

    job: str
    attempt: int
    stream: str
    start: int
    next: int
    data: bytes
    ended: bool
    dropped: int = 0


class ReadOutput(Query):
    """Which part of a file that a job has kept; names are those that the job's outputs have."""

    name: FileName
    start: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_048_576)] = 262_144


class OutputPiece(Reply):
    """A piece of an output, base64 in JSON; `next` is where the next one begins.

    size: bytes of the whole file. ended: nothing is left after this piece.
    """

    job: str
    name: str
    start: int
    next: int
    size: int
    data: bytes
    ended: bool


class ExplainBody(Reply):
    """Why a job is not running: the causes, the most telling first.

    cause: needs, back_off, order, fairness, room, pool_limit, account_limit, budget, provider,
    starting, too_large, none.
    """

    job: str
    state: str
    cause: str
    sentences: list[str]
    before: int | None = None  # jobs of the pool that are looked at earlier


class StatsBody(Reply):
    """What jobs did: of all, or of a project, a pool or an account."""

    jobs: JobCounts
    arrays: int
    running_machines: int
    machine_hours: float
    rent_micro: int
    cost_micro: int
    waiting_s_p50: float | None
    waiting_s_most: float | None
    run_hours: float


class AskStats(Query):
    """Of which jobs."""

    project: Name | None = None
    pool: Name | None = None
    account: Name | None = None


# Kinds


class CreateJobKind(JobSpecBody, kw_only=True):
    """A kind of job: what is always the same, and a JSON schema of its parameters."""

    name: Name
    project: Name | None = None
    description: Description = ""
    parameters_schema: dict[str, Any] = field(default_factory=dict)


class JobKindBody(Reply):
    """A kind of job."""

    name: str
    project: str | None
    description: str
    spec: dict[str, Any]
    parameters_schema: dict[str, Any]
    version: int
    changed_at: str
    changed_by: str


class JobKindPage(Reply):
    """All kinds of jobs that the caller may use."""

    kinds: list[JobKindBody]


# Pools


class PoolSpecBody(Request):
    """What a pool is; what is left out stays, or has the usual value."""

    types: Annotated[list[Text], Meta(max_length=256)] | UnsetType = UNSET
    regions: Annotated[list[Text], Meta(max_length=64)] | UnsetType = UNSET
    min_machines: Machines | UnsetType = UNSET
    max_machines: Machines | UnsetType = UNSET
    max_cpu: Cores | UnsetType | None = UNSET
    budget_micro: Micro | UnsetType | None = UNSET
    on_demand_base: Machines | UnsetType = UNSET
    market: Market | UnsetType = UNSET
    warm: Machines | UnsetType = UNSET
    idle_grace_s: Annotated[int, Meta(ge=0, le=86_400)] | UnsetType = UNSET
    ordering: Ordering | UnsetType = UNSET
    fit: Fit | UnsetType = UNSET
    kinds: Annotated[list[Name], Meta(max_length=256)] | UnsetType = UNSET
    project: Annotated[str, Meta(max_length=63)] | UnsetType = UNSET


class CreatePool(PoolSpecBody, kw_only=True):
    """A pool of machines of one provider."""

    name: Name
    provider: Name
    account: Name | None = None


class ChangePool(PoolSpecBody):
    """What is to be different about a pool."""


class PoolBody(Reply):
    """A pool: what it is, how many machines it has, and what its provider said last."""

    name: str
    provider: str
    account: str | None
    types: list[str]
    regions: list[str]
    min_machines: int
    max_machines: int
    max_cpu_milli: int | None
    budget_micro: int | None
    on_demand_base: int
    market: str
    warm: int
    idle_grace_s: int
    ordering: str
    fit: str
    kinds: list[str]
    project: str | None
    machines: dict[str, int]
    cpu_milli: int
    rate_micro: int
    spent_micro: int
    queued: int
    live: int
    trouble: str
    version: int


class PoolPage(Reply):
    """All pools that the caller may use."""

    pools: list[PoolBody]


class MachineBody(Reply):
    """A machine of a pool."""

    id: str
    pool: str
    type: str
    market: str
    region: str
    state: str
    cloud_id: str | None
    price_micro: int
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    cpu_milli_committed: int
    memory_bytes_committed: int
    attempts: int
    reason: str
    created_at: str
    state_since: str
    ended_at: str | None
    cost_micro: int


class MachinePage(Reply):
    """The machines of a pool, the newest first; `next` continues the list."""

    machines: list[MachineBody]
    next: str | None = None


class ListMachines(Query):
    """Which machines: those that are rented or on their way, unless `ended`."""

    ended: bool = False  # those that went back, too
    limit: Limit = 100
    after: After | None = None


# Accounts


class AccountSpecBody(Request):
    """What an account is; what is left out stays. `credentials` are sealed and never told."""

    options: Options | UnsetType = UNSET
    credentials: Options | UnsetType = UNSET
    max_machines: Machines | UnsetType | None = UNSET
    max_cpu: Cores | UnsetType | None = UNSET
    budget_micro: Micro | UnsetType | None = UNSET


class CreateAccount(AccountSpecBody, kw_only=True):
    """A project's account with a provider."""

    name: Name
    provider: Name
    project: Name | None = None


class ChangeAccount(AccountSpecBody):
    """What is to be different about an account."""


class AccountBody(Reply):
    """An account, without its credentials."""

    name: str
    provider: str
    project: str | None
    options: dict[str, str]
    has_credentials: bool
    max_machines: int | None
    max_cpu_milli: int | None
    budget_micro: int | None
    machines: int
    cpu_milli: int
    rate_micro: int
    version: int


class AccountPage(Reply):
    """All accounts that the caller may see."""

    accounts: list[AccountBody]
