"""Cases that take turns: of the slowest suites every commit runs some, and a few commits run all.

`make test-system` and .ci/run name the commit (TURN); without it every case runs (`make test-all`).
"""

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import TypeVar

C = TypeVar("C")


def in_turn(cases: Sequence[C], count: int) -> Sequence[C]:
    """Return so many of the cases, drawn from the commit; all of them when none is named."""
    turn = os.environ.get("TURN", "")
    if not turn:
        return cases
    first = int.from_bytes(sha256(turn.encode()).digest()[:8], "big") % len(cases)
    chosen = {(first + at * len(cases) // count) % len(cases) for at in range(count)}
    return [case for at, case in enumerate(cases) if at in chosen]
