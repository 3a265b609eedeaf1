"""Who may: the bearer token of a request becomes a principal, and the route's roles are compared.

This is the only place that decides about access by role, and about how often somebody may ask. What
a member may see of the things themselves is decided by the control plane, which knows whose they
are. A token is looked at before its address is blamed: whoever shares an address with somebody who
guesses is not refused for it.
"""

from collections.abc import Callable, Sequence

from roost.api.answers import Header
from roost.api.errors import Malformed
from roost.api.limits import Limits
from roost.api.rates import Rate
from roost.base.errors import Forbidden, Unauthorized
from roost.parts.access import Principal
from roost.parts.roles import Roles
from roost.parts.serving import Tokens

#: Headers of which a second one would leave open which is meant.
_ONCE = (b"authorization", b"idempotency-key", b"last-event-id")


def refuse_repeated(headers: Sequence[Header]) -> None:
    """Refuse a request that says twice who it is from, or which one it is."""
    names = [name for name, _ in headers if name in _ONCE]
    if len(set(names)) != len(names):
        raise said_twice(max(names, key=names.count))


def said_twice(name: bytes) -> Malformed:
    """Return the error for a header that came twice."""
    return Malformed(f"the header {name.decode().title()} came twice")


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


class Gate:
    """Lets requests in: who has a good token, and nobody more often than they may."""

    def __init__(self, access: Tokens, limits: Limits, monotonic: Callable[[], float]) -> None:
        self._access, self._monotonic = access, monotonic
        self._tokens = _rate(limits.token_rate, limits, "a token")
        self._unknown = _rate(limits.address_rate, limits, "an address without a token")
        self._failed = _rate(limits.failure_rate, limits, "an address with wrong tokens")

    async def admit(self, header: bytes | None, address: str) -> tuple[Principal, str]:
        """Return who a request is from, and the token; raises Unauthorized, TooManyRequests."""
        try:
            token = bearer(header)
            who = self._access.principal(token) or await self._access.check(token)
        except Unauthorized:
            self.failed(address)
            raise
        if self._tokens is not None:
            self._tokens.take(token, self._monotonic())
        return who, token

    def ask(self, token: str, now: float) -> None:
        """Count a request with a token that is known to be good; raises TooManyRequests."""
        if self._tokens is not None:
            self._tokens.take(token, now)

    def ask_unknown(self, address: str, count: int) -> None:
        """Count a request that needs no token."""
        if self._unknown is not None:
            self._unknown.take(address, self._monotonic(), count)

    def failed(self, address: str) -> None:
        """Count a request whose token was wrong."""
        if self._failed is not None:
            self._failed.take(address, self._monotonic())


def _rate(per_s: float, limits: Limits, what: str) -> Rate | None:
    return Rate(per_s, limits.burst_s, what) if per_s > 0 else None


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


def allow_joining(who: Principal) -> None:
    """Raise Unauthorized unless the token is one with which an agent joins."""
    if who.role != "join":
        raise Unauthorized("this is no join token")
