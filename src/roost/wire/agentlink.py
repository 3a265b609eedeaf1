"""The messages between an agent and the control plane, over one WebSocket, as JSON.

    agent -> control   hello, heartbeat, report, samples, told, present, probed
    control -> agent   welcome, desired, delta, renewed, refused, ask, roll_call, probe

The agent converges on its whole desired list. `digest` sums the list up: equal digests mean equal
lists, so an unchanged list is never sent again except in full every `full_list_s`. What is missing
from a list is held and reported; only a tombstone destroys. A lease renewal is counted by the agent
from when it *sent* the heartbeat whose number `renewed` returns. Agents keep the newest point of
the ledger that they heard of and say it in `hello`: a ledger that does not know it has gone back.

What an agent says is bounded by the types of its fields (`agentlimits.py`). A message that breaks a
bound is refused as a whole, but of lists of VMs and samples only the entries that do are left out.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from ipaddress import ip_address
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from roost.model.states import FailureClass, MoveMode, Part, Power, Restart, Seen
from roost.wire import agentlimits as limit

#: The protocols that this release speaks, from the oldest to the newest: `agree` finds one.
OLDEST_PROTOCOL, PROTOCOL = 1, 1

#: Largest message that either side accepts.
MOST_BYTES = 16 * 2**20
#: Characters of orders that one host tells of the VMs it holds, and that are kept of it: in every
#: report, a row, and an event with each change of it.
MOST_HELD_ORDERS = 2**16

#: IP:PORT, an IPv6 address in brackets.
_PROBE_ADDRESS = re.compile(r"(?P<host>[0-9.]{7,15}|\[[0-9A-Fa-f:.]{2,64}\]):(?P<port>[0-9]{1,5})")

#: What is here of a VM, whatever any list says. `leaving`: it is being sent, or nobody here can
#: tell who has it. `gone`: it was destroyed here after a tombstone. `unclear`: ask again.
CopyState = Literal["running", "stopped", "ready", "leaving", "moved", "lost", "gone", "unclear"]


class DeviceInfo(Struct, omit_defaults=True):
    """One GPU or other device."""

    model: limit.Word
    memory_bytes: limit.Amount = 0
    shareable: bool = True
    address: limit.Address = ""  # where it is on the host, for the driver alone


class CellInfo(Struct):
    """One NUMA cell."""

    cpu_milli: limit.Amount
    memory_bytes: limit.Amount


class AmountInfo(Struct, omit_defaults=True):
    """One resource: `total` None means that it could not be read, and unknown is full."""

    total: limit.Amount | None
    reserve: limit.Amount = 0
    ratio_milli: limit.Ratio = 1000


class TaintInfo(Struct, omit_defaults=True):
    """A mark that keeps away VMs without a matching toleration."""

    key: limit.Name
    value: limit.Label = ""
    effect: limit.Word = "no-place"


class Inventory(Struct, omit_defaults=True):
    """All that a host registers with."""

    cpu_milli: AmountInfo
    memory_bytes: AmountInfo
    disk_bytes: AmountInfo
    extended: Annotated[dict[limit.ResourceName, AmountInfo], limit.MANY_RESOURCES] = {}
    zone: limit.Label = ""
    rack: limit.Label = ""
    site: limit.Label = ""
    labels: Annotated[dict[limit.Name, limit.Label], limit.MANY_LABELS] = {}
    taints: Annotated[list[TaintInfo], limit.MANY_TAINTS] = []
    architecture: limit.Word = "x86_64"
    driver: limit.Word = "virtual"
    virtual: bool = False
    capabilities: Annotated[list[limit.Word], limit.MANY_CAPABILITIES] = []
    devices: Annotated[list[DeviceInfo], limit.MANY_PARTS] = []
    cells: Annotated[list[CellInfo], limit.MANY_PARTS] = []
    max_vms: limit.MostVMs | None = None


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

    begun: limit.Generation = 0  # the generation that began the move
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

    sent_bytes: limit.Count = 0
    left_bytes: limit.Count = 0
    dirty_bytes_per_s: limit.Count = 0
    passes: limit.Count = 0
    throttle_percent: limit.Count = 0  # how much the guest is slowed down so that it ends
    downtime_ms: limit.Count | None = None  # known at the end


class SeenVM(Struct, omit_defaults=True):
    """What an agent sees of one VM, and the generation it has acted upon.

    `code` and `message` may stand beside a state that is no failure, such as amounts that hold
    from the next boot.
    """

    id: limit.Id
    generation: limit.Generation
    seen: Seen
    code: limit.Word = ""
    message: limit.Text = ""
    failure: FailureClass | None = None
    restarts: limit.Count = 0
    endpoint: Annotated[dict[limit.Word, limit.Address], limit.MANY_ENDPOINTS] = {}
    progress: ProgressInfo | None = None
    # The restart policy in force: a guard stops the VM when the lease ends. None: not told.
    restart: Restart | None = None


class HeldVM(Struct, omit_defaults=True):
    """A VM that runs here and is on no list: kept, and reported."""

    id: limit.Id
    name: limit.Label = ""
    seen: Seen = "running"
    reason: limit.Label = "not on the list"
    generation: limit.Generation = 0  # the newest that was acted upon
    order: limit.OrderText = ""  # the order that it carried out last, a DesiredVM as JSON
    lost: bool = False  # an incoming copy whose process ended before it took over


def within_bounds(held: Sequence[HeldVM]) -> list[HeldVM]:
    """Return what a host holds, without the orders of those for which there is no room."""
    kept, left = [], MOST_HELD_ORDERS
    for each in held:
        left -= len(each.order)
        kept.append(each if left >= 0 else replace(each, order=""))
    return kept


class LedgerPoint(Struct, frozen=True):
    """How far a ledger had come: an event's sequence, and the transaction that made it."""

    seq: limit.Count
    tx: limit.Word


