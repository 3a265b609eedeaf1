"""Joining: a one-time token is traded, over HTTP, for the host's own credential."""

import ssl

import httpx
import msgspec

from roost.agent.store import FolderStore
from roost.base.errors import Forbidden, Unauthorized, Unavailable
from roost.wire.bodies import JoinBody, JoinedBody

PATH = "/api/v1/agents/join"


async def join(
    servers: tuple[str, ...],
    host: str,
    token: str,
    *,
    timeout_s: float = 10.0,
    ca_file: str | None = None,
) -> str:
    """Return the credential of a host; servers are tried in turn while they do not answer."""
    trouble = "no server was named"
    secure = any(server.startswith("https:") for server in servers)
    # Loading certificates takes longer than joining; without TLS nobody looks at them.
    verify = ssl.create_default_context(cafile=ca_file) if secure else False
    async with httpx.AsyncClient(timeout=timeout_s, trust_env=False, verify=verify) as client:
        for server in servers:
            try:
                response = await client.post(
                    server.rstrip("/") + PATH,
                    content=msgspec.json.encode(JoinBody(host=host)),
                    headers={
                        "Authorization": f"Bearer {token}",
                        "Content-Type": "application/json",
                    },
                )
            except httpx.HTTPError as error:
                trouble = f"{server}: {error!r}"
                continue
            if response.status_code == 201:
                return msgspec.json.decode(response.content, type=JoinedBody).credential
            trouble = f"{server} answered {response.status_code}: {response.text[:300]}"
            if response.status_code == 401:
                raise Unauthorized(
                    f"the join token was not accepted; {trouble}",
                    hint="Maybe it was used already or has expired: roost token join",
                )
            if 400 <= response.status_code < 500:
                raise Forbidden(f"host {host!r} may not join; {trouble}")
    raise Unavailable(f"could not join; {trouble}")


async def join_once(
    store: FolderStore,
    servers: tuple[str, ...],
    host: str,
    token: str,
    *,
    ca_file: str | None = None,
) -> None:
    """Join unless a credential is there from an earlier time."""
    if store.credential() is None:
        store.save_credential(await join(servers, host, token, ca_file=ca_file))
