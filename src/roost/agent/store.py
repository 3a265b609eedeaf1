"""What an agent must still know after it was killed: its list, per VM what it has done, its lease.

    DIR/credential     0600
    DIR/desired.json   the last list
    DIR/records/*.json one per VM: generation and restarts carried out; kept after its destruction,
                       so that an old list cannot bring it back
    DIR/lease          the deadline, for the fence guard
    DIR/heard          the newest point of a ledger that was heard of
    DIR/limits.json    the reserve and overcommitment that operators set in place of our own
    DIR/agent.lock     one agent per folder

A broken file is put aside and counts as unknown, never as empty: without a list nothing is
changed, and a VM without a record is adopted as it is. `MemoryStore` is the same for simulations.
"""

import asyncio
import fcntl
import logging
import os
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from roost.base import private
from roost.base.errors import Conflict
from roost.hostkit.files import file_name, put_aside, write_whole
from roost.model.states import Restart
from roost.wire.agentlink import Desired, LedgerPoint

log = logging.getLogger(__name__)

S = TypeVar("S")

#: Records of destroyed VMs that are kept.
MOST_GONE = 4096


class _Told(Struct):
    """The one field of an order that is read again from a record."""

    restart: Restart = "here"


class Record(Struct, frozen=True, omit_defaults=True):
    """What the agent has carried out for one VM."""

    id: str
    name: str = ""
    generation: int = 0
    restarts: int = 0
    amounts: dict[str, int] = {}  # what it takes here
    gone: bool = False  # its destruction was begun, after a tombstone
    order: str = ""  # as carried out (`sightings.order_text`), for a ledger that has lost the VM

    def told_restart(self) -> Restart | None:
        """Return the restart policy that the VM's last order had; None: nobody has noted it."""
        return msgspec.json.decode(self.order, type=_Told).restart if self.order else None


class HostLimits(Struct, frozen=True):
    """What operators set in place of the agent's own, by resource; as in a welcome."""

    reserve: dict[str, int] = {}
    ratio_milli: dict[str, int] = {}


class LeaseFile(Struct, frozen=True):
    """The lease as the guard reads it: seconds on the monotonic clock of this boot."""

    deadline: float
    boot: str


class Store(Protocol):
    """The agent's memory that outlives it."""

    def open(self) -> None:
        """Lock the store; raises Conflict when another agent has it."""

    def close(self) -> None:
        """Release the store."""

    def credential(self) -> str | None:
        """Return the host's credential."""

    def records(self) -> list[Record]:
        """Return the records of all VMs."""

    def desired(self) -> Desired | None:
        """Return the last list, None when there is none to trust."""

    async def save_desired(self, desired: Desired) -> None:
        """Store the desired list."""

    async def save_record(self, record: Record) -> None:
        """Keep what was carried out for one VM."""

    async def forget_record(self, vm_id: str) -> None:
        """Drop the record of one VM."""

    def lease(self) -> float | None:
        """Return the deadline if it was written since the machine booted."""

    def save_lease(self, deadline: float | None) -> None:
        """Store the lease's deadline for the guard; None: it is over."""

    def heard(self) -> LedgerPoint | None:
        """Return the newest point of a ledger that was kept."""

    def save_heard(self, point: LedgerPoint) -> None:
        """Keep a point of the ledger, at once but not against a power cut: lists carry it too."""

    def limits(self) -> HostLimits | None:
        """Return the limits that were told last."""

    def save_limits(self, limits: HostLimits) -> None:
        """Keep the limits: VMs that were placed by them must fit after a boot without a server."""


class MemoryStore:
    """Everything in memory; hand the same one to the next agent to simulate a restart."""

    def __init__(self, credential: str | None = None) -> None:
        self._credential = credential
        self._records: dict[str, Record] = {}
        self._desired: Desired | None = None
        self._lease: float | None = None
        self._heard: LedgerPoint | None = None
        self._limits: HostLimits | None = None
        self.shortened = asyncio.Event()  # the lease ends earlier than it did

    def open(self) -> None:
        """Open the store; no lock is needed."""

    def close(self) -> None:
        """Release the store."""

    def credential(self) -> str | None:
        """Return the host's credential."""
        return self._credential

    def records(self) -> list[Record]:
        """Return the records of all VMs."""
        return list(self._records.values())

    def desired(self) -> Desired | None:
        """Return the last list."""
        return self._desired

    async def save_desired(self, desired: Desired) -> None:
        """Store the desired list."""
        self._desired = desired

    async def save_record(self, record: Record) -> None:
        """Store a VM's record."""
        self._records[record.id] = record

    async def forget_record(self, vm_id: str) -> None:
        """Delete a VM's record."""
        self._records.pop(vm_id, None)

    def lease(self) -> float | None:
        """Return the stored deadline of the lease."""
        return self._lease

    def save_lease(self, deadline: float | None) -> None:
        """Store the deadline of the lease."""
        if self._lease is not None and (deadline is None or deadline < self._lease):
            self.shortened.set()
        self._lease = deadline

    def heard(self) -> LedgerPoint | None:
        """Return the newest point of a ledger."""
        return self._heard

    def save_heard(self, point: LedgerPoint | None) -> None:
        """Keep a point of the ledger."""
        self._heard = point

    def limits(self) -> HostLimits | None:
        """Return the limits that were told last."""
        return self._limits

    def save_limits(self, limits: HostLimits) -> None:
        """Keep the limits."""
        self._limits = limits


