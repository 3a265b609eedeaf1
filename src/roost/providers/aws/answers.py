"""EC2's words in ours: which error means what to do next, and what an instance is.

A code that is not known is judged by its HTTP status: 5xx says nothing about whether it was done.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity",
    "InsufficientReservedInstanceCapacity", "InsufficientFreeAddressesInSubnet", "Unsupported",
    "UnfulfillableCapacity", "SpotMaxPriceTooLow", "CapacityNotAvailable",
}  # fmt: skip
_QUOTA = {
    "InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded",
    "VolumeLimitExceeded", "AddressLimitExceeded", "NetworkInterfaceLimitExceeded",
    "MaxSpotFleetRequestCountExceeded", "ResourceLimitExceeded",
}  # fmt: skip
_THROTTLED = {
    "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException",
    "RequestThrottled", "RequestThrottledException", "TooManyRequestsException",
    "EC2ThrottledException", "BandwidthLimitExceeded", "PriorRequestNotComplete",
}  # fmt: skip
_CREDENTIALS = {
    "AuthFailure", "UnauthorizedOperation", "InvalidClientTokenId", "SignatureDoesNotMatch",
    "ExpiredToken", "RequestExpired", "ExpiredTokenException", "OptInRequired", "Blocked",
    "AccessDenied", "MissingAuthenticationToken", "PendingVerification", "AccountDisabled",
    "UnrecognizedClientException", "InvalidAccessKeyId", "AccessDeniedException",
}  # fmt: skip
_GONE = {
    "InvalidInstanceID.NotFound",
    "InvalidInstanceID.Malformed",
    "IdempotentInstanceTerminated",
}

_STATES: dict[str, CloudState] = {
    "pending": "starting",
    "running": "running",
    "shutting-down": "stopping",
    "stopping": "stopping",
    "stopped": "stopping",  # its disk is paid for still
    "terminated": "gone",
}


def judged(code: str, said: str, status: int) -> ProviderError:
    """Return the error that a code of EC2 stands for."""
    if code in _CAPACITY:
        return NoCapacity("aws", said, code=code)
    if code in _QUOTA:
        return QuotaReached("aws", said, code=code)
    if code in _THROTTLED or status == 429:
        return Throttled("aws", said, code=code)
    if code in _CREDENTIALS:
        return BadCredentials("aws", said, code=code)
    if code in _GONE:
        return MachineGone("aws", said, code=code)
    if status >= 500 or status == 0:
        return Unreachable("aws", said, code=code)
    return Refused("aws", said, code=code)


@contextmanager
def troubles() -> Iterator[None]:
    """Turn what boto3 raises into our errors."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        PartialCredentialsError,
    )

    try:
        yield
    except ClientError as error:
        told = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code, said = str(told.get("Code", "")), str(told.get("Message", ""))
        raise judged(code, said, int(status)) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise BadCredentials("aws", str(error)) from error
    except BotoCoreError as error:  # no connection, a time-out, an answer that is none
        raise Unreachable("aws", str(error)) from error


def shown(instance: Mapping[str, Any]) -> CloudMachine:
    """Return an instance of EC2 as a machine."""
    tags = {str(each.get("Key")): str(each.get("Value")) for each in instance.get("Tags", [])}
    launched = instance.get("LaunchTime")
    return CloudMachine(
        cloud_id=str(instance["InstanceId"]),
        machine=tags.get(MACHINE_TAG, ""),
        state=_STATES.get(instance.get("State", {}).get("Name", ""), "starting"),
        type=str(instance.get("InstanceType", "")),
        region=str(instance.get("Placement", {}).get("AvailabilityZone", "")),
        market="spot" if instance.get("InstanceLifecycle") == "spot" else "on_demand",
        created_ms=int(launched.timestamp() * 1000) if launched is not None else 0,
    )
