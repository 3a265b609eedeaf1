"""What went wrong with a VM on its host, as its row keeps it: written and read here alone.

Whoever writes one says for which generation. Rows of older versions may lack that; they are read
all the same, because a VM whose problem cannot be read could not be shown at all.
"""

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from roost.ledger.writes.transaction import row_json
from roost.wire.bodies import ProblemBody


class _Stored(Struct):
    """A problem in a row of any version."""

    code: str = ""
    message: str = ""
    generation: int = 0
    host: str = ""


_stored = msgspec.json.Decoder(_Stored)


def problem_text(code: str, message: str, generation: int, host: str = "") -> str:
    """Write a problem for a VM's row; `host` when that host refused the VM."""
    return row_json(ProblemBody(code=code, message=message, generation=generation, host=host))


def read_problem(text: str) -> ProblemBody:
    """Read the problem of a VM's row."""
    return ProblemBody(**asdict(_stored.decode(text)))
