"""The messages between an agent and the control plane, over one WebSocket, as JSON.

    agent -> control   hello, heartbeat, report, samples, told, present
    control -> agent   welcome, desired, delta, renewed, refused, ask, roll_call

The agent converges on its whole desired list. `digest` sums the list up: equal digests mean equal
lists, so an unchanged list is never sent again except in full every `full_list_s`. What is missing
from a list is held and reported; only a tombstone destroys. A lease renewal is counted by the agent
from when it *sent* the heartbeat whose number `renewed` returns. Agents keep the newest point of
the ledger that they heard of and say it in `hello`: a ledger that does not know it has gone back.
"""

from hashlib import blake2b
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from roost.model.states import FailureClass, MoveMode, Part, Power, Restart, Seen

#: The protocols that this release speaks, from the oldest to the newest: `agree` finds one.
OLDEST_PROTOCOL, PROTOCOL = 1, 1

#: Largest message that either side accepts.
MOST_BYTES = 16 * 2**20

#: What an agent counts: no ledger stores more, and one agent's nonsense must not stop the others.
Count = Annotated[int, Meta(ge=-(2**62), le=2**62)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e9)]

#: What is here of a VM, whatever any list says. `leaving`: it is being sent, or nobody here can
#: tell who has it. `gone`: it was destroyed here after a tombstone. `unclear`: ask again.
CopyState = Literal["running", "stopped", "ready", "leaving", "moved", "lost", "gone", "unclear"]


class DeviceInfo(Struct, omit_defaults=True):
    """One GPU or other device."""

    model: str
    memory_bytes: int = 0
    shareable: bool = True
    address: str = ""  # where it is on the host, for the driver alone


class CellInfo(Struct):
    """One NUMA cell."""

    cpu_milli: int
    memory_bytes: int


class AmountInfo(Struct, omit_defaults=True):
    """One resource: `total` None means that it could not be read, and unknown is full."""

    total: int | None
    reserve: int = 0
    ratio_milli: int = 1000


class TaintInfo(Struct, omit_defaults=True):
    """A mark that keeps away VMs without a matching toleration."""

    key: str
    value: str = ""
    effect: str = "no-place"


class Inventory(Struct, omit_defaults=True):
    """All that a host registers with."""

    cpu_milli: AmountInfo
    memory_bytes: AmountInfo
    disk_bytes: AmountInfo
    extended: dict[str, AmountInfo] = {}
    zone: str = ""
    rack: str = ""
    site: str = ""
    labels: dict[str, str] = {}
    taints: list[TaintInfo] = []
    architecture: str = "x86_64"
    driver: str = "virtual"
    virtual: bool = False
    capabilities: list[str] = []
    devices: list[DeviceInfo] = []
    cells: list[CellInfo] = []
    max_vms: int | None = None


class ImageInfo(Struct, omit_defaults=True):
    """Bytes that a host fetches and keeps by their digest, "sha256:" and 64 hexadecimal digits."""

    digest: str
    url: str = ""  # empty: the host must have it already


class BootInfo(Struct, omit_defaults=True):
    """What a VM boots: a disk image, or a kernel with or without an initial RAM disk, or both.

    A kernel boots directly with `cmdline`; the image then only fills the disk.
    """

    image: ImageInfo | None = None
    kernel: ImageInfo | None = None
    initrd: ImageInfo | None = None
    cmdline: str = ""
    user_data: str = ""  # cloud-init; empty: no seed is made


class NicInfo(Struct, omit_defaults=True):
    """One network card. user: the driver's own network. tap: a tap device on `bridge`."""

    mode: Literal["user", "tap"] = "user"
    bridge: str = ""
    mac: str = ""  # empty: made from the VM's id
    forward: list[str] = []  # user: "tcp:HOSTPORT:GUESTPORT", on loopback


class MoveInfo(Struct, omit_defaults=True):
    """How a VM is moved."""

    begun: Count = 0  # the generation that began the move
    mode: MoveMode = "live"
    bandwidth_bytes: int = 0  # per second; 0: as the agent is set
    downtime_ms: int = 0  # the longest stand-still to aim for; 0: as the agent is set
    auto_converge: bool = True
    post_copy: bool = False
    limit_s: float = 0.0  # give up after so long; 0: as the agent is set


