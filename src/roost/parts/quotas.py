"""The refusal that a project's quota gives, in the units that users write."""

from collections.abc import Mapping
from typing import Any

from roost.base.errors import QuotaExceeded
from roost.base.units import format_bytes, format_cpu


def quota_exceeded(project: str, purpose: str, limits: Mapping[str, Any]) -> QuotaExceeded:
    """Return the error of a request that passes limits, as `capacity.passed_limits` names them."""
    said = "; ".join(
        f"{_resource(name)} {_amount(name, limit['asked'])} asked, "
        f"{_amount(name, max(0, limit['quota'] - limit['used']))} of "
        f"{_amount(name, limit['quota'])} left"
        for name, limit in limits.items()
    )
    return QuotaExceeded(
        f"project {project!r} has no quota left {purpose}: {said or 'a limit was reached'}",
        hint=f"Maybe an administrator raises it: roost project quota {project}",
        project=project,
        limits=dict(limits),
    )


def _resource(name: str) -> str:
    return name.removesuffix("_milli").removesuffix("_bytes")


def _amount(name: str, number: int) -> str:
    if name.endswith("_milli"):
        return format_cpu(number)
    return format_bytes(number) if name.endswith("_bytes") else str(number)
