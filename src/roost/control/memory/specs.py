"""The specs of all VMs in one process: each distinct one once, kept current by events.

Loaded with the roster, before claims are charged. A spec that cannot be read, or is missing, costs
its own VM: the VM is left out of hosts' lists (so it is held as it is), and using it says why. A
row that was read from the ledger may be ahead of the events that this process has heard, or behind
them: `read` takes from the same view what is missing here, and a VM that nothing is known of is
gone, not broken.
"""

import logging
from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, exists, select

from roost.base.errors import Conflict, InvariantBroken
from roost.ledger.schema.changes import VM_SPECS, VMS, Changes
from roost.ledger.schema.rows import Event, VMRow
from roost.ledger.schema.tables import vm_specs, vm_user_data, vms
from roost.ledger.upgrade.older import may_run_beside, missing_specs, read_asked, specs_in
from roost.model.resources import Demand
from roost.model.vm import VMSpec
from roost.wire.spectext import SpecUnreadable, read_spec

log = logging.getLogger("roost.specs")

_ALL = select(vm_specs.c.vm, vm_specs.c.version, vm_specs.c.spec).order_by(
    vm_specs.c.vm, vm_specs.c.version
)
_SOME = _ALL.where(vm_specs.c.vm.in_(bindparam("ids", expanding=True)))
_WITHOUT = select(vms.c.id).where(~exists().where(vm_specs.c.vm == vms.c.id))
_USER_DATA = select(vm_user_data.c.vm, vm_user_data.c.user_data).where(
    vm_user_data.c.vm.in_(bindparam("ids", expanding=True))
)
#: Ids that one query names.
_PIECE = 500


class Specs:
    """The newest spec of each VM."""

    def __init__(self) -> None:
        self._specs: dict[str, VMSpec] = {}
        self.unreadable: dict[str, str] = {}  # VMs, with what is wrong with their specs

    def __contains__(self, vm: str) -> bool:
        return vm in self._specs or vm in self.unreadable

    def load(self, connection: Connection) -> None:
        """Read the specs of all VMs."""
        specs = self._specs
        for vm, version, text in connection.execute(_ALL).all():
            try:
                specs[vm] = read_spec(text, version)
            except SpecUnreadable as error:
                self._give_up(vm, error)
        if may_run_beside(connection):
            for vm, text in missing_specs(connection):
                self._put(vm, 1, text)
        for vm in connection.execute(_WITHOUT).scalars():
            self._miss(vm)

    def follow(self, event: Event, changes: Changes) -> None:
        """Take over the specs of an event; a VM that is gone takes its own along."""
        for key, row in changes.of(VM_SPECS).items():
            vm, _, version = key.rpartition("|")
            if row is None:
                continue
            if (created := event.created.get(vm)) is not None:
                self._specs[vm] = created.spec
            else:
                self._put(vm, int(version), row.spec)
        unknown = []
        for vm, changed in changes.of(VMS).items():
            if changed is None:
                self._specs.pop(vm, None)
                self.unreadable.pop(vm, None)
            elif vm not in self:
                unknown.append(vm)
        if unknown:
            for vm, text in specs_in(event.changes, unknown).items():
                self._put(vm, 1, text)
            for vm in unknown:
                self._miss(vm)

    def put(self, vm: str, spec: VMSpec) -> None:
        """Add the spec of a VM that this process has created."""
        self._specs[vm] = spec

    def _put(self, vm: str, version: int, text: str) -> None:
        known = self._specs.get(vm)
        if known is not None and known.version > version:
            return
        try:
            self._specs[vm] = read_spec(text, version)
            self.unreadable.pop(vm, None)
        except SpecUnreadable as error:
            self._give_up(vm, error)

    def _give_up(self, vm: str, error: SpecUnreadable) -> None:
        log.error("VM %s is left as it is: %s", vm, error.message)
        self._specs.pop(vm, None)
        self.unreadable[vm] = error.message

    def _miss(self, vm: str) -> None:
        """Note that the ledger has a VM without a spec, unless an older process's body has it."""
        if vm not in self:
            self._give_up(vm, SpecUnreadable("it has no stored spec"))

    # Asking

    @property
    def special(self) -> set[str]:
        """Return the VMs that ask for more than amounts."""
        return {vm for vm, spec in self._specs.items() if not spec.is_plain}

    @property
    def ending(self) -> set[str]:
        """Return the VMs whose owners said when they end."""
        return {vm for vm, spec in self._specs.items() if spec.until_ms is not None}

    def with_near(self) -> Iterable[tuple[str, VMSpec]]:
        """Yield the VMs that must be near others."""
        return ((vm, spec) for vm, spec in self._specs.items() if spec.constraints.near)

    def copied(self) -> dict[str, VMSpec]:
        """Return the specs of all VMs as they are now, for another thread."""
        return dict(self._specs)

    def get(self, vm: str) -> VMSpec | None:
        """Return the spec of a VM that this process has heard of."""
        return self._specs.get(vm)

    def of(self, vm: VMRow) -> VMSpec:
        """Return a VM's spec; a `Conflict` if it cannot be read, or the VM is not known here.

        A row is as old as its reading: the VM may have been deleted since. Neither may cost a loop
        over many VMs more than this one.
        """
        found = self._specs.get(vm.id)
        if found is None:
            why = self.unreadable.get(vm.id, "it is gone, or not heard of here yet")
            raise Conflict(f"VM {vm.name!r} cannot be placed or told of: {why}", vm=vm.id)
        return found

    def read(self, connection: Connection, rows: Iterable[VMRow]) -> dict[str, VMSpec]:
        """Return the specs of rows that were read on this view; unreadable ones are left out."""
        found: dict[str, VMSpec] = {}
        ahead = []
        for row in rows:
            spec = self._specs.get(row.id)
            if spec is not None:
                found[row.id] = spec
            elif row.id not in self.unreadable:
                ahead.append(row.id)
        for vm, (version, text) in _stored(connection, ahead).items():
            try:
                found[vm] = read_spec(text, version)
            except SpecUnreadable as error:
                log.error("VM %s: %s", vm, error.message)
        return found


