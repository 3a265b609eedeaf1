"""The durable VM spec: what an owner asked of one VM, as the ledger keeps it for the VM's life.

A body of the API becomes a spec at the border (`wire/specs.py`); from there on the spec is what
placing, dispatch and answers go by. It holds nothing that changes by itself and nothing that tells
two VMs of one request apart: id, name, project, labels and the amounts of now are columns of the
VM's row, user data is a row of its own. So equal requests have equal specs, and a process keeps
each distinct one once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from roost.model.constraints import NO_CONSTRAINTS, Constraints
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope
from roost.model.resources import Demand, NumaMode


@dataclass(frozen=True, slots=True)
class AffinityRule:
    """A rule about every VM of the project that has these labels, itself included."""

    selector: tuple[tuple[str, str], ...]
    rule: GroupRule
    scope: Scope = Scope.HOST
    hard: bool = True
    max_skew: int = 1
    weight: int = 50


@dataclass(frozen=True, slots=True)
class Image:
    """Bytes that hosts fetch and keep by their digest."""

    digest: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Boot:
    """What a VM boots. `user_data` is the digest of what cloud-init is given, or empty."""

    image: Image | None = None
    kernel: Image | None = None
    initrd: Image | None = None
    cmdline: str = ""
    user_data: str = ""


@dataclass(frozen=True, slots=True)
class Nic:
    """A network card: the driver's own network, or a tap device on a bridge of the host."""

    mode: str = "user"
    bridge: str = ""
    mac: str = ""
    forward: tuple[str, ...] = ()


def mac_of(vm_id: str, number: int) -> str:
    """Return the address of a card for which none is ordered; the same on every host."""
    digest = blake2b(f"{vm_id}/{number}".encode(), digest_size=3).digest()
    return "52:54:00:" + ":".join(f"{byte:02x}" for byte in digest)


def cards_of(vm_id: str, nics: tuple[Nic, ...]) -> Iterator[str]:
    """Yield the addresses of a VM's cards, in small letters; one that asks for none has one."""
    for number, nic in enumerate(nics or (Nic(),)):
        yield (nic.mac or mac_of(vm_id, number)).lower()


@dataclass(frozen=True, slots=True)
class VMSpec:
    """Everything an owner asked for that lasts.

    `demand` has the amounts of the create; those of now are in the VM's row. `extra` is the JSON
    of fields that a newer roost wrote and this one does not know; they are kept and written again.
    """

    demand: Demand
    constraints: Constraints = NO_CONSTRAINTS
    groups: tuple[str | GroupSpec, ...] = ()
    affinity: tuple[AffinityRule, ...] = ()
    strategy: str | None = None  # None: the policy's, or the server's default at the time
    priority: int = 0
    priority_class: str = ""  # whose value the priority was; empty: none
    on_no_fit: str = "fail"
    restart: str = "here"
    start: bool = True
    boot: Boot | None = None
    nics: tuple[Nic, ...] = ()
    policy: str = ""  # its own, or its project's default when it was created
    policy_version: int = 0  # of the policy, when the VM was created
    until_ms: int | None = None  # when it is deleted; None: it lives for ever
    reservation: str = ""  # the one that it is to draw on, by name
    created_by: str = ""  # who may have reserved what it draws on; empty: not known
    flavor: str = ""  # whose amounts it was created with; empty: none
    version: int = 1
    extra: str = ""

    @property
    def is_plain(self) -> bool:
        """Say whether it asks for amounts alone: no constraint, device or NUMA placement."""
        demand = self.demand
        return (
            self.constraints is NO_CONSTRAINTS
            and demand.devices is None
            and demand.numa is NumaMode.ANY
        )

    @property
    def has_user_data(self) -> bool:
        """Say whether cloud-init is given something: a row of its own holds it."""
        return self.boot is not None and bool(self.boot.user_data)


def image_of(spec: VMSpec) -> str:
    """Return the digest of the image that a VM boots, or of its kernel; empty: neither."""
    boot = spec.boot
    image = None if boot is None else boot.image or boot.kernel
    return "" if image is None else image.digest


class NewSpec(NamedTuple):
    """What a create has in hand: the spec, its stored text, and the user data as it is kept."""

    spec: VMSpec
    text: str
    user_data: str = ""
