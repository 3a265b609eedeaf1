"""What the HTTP layer asks of the control plane: protocols that the plane satisfies by its shape.

Attributes are read-only properties, so that a plane may have narrower types than these. `Who` is
whatever `access` returned for a bearer token; it is handed back untouched, and only its role is
looked at here.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol, TypeAlias

from roost.wire import bodies as b
from roost.wire.queries import HostQuery, VMQuery


class Principal(Protocol):
    """Who asks. role: viewer, operator, admin, member (of `project`) or agent (of `host`)."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def project(self) -> str | None: ...
    @property
    def host(self) -> str | None: ...


# A protocol as parameter would oblige the plane to accept any look-alike of its own class.
Who: TypeAlias = Any


class Access(Protocol):
    """Tokens and who they belong to."""

    def principal(self, bearer: str) -> Principal | None:
        """Return who it is when that is known without asking the ledger."""

    async def check(self, bearer: str) -> Principal:
        """Return who it is; raises Unauthorized."""

    async def create_token(self, body: b.CreateToken, who: Who) -> b.TokenBody: ...
    async def list_tokens(self) -> b.TokenPage: ...
    async def delete_token(self, token_id: str, who: Who) -> None: ...
    async def create_join_token(self, body: b.CreateJoinToken, who: Who) -> b.TokenBody: ...
    async def join(self, body: b.JoinBody, bearer: str) -> b.JoinedBody: ...


class Created(Protocol):
    """A VM, and whether an earlier request with the same key made it."""

    @property
    def vm(self) -> b.VMBody: ...
    @property
    def replayed(self) -> bool: ...


class CreatedMany(Protocol):
    """What became of a batch, and whether an earlier request with the same key made it."""

    @property
    def batch(self) -> b.BatchBody: ...
    @property
    def replayed(self) -> bool: ...


class Admit(Protocol):
    """Creating VMs. `digest` sums up the raw body: the same key with another body is a conflict."""

    async def create(
        self, body: b.CreateVM, who: Who, key: str | None, digest: bytes
    ) -> Created: ...
    async def create_many(
        self, body: b.CreateVMs, who: Who, key: str | None, digest: bytes
    ) -> CreatedMany: ...


class VMs(Protocol):
    """VMs that exist. `ref` is an id, or a name within `project`."""

    async def get(self, ref: str, project: str | None, who: Who) -> b.VMBody: ...
    async def list(self, query: VMQuery, who: Who) -> b.VMPage: ...
    async def delete(self, ref: str, project: str | None, who: Who) -> b.VMBody: ...
    async def start(self, ref: str, project: str | None, who: Who) -> b.VMBody: ...
    async def stop(self, ref: str, project: str | None, who: Who) -> b.VMBody: ...
    async def restart(self, ref: str, project: str | None, who: Who) -> b.VMBody: ...
    async def pause(self, ref: str, project: str | None, who: Who) -> b.VMBody: ...
    async def resume(self, ref: str, project: str | None, who: Who) -> b.VMBody: ...
    async def resize(
        self, ref: str, project: str | None, body: b.ResizeVM, who: Who
    ) -> b.VMBody: ...
    async def migrate(
        self, ref: str, project: str | None, body: b.MigrateVM, who: Who
    ) -> b.VMBody: ...
    async def cancel_migration(self, ref: str, project: str | None, who: Who) -> b.VMBody: ...
    async def console(
        self, ref: str, project: str | None, start: int | None, limit: int, who: Who
    ) -> b.ConsoleBody:
        """Return the last `limit` bytes of its serial log, or at most so many from `start`."""

    async def explain(
        self, ref: str, project: str | None, hosts: Sequence[str], who: Who
    ) -> b.ExplanationBody: ...


class Hosts(Protocol):
    """Hosts, and what operators do with them."""

    async def list(self, query: HostQuery) -> b.HostPage: ...
    async def get(self, name: str) -> b.HostBody: ...
    async def scheduling_info(self, name: str) -> b.SchedulingInfo: ...
    async def cordon(self, name: str, who: Who) -> b.HostBody: ...
    async def uncordon(self, name: str, who: Who) -> b.HostBody: ...
    async def drain(self, name: str, who: Who) -> b.DrainBody: ...
    async def drain_state(self, name: str) -> b.DrainBody: ...
    async def set_labels(self, name: str, body: b.SetLabels, who: Who) -> b.HostBody: ...
    async def confirm_dead(self, name: str, body: b.ConfirmDead, who: Who) -> b.HostBody: ...
    async def delete(self, name: str, who: Who) -> None: ...


class Questions(Protocol):
    """What would happen, without doing it."""

    async def dry_run(self, body: b.DryRun, who: Who) -> b.PlacementBody | b.RejectionBody: ...
    async def dry_run_many(self, body: b.DryRunBatch, who: Who) -> b.AnswersBody: ...
    async def capacity(self, body: b.CapacityQuestion, who: Who) -> b.CapacityBody: ...
    async def strategies(self) -> b.StrategiesBody: ...


class Projects(Protocol):
    """Projects and their quotas."""

    async def list(self, who: Who) -> b.ProjectPage: ...
    async def get(self, name: str, who: Who) -> b.ProjectBody: ...
    async def create(self, body: b.CreateProject, who: Who, key: str | None) -> b.ProjectBody: ...
    async def set_quota(self, name: str, body: b.SetQuota, who: Who) -> b.ProjectBody: ...
    async def delete(self, name: str, who: Who) -> None: ...


class Events(Protocol):
    """What happened, in order."""

    async def page(self, since: int, limit: int, who: Who) -> b.EventPage: ...

    def stream(self, since: int, who: Who) -> AsyncIterator[b.EventBody]:
        """Yield what happened after `since`, then what happens; never ends by itself."""


class Link(Protocol):
    """The server's end of one agent's connection."""

    @property
    def peer(self) -> str:
        """Where it comes from."""

    def send(self, data: bytes) -> None:
        """Send one message, or hand it to the kernel later; never waits."""

    def close(self, code: int, reason: str) -> None:
        """Begin to close; `closed` of the session follows."""


class Session(Protocol):
    """The control plane's end of one agent's connection. Both calls must be quick."""

    def received(self, data: bytes) -> None:
        """Take one message."""

    def closed(self) -> None:
        """Hear, once, that the connection is gone."""


class Agents(Protocol):
    """Where agents' connections arrive."""

    def connect(self, link: Link, principal: Who) -> Session: ...


class Plane(Protocol):
    """The control plane as the HTTP layer sees it."""

    @property
    def access(self) -> Access: ...
    @property
    def admit(self) -> Admit: ...
    @property
    def vms(self) -> VMs: ...
    @property
    def hosts(self) -> Hosts: ...
    @property
    def questions(self) -> Questions: ...
    @property
    def projects(self) -> Projects: ...
    @property
    def events(self) -> Events: ...
    @property
    def agents(self) -> Agents: ...

    async def doctor(self) -> b.DoctorBody: ...
    async def finish_upgrade(self, who: Who) -> b.UpgradeBody: ...

    def readiness(self) -> b.HealthBody:
        """Say whether requests can be served; status "ready" means yes."""

    def require_ready(self) -> None:
        """Raise FleetUnavailable while requests cannot be served."""

    def metrics_text(self) -> bytes:
        """Return what Prometheus scrapes."""


class Meter(Protocol):
    """Where finished requests are counted. `route` is the path as the table writes it."""

    def request(self, method: str, route: str, status: int, seconds: float) -> None: ...
