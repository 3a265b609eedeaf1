"""Jobs, pools and machines: programs with inputs that run on rented VMs, and the words for states.

A job is asked for (`JobSpec`), waits in a pool, is assigned to a machine of the pool as an
*attempt* and ends once. A machine is a VM that a provider rents to a pool; to the engine it is a
host of the pool's own fleet. Both tables of transitions below are the only ones: what writes a
state asks them, and the diagrams of the documents are drawn from them.

Each word is stored and sent as the text it is here, so a word may be added but never changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from roost.model.resources import Demand

JobState = Literal[
    "waiting",  # for jobs that it depends on
    "queued",  # for room
    "scheduled",  # assigned to a machine, not seen running yet
    "running",
    "completed",
    "failed",  # by its own doing: exit code, signal, a limit of its own, bad inputs
    "cancelling",  # its worker was told, or will be
    "cancelled",
    "lost",  # by ours: its machine or worker failed more often than it may be tried again
]

JOB_TRANSITIONS: Mapping[JobState, tuple[JobState, ...]] = {
    "waiting": ("queued", "cancelled", "failed"),
    "queued": ("scheduled", "cancelled", "failed"),
    "scheduled": ("running", "completed", "failed", "queued", "cancelling", "cancelled", "lost"),
    "running": ("completed", "failed", "queued", "cancelling", "cancelled", "lost"),
    "cancelling": ("cancelled", "completed", "failed", "queued", "lost"),  # the last two: run limit
    "completed": (),
    "failed": (),
    "cancelled": (),
    "lost": (),
}
#: States that a job never leaves.
FINAL: frozenset[JobState] = frozenset(s for s, to in JOB_TRANSITIONS.items() if not to)
#: States in which a job has an attempt that takes room on a machine.
ASSIGNED: frozenset[JobState] = frozenset({"scheduled", "running", "cancelling"})

MachineState = Literal[
    "pending",  # wanted; nobody has asked the provider yet
    "allocating",  # the provider is asked, or about to be
    "allocated",  # the provider says that it is there; its worker has not spoken yet
    "ready",  # its worker polls
    "draining",  # takes nothing new; goes back when its attempts have ended
    "returning",  # the provider is asked to end it
    "returned",  # the provider says that it is gone
    "failed",  # never came: nothing is rented
]

MACHINE_TRANSITIONS: Mapping[MachineState, tuple[MachineState, ...]] = {
    "pending": ("allocating", "returning", "failed", "returned"),
    "allocating": ("allocated", "ready", "pending", "returning", "failed"),
    "allocated": ("ready", "returning"),
    "ready": ("draining", "returning"),
    "draining": ("ready", "returning"),
    "returning": ("returned",),
    "returned": (),
    "failed": (),
}
#: States in which something may be rented, or soon will be: they count against every limit.
LIVE_MACHINE: frozenset[MachineState] = frozenset(s for s, to in MACHINE_TRANSITIONS.items() if to)

#: Why an attempt ended otherwise than by exit code 0. Those of `INTERNAL` are not the job's doing.
EndReason = Literal[
    "",
    "exit_code",
    "signal",
    "run_limit",
    "queue_limit",
    "memory_limit",
    "disk_full",  # its own limit
    "image_missing",
    "image_denied",
    "input_missing",
    "output_missing",
    "output_failed",  # the store of outputs did not take them
    "parameters",
    "dependency",
    "cancelled",
    "worker_failed",
    "worker_disk_full",
    "worker_silent",
    "worker_refused",  # it has no room, or cannot run such a job
    "machine_lost",
    "machine_reclaimed",  # spot
    "no_machine",
]
INTERNAL: frozenset[EndReason] = frozenset(
    {
        "output_failed",
        "worker_failed",
        "worker_disk_full",
        "worker_silent",
        "worker_refused",
        "machine_lost",
        "machine_reclaimed",
        "no_machine",
    }
)

#: In which order queued jobs are looked at, and which machine with room takes one.
Ordering = Literal["fifo", "shortest", "largest", "fair"]
Fit = Literal["first", "next", "best", "worst"]
#: How many machines of a pool may be spot: all, none, or beyond a number of on-demand ones.
Market = Literal["on_demand", "spot"]


@dataclass(frozen=True, slots=True)
class Input:
    """A file that is there before a job starts: fetched from `url`, checked by `digest`."""

    name: str  # relative to the job's folder
    url: str  # file:, http:, https: or s3:
    digest: str = ""  # sha256:HEX, or empty


@dataclass(frozen=True, slots=True)
class Output:
    """A file that a job leaves and that is kept; one that is missing fails it if `required`."""

    name: str  # relative to the job's folder
    required: bool = True


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What is asked of a job, or of all jobs of an array; it never changes.

    One of `command` and `image` is there, or both. `{item}`, `{index}` and `{parameters.NAME}` in
    words of the command stand for what differs between the jobs of an array.
    """

    demand: Demand
    command: tuple[str, ...] = ()
    image: str = ""  # REGISTRY/NAME@sha256:DIGEST, or with a tag
    environment: tuple[tuple[str, str], ...] = ()
    parameters: str = "{}"  # JSON
    inputs: tuple[Input, ...] = ()
    outputs: tuple[Output, ...] = ()
    outputs_to: str = ""  # URL of the folder or bucket; empty: the pool's, or the server's own
    run_limit_s: int = 3600
    queue_limit_s: int | None = None
    retries: int = 0  # after failures of its own
    restarts: int = 3  # after failures of ours
    priority: int = 0
    kind: str = ""  # the job kind that it was made from, or empty
    registry_account: str = ""  # whose credentials open a private registry