class CopyInfo(Struct, omit_defaults=True):
    """What a host has of one VM, or remembers of it, whoever's order it was."""

    id: limit.Id
    generation: limit.Generation
    is_: CopyState = msgspec.field(name="is")
    restart: Restart | None = None  # that it was told last; None: not told


class ProbeInfo(Struct, omit_defaults=True):
    """Where other agents reach the probe port of a host; no address: it probes nothing."""

    address: limit.Address = ""
    why: limit.Text = ""  # why not, where its operator asked for it


def probe_address(text: str) -> tuple[str, int] | None:
    """Return host and port of a probe port; None for what is no such address.

    No names: what a name that an agent has said means is not for others to look up.
    """
    found = _PROBE_ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found["port"]) < 2**16:
        return None
    host = found["host"].strip("[]")
    try:
        ip_address(host)
    except ValueError:
        return None
    return host, int(found["port"])


# Agent to control plane


class Hello(Struct, tag="hello", omit_defaults=True):
    """First message. `instance` is new with every start of the agent."""

    # The oldest that it speaks: releases that know of no range want this one.
    protocol: limit.ProtocolNumber
    host: limit.Name
    instance: limit.Word
    version: limit.Word
    inventory: Inventory
    digest: limit.Word = ""  # of the desired list it has on disk
    vms: Annotated[list[SeenVM], limit.MANY_VMS] = []
    held: Annotated[list[HeldVM], limit.MANY_HELD] = []
    guard_stop_s: limit.GuardSeconds | None = None  # what its fence guard needs to stop all VMs
    heard: LedgerPoint | None = None  # the newest point of a ledger that it was told
    conversation: limit.Count = 0  # grows with every connection of this instance
    newest: limit.ProtocolNumber = 0  # that it speaks; 0: `protocol` is the only one
    probe: ProbeInfo | None = None  # None: the agent is older than probes, and is never sent any


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

    number: limit.Count
    digest: limit.Word = ""
    guard_stop_s: limit.GuardSeconds | None = None


class Report(Struct, tag="report", omit_defaults=True):
    """What changed, or with `full` everything; then a VM that is not named is not here."""

    vms: Annotated[list[SeenVM], limit.MANY_VMS] = []
    held: Annotated[list[HeldVM], limit.MANY_HELD] = []
    full: bool = False
    refused_destroying: limit.Count = 0  # tombstones held back by the guard of mass destruction


