"""How a VM is moved, as the ledger stores it beside the VM, and as the move machine sees it."""

import msgspec
from msgspec import Struct

from roost.ledger.schema.rows import VMRow
from roost.model.flow import Move
from roost.wire.agentlink import MoveInfo, ProgressInfo


class MoveRecord(Struct, omit_defaults=True):
    """What is stored of a move under way: what was asked, and how far it has come."""

    info: MoveInfo
    endpoint: dict[str, str] = {}  # where the target waits
    progress: ProgressInfo | None = None
    why: str = ""  # why it is taken back


_decode = msgspec.json.Decoder(MoveRecord).decode


def read_record(text: str | None) -> MoveRecord:
    """Return the record of a move from the ledger's text."""
    return _decode(text) if text else MoveRecord(MoveInfo())


def record_of(vm: VMRow) -> MoveRecord:
    """Return the record of a VM's move."""
    return read_record(vm.move)


def move_of(vm: VMRow) -> Move:
    """Return a VM's move as far as its next step depends on it; at rest it has no phase."""
    if not vm.phase:
        return Move(vm.id, vm.host, restart=vm.restart, generation=vm.generation)
    info = record_of(vm).info
    return Move(
        vm=vm.id,
        source=vm.host,
        target=vm.target,
        phase=vm.phase,
        mode=info.mode,
        restart=vm.restart,
        begun=info.begun,
        generation=vm.generation,
    )
