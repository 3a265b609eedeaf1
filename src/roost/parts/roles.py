"""The sets of roles that routes name: who may, before anybody looks at whose things they are."""

Roles = frozenset[str]

#: No token needed.
ANYONE: Roles = frozenset({"anyone"})
#: The bearer token is a one-time join token, which `access.join` itself looks at.
JOINING: Roles = frozenset({"join token"})
ADMIN: Roles = frozenset({"admin"})
OPERATOR: Roles = ADMIN | {"operator"}
VIEWER: Roles = OPERATOR | {"viewer"}
#: Has one project, and sees nothing else.
MEMBER: Roles = frozenset({"member"})
#: The worker of one machine, which speaks for nothing else.
WORKER: Roles = frozenset({"worker"})
