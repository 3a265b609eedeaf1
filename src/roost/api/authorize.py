"""Who may: the bearer token of a request becomes a principal, and the route's roles are compared.

This is the only place that decides about access by role. What a member may see of the things
themselves is decided by the control plane, which knows whose they are.
"""

from roost.base.errors import Forbidden, Unauthorized
from roost.parts.access import Principal
from roost.parts.roles import Roles
from roost.parts.serving import Tokens


def bearer(header: bytes | None) -> str:
    """Return the token of an Authorization header."""
    if header is None:
        raise Unauthorized(
            "this needs a token", hint="Maybe send the header Authorization: Bearer TOKEN."
        )
    scheme, _, token = header.partition(b" ")
    token = token.strip()
    if scheme.lower() != b"bearer" or not token.isascii() or not token:
        raise Unauthorized("the Authorization header is not of the form Bearer TOKEN")
    return token.decode("ascii")


async def principal(access: Tokens, token: str) -> Principal:
    """Return who a token belongs to; raises Unauthorized."""
    return access.principal(token) or await access.check(token)


def allow(roles: Roles, who: Principal) -> None:
    """Raise Forbidden unless one of the roles is the caller's."""
    if who.role not in roles:
        needed = ", ".join(sorted(roles))
        raise Forbidden(
            f"the role {who.role} may not do this; it takes one of: {needed}",
            role=who.role,
            needed=sorted(roles),
        )
