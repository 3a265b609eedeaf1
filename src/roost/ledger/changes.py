"""The changes of one event, decoded for those who keep rows in memory.

Tables and columns that this release does not know are passed over: a newer process may write them.
"""

import msgspec

from roost.ledger.rows import ClaimRow, GroupRow, HostRow, SpecRow, VMRow


class HostCapacity(msgspec.Struct):
    """What an event says of a host's amounts."""

    generation: int


class Changes(msgspec.Struct):
    """The changes of one event, decoded; tables that nobody keeps in memory are left out."""

    vms: dict[str, VMRow | None] = {}
    vm_specs: dict[str, SpecRow | None] = {}
    claims: dict[str, ClaimRow | None] = {}
    hosts: dict[str, HostRow | None] = {}
    host_amounts: dict[str, HostCapacity | None] = {}
    groups: dict[str, GroupRow | None] = {}
    group_generations: dict[str, int] = {}
    members: dict[str, dict[str, object] | None] = {}
    tombstones: dict[str, dict[str, object] | None] = {}
    tokens: dict[str, dict[str, object] | None] = {}
    fences: dict[str, dict[str, object] | None] = {}
    rules: int | None = None


decode_changes = msgspec.json.Decoder(Changes).decode