class DesiredVM(Struct, omit_defaults=True):
    """What one VM should be on this host. Every change of it has a higher generation."""

    id: str
    name: str
    project: str
    generation: int
    power: Power
    cpu_milli: int
    memory_bytes: int
    disk_bytes: int
    part: Part = "run"
    peer: str = ""  # the other host of a move
    move: MoveInfo | None = None
    endpoint: dict[str, str] = {}  # outgoing: where the target waits, in its driver's own words
    sent: bool = False  # incoming: the source says that all was sent
    restarts: int = 0  # how often a restart was asked for; the agent acts when it grows
    restart: Restart = "here"
    extended: dict[str, int] = {}
    devices: list[int] = []
    cells: list[int] = []
    labels: dict[str, str] = {}
    boot: BootInfo | None = None
    nics: list[NicInfo] = []


class Tombstone(Struct):
    """The order to destroy one VM on this host."""

    id: str
    generation: int


class ProgressInfo(Struct, omit_defaults=True):
    """How far a move has come."""

    sent_bytes: Count = 0
    left_bytes: Count = 0
    dirty_bytes_per_s: Count = 0
    passes: Count = 0
    throttle_percent: Count = 0  # how much the guest is slowed down so that it ends
    downtime_ms: Count | None = None  # known at the end


class SeenVM(Struct, omit_defaults=True):
    """What an agent sees of one VM, and the generation it has acted upon.

    `code` and `message` may stand beside a state that is no failure, such as amounts that hold
    from the next boot.
    """

    id: str
    generation: Count
    seen: Seen
    code: str = ""
    message: str = ""
    failure: FailureClass | None = None
    restarts: int = 0
    endpoint: dict[str, str] = {}
    progress: ProgressInfo | None = None


class HeldVM(Struct, omit_defaults=True):
    """A VM that runs here and is on no list: kept, and reported."""

    id: str
    name: str = ""
    seen: Seen = "running"
    reason: str = "not on the list"
    generation: Count = 0  # the newest that was acted upon


class LedgerPoint(Struct, frozen=True):
    """How far a ledger had come: an event's sequence, and the transaction that made it."""

    seq: Count
    tx: str


class CopyInfo(Struct):
    """What a host has of one VM, or remembers of it, whoever's order it was."""

    id: str
    generation: Count
    is_: CopyState = msgspec.field(name="is")


# Agent to control plane


class Hello(Struct, tag="hello", omit_defaults=True):
    """First message. `instance` is new with every start of the agent."""

    protocol: int  # the oldest that it speaks: releases that know of no range want this one
    host: str
    instance: str
    version: str
    inventory: Inventory
    digest: str = ""  # of the desired list it has on disk
    vms: list[SeenVM] = []
    held: list[HeldVM] = []
    guard_stop_s: Seconds | None = None  # a fence guard runs and needs at most so long to stop VMs
    heard: LedgerPoint | None = None  # the newest point of a ledger that it was told
    conversation: Count = 0  # grows with every connection of this instance
    newest: int = 0  # the newest protocol that it speaks; 0: `protocol` is the only one


def agree(hello: Hello, oldest: int = OLDEST_PROTOCOL, newest: int = PROTOCOL) -> int | None:
    """Return the newest protocol that an agent and this release both speak, None without any."""
    found = min(max(hello.protocol, hello.newest), newest)
    return found if found >= max(hello.protocol, oldest) else None


def disagreement(hello: Hello) -> str:
    """Return the sentence for an agent with which no protocol can be agreed upon."""
    theirs = _range(hello.protocol, max(hello.protocol, hello.newest))
    older = "agent" if hello.protocol < OLDEST_PROTOCOL else "control plane"
    return (
        f"the agent of host {hello.host!r} (roost {hello.version}) speaks protocol {theirs}, the "
        f"control plane {_range(OLDEST_PROTOCOL, PROTOCOL)}: the {older} must be upgraded"
    )


def _range(oldest: int, newest: int) -> str:
    return str(oldest) if oldest == newest else f"{oldest} to {newest}"


class Heartbeat(Struct, tag="heartbeat", omit_defaults=True):
    """I live. Asks for the lease to be renewed; `number` grows by one."""

    number: int
    digest: str = ""
    guard_stop_s: Seconds | None = None


class Report(Struct, tag="report", omit_defaults=True):
    """What changed, or with `full` everything; then a VM that is not named is not here."""

    vms: list[SeenVM] = []
    held: list[HeldVM] = []
    full: bool = False
    refused_destroying: int = 0  # tombstones that the guard against mass destruction holds back


class SampleInfo(Struct, omit_defaults=True):
    """One reading of one VM, or of the host when `vm` is empty."""

    vm: str
    at_ms: Count
    cpu_milli: Count
    memory_bytes: Count
    disk_bytes: Count = 0
    more: dict[str, float] = {}  # by name, see docs/reference/samples.md; absent means unknown


