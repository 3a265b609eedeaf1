"""Notices that a machine will be taken away soon: a file, or what a cloud tells its machines.

    file    a file `notice` in the worker's folder, made by hand or by a provider
    aws     the spot interruption notice of the instance metadata service, version 2
    azure   a scheduled event Preempt or Terminate of the instance metadata service

A service that does not answer means no notice: it is asked again in a few seconds.
"""

import ssl
from pathlib import Path
from typing import Protocol

import httpx
import msgspec

#: Where clouds tell their machines about themselves.
METADATA = "http://169.254.169.254"
_WAIT_S = 2.0
#: Answers of a metadata service are small; what is larger is not one.
_MOST_BYTES = 256 * 1024


class Notices(Protocol):
    """Where notices come from."""

    async def reclaimed(self) -> bool:
        """Say whether the machine will be taken away."""


def _client() -> httpx.AsyncClient:
    """Return a client for a metadata service: it speaks plain HTTP, so no certificate is trusted.

    Loading those that a machine trusts takes 50 ms of CPU, and a worker asks every few seconds.
    """
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.AsyncClient(timeout=_WAIT_S, trust_env=False, verify=nobody)


class FileNotice:
    """A file in the worker's folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def reclaimed(self) -> bool:
        """Say whether the file is there."""
        return self._path.exists()


class AwsNotice:
    """The spot interruption notice of EC2."""

    def __init__(self, base: str = METADATA) -> None:
        self._base = base

    async def reclaimed(self) -> bool:
        """Say whether an action is announced for this instance."""
        try:
            async with _client() as client:
                token = await client.put(
                    f"{self._base}/latest/api/token",
                    headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"},
                )
                answer = await client.get(
                    f"{self._base}/latest/meta-data/spot/instance-action",
                    headers={"X-aws-ec2-metadata-token": token.text[:200].strip()},
                )
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):
            return False
        return answer.status_code == 200


class _Event(msgspec.Struct, rename="pascal"):
    event_type: str = ""


class _Events(msgspec.Struct, rename="pascal"):
    events: list[_Event] = []


class AzureNotice:
    """The scheduled events of Azure."""

    def __init__(self, base: str = METADATA) -> None:
        self._base = base

    async def reclaimed(self) -> bool:
        """Say whether this machine is to be preempted or terminated."""
        try:
            async with _client() as client:
                answer = await client.get(
                    f"{self._base}/metadata/scheduledevents",
                    params={"api-version": "2020-07-01"},
                    headers={"Metadata": "true"},
                )
            found = msgspec.json.decode(answer.content[:_MOST_BYTES], type=_Events)
        except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError):
            return False
        return any(each.event_type in ("Preempt", "Terminate") for each in found.events)


def notices_of(kind: str, folder: Path, base: str = METADATA) -> list[Notices]:
    """Return where a worker looks for notices: always a file, and what its cloud has."""
    found: list[Notices] = [FileNotice(folder / "notice")]
    if kind == "aws":
        found.append(AwsNotice(base))
    if kind == "azure":
        found.append(AzureNotice(base))
    return found