class SampleInfo(Struct, omit_defaults=True):
    """One reading of one VM, or of the host when `vm` is empty."""

    vm: limit.Word
    at_ms: limit.Count
    cpu_milli: limit.Amount
    memory_bytes: limit.Amount
    disk_bytes: limit.Amount = 0
    more: Annotated[
        dict[limit.Word, limit.Reading], limit.MANY_READINGS
    ] = {}  # by name, see docs/reference/samples.md; absent means unknown


class FlowInfo(Struct):
    """What one VM of this host has sent to one card, wherever that is, since it was told before."""

    vm: limit.Id
    card: limit.Card  # the address of the card that the frames were for
    sent_bytes: limit.Count


def most_sent(flows: Sequence[FlowInfo]) -> list[FlowInfo]:
    """Return as many flows as one message takes, those with the most bytes."""
    most = sorted(flows, key=lambda each: (-each.sent_bytes, each.vm, each.card))
    return most[: limit.MOST_FLOWS]


class Samples(Struct, tag="samples", omit_defaults=True):
    """Readings since the last message; flows of agents that count them."""

    samples: Annotated[list[SampleInfo], limit.MANY_SAMPLES]
    flows: Annotated[list[FlowInfo], limit.MANY_FLOWS] = []


class ConsoleReply(Struct, tag="told", omit_defaults=True):
    """The answer to `ask` with this number: text from `start`, or why there is none."""

    number: limit.Count
    text: limit.ConsoleText = ""
    start: limit.Count = 0  # byte offset of the first character in the whole log
    end: limit.Count = 0
    code: limit.Word = ""
    message: limit.Text = ""
    base: limit.Count = 0  # where this host's own part begins; before it is an earlier host's


class Present(Struct, tag="present"):
    """The answer to a roll call: every copy here and every record, as of the list with `digest`."""

    digest: limit.Word
    copies: Annotated[list[CopyInfo], limit.MANY_COPIES]


class ProbeReply(Struct, tag="probed", omit_defaults=True):
    """The answer to `probe` with this number: figures, or why there are none.

    What is None could not be measured. `out` is what the peer took of this host, `back` what this
    host took of the peer.
    """

    number: limit.Count
    round_trip_ms: limit.ProbeMs | None = None  # the least
    median_ms: limit.ProbeMs | None = None
    out_mbit: limit.ProbeMbit | None = None
    back_mbit: limit.ProbeMbit | None = None
    code: limit.Word = ""
    message: limit.Text = ""


FromAgent = Hello | Heartbeat | Report | Samples | ConsoleReply | Present | ProbeReply


# Control plane to agent


class Welcome(Struct, tag="welcome"):
    """The host is registered under this number."""

    number: int
    heartbeat_s: float
    lease_s: float
    full_list_s: float
    protocol: int = 1  # what both speak from now on
    # What an operator set in place of the agent's own, by resource: cpu, memory, disk.
    reserve: dict[str, int] = {}
    ratio_milli: dict[str, int] = {}


