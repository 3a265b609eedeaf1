"""What operators do with hosts: list, look, cordon, drain, label, confirm dead, remove."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, delete, literal_column, select

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.control.admin.heldvms import adopt_held, destroy_held
from roost.control.admin.hostchecks import check_hosts
from roost.control.admin.hostroutes import host_routes
from roost.control.agents.sessions import Agents
from roost.control.create.placing import find_host
from roost.control.hosts.held_list import shown_held
from roost.control.hosts.registering import change_host, locked_host
from roost.control.hosts.setting import set_host
from roost.control.memory.host_entries import HostEntry
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.survive.fencing import fence
from roost.control.vms.views import vm_body
from roost.ledger.claims.capacity import CLEANUP, ELSEWHERE, RUN, release
from roost.ledger.claims.holding import changed_holds, drop_holds, holds_on
from roost.ledger.schema.rows import ClaimRow, HostRow, VMRow
from roost.ledger.schema.tables import (
    claims,
    conversations,
    host_amounts,
    host_counters,
    host_liveness,
    hosts,
    tokens,
    tombstones,
    vms,
)
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.transaction import Tx, row_json
from roost.model.flow import Rejection
from roost.model.states import AdminState
from roost.model.vm import VMSpec
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.placement.scheduling_info import scheduling_info
from roost.wire.agentlink import AmountInfo, Inventory
from roost.wire.answers import rejection_json
from roost.wire.bodies import (
    ConfirmDead,
    DrainBody,
    HostAmounts,
    HostBody,
    HostPage,
    SchedulingInfo,
    SetHost,
    SetLabels,
    SetMaintenance,
    VMBody,
)
from roost.wire.hostsettings import FIELDS, read_settings, settings_text
from roost.wire.queries import HostQuery
from roost.wire.translate import ADMINS, HEALTHS

#: VMs of a drain that are explained; a host may have hundreds that are stuck for one reason.
_MOST_BLOCKED = 20


class Hosts(Part):
    """Lists, cordons, drains, labels and removes hosts for operators."""

    def __init__(self, store: Store, roster: Roster, agents: Agents, lineage: Lineage) -> None:
        self._store, self._roster, self._agents = store, roster, agents
        self._lineage = lineage

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return host_routes(self)

    def examine(self, connection: Connection, found: Examination) -> None:
        """See whether whatever names a host names one that is registered."""
        check_hosts(connection, found)

    # Looking

    async def list(self, query: HostQuery) -> HostPage:
        """Return hosts in the order of their numbers."""
        for word, known in ((query.health, HEALTHS), (query.admin, ADMINS)):
            if word is not None and word not in known:
                raise InvalidRequest(f"unknown state {word!r}; states are {', '.join(known)}")
        after = int(query.after) if query.after and query.after.isdigit() else 0
        found: list[HostBody] = []
        for number, entry in sorted(self._roster.hosts.items()):
            if number <= after or not _matches(entry, query):
                continue
            if len(found) == query.limit:
                return HostPage(hosts=found, next=str(found[-1].number))
            found.append(self._body(entry))
        return HostPage(hosts=found)

    async def get(self, name: str) -> HostBody:
        """Return one host."""
        return self._body(self._entry(name))

    async def scheduling_info(self, name: str) -> SchedulingInfo:
        """Return the six lines that describe a host."""
        entry = self._entry(name)
        return SchedulingInfo(host=name, text=scheduling_info(self._roster.fleet, entry.name))

    def _entry(self, name: str) -> HostEntry:
        entry = self._roster.entry(name)
        if entry is None:
            raise NotFound(f"no host {name!r}", host=name)
        return entry

    def _body(self, entry: HostEntry) -> HostBody:
        row, inventory, at = entry.row, entry.inventory, entry.fleet_row
        table = self._roster.fleet.hosts
        arrays, resources = table.arrays, table.resources.values

        def amounts(column: int) -> HostAmounts:
            used = int(table.used[at, column])
            return HostAmounts(
                capacity=int(arrays.capacity[at, column]),
                committed=int(arrays.committed[at, column]),
                used=used if used >= 0 else None,
            )

        labels = inventory.labels if row.labels is None else msgspec.json.decode(row.labels)
        free_devices = arrays.device_free[at].tolist()
        free_cells = arrays.cell_free[at].tolist()
        return HostBody(
            name=row.name,
            number=row.number,
            health=row.health,
            admin=row.admin,
            driver=inventory.driver,
            virtual=inventory.virtual,
            zone=inventory.zone,
            rack=inventory.rack,
            site=inventory.site,
            architecture=inventory.architecture,
            labels=labels,
            taints=[{"key": t.key, "value": t.value, "effect": t.effect} for t in inventory.taints],
            capabilities=inventory.capabilities,
            cpu_milli=amounts(0),
            memory_bytes=amounts(1),
            disk_bytes=amounts(2),
            extended={
                name: amounts(column)
                for column, name in enumerate(resources)
                if name in inventory.extended
            },
            devices=[
                {"model": d.model, "memory_bytes": d.memory_bytes, "free_milli": free}
                for d, free in zip(inventory.devices, free_devices, strict=False)
            ],
            cells=[
                {
                    "cpu_milli": c.cpu_milli,
                    "memory_bytes": c.memory_bytes,
                    "free_cpu_milli": free[0],
                    "free_memory_bytes": free[1],
                }
                for c, free in zip(inventory.cells, free_cells, strict=False)
            ],
            vms=int(arrays.vm_count[at]),
            max_vms=inventory.max_vms,
            generation=entry.generation,
            connected=self._agents.is_connected(row.number),
            guard=row.guard_stop_s is not None,
            fenced=row.fenced,
            held=shown_held(row),
            unusable=entry.aside,
            overcommit={name: each.ratio_milli / 1000 for name, each in _limits(inventory)},
            reserve={name: each.reserve for name, each in _limits(inventory)},
            overridden=_overridden(row),
            closed=read_settings(row.settings).closed,
        )

    # Changing

    async def cordon(self, name: str, who: Principal, reason: str = "") -> HostBody:
        """Take no new VMs; what runs stays. The reason is told until the host is open again."""
        return await self._set_admin(name, "cordoned", "host.cordoned", who, reason)

    async def uncordon(self, name: str, who: Principal) -> HostBody:
        """Take new VMs again; a drain ends."""
        return await self._set_admin(name, "open", "host.uncordoned", who)

    async def drain(self, name: str, who: Principal) -> DrainBody:
        """Take no new VMs and move what runs elsewhere, one VM at a time."""
        await self._set_admin(name, "draining", "host.drain_asked", who)
        return await self.drain_state(name)

    async def set_maintenance(self, name: str, body: SetMaintenance, who: Principal) -> HostBody:
        """Take an empty host out of service, or open it again."""
        if not body.on:
            return await self._set_admin(name, "open", "host.maintenance_over", who)

        def change(tx: Tx) -> None:
            host = locked_host(tx, name)
            left = tx.rows(_AT_HOST, on_host=host.number)
            if left:
                vms_left = "1 VM" if len(left) == 1 else f"{len(left)} VMs, such as"
                raise Conflict(
                    f"host {name!r} still has {vms_left} {left[0]['name']!r}",
                    host=name,
                    hint=f"Maybe roost plan create --goal drain --host {name} --apply.",
                )
            if host.admin != "maintenance":
                change_host(tx, host.number, "host.maintenance", admin="maintenance")

        await self._store.write(change, who.name)
        return await self.get(name)

    async def _set_admin(
        self, name: str, admin: AdminState, kind: str, who: Principal, reason: str = ""
    ) -> HostBody:
        def change(tx: Tx) -> None:
            host = locked_host(tx, name)
            kept = read_settings(host.settings)
            closed = "" if admin == "open" else reason or kept.closed
            text = settings_text(msgspec.structs.replace(kept, closed=closed))
            if (host.admin, host.settings) != (admin, text):
                change_host(tx, host.number, kind, note=reason, admin=admin, settings=text)

        await self._store.write(change, who.name)
        return await self.get(name)

    async def drain_state(self, name: str) -> DrainBody:
        """Say how far a drain has come, and which VMs fit nowhere else."""
        entry = self._entry(name)

        def question(connection: Connection) -> tuple[list[VMRow], dict[str, VMSpec]]:
            query = select(vms).where(vms.c.host == entry.number).order_by(vms.c.id)
            rows = [VMRow(**row) for row in connection.execute(query).mappings()]
            return rows, self._roster.specs.read(connection, rows)

        rows, specs = await self._store.read(question)
        under_way = [vm.name for vm in rows if vm.phase]
        blocked: list[dict[str, Any]] = []
        stuck = True  # as far as was looked: nothing that is left can go
        for vm in rows:
            if vm.phase or vm.desired == "absent":
                stuck = False
                continue
            if len(blocked) == _MOST_BLOCKED and not stuck:
                break
            explain = len(blocked) < _MOST_BLOCKED
            spec = specs.get(vm.id)
            if spec is None:
                continue  # what it asked for cannot be read: it stays, and the doctor names it
            found = find_host(self._roster, vm, never=(name,), explain=explain, spec=spec)
            if isinstance(found, Rejection):
                blocked.append({"vm": vm.name, "id": vm.id, "rejection": rejection_json(found)})
            elif found is not None:
                stuck = False
        state: str = entry.row.admin
        if state == "draining" and not rows:
            state = "empty"
        elif state == "draining" and stuck:
            state = "blocked"
        return DrainBody(
            host=name,
            state=state,
            left=len(rows),
            moving=under_way[0] if under_way else None,
            blocked=blocked,
            under_way=under_way,
        )

    async def set_labels(self, name: str, body: SetLabels, who: Principal) -> HostBody:
        """Replace a host's labels."""
        text = row_json(dict(sorted(body.labels.items())))

        def change(tx: Tx) -> None:
            host = locked_host(tx, name)
            if host.labels != text:
                change_host(tx, host.number, "host.labelled", labels=text)

        await self._store.write(change, who.name)
        return await self.get(name)

    async def set(self, name: str, body: SetHost, who: Principal) -> HostBody:
        """Set labels, taints, overcommitment or reserve of a host in place of its agent's."""
        await self._store.write(lambda tx: set_host(tx, name, body), who.name)
        return await self.get(name)

    async def confirm_dead(self, name: str, body: ConfirmDead, who: Principal) -> HostBody:
        """Record an operator's word that a host is off: its VMs may be restarted elsewhere."""

        def change(tx: Tx) -> HostRow:
            host = locked_host(tx, name)
            if host.health == "online":
                raise Conflict(
                    f"host {name!r} is online: its agent is heard of",
                    host=name,
                    hint="Maybe drain it, or stop its agent first.",
                )
            if host.fenced not in (None, "lease", "command"):
                return host
            # An operator knows more than a lease, which only ends VMs that may run elsewhere, and
            # has seen to a host that the command switched off: it counts no more for the brake.
            return fence(tx, host, "operator", f"{who.name}: {body.reason}", None)

        await self._store.write(change, who.name)
        return await self.get(name)

    async def destroy_held(self, name: str, vm_id: str, who: Principal) -> HostBody:
        """Order a host to destroy a VM that it holds and the ledger does not know."""
        await self._store.write(lambda tx: destroy_held(tx, name, vm_id), who.name)
        return await self.get(name)

    async def adopt_held(self, name: str, vm_id: str, who: Principal) -> VMBody:
        """Make a VM that a host holds and the ledger does not know the ledger's, where it is."""
        await self._lineage.require_sure()
        strategy = self._roster.engine.default_strategy

        def change(tx: Tx) -> tuple[VMRow, VMSpec | None]:
            vm = adopt_held(tx, name, vm_id, strategy)
            return vm, self._roster.specs.read(tx.connection, [vm]).get(vm.id)

        vm, spec = await self._store.write(change, who.name)
        return vm_body(vm, spec, self._roster)

    async def delete(self, name: str, who: Principal) -> None:
        """Remove a host that has no VMs, with the credential of its agent."""
        await self._store.write(lambda tx: _remove(tx, name), who.name)


