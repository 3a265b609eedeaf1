"""Azure's words in ours: which error means what to do next, and what a virtual machine is.

An error may come at once or at the end of a long-running operation; both have a code in the body.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from roost.model.job import CloudMachine, CloudState
from roost.providers.base import MACHINE_TAG
from roost.providers.errors import (
    BadCredentials,
    MachineGone,
    NoCapacity,
    ProviderError,
    QuotaReached,
    Refused,
    Throttled,
    Unreachable,
)

_CAPACITY = {
    "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest",
    "OverconstrainedZonalAllocationRequest", "SkuNotAvailable", "NotAvailableForSubscription",
}  # fmt: skip
_QUOTA = {"QuotaExceeded", "OperationNotAllowed", "ResourceQuotaExceeded"}
_CREDENTIALS = {
    "AuthorizationFailed", "AuthenticationFailed", "InvalidAuthenticationToken",
    "ExpiredAuthenticationToken", "InvalidAuthenticationTokenTenant", "SubscriptionNotFound",
}  # fmt: skip
_STATES: dict[str, CloudState] = {
    "Creating": "starting",
    "Updating": "running",
    "Succeeded": "running",
    "Deleting": "stopping",
    "Failed": "stopping",
}


def judged(code: str, said: str, status: int, after_s: float | None = None) -> ProviderError:
    """Return the error that a code of Azure stands for."""
    if code in _CAPACITY:
        return NoCapacity("azure", said, code=code)
    if code in _QUOTA:
        return QuotaReached("azure", said, code=code)
    if status == 429 or code == "TooManyRequests":
        return Throttled("azure", said, code=code, after_s=after_s)
    if code in _CREDENTIALS or status in (401, 403):
        return BadCredentials("azure", said, code=code)
    if status == 404:
        return MachineGone("azure", said, code=code)
    if status >= 500 or status == 0:
        return Unreachable("azure", said, code=code)
    return Refused("azure", said, code=code)


@contextmanager
def troubles() -> Iterator[None]:
    """Turn what the SDK raises into our errors."""
    from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

    try:
        yield
    except ClientAuthenticationError as error:
        raise BadCredentials("azure", str(error.message)) from error
    except HttpResponseError as error:
        told = error.error
        code = str(getattr(told, "code", "") or "")
        said = str(getattr(told, "message", "") or error.message)
        # An operation that failed at its end has an error in the answer to a request that was well.
        status = 400 if code and (error.status_code or 0) < 400 else error.status_code or 0
        raise judged(code, said, status, _after_s(error)) from error
    except AzureError as error:  # no connection, a time-out, an answer that is none
        raise Unreachable("azure", str(error.message)) from error


def _after_s(error: Any) -> float | None:
    headers = getattr(error.response, "headers", None) or {}
    try:
        return min(3600.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None


def shown(vm: Any) -> CloudMachine:
    """Return a virtual machine of Azure as a machine."""
    tags = dict(vm.tags or {})
    properties = vm.properties if getattr(vm, "properties", None) is not None else vm
    profile = properties.hardware_profile
    created = getattr(properties, "time_created", None)
    return CloudMachine(
        cloud_id=str(vm.name),
        machine=str(tags.get(MACHINE_TAG, "")),
        state=_STATES.get(str(properties.provisioning_state), "starting"),
        type=str(profile.vm_size) if profile is not None else "",
        region=str(vm.location or ""),
        market="spot" if str(properties.priority or "").endswith("Spot") else "on_demand",
        created_ms=int(created.timestamp() * 1000) if isinstance(created, datetime) else 0,
    )
