"""Tokens over HTTP, and an agent's joining with one."""

from typing import TYPE_CHECKING

from roost.parts.roles import ADMIN, JOINING, OPERATOR
from roost.parts.routes import Route
from roost.wire import bodies as b

if TYPE_CHECKING:
    from roost.parts.access import Access


# fmt: off
def token_routes(access: "Access") -> tuple[Route, ...]:
    """Return the routes of tokens and of joining."""
    return (
        Route(method="GET", path="/api/v1/tokens", noun="tokens", verb="list_tokens",
              call=lambda call: access.list_tokens(), roles=ADMIN, summary="List tokens",
              reply=b.TokenPage),
        Route(method="POST", path="/api/v1/tokens", noun="tokens", verb="create",
              call=lambda call: access.create_token(call.body, call.who), roles=ADMIN,
              summary="Make a token", body=b.CreateToken, reply=b.TokenBody, statuses=(201,),
              errors=("conflict", "not_found"), makes=("id", "id")),
        Route(method="DELETE", path="/api/v1/tokens/{id}", noun="tokens", verb="delete",
              call=lambda call: access.delete_token(call.path["id"], call.who), roles=ADMIN,
              summary="Revoke a token", statuses=(204,), errors=("conflict",)),
        Route(method="POST", path="/api/v1/join-tokens", noun="tokens", verb="create_join_token",
              call=lambda call: access.create_join_token(call.body, call.who), roles=OPERATOR,
              summary="Make a one-time token with which an agent joins", body=b.CreateJoinToken,
              reply=b.TokenBody, statuses=(201,), errors=("conflict",)),
        Route(method="POST", path="/api/v1/agents/join", noun="tokens", verb="join",
              call=lambda call: access.join(call.body, call.token), roles=JOINING,
              summary="Exchange a join token for the credential of one host", body=b.JoinBody,
              reply=b.JoinedBody, statuses=(201,), errors=("conflict",)),
    )
# fmt: on
