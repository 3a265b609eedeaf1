"""Refuse what has to be calculated by compiled kernels until they are."""

from roost.base.errors import Unavailable
from roost.placement.kernels.running import is_interpreting


def require_compiled(what: str) -> None:
    """Raise Unavailable while kernels run as Python: a week of readings would take that hours."""
    if is_interpreting():
        raise Unavailable(
            f"{what} has to wait until kernels are compiled, a few minutes after a first start",
            hint="Maybe `roost doctor` says that they are.",
        )
