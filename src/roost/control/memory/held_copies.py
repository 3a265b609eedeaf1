"""What a host holds takes room: copies that are on no list, until somebody adopts or destroys them.

The agent counts them and has the last word; a plane that did not would send VM after VM to a host
that refuses each. The claim statement does not know them: their amounts are an agent's word, and
count against that agent's own host only.
"""

from collections import Counter
from dataclasses import replace

import msgspec

from roost.base.units import MAX_AMOUNT
from roost.ledger.schema.rows import HostRow
from roost.model.hosts import HostSpec, Resource
from roost.model.states import Seen

#: States of a held copy that takes no processor and no memory: the VM has gone elsewhere.
_LEFT: tuple[Seen, ...] = ("moved", "absent")


class StoredHeld(msgspec.Struct):
    """A held VM as any release has stored it."""

    id: str
    generation: int = 0
    seen: Seen = "running"
    order: str = ""  # empty: an older agent, or one that has too much to tell
    lost: bool = False  # it waited for a VM that never took over


class _Order(msgspec.Struct):
    """The amounts of the order that a held VM carried out last."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    extended: dict[str, int] = {}


_held = msgspec.json.Decoder(list[StoredHeld])
_order = msgspec.json.Decoder(_Order)


def read_held(host: HostRow) -> list[StoredHeld]:
    """Return what a host holds."""
    return _held.decode(host.held) if host.held else []


def without_held(spec: HostSpec, host: HostRow) -> HostSpec:
    """Return a host without the room that its held copies take.

    A copy whose order was not told counts as one VM of unknown size: what it takes shows when the
    agent refuses.
    """
    if host.held in ("", "[]"):
        return spec
    try:
        held = read_held(host)
    except msgspec.MsgspecError:
        return spec  # doctor says so
    cpu = memory = disk = 0
    extended: Counter[str] = Counter()
    for copy in held:
        order = _order_of(copy)
        disk += max(0, order.disk_bytes)
        if copy.seen not in _LEFT:
            cpu += max(0, order.cpu_milli)
            memory += max(0, order.memory_bytes)
            extended.update({name: max(0, amount) for name, amount in order.extended.items()})
    return replace(
        spec,
        cpu=_less(spec.cpu, cpu),
        memory=_less(spec.memory, memory),
        disk=_less(spec.disk, disk),
        extended=tuple((name, _less(amount, extended[name])) for name, amount in spec.extended),
        max_vms=None if spec.max_vms is None else max(0, spec.max_vms - len(held)),
    )


def _order_of(copy: StoredHeld) -> _Order:
    try:
        return _order.decode(copy.order) if copy.order else _Order()
    except msgspec.MsgspecError:  # an agent's own words
        return _Order()


def _less(resource: Resource, amount: int) -> Resource:
    """Return a resource of which so much less may be promised."""
    share = -(-amount * 1000 // resource.ratio_milli)  # before overcommit, rounded up
    return replace(resource, reserve=min(MAX_AMOUNT, resource.reserve + share))