class Desired(Struct, tag="desired", omit_defaults=True):
    """The whole list.

    Unless it `confirms`, VMs with `restart: elsewhere` must not start by it after a gap in the
    lease, nor any VM after a boot of the machine: the control plane does not know yet whether its
    ledger is the newest.
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


class ProbeOrder(Struct, tag="probe", omit_defaults=True):
    """Measure the way to the agent at `address`; without one: let in the agent with this word.

    The word is random, of one probe, and told to both sides. `bytes` and `seconds` bound what is
    sent each way; the agent has bounds of its own beside them. Answered by `probed`.
    """

    number: int
    word: str
    address: str = ""
    pings: int = 20
    bytes: int = 0
    seconds: float = 0.0


ToAgent = Welcome | Desired | Delta | Renewed | Refused | ConsoleRequest | RollCall | ProbeOrder

_NUL, _REPLACEMENT = rb"\u0000", rb"\ufffd"
_encoder = msgspec.json.Encoder()
_from_agent: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent)
_to_agent: msgspec.json.Decoder[ToAgent] = msgspec.json.Decoder(ToAgent)
_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()

#: Lists of which one unreadable entry does not make the message unreadable: name, entry, most.
_ENTRIES: dict[str, tuple[type[FromAgent], tuple[tuple[str, type[Struct], int], ...]]] = {
    "hello": (Hello, (("vms", SeenVM, limit.MOST_VMS), ("held", HeldVM, limit.MOST_HELD))),
    "report": (Report, (("vms", SeenVM, limit.MOST_VMS), ("held", HeldVM, limit.MOST_HELD))),
    "samples": (
        Samples,
        (("samples", SampleInfo, limit.MOST_SAMPLES), ("flows", FlowInfo, limit.MOST_FLOWS)),
    ),
    "present": (Present, (("copies", CopyInfo, limit.MOST_COPIES),)),
}


class Taken(NamedTuple):
    """A message of an agent, and what of it could not be read."""

    message: FromAgent
    left_out: int = 0  # entries of its lists
    why: str = ""  # of the first of them
    nameless: int = 0  # copies among them of which not even the VM can be read


def encode(message: FromAgent | ToAgent) -> bytes:
    """Encode a message as JSON bytes."""
    return _encoder.encode(message)


def decode_from_agent(data: bytes | str) -> FromAgent:
    """Read what an agent sent, all of it; raises msgspec.DecodeError (also a ValidationError).

    A driver's words may have the character NUL in them, which not every ledger can store.
    """
    return _decode(_from_agent, _without_nul(data))


def take_from_agent(data: bytes | str) -> Taken:
    """Read what an agent sent, without the entries of its lists that break a bound.

    A copy that breaks one is there all the same, as one of which the host cannot tell more.

    Raises msgspec.DecodeError when the rest of the message cannot be read.
    """
    raw = _without_nul(data)
    try:
        return Taken(_decode(_from_agent, raw))
    except msgspec.ValidationError:
        if len(raw) > limit.MOST_MENDED_BYTES:
            raise
        found = _decode(_anything, raw)
        known = _ENTRIES.get(str(found.get("type"))) if isinstance(found, dict) else None
        if known is None:
            raise
    kind, lists = known
    left_out, why, nameless = 0, "", 0
    for name, entry, most in lists:
        entries = found.get(name, [])
        if not isinstance(entries, list) or len(entries) > most:
            raise msgspec.ValidationError(f"Expected a list of at most {most} - at `$.{name}`")
        found[name] = kept = []
        for each in entries:
            try:
                kept.append(msgspec.convert(each, entry))
            except msgspec.ValidationError as error:
                left_out, why = left_out + 1, why or f"{name}: {error}"
                if entry is CopyInfo:
                    named = isinstance(each, dict) and isinstance(each.get("id"), str)
                    kept += _as_unclear(each["id"]) if named else []
                    nameless += not named
    return Taken(msgspec.convert(found, kind), left_out, why, nameless)


def _as_unclear(vm: str) -> list[CopyInfo]:
    """Return a copy of which only the name can be read; none if no VM can have that name."""
    try:
        return [CopyInfo(msgspec.convert(vm, limit.Id), 0, "unclear")]
    except msgspec.ValidationError:
        return []


def decode_to_agent(data: bytes | str) -> ToAgent:
    """Read what the control plane sent; raises msgspec.DecodeError."""
    return _decode(_to_agent, data)


D = TypeVar("D")


def _decode(decoder: msgspec.json.Decoder[D], data: bytes | str) -> D:
    try:
        return decoder.decode(data)
    except (UnicodeDecodeError, RecursionError) as error:
        # Bytes that are no text, and lists in lists without end: not what msgspec calls an error.
        raise msgspec.DecodeError(f"no message: {error}") from error


def _without_nul(data: bytes | str) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return raw.replace(_NUL, _REPLACEMENT) if _NUL in raw else raw


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