def _limits(inventory: Inventory) -> list[tuple[str, AmountInfo]]:
    return [(name, getattr(inventory, field)) for name, field in FIELDS.items()]


def _overridden(row: HostRow) -> list[str]:
    kept = read_settings(row.settings)
    found = ["labels"] if row.labels is not None else []
    found += ["taints"] if kept.taints is not None else []
    found += [f"overcommit.{name}" for name in kept.ratio_milli]
    return found + [f"reserve.{name}" for name in kept.reserve]


#: VMs that are on a host, or on their way to it.
_AT_HOST = (
    select(vms.c.name)
    .where((vms.c.host == bindparam("on_host")) | (vms.c.target == bindparam("on_host")))
    .order_by(vms.c.name)
)
#: What a host holds: by the VMs at home there, and by the index of all other claims.
_RUN_CLAIMS = select(claims).where(
    vms.c.host == bindparam("of_host"), claims.c.id == vms.c.id + literal_column(f"':{RUN}'")
)
_OTHER_CLAIMS = select(claims).where(ELSEWHERE, claims.c.host == bindparam("of_host"))


def _how_to_empty(host: HostRow) -> str:
    """Return how a host loses its VMs: only one that is there can move them away."""
    if host.fenced is not None:
        return f"Maybe `roost host recover {host.name}`; VMs that nobody needs can be deleted."
    if host.health == "online":
        return f"Maybe `roost host drain {host.name}`."
    return (
        f"Maybe it comes back; of one that is off and stays off, `roost host confirm-dead "
        f"{host.name}`."
    )