class FolderStore:
    """The same in a folder. Lists and records are written in threads; a slow disk stops nobody."""

    def __init__(self, folder: Path, *, boot: str) -> None:
        self.folder = folder
        self._boot = boot
        self._records = folder / "records"
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folder and lock it."""
        private.make_folder(self._records)
        descriptor = os.open(self.folder / "agent.lock", os.O_RDWR | os.O_CREAT, private.FILE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise Conflict(
                f"another agent works in {self.folder}",
                hint="Maybe it is still running; one folder belongs to one agent.",
            ) from error
        self._lock = descriptor

    def close(self) -> None:
        """Release the folder's lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def credential(self) -> str | None:
        """Return the host's credential, None before it joined."""
        try:
            return (self.folder / "credential").read_text().strip() or None
        except FileNotFoundError:
            return None

    def save_credential(self, credential: str) -> None:
        """Keep the credential where nobody else reads it."""
        private.make_folder(self.folder)
        write_whole(self.folder / "credential", credential.encode())

    def records(self) -> list[Record]:
        """Return every record that can be read."""
        paths = sorted(self._records.glob("*.json"))
        return [record for path in paths if (record := _decode(path, Record)) is not None]

    def desired(self) -> Desired | None:
        """Return the last list, None when there is none to trust.

        Another release's file lacks what that release did not know of. Its list is obeyed, but
        without its digest, so that the whole list is sent again, however little has changed.
        """
        path = self.folder / "desired.json"
        found = _decode(path, Desired)
        if found is not None and msgspec.json.decode(path.read_bytes(), type=_Form).form != _form():
            return msgspec.structs.replace(found, digest="")
        return found

    async def save_desired(self, desired: Desired) -> None:
        """Store the desired list, with the form that this release knows."""
        data = msgspec.json.encode(desired)[:-1] + f',"form":"{_form()}"}}'.encode()
        await asyncio.to_thread(write_whole, self.folder / "desired.json", data)

    async def save_record(self, record: Record) -> None:
        """Store a VM's record."""
        path = self._records / file_name(record.id)
        await asyncio.to_thread(write_whole, path, msgspec.json.encode(record))

    async def forget_record(self, vm_id: str) -> None:
        """Delete a VM's record."""
        path = self._records / file_name(vm_id)
        await asyncio.to_thread(path.unlink, missing_ok=True)

    def lease(self) -> float | None:
        """Return the deadline if it was written since the machine booted."""
        lease = _decode(self.folder / "lease", LeaseFile)
        return lease.deadline if lease is not None and lease.boot == self._boot else None

    def save_lease(self, deadline: float | None) -> None:
        """Write the deadline. A power cut ends every VM, so it need not survive one."""
        lease = LeaseFile(0.0 if deadline is None else deadline, self._boot)
        write_whole(self.folder / "lease", msgspec.json.encode(lease), durable=False)

    def heard(self) -> LedgerPoint | None:
        """Return the newest point of a ledger that was kept."""
        return _decode(self.folder / "heard", LedgerPoint)

    def save_heard(self, point: LedgerPoint) -> None:
        """Keep a point of the ledger."""
        write_whole(self.folder / "heard", msgspec.json.encode(point), durable=False)

    def limits(self) -> HostLimits | None:
        """Return the limits that were told last."""
        return _decode(self.folder / "limits.json", HostLimits)

    def save_limits(self, limits: HostLimits) -> None:
        """Keep the limits, on the spot: they are changed by hand, and rarely."""
        write_whole(self.folder / "limits.json", msgspec.json.encode(limits))


class _Form(Struct):
    form: str = ""


@cache
def _form() -> str:
    """Return what tells the lists that this release knows from those of others: their fields."""
    fields = msgspec.json.encode(msgspec.json.schema(Desired))
    return blake2b(fields, digest_size=8).hexdigest()


def _decode(path: Path, kind: type[S]) -> S | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        log.error("%s is broken (%s); it is now %s", path, error, put_aside(path).name)
        return None
