"""Tokens over HTTP, and an agent's joining with one."""

from roost.api.answers import Answer, body, empty
from roost.api.calls import Call
from roost.wire.bodies import CreateJoinToken, CreateToken, JoinBody


async def list_tokens(call: Call[None, None]) -> Answer:
    """List tokens, without their secrets."""
    return body(200, await call.plane.access.list_tokens())


async def create(call: Call[CreateToken, None]) -> Answer:
    """Make a token; its secret is shown this once."""
    return body(201, await call.plane.access.create_token(call.body, call.who))


async def delete(call: Call[None, None]) -> Answer:
    """Revoke a token."""
    await call.plane.access.delete_token(call.path["id"], call.who)
    return empty()


async def create_join_token(call: Call[CreateJoinToken, None]) -> Answer:
    """Make a one-time token with which one agent joins."""
    return body(201, await call.plane.access.create_join_token(call.body, call.who))


async def join(call: Call[JoinBody, None]) -> Answer:
    """Exchange a join token for the credential of one host."""
    return body(201, await call.plane.access.join(call.body, call.token))
