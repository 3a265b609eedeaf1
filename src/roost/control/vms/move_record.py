"""How a VM is moved, as the ledger stores it beside the VM."""

import msgspec
from msgspec import Struct

from roost.ledger.rows import VMRow
from roost.wire.agentlink import MoveInfo, ProgressInfo


class Move(Struct, omit_defaults=True):
    """A move under way."""

    info: MoveInfo
    endpoint: dict[str, str] = {}  # where the target waits
    progress: ProgressInfo | None = None
    why: str = ""  # why it is taken back


_decode = msgspec.json.Decoder(Move).decode


def read_move(text: str | None) -> Move:
    """Return a move from the ledger's text."""
    return _decode(text) if text else Move(MoveInfo())


def move_of(vm: VMRow) -> Move:
    """Return how a VM is moved."""
    return read_move(vm.move)
