"""What a list of VMs or hosts is narrowed down by: asked over HTTP, answered by control."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class VMQuery:
    """Which VMs; None means any. `after` is the `next` of the page before."""

    project: str | None = None
    host: str | None = None
    state: str | None = None
    name: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    limit: int = 100
    after: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostQuery:
    """Which hosts; None means any."""

    health: str | None = None
    admin: str | None = None
    zone: str | None = None
    limit: int = 100
    after: str | None = None
