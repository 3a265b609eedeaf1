"""Bodies of projects and their quotas, of tokens, and of agents that join."""

from typing import Annotated

from msgspec import Meta, field

from roost.wire.bodies.words import Amount, Cores, Name, ProjectName, Reply, Request, Role, Size


class QuotaBody(Request):
    """Limits of a project; null means none."""

    cpu: Cores | None = None
    memory: Size | None = None
    disk: Size | None = None
    vms: Amount | None = None


class CreateProject(Request):
    """A project with its quota."""

    name: ProjectName
    quota: QuotaBody = field(default_factory=QuotaBody)


class SetQuota(Request):
    """A project's quota, all of it."""

    quota: QuotaBody


class LimitBody(Reply):
    """One limit and how much of it is in use."""

    used: int
    quota: int | None


class ProjectBody(Reply):
    """A project, what it uses, and the policy of its VMs that name none."""

    name: str
    cpu_milli: LimitBody
    memory_bytes: LimitBody
    disk_bytes: LimitBody
    vms: LimitBody
    policy: str | None = None


class ProjectPage(Reply):
    """All projects that the caller may see."""

    projects: list[ProjectBody]


class CreateToken(Request):
    """A token. Members need a project and see only that."""

    name: Name
    role: Role = "viewer"
    project: ProjectName | None = None
    expires_in_s: Annotated[int, Meta(ge=1, le=10 * 365 * 86400)] | None = None


class CreateJoinToken(Request):
    """A one-time token with which one agent joins; it may be bound to a host's name."""

    host: Name | None = None
    expires_in_s: Annotated[int, Meta(ge=1, le=30 * 86400)] = 3600


class TokenBody(Reply):
    """A token; the secret is shown once, when it is made."""

    id: str
    name: str
    role: str
    project: str | None
    created_at: str
    expires_at: str | None
    secret: str | None = None


class TokenPage(Reply):
    """All tokens, without their secrets."""

    tokens: list[TokenBody]


class JoinBody(Request):
    """An agent's first word: who it is. The one-time token comes as the bearer token."""

    host: Name


class JoinedBody(Reply):
    """The credential of one host's agent."""

    host: str
    credential: str