def _remove(tx: Tx, name: str) -> None:
    host = locked_host(tx, name)
    held = tx.rows(_RUN_CLAIMS, of_host=host.number) + tx.rows(_OTHER_CLAIMS, of_host=host.number)
    graves = tx.rows(select(tombstones).where(tombstones.c.host == host.number))
    # Orders to destroy what is on a dead host go with it: nobody will ever carry them out.
    gone = host.fenced is not None and all(claim["kind"] == CLEANUP for claim in held)
    if (held or graves) and not gone:
        raise Conflict(f"host {name!r} still has VMs", hint=_how_to_empty(host), host=name)
    for claim in held:
        release(tx, ClaimRow(**claim))
    # What it kept for reservations is looked for elsewhere by whoever keeps those.
    kept = holds_on(tx, host.number)
    drop_holds(tx, kept)
    tx.held.pop(host.number, None)
    tx.connection.execute(delete(tombstones).where(tombstones.c.host == host.number))
    for table, column in (
        (hosts, hosts.c.number),
        (host_amounts, host_amounts.c.host),
        (host_counters, host_counters.c.host),
        (host_liveness, host_liveness.c.host),
        (conversations, conversations.c.host),
    ):
        tx.delete(table, column == host.number)
    known = tx.rows(select(tokens.c.id).where(tokens.c.kind == "agent", tokens.c.host == name))
    tx.connection.execute(delete(tokens).where(tokens.c.kind == "agent", tokens.c.host == name))
    tx.event(
        "host.removed",
        f"host/{name}",
        {
            "hosts": {str(host.number): None},
            "host_amounts": {str(host.number): None},
            "claims": {claim["id"]: None for claim in held},
            "holds": changed_holds(dropped=kept),
            "tombstones": {f"{grave['vm']}|{host.number}": None for grave in graves},
            "tokens": {row["id"]: None for row in known},
        },
    )


def _matches(entry: HostEntry, query: HostQuery) -> bool:
    return (
        query.health in (None, entry.row.health)
        and query.admin in (None, entry.row.admin)
        and query.zone in (None, entry.inventory.zone)
    )
