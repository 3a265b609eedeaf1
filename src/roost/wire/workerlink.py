"""What a machine's worker and the control plane say to each other, over HTTP.

    POST /api/v1/worker/join   join token   WorkerJoin -> WorkerJoined   once per machine
    POST /api/v1/worker/poll   credential   WorkerPoll -> WorkerOrders   as long as it lives
    POST /api/v1/worker/logs   credential   WorkerLogs -> LogsTaken      more than a poll has

The poll is the heartbeat. It says everything that the worker has (`attempts`) and what has ended
(`finished`, again and again until it is acknowledged); the answer says what it should have. It is
held up to `wait_s` when there is nothing to say, one of a machine at a time: an older one is
answered when the next comes. Everything goes by the id of an attempt, so what
is sent twice, late or out of order changes nothing the second time:

- An assignment comes with every answer until the attempt is in `attempts` or `finished`.
- What stands in `cancel` is to be ended, whether its job was cancelled, is lost to this machine or
  was never known; it is reported in `finished` all the same.
- A report that is in `acknowledged` is recorded, or will never be wanted: forget it.
- A credential opens only what belongs to its own machine.

Everything that a worker says is bounded here.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from roost.model.job import EndReason
from roost.wire.bodies import Reply, Request

#: The version of this protocol; a worker of another one is told so when it joins.
PROTOCOL = 1
#: Attempts that one machine may have at once, and reports of one poll.
MOST_ATTEMPTS = 4096
#: Bytes of one chunk of a log, before they are base64.
MOST_CHUNK = 256 * 1024
MOST_CHUNKS = 256
MOST_WAIT_S = 30.0

_PRINTED = r"^[^\x00-\x1f\x7f]*\Z"
Id = Annotated[str, Meta(min_length=1, max_length=160, pattern=_PRINTED)]
Word = Annotated[str, Meta(max_length=128, pattern=_PRINTED)]
Line = Annotated[str, Meta(max_length=2048)]
Address = Annotated[str, Meta(max_length=2048, pattern=_PRINTED)]
Count = Annotated[int, Meta(ge=0, le=2**62)]
Amount = Annotated[int, Meta(ge=0, le=2**48)]
#: Milliseconds of one attempt: 34 years, so that sums of them stay numbers of the ledger.
Span = Annotated[int, Meta(ge=0, le=2**40)]


# Joining


class WorkerJoin(Request):
    """A worker that has a join token."""

    machine: Id
    protocol: Annotated[int, Meta(ge=0, le=1000)] = PROTOCOL
    version: Word = ""


class WorkerJoined(Reply):
    """The machine's credential, kept by the worker in a file of its own."""

    machine: str
    credential: str


# Polling


class WorkerCapacity(Request):
    """What a machine has for attempts, and how their limits are held."""

    cpu_milli: Amount
    memory_bytes: Amount
    disk_bytes: Amount
    limits: Literal["cgroup", "rlimit", "none"] = "rlimit"
    containers: Literal["", "podman", "docker"] = ""


class AttemptSeen(Request):
    """An attempt that the worker has and that has not ended."""

    attempt: Id
    state: Literal["waiting", "fetching", "running", "ending"]


class OutputKept(Request):
    """A file of a job that is in the store of outputs."""

    name: Address
    url: Address
    bytes: Count
    digest: Word = ""  # sha256:HEX


class LogChunk(Request):
    """A piece of what an attempt has written, from `offset` on; `end`: there is no more."""

    attempt: Id
    stream: Literal["stdout", "stderr"]
    offset: Count
    data: Annotated[bytes, Meta(max_length=MOST_CHUNK)]
    end: bool = False
    dropped: Count = 0  # bytes behind these that are not kept anywhere


class AttemptReport(Request):
    """How an attempt ended. `exit_code` is that of its process, None if it never had one."""

    attempt: Id
    outcome: Literal["completed", "failed", "cancelled"]
    reason: EndReason = ""
    message: Line = ""
    exit_code: Annotated[int, Meta(ge=-(2**31), le=2**31)] | None = None
    signal: Annotated[int, Meta(ge=0, le=128)] | None = None
    run_ms: Span = 0  # by the worker's own clock, from the start of the process to its end
    cpu_ms: Span = 0
    memory_bytes: Amount = 0  # the most that it had
    outputs: Annotated[list[OutputKept], Meta(max_length=256)] = field(default_factory=list)


class WorkerPoll(Request):
    """Everything that a worker has. `notice`: the machine will be taken away soon."""

    instance: Id  # new with every start of the worker
    sequence: Count  # grows with every poll of an instance; several may be under way
    attempts: Annotated[list[AttemptSeen], Meta(max_length=MOST_ATTEMPTS)] = field(
        default_factory=list
    )
    finished: Annotated[list[AttemptReport], Meta(max_length=MOST_ATTEMPTS)] = field(
        default_factory=list
    )
    logs: Annotated[list[LogChunk], Meta(max_length=MOST_CHUNKS)] = field(default_factory=list)
    capacity: WorkerCapacity | None = None  # with the first poll of an instance
    notice: Literal["", "reclaim", "leaving"] = ""
    wait_s: Annotated[float, Meta(ge=0.0, le=MOST_WAIT_S)] = 0.0


class InputOrder(Struct):
    """A file to fetch before the job starts."""

    name: str
    url: str
    digest: str = ""


class OutputOrder(Struct):
    """A file to keep when the job has ended."""

    name: str
    required: bool = True


class RegistryLogin(Struct):
    """How a private registry is opened; never written to a log or a file that others can read."""

    user: str
    password: str
    registry: str = ""  # the host that it is for; without one it is for none


class Assignment(Struct):
    """One attempt to run: everything about it, nothing to be asked for."""

    attempt: str
    job: str
    index: int
    command: list[str]  # placeholders are filled in
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    run_limit_s: int
    image: str = ""
    environment: dict[str, str] = {}
    parameters: dict[str, Any] = {}  # also written to parameters.json in the job's folder
    inputs: list[InputOrder] = []
    outputs: list[OutputOrder] = []
    outputs_to: str = ""  # the folder of this attempt in the store of outputs: file: or s3:
    own_store: bool = False  # that store is the server's, not one that the job names
    log_limit_bytes: int = 1024 * 1024  # of each stream; what is beyond is dropped and counted
    registry: RegistryLogin | None = None


class WorkerOrders(Reply):
    """What a worker should have.

    drain: start nothing, and report what waits as machine_reclaimed. leave: the machine is no
    longer ours; end everything and exit.
    """

    assignments: list[Assignment] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    drain: bool = False
    leave: bool = False
    poll_s: float = 5.0  # poll again after so long at the latest; at once when something ended


class WorkerLogs(Request):
    """Pieces of logs that no poll could carry."""

    chunks: Annotated[list[LogChunk], Meta(max_length=MOST_CHUNKS)]


class LogOffset(Struct):
    """How far a log is kept: the offset that the next chunk should have, and whether to send it."""

    attempt: str
    stream: str
    offset: int
    enough: bool = False  # the limit is reached, or nobody wants it any more: send nothing more


class LogsTaken(Reply):
    """How far each log is kept now."""

    logs: list[LogOffset] = field(default_factory=list)
