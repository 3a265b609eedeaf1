"""Machine types by their versions: "pc" means another machine in each version of QEMU.

A VM keeps the machine that it was made with, so that an upgrade of QEMU changes no guest's hardware
and hosts with unlike versions can exchange VMs.
"""

import re
import subprocess
from functools import cache

from roost.base import private

_ALIAS = re.compile(r"^(\S+)\s.*\(alias of (\S+)\)\s*$", re.MULTILINE)
_WITHIN_S = 20.0


def resolve_machine(binary: str, name: str) -> str:
    """Return the versioned machine that a name stands for, or the name itself; blocks.

    Asked once in the life of an agent: a QEMU that is upgraded meanwhile is known after a restart.
    """
    return _aliases(binary).get(name, name)


def read_aliases(text: str) -> dict[str, str]:
    """Return what aliases stand for, from the words of `-machine help`."""
    return dict(_ALIAS.findall(text))


@cache
def _aliases(binary: str) -> dict[str, str]:
    try:
        done = subprocess.run(
            [binary, "-machine", "help"],
            capture_output=True, text=True, timeout=_WITHIN_S, check=False, errors="replace",
            env=private.plain_environment(),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return read_aliases(done.stdout)