@dataclass(frozen=True, slots=True)
class MachineType:
    """A kind of VM that a provider rents. Money is in millionths of the account's currency."""

    name: str
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    price_micro: int  # an hour, on demand
    spot_price_micro: int | None = None  # an hour now; None: not to be had as spot
    regions: tuple[str, ...] = ()  # or zones; empty: it has none
    labels: tuple[tuple[str, str], ...] = ()

    def holds(self, demand: Demand) -> bool:
        """Say whether an empty machine of this type has room for a job."""
        return (
            demand.cpu_milli <= self.cpu_milli
            and demand.memory_bytes <= self.memory_bytes
            and demand.disk_bytes <= self.disk_bytes
        )

    def price(self, market: Market) -> int:
        """Return what an hour costs; a type without spot machines has its usual price there."""
        if market == "spot" and self.spot_price_micro is not None:
            return self.spot_price_micro
        return self.price_micro


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What a new machine is told: where its control plane is, who it is, and a token for once.

    It is all that user data may hold: no credentials of an account.
    """

    server: str
    machine: str
    join_token: str
    ca_pem: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """One machine to rent. The same `token` again is the same machine, never a second one."""

    token: str  # the machine's id
    type: MachineType
    market: Market
    bootstrap: Bootstrap
    region: str = ""  # empty: the provider chooses
    tags: tuple[tuple[str, str], ...] = ()  # roost-owner, roost-pool, roost-machine
    image: str = ""  # what it boots, where the provider needs to know


CloudState = Literal["starting", "running", "stopping", "gone"]


@dataclass(frozen=True, slots=True)
class CloudMachine:
    """A machine as a provider shows it; `machine` is the token with which it was launched."""

    cloud_id: str
    machine: str
    state: CloudState
    type: str = ""
    region: str = ""
    market: Market = "on_demand"
    created_ms: int = 0
    price_micro: int | None = None  # an hour, where the provider says it


@dataclass(frozen=True, slots=True)
class Pool:
    """Machines that run the jobs of a purpose, and how many there may be (a VM-space)."""

    name: str
    provider: str  # local, aws, azure, roost, ...
    account: str = ""  # whose credentials and limits; empty: the provider needs none
    types: tuple[str, ...] = ()  # that may be rented; empty: all
    regions: tuple[str, ...] = ()
    min_machines: int = 0
    max_machines: int = 10
    max_cpu_milli: int | None = None
    budget_micro: int | None = None  # an hour
    on_demand_base: int = 0  # so many are on demand before any is spot
    market: Market = "on_demand"  # of those beyond the base
    warm: int = 0  # idle machines that stay
    idle_grace_s: int = 300
    ordering: Ordering = "fifo"
    fit: Fit = "best"
    kinds: tuple[str, ...] = ()  # job kinds that may run here; empty: all
    project: str = ""  # whose jobs may run here; empty: all


@dataclass(frozen=True, slots=True)
class Account:
    """A project's account with a provider, and what may be rented with it at once."""

    name: str
    provider: str
    project: str = ""
    options: tuple[tuple[str, str], ...] = ()  # region, endpoint, subnet, ...: no secrets
    max_machines: int | None = None
    max_cpu_milli: int | None = None
    budget_micro: int | None = None  # an hour


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job: what is always the same, and which parameters its jobs take."""

    name: str
    spec: JobSpec
    schema: str = "{}"  # JSON schema of the parameters
    description: str = ""


def attempt_id(job: str, number: int) -> str:
    """Return the name of a job's attempt of this number, by which everything about it goes."""
    return f"{job}:{number}"


def job_of(attempt: str) -> tuple[str, int]:
    """Return the job and number of an attempt."""
    job, _, number = attempt.rpartition(":")
    return job, int(number)
