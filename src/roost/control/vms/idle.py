"""Name the VMs that do not run and still keep room where a refused VM comes nearest to fitting.

A VM that has failed, or is stopped, keeps its claim: it is to start again where it is. Whoever is
told that no host fits is told of these, how much each keeps, and the command that frees it. VMs of
projects that the asker may not see are counted, and not named.
"""

from collections.abc import Iterable, Sequence

from msgspec import convert, to_builtins
from sqlalchemy import Connection, or_, select

from roost.base.errors import NoFit
from roost.control.vms.states import in_state, vm_state
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import hosts, vms
from roost.ledger.store import Store
from roost.parts.access import Principal
from roost.placement.rejecting import amount_text
from roost.wire.bodies import IdleBody, RejectionBody, ShortageBody

#: VMs that are named, and VMs of one host that are looked at.
_MOST_NAMED, _MOST_READ = 5, 1_000
#: What keeps room without running; the first is told first.
_STATES = ("failed", "stopped")
_AMOUNTS = ("cpu", "memory", "disk")


async def tell_idle(found: RejectionBody, store: Store, who: Principal, asks_for: str = "") -> None:
    """Add to a refusal who keeps room without running on the hosts that it names.

    `asks_for` is the id of the VM that is refused, if it exists: it is not in its own way.
    """
    if short := _short_where(found):
        found.idle = await store.read(lambda opened: _read(opened, short, who, asks_for))
    if found.idle:
        found.message += f"; {_sentence(found.idle)}"


async def with_idle(refused: NoFit, store: Store, who: Principal) -> NoFit:
    """Return the error of a refusal which also says who keeps room without running."""
    details = dict(refused.details)
    body = convert(details["rejection"], RejectionBody)
    await tell_idle(body, store, who)
    told = NoFit(refused.code, body.message, to_builtins(body))
    told.details = {**details, **told.details}
    return told


def _short_where(found: RejectionBody) -> dict[str, set[str]]:
    """Return the amounts that are missing, by the hosts that a refusal names."""
    named: list[tuple[str, Sequence[ShortageBody]]] = [
        (fix.host, fix.shortages) for fix in found.fixes if fix.kind == "free"
    ]
    if found.nearest_miss is not None:
        named.append((found.nearest_miss.host, found.nearest_miss.shortages))
    short = {host: {each.resource for each in missing} & {*_AMOUNTS} for host, missing in named}
    return {host: missing for host, missing in short.items() if missing}


def _read(
    connection: Connection, short: dict[str, set[str]], who: Principal, asks_for: str
) -> list[IdleBody]:
    told: list[IdleBody] = []
    for host, missing in sorted(short.items()):
        query = (
            select(vms, hosts.c.health.label("host_health"))
            .join(hosts, hosts.c.number == vms.c.host)
            .where(hosts.c.name == host, vms.c.id != asks_for, or_(*map(in_state, _STATES)))
            .order_by(vms.c.id)
            .limit(_MOST_READ)
        )
        rows = []
        for found in connection.execute(query).mappings():
            row = dict(found)
            health = row.pop("host_health")
            vm = VMRow(**row)
            if any(amount for name, amount in _amounts(vm) if name in missing):
                rows.append((vm, vm_state(vm, health)))
        seen = [each for each in rows if who.project in (None, each[0].project)]
        seen.sort(key=lambda each: (_STATES.index(each[1]), *_largest_first(each[0], missing)))
        told += [_named(vm, state, host) for vm, state in seen[:_MOST_NAMED]]
        others = [vm for vm, _ in seen[_MOST_NAMED:]]
        others += [vm for vm, _ in rows if who.project not in (None, vm.project)]
        if others:
            told.append(_counted(others, host))
    return told


def _amounts(vm: VMRow) -> tuple[tuple[str, int], ...]:
    return tuple(zip(_AMOUNTS, vm.amounts, strict=True))


def _largest_first(vm: VMRow, missing: set[str]) -> Iterable[int]:
    return (-amount for name, amount in _amounts(vm) if name in missing)


def _named(vm: VMRow, state: str, host: str) -> IdleBody:
    return IdleBody(
        host=host,
        count=1,
        cpu_milli=vm.cpu_milli,
        memory_bytes=vm.memory_bytes,
        disk_bytes=vm.disk_bytes,
        vm=vm.name,
        project=vm.project,
        state=state,
        remedy=f"roost vm delete {vm.name} --project {vm.project}",
    )


def _counted(others: Sequence[VMRow], host: str) -> IdleBody:
    return IdleBody(
        host=host,
        count=len(others),
        cpu_milli=sum(vm.cpu_milli for vm in others),
        memory_bytes=sum(vm.memory_bytes for vm in others),
        disk_bytes=sum(vm.disk_bytes for vm in others),
    )


def _sentence(idle: Sequence[IdleBody]) -> str:
    first = idle[0]
    amounts = (first.cpu_milli, first.memory_bytes, first.disk_bytes)
    kept = " and ".join(
        amount_text(name, amount) for name, amount in zip(_AMOUNTS, amounts, strict=True) if amount
    )
    more = sum(each.count for each in idle[1:])
    others = f" (and {more} more)" if more else ""
    if not first.vm:
        which = "a VM keeps" if first.count == 1 else f"{first.count} VMs keep"
        return f"on {first.host} {which} {kept} without running"
    return (
        f"VM {first.vm} on {first.host} is {first.state} and keeps {kept}{others}: {first.remedy}"
    )