def stored_spec(connection: Connection, vm: VMRow) -> VMSpec:
    """Return a VM's spec as the ledger has it."""
    found = _stored(connection, [vm.id]).get(vm.id)
    if found is None:
        raise InvariantBroken(f"VM {vm.name!r} has no stored spec", vm=vm.id)
    return read_spec(found[1], found[0])


def read_user_data(connection: Connection, ids: list[str]) -> dict[str, str]:
    """Read the cloud-init user data of these VMs, as it is kept: sealed, or not yet."""
    found: dict[str, str] = {}
    for start in range(0, len(ids), _PIECE):
        some = {"ids": ids[start : start + _PIECE]}
        found.update(connection.execute(_USER_DATA, some).all())
    missing = [vm for vm in ids if vm not in found]
    if missing and may_run_beside(connection):
        found |= {vm: data for vm, (_, data) in read_asked(connection, missing).items()}
    return found


def least_spec(vm: VMRow) -> VMSpec:
    """Return a spec made of the row alone, to show a VM whose own cannot be read."""
    return VMSpec(
        Demand(vm.cpu_milli, vm.memory_bytes, vm.disk_bytes),
        strategy=vm.strategy,
        priority=vm.priority,
        on_no_fit=vm.on_no_fit,
        restart="here" if vm.restart == "here" else "elsewhere",
    )


def _stored(connection: Connection, ids: list[str]) -> dict[str, tuple[int, str]]:
    found: dict[str, tuple[int, str]] = {}
    for start in range(0, len(ids), _PIECE):
        some = {"ids": ids[start : start + _PIECE]}
        for vm, version, text in connection.execute(_SOME, some):
            found[vm] = (version, text)
    missing = [vm for vm in ids if vm not in found]
    if missing and may_run_beside(connection):
        found |= {vm: (1, text) for vm, (text, _) in read_asked(connection, missing).items()}
    return found
