"""The link of a worker to its control plane: join once, then poll, over HTTP.

Servers are tried in turn while they do not answer. What an answer says is one of: orders, nobody
there (try again), or not ours any more (`Unauthorized`, `Forbidden`).
"""

import ssl
from typing import Protocol, TypeVar

import httpx
import msgspec

from roost.base.errors import Forbidden, InvalidRequest, Unauthorized, Unavailable
from roost.wire.workerlink import (
    MOST_WAIT_S,
    LogsTaken,
    WorkerJoin,
    WorkerJoined,
    WorkerLogs,
    WorkerOrders,
    WorkerPoll,
)

T = TypeVar("T")
_BASE = "/api/v1/worker"
_WAIT_S = 15.0
#: Bytes of an answer; a machine's assignments are far fewer.
_MOST_ANSWER = 64 * 2**20


class Plane(Protocol):
    """The control plane as a worker sees it."""

    async def poll(self, poll: WorkerPoll) -> WorkerOrders:
        """Say what the worker has; return what it should have."""

    async def send_logs(self, logs: WorkerLogs) -> LogsTaken:
        """Send pieces of logs; return how far each is kept."""

    async def close(self) -> None:
        """Close connections to the control plane."""


class HttpPlane:
    """A control plane that is asked over HTTP."""

    def __init__(
        self, servers: tuple[str, ...], credential: str, *, ca_file: str | None = None
    ) -> None:
        secure = any(server.startswith("https:") for server in servers)
        verify = ssl.create_default_context(cafile=ca_file) if secure else False
        self._client = httpx.AsyncClient(timeout=_WAIT_S, trust_env=False, verify=verify)
        self._servers = [server.rstrip("/") for server in servers]
        self._headers = {
            "Authorization": f"Bearer {credential}",
            "Content-Type": "application/json",
        }

    async def join(self, machine: str, version: str) -> str:
        """Trade a join token for the machine's credential."""
        body = WorkerJoin(machine=machine, version=version)
        return (await self._ask("join", body, WorkerJoined)).credential

    async def poll(self, poll: WorkerPoll) -> WorkerOrders:
        """Say what the worker has; return what it should have."""
        return await self._ask("poll", poll, WorkerOrders, wait_s=min(poll.wait_s, MOST_WAIT_S))

    async def send_logs(self, logs: WorkerLogs) -> LogsTaken:
        """Send pieces of logs; return how far each is kept."""
        return await self._ask("logs", logs, LogsTaken)

    async def close(self) -> None:
        """Close connections to the control plane."""
        await self._client.aclose()

    async def _ask(
        self,
        verb: str,
        body: WorkerJoin | WorkerPoll | WorkerLogs,
        kind: type[T],
        *,
        wait_s: float = 0.0,
    ) -> T:
        trouble = "no server was named"
        for _ in self._servers:
            try:
                answer = await self._client.post(
                    f"{self._servers[0]}{_BASE}/{verb}",
                    content=msgspec.json.encode(body),
                    headers=self._headers,
                    timeout=_WAIT_S + wait_s,
                )
                if answer.status_code < 300:
                    return msgspec.json.decode(answer.content[:_MOST_ANSWER], type=kind)
            except (httpx.HTTPError, httpx.InvalidURL, msgspec.DecodeError) as error:
                trouble = f"{self._servers[0]}: {error!r}"
            else:
                trouble = f"{self._servers[0]} answered {answer.status_code}: {answer.text[:300]}"
                self._judge(answer.status_code, trouble)
            self._servers.append(self._servers.pop(0))  # the next one
        raise Unavailable(f"the control plane does not answer; {trouble}")

    def _judge(self, status: int, trouble: str) -> None:
        if status == 401:
            raise Unauthorized(f"this machine's credential is not accepted; {trouble}")
        if status in (403, 404, 410):
            raise Forbidden(f"the control plane does not know this machine; {trouble}")
        if status in (400, 413, 422):
            raise InvalidRequest(f"the control plane does not take what was said; {trouble}")
