"""What operators set about a host in place of what its agent registers, as the ledger keeps it.

Labels have a column of their own. A host's inventory stays what the agent said; `adjusted` gives it
as the engine and the ledger's amounts count it, so that what was set survives every registration.
The agent is told the amounts (`Welcome`), for it has the last word on what starts there.
"""

import msgspec
from msgspec import Struct

from roost.base.errors import InvalidRequest
from roost.base.units import MAX_AMOUNT
from roost.wire.agentlink import AmountInfo, Inventory, TaintInfo
from roost.wire.bodies import SetHost

#: Resources whose reserve and overcommitment can be set, and their fields of an inventory.
FIELDS = {"cpu": "cpu_milli", "memory": "memory_bytes", "disk": "disk_bytes"}


#: How the keys of taints begin that an agent sets by what it sees, such as a full disk: no setting
#: takes them away or puts them there.
CONDITION = "roost/"


class HostSettings(Struct, omit_defaults=True):
    """Taints, and by resource how far it is overcommitted and what is kept back; None: as told.

    `closed` is why it takes no new VMs, as who closed it said; it goes when the host is opened.
    """

    taints: list[TaintInfo] | None = None
    ratio_milli: dict[str, int] = {}
    reserve: dict[str, int] = {}
    closed: str = ""


NO_SETTINGS = HostSettings()
_decode = msgspec.json.Decoder(HostSettings).decode


def read_settings(text: str | None) -> HostSettings:
    """Read what the ledger has of a host's settings."""
    return NO_SETTINGS if text is None else _decode(text)


def settings_text(settings: HostSettings) -> str | None:
    """Write settings for the ledger, equal ones equally; None if nothing is set."""
    if settings == NO_SETTINGS:
        return None
    return msgspec.json.encode(settings, order="sorted").decode()


def adjusted(inventory: Inventory, text: str | None) -> Inventory:
    """Return an inventory with what was set in place of what the agent said."""
    if text is None:
        return inventory
    settings = _decode(text)
    changes: dict[str, object] = dict(limited(inventory, settings.reserve, settings.ratio_milli))
    if settings.taints is not None:
        conditions = [each for each in inventory.taints if each.key.startswith(CONDITION)]
        changes["taints"] = [*settings.taints, *conditions]
    return msgspec.structs.replace(inventory, **changes)


def limited(
    inventory: Inventory, reserve: dict[str, int], ratio_milli: dict[str, int]
) -> dict[str, AmountInfo]:
    """Return the amounts of an inventory that have another reserve or overcommitment.

    A host may have grown since a ratio was set: it counts as far as amounts go, for a host that
    could not register would lose its lease.
    """
    found: dict[str, AmountInfo] = {}
    for resource, field in FIELDS.items():
        if resource in reserve or resource in ratio_milli:
            had: AmountInfo = getattr(inventory, field)
            kept = reserve.get(resource, had.reserve)
            most = MAX_AMOUNT * 1000 // max(1, (had.total or 0) - kept)
            ratio = ratio_milli.get(resource, had.ratio_milli)
            found[field] = AmountInfo(had.total, kept, min(ratio, max(1, most)))
    return found


def with_limits(
    inventory: Inventory, reserve: dict[str, int], ratio_milli: dict[str, int]
) -> Inventory:
    """Return an inventory with the limits that a control plane has told its agent."""
    changes = limited(inventory, reserve, ratio_milli)
    return msgspec.structs.replace(inventory, **changes) if changes else inventory


def changed(settings: HostSettings, body: SetHost, amounts: dict[str, int]) -> HostSettings:
    """Return settings after a change; `amounts` has the reserve of the body in whole numbers."""
    taints, ratio, reserve = settings.taints, settings.ratio_milli, settings.reserve
    if not isinstance(body.taints, msgspec.UnsetType):
        given = body.taints
        taints = None if given is None else [TaintInfo(t.key, t.value, t.effect) for t in given]
        if condition := [t.key for t in taints or () if t.key.startswith(CONDITION)]:
            raise InvalidRequest(f"taint {condition[0]!r}: an agent alone says so of its host")
        if taints is not None and len({(t.key, t.value) for t in taints}) < len(taints):
            raise InvalidRequest("a taint is given twice")
    if not isinstance(body.overcommit, msgspec.UnsetType):
        wanted = body.overcommit or {}
        ratio = {name: round(value * 1000) for name, value in sorted(wanted.items())}
    if not isinstance(body.reserve, msgspec.UnsetType):
        reserve = dict(sorted(amounts.items()))
    return HostSettings(taints, ratio, reserve, settings.closed)