class Samples(Struct, tag="samples"):
    """Readings since the last message."""

    samples: list[SampleInfo]


class ConsoleReply(Struct, tag="told", omit_defaults=True):
    """The answer to `ask` with this number: text from `start`, or why there is none."""

    number: int
    text: str = ""
    start: int = 0  # byte offset of the first character in the whole log
    end: int = 0
    code: str = ""
    message: str = ""


class Present(Struct, tag="present"):
    """The answer to a roll call: every copy here and every record, as of the list with `digest`."""

    digest: str
    copies: list[CopyInfo]


FromAgent = Hello | Heartbeat | Report | Samples | ConsoleReply | Present


# Control plane to agent


class Welcome(Struct, tag="welcome"):
    """The host is registered under this number."""

    number: int
    heartbeat_s: float
    lease_s: float
    full_list_s: float
    protocol: int = 1  # what both speak from now on


class Desired(Struct, tag="desired", omit_defaults=True):
    """The whole list.

    Unless it `confirms`, VMs with `restart: elsewhere` must not start by it after a gap in the
    lease: the control plane does not know yet whether its ledger is the newest.
    """

    digest: str
    vms: list[DesiredVM] = []
    tombstones: list[Tombstone] = []
    point: LedgerPoint | None = None
    confirms: bool = True


class Delta(Struct, tag="delta", omit_defaults=True):
    """What changed since the list with digest `base`; with another base the agent asks anew.

    `dropped` left the list without a tombstone (it went elsewhere): held until one comes. `buried`
    are VMs whose tombstones are done with and leave the list.
    """

    base: str
    digest: str
    vms: list[DesiredVM] = []
    tombstones: list[Tombstone] = []
    dropped: list[str] = []
    buried: list[str] = []
    point: LedgerPoint | None = None


class Renewed(Struct, tag="renewed", omit_defaults=True):
    """The lease is renewed as of when heartbeat `number` was sent; it is in the ledger."""

    number: int
    point: LedgerPoint | None = None


class Refused(Struct, tag="refused", omit_defaults=True):
    """Not accepted. `fenced`: VMs of this host may run elsewhere now, so stop those that could."""

    code: str
    message: str
    fenced: bool = False


class ConsoleRequest(Struct, tag="ask", omit_defaults=True):
    """A question about one VM that the agent answers by `told`. console: its serial log.

    Without `start` the last `limit` bytes are meant, else what follows `start`.
    """

    number: int
    vm: str
    kind: Literal["console"] = "console"
    start: int | None = None
    limit: int = 65536


class RollCall(Struct, tag="roll_call"):
    """An old ledger was restored: say what you have, by `present`."""


ToAgent = Welcome | Desired | Delta | Renewed | Refused | ConsoleRequest | RollCall

_NUL, _REPLACEMENT = rb"\u0000", rb"\ufffd"
_encoder = msgspec.json.Encoder()
_from_agent: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent)
_to_agent: msgspec.json.Decoder[ToAgent] = msgspec.json.Decoder(ToAgent)


def encode(message: FromAgent | ToAgent) -> bytes:
    """Encode a message as JSON bytes."""
    return _encoder.encode(message)


def decode_from_agent(data: bytes | str) -> FromAgent:
    """Read what an agent sent; raises msgspec.ValidationError or DecodeError.

    A driver's words may have the character NUL in them, which not every ledger can store.
    """
    raw = data.encode() if isinstance(data, str) else data
    if _NUL in raw:
        raw = raw.replace(_NUL, _REPLACEMENT)
    return _from_agent.decode(raw)


def decode_to_agent(data: bytes | str) -> ToAgent:
    """Read what the control plane sent."""
    return _to_agent.decode(data)


def entry_hash(vm_id: str, generation: int, tombstone: bool = False) -> int:
    """Return the contribution of one entry to the digest of a list."""
    text = f"{'-' if tombstone else '+'}{vm_id}:{generation}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def digest_text(value: int) -> str:
    """Write a digest: the exclusive or of its entries' hashes."""
    return f"{value:016x}"


def list_digest(desired: Desired) -> str:
    """Return the digest of a whole list from scratch."""
    value = 0
    for vm in desired.vms:
        value ^= entry_hash(vm.id, vm.generation)
    for tombstone in desired.tombstones:
        value ^= entry_hash(tombstone.id, tombstone.generation, tombstone=True)
    return digest_text(value)
