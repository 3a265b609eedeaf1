"""A control plane in memory: it keeps VMs, hosts, projects, tokens and events in dicts.

It places everything on its first host and refuses what the tests need refused. It satisfies
`roost.parts.serving.ServedPlane` and knows nothing of HTTP; its routes are those of the real rooms.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from roost.base.errors import (
    Conflict,
    FleetUnavailable,
    Forbidden,
    InvalidRequest,
    InvalidStrategy,
    NoFit,
    NotFound,
    QuotaExceeded,
    Unauthorized,
)
from roost.base.units import parse_bytes, parse_cpu
from roost.control.admin.health import Health
from roost.control.admin.hostroutes import host_routes
from roost.control.admin.projectroutes import project_routes
from roost.control.admin.upgrade import Upgrade
from roost.control.agents.routes import console_routes
from roost.control.create.questionroutes import question_routes
from roost.control.create.routes import create_routes
from roost.control.memory.eventroutes import event_routes
from roost.control.moves.routes import move_routes
from roost.control.vms.routes import vm_routes
from roost.parts.access import Principal
from roost.parts.routes import Route
from roost.parts.serving import Link
from roost.parts.tokenroutes import token_routes
from roost.wire import bodies as b
from roost.wire.queries import HostQuery, VMQuery

STRATEGIES = ("best_fit", "least_loaded", "random", "round_robin")
AT = "2026-08-01T00:00:00Z"
#: What every VM has written to its console.
LOG = "booting\nlogin: "


@dataclass(frozen=True, slots=True)
class Created:
    """One VM."""

    vm: b.VMBody
    replayed: bool


@dataclass(frozen=True, slots=True)
class CreatedMany:
    """Many VMs."""

    batch: b.BatchBody
    replayed: bool


def token(role: str) -> str:
    """Return the token of a role; `slow-` in front is not known without asking."""
    return f"roost_{role}_secret"


class FakeAccess:
    """Tokens: one of each role is there from the start."""

    def __init__(self) -> None:
        self.known = {
            token(role): Principal(role, role) for role in ("viewer", "operator", "admin")
        }
        self.known[token("member")] = Principal("member", "member", project="p1")
        self.known[token("agent")] = Principal("agent", "agent", host="h1")
        self.slow: dict[str, Principal] = {token("slowagent"): Principal("a2", "agent", host="h2")}
        self.join_tokens = {"roost_join_secret"}
        self.tokens: dict[str, b.TokenBody] = {}

    def principal(self, bearer: str) -> Principal | None:
        return self.known.get(bearer)

    async def check(self, bearer: str) -> Principal:
        await asyncio.sleep(0)
        if bearer not in self.slow:
            raise Unauthorized("the token is not known")
        return self.slow[bearer]

    async def create_token(self, body: b.CreateToken, who: Principal) -> b.TokenBody:
        if body.role == "member" and body.project is None:
            raise InvalidRequest("a member needs a project")
        made = b.TokenBody(
            id=f"t{len(self.tokens)}",
            name=body.name,
            role=body.role,
            project=body.project,
            created_at=AT,
            expires_at=None,
        )
        self.tokens[made.id] = made
        return msgspec.structs.replace(made, secret="roost_x_y")

    async def list_tokens(self) -> b.TokenPage:
        return b.TokenPage(tokens=list(self.tokens.values())[:100])

    async def delete_token(self, token_id: str, who: Principal) -> None:
        if self.tokens.pop(token_id, None) is None:
            raise NotFound(f"there is no token {token_id}")

    async def create_join_token(self, body: b.CreateJoinToken, who: Principal) -> b.TokenBody:
        return b.TokenBody(
            id="j1",
            name=body.host or "join",
            role="join",
            project=None,
            created_at=AT,
            expires_at=AT,
            secret="roost_join_secret",
        )

    async def join(self, body: b.JoinBody, bearer: str) -> b.JoinedBody:
        if bearer not in self.join_tokens:
            raise Unauthorized("the join token is not known, or was used")
        return b.JoinedBody(host=body.host, credential=f"roost_{body.host}_credential")


def millicores(value: int | float | str) -> int:
    """Return an amount of cpu."""
    return parse_cpu(value) if isinstance(value, str) else int(value * 1000)


def in_bytes(value: int | str) -> int:
    """Return an amount of memory or disk."""
    return parse_bytes(value) if isinstance(value, str) else value


@dataclass
class Store:
    """What the fake plane knows."""

    vms: dict[str, b.VMBody] = field(default_factory=dict)
    keys: dict[str, tuple[bytes, object]] = field(default_factory=dict)
    events: list[b.EventBody] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def event(self, kind: str, subject: str, project: str | None = None) -> None:
        """Add an event and wake those who follow."""
        self.events.append(
            b.EventBody(
                seq=len(self.events) + 1,
                at=AT,
                actor="test",
                kind=kind,
                subject=subject,
                project=project,
                changes={},
            )
        )
        self.changed.set()
        self.changed = asyncio.Event()

    def vm(self, ref: str, project: str | None, who: Principal) -> b.VMBody:
        """Return a VM that the caller may see."""
        for vm in self.vms.values():
            if (vm.id == ref or (vm.name == ref and vm.project == (project or "default"))) and (
                who.project in (None, vm.project)
            ):
                return vm
        raise NotFound(f"there is no VM {ref}", vm=ref)


class FakeAdmit:
    """Creates VMs; the name decides about the exceptions."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.failure: Exception | None = None

    async def create(
        self, body: b.CreateVM, who: Principal, key: str | None, digest: bytes
    ) -> Created:
        if self.failure is not None:
            raise self.failure
        before = self._before(key, digest)
        if isinstance(before, b.VMBody):
            return Created(before, True)
        vm = self._make(body, who)
        if key is not None:
            self.store.keys[key] = (digest, vm)
        return Created(vm, False)

    def _before(self, key: str | None, digest: bytes) -> object:
        if key is None or key not in self.store.keys:
            return None
        first, made = self.store.keys[key]
        if first != digest:
            raise Conflict("the key was used with another body", key=key)
        return made

    def _make(self, body: b.CreateVM, who: Principal) -> b.VMBody:
        if who.project not in (None, body.project):
            raise NotFound(f"there is no project {body.project}")
        if body.strategy is not None and body.strategy not in STRATEGIES:
            raise InvalidStrategy(body.strategy, STRATEGIES)
        if any(
            vm.name == body.name and vm.project == body.project for vm in self.store.vms.values()
        ):
            raise Conflict(f"the VM {body.name} exists", name=body.name)
        demand = demand_of(body.demand)
        if demand.memory_bytes > 2**40 and body.on_no_fit == "fail":
            raise NoFit(
                "insufficient_resources",
                "no host fits",
                msgspec.to_builtins(rejection(body.name, "insufficient_resources")),
            )
        if demand.cpu_milli > 10**6:
            raise QuotaExceeded("the project's quota of cpu does not allow it")
        waits = demand.memory_bytes > 2**40
        vm = b.VMBody(
            id=f"vm-{len(self.store.vms):020d}",
            name=body.name,
            project=body.project,
            state="pending" if waits else "starting",
            desired="running",
            observed="absent",
            host=None if waits else "h1",
            hypervisor_id=None if waits else "h1",
            virtual=True,
            demand=demand,
            strategy=body.strategy or "least_loaded",
            priority=body.priority,
            restart=body.restart,
            on_no_fit=body.on_no_fit,
            labels=body.labels,
            groups=[group if isinstance(group, str) else group.name for group in body.groups],
            generation=1,
            observed_generation=0,
            created_at=AT,
            pending=rejection(body.name, "insufficient_resources") if waits else None,
            placement=None if waits else placement(body.name),
            boot=None if body.boot is None else msgspec.structs.replace(body.boot, user_data=""),
            nics=body.nics,
        )
        self.store.vms[vm.id] = vm
        self.store.event("vm.created", f"vm/{vm.id}", vm.project)
        return vm

    async def create_many(
        self, body: b.CreateVMs, who: Principal, key: str | None, digest: bytes
    ) -> CreatedMany:
        before = self._before(key, digest)
        if isinstance(before, b.BatchBody):
            return CreatedMany(before, True)
        results = []
        for wanted in body.vms:
            try:
                vm = self._make(wanted, who)
            except (InvalidRequest, NotFound, Conflict, NoFit) as error:
                inner = error.as_json()["error"]
                assert isinstance(inner, dict)
                results.append(b.BatchItem(name=wanted.name, error=inner))
            else:
                results.append(b.BatchItem(name=vm.name, id=vm.id, host=vm.host, state=vm.state))
        made = [item for item in results if item.error is None]
        batch = b.BatchBody(
            results=results, created=len(made), queued=0, failed=len(results) - len(made)
        )
        if key is not None:
            self.store.keys[key] = (digest, batch)
        return CreatedMany(batch, False)


def demand_of(demand: b.DemandBody) -> b.AmountsBody:
    """Return the amounts of a demand in whole numbers."""
    return b.AmountsBody(
        cpu_milli=millicores(demand.cpu),
        memory_bytes=in_bytes(demand.memory),
        disk_bytes=in_bytes(demand.disk),
        extended=demand.extended,
    )


def placement(vm: str) -> b.PlacementBody:
    """Return the placement of everything."""
    return b.PlacementBody(vm=vm, host="h1", host_number=0, strategy="least_loaded", score=1)


def rejection(vm: str, code: str) -> b.RejectionBody:
    """Return why a VM fits nowhere."""
    return b.RejectionBody(vm=vm, code=code, message="no host fits", strategy="best_fit", hosts=1)


class FakeVMs:
    """VMs that exist."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def get(self, ref: str, project: str | None, who: Principal) -> b.VMBody:
        return self.store.vm(ref, project, who)

    async def list(self, query: VMQuery, who: Principal) -> b.VMPage:
        if query.after is not None and not query.after.startswith("vm-"):
            raise InvalidRequest("after is not the `next` of a page")
        found = [
            vm
            for vm in self.store.vms.values()
            if query.project in (None, vm.project)
            and query.host in (None, vm.host)
            and query.state in (None, vm.state)
            and query.name in (None, vm.name)
            and who.project in (None, vm.project)
            and query.labels.items() <= vm.labels.items()
            and vm.id > (query.after or "")
        ]
        more = len(found) > query.limit
        return b.VMPage(vms=found[: query.limit], next=found[query.limit - 1].id if more else None)

    async def delete(self, ref: str, project: str | None, who: Principal) -> b.VMBody:
        vm = self.store.vm(ref, project, who)
        del self.store.vms[vm.id]
        self.store.event("vm.deleted", f"vm/{vm.id}", vm.project)
        return msgspec.structs.replace(vm, state="deleting", desired="absent")

    async def _change(self, ref: str, project: str | None, who: Principal) -> b.VMBody:
        vm = self.store.vm(ref, project, who)
        if vm.state == "pending":
            raise Conflict(f"the VM {vm.name} waits for room")
        return vm

    start = stop = restart = pause = resume = _change

    async def resize(
        self, ref: str, project: str | None, body: b.ResizeVM, who: Principal
    ) -> b.VMBody:
        if isinstance(body.memory, str):
            parse_bytes(body.memory)
        return await self._change(ref, project, who)

    async def migrate(
        self, ref: str, project: str | None, body: b.MigrateVM, who: Principal
    ) -> b.VMBody:
        vm = await self._change(ref, project, who)
        if body.host not in (None, "h1", "h2"):
            raise NotFound(f"there is no host {body.host}")
        in_bytes(body.bandwidth)
        if body.host != "h2":
            return vm
        mode = "cold" if body.cold else "live"
        move = b.MigrationBody(source="h1", target="h2", phase="preparing", mode=mode)
        return self._keep(msgspec.structs.replace(vm, state="migrating", migration=move))

    async def cancel(self, ref: str, project: str | None, who: Principal) -> b.VMBody:
        vm = await self._change(ref, project, who)
        if vm.migration is None:
            raise Conflict(f"the VM {vm.name} does not move")
        return self._keep(msgspec.structs.replace(vm, state="running", migration=None))

    def _keep(self, vm: b.VMBody) -> b.VMBody:
        self.store.vms[vm.id] = vm
        return vm

    async def console(
        self, ref: str, project: str | None, start: int | None, limit: int, who: Principal
    ) -> b.ConsoleBody:
        vm = await self._change(ref, project, who)
        if vm.name == "silent":
            raise FleetUnavailable("the agent of h1 is not connected here", host="h1")
        first = max(0, len(LOG) - limit) if start is None else min(start, len(LOG))
        text = LOG[first : first + limit]
        return b.ConsoleBody(
            vm=vm.id, text=text, start=first, end=first + len(text), host=vm.host or ""
        )

    async def explain(
        self, ref: str, project: str | None, hosts: Sequence[str], who: Principal
    ) -> b.ExplanationBody:
        vm = self.store.vm(ref, project, who)
        verdicts = [
            b.VerdictBody(host=host, fits=False, score=None, reasons=["memory"], shortages=[])
            for host in hosts
        ]
        return b.ExplanationBody(
            answer=placement(vm.name), hosts=1, fitting=1, reasons=[], verdicts=verdicts
        )


class FakeHosts:
    """One host."""

    def __init__(self) -> None:
        zero = b.HostAmounts(capacity=16000, committed=0)
        self.host = b.HostBody(
            name="h1",
            number=0,
            health="online",
            admin="open",
            driver="virtual",
            virtual=True,
            zone="z1",
            rack="",
            site="",
            architecture="x86_64",
            labels={},
            taints=[],
            cpu_milli=zero,
            memory_bytes=zero,
            disk_bytes=zero,
            extended={},
            devices=[],
            cells=[],
            vms=0,
            max_vms=None,
            generation=1,
            connected=False,
            guard=False,
            fenced=None,
        )

    async def list(self, query: HostQuery) -> b.HostPage:
        fits = query.health in (None, "online") and query.admin in (None, "open")
        return b.HostPage(hosts=[self.host] if fits else [])

    async def get(self, name: str) -> b.HostBody:
        if name != "h1":
            raise NotFound(f"there is no host {name}", host=name)
        return self.host

    async def scheduling_info(self, name: str) -> b.SchedulingInfo:
        return b.SchedulingInfo(host=(await self.get(name)).name, text="six lines")

    async def cordon(self, name: str, who: Principal) -> b.HostBody:
        return await self.get(name)

    uncordon = cordon

    async def drain(self, name: str, who: Principal) -> b.DrainBody:
        return b.DrainBody(host=(await self.get(name)).name, state="draining", left=1)

    async def drain_state(self, name: str) -> b.DrainBody:
        return b.DrainBody(host=(await self.get(name)).name, state="draining", left=1)

    async def set_labels(self, name: str, body: b.SetLabels, who: Principal) -> b.HostBody:
        await self.get(name)
        self.host = msgspec.structs.replace(self.host, labels=body.labels)
        return self.host

    async def confirm_dead(self, name: str, body: b.ConfirmDead, who: Principal) -> b.HostBody:
        return await self.get(name)

    async def delete(self, name: str, who: Principal) -> None:
        await self.get(name)
        raise Conflict(f"the host {name} has VMs")


class FakeQuestions:
    """Answers without doing."""

    async def dry_run(self, body: b.DryRun, who: Principal) -> b.PlacementBody | b.RejectionBody:
        if demand_of(body.demand).memory_bytes > 2**40:
            return rejection(body.name, "insufficient_resources")
        return placement(body.name)

    async def dry_run_many(self, body: b.DryRunBatch, who: Principal) -> b.AnswersBody:
        return b.AnswersBody(answers=[placement(vm.name) for vm in body.vms])

    async def capacity(self, body: b.CapacityQuestion, who: Principal) -> b.CapacityBody:
        demand_of(body.demand)
        return b.CapacityBody(
            answer="exact",
            count=3,
            survive=body.survive,
            losses=body.losses,
            sampled=False,
            blocking="memory",
            refused=None,
        )

    async def strategies(self) -> b.StrategiesBody:
        return b.StrategiesBody(
            default="least_loaded",
            strategies=[b.StrategyBody(name=name, summary="x") for name in STRATEGIES],
        )


class FakeProjects:
    """Projects by name."""

    def __init__(self) -> None:
        none = b.LimitBody(used=0, quota=None)
        self.projects = {
            name: b.ProjectBody(
                name=name, cpu_milli=none, memory_bytes=none, disk_bytes=none, vms=none
            )
            for name in ("default", "p1", "p2")
        }

    async def list(self, who: Principal) -> b.ProjectPage:
        return b.ProjectPage(
            projects=[p for p in self.projects.values() if who.project in (None, p.name)][:100]
        )

    async def get(self, name: str, who: Principal) -> b.ProjectBody:
        if name not in self.projects or who.project not in (None, name):
            raise NotFound(f"there is no project {name}", project=name)
        return self.projects[name]

    async def create(
        self, body: b.CreateProject, who: Principal, key: str | None = None
    ) -> b.ProjectBody:
        if body.name in self.projects:
            raise Conflict(f"the project {body.name} exists")
        self.projects[body.name] = msgspec.structs.replace(self.projects["p1"], name=body.name)
        return self.projects[body.name]

    async def set_quota(self, name: str, body: b.SetQuota, who: Principal) -> b.ProjectBody:
        if isinstance(body.quota.memory, str):
            parse_bytes(body.quota.memory)
        return await self.get(name, who)

    async def delete(self, name: str, who: Principal) -> None:
        await self.get(name, who)
        if name in ("default", "p1", "p2"):
            raise Conflict(f"the project {name} has VMs")
        del self.projects[name]


class FakeEvents:
    """Events of the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.followers = 0

    async def page(self, since: int, limit: int, who: Principal) -> b.EventPage:
        found = [event for event in self.store.events if event.seq > since][:limit]
        return b.EventPage(events=found, next=found[-1].seq if found else since)

    async def stream(self, since: int, who: Principal) -> AsyncIterator[b.EventBody]:
        self.followers += 1
        try:
            while True:
                changed = self.store.changed
                for event in self.store.events[since:]:
                    since = event.seq
                    if event.kind == "broken":
                        raise Forbidden("you may not see this")
                    yield event
                await changed.wait()
        finally:
            self.followers -= 1


class FakeSession:
    """One agent's connection: answers every message, does what some of them ask for."""

    def __init__(self, link: Link, principal: Principal) -> None:
        self.link = link
        self.principal = principal
        self.messages: list[bytes] = []
        self.gone = asyncio.Event()

    def received(self, data: bytes) -> None:
        self.messages.append(bytes(data))
        if data == b"broken":
            raise msgspec.DecodeError("broken")
        if data == b"refuse":
            raise Forbidden("not you")
        if data == b"close":
            self.link.close(1000, "as you wish")
        elif data.startswith(b"flood"):
            for _ in range(int(data[5:])):
                self.link.send(b"x" * 2**20)
        else:
            self.link.send(b"got " + data)

    def closed(self) -> None:
        assert not self.gone.is_set()
        self.gone.set()


class FakeAgents:
    """Connections of agents."""

    def __init__(self) -> None:
        self.sessions: list[FakeSession] = []
        self.failure: Exception | None = None

    def connect(self, link: Link, principal: Principal) -> FakeSession:
        if self.failure is not None:
            raise self.failure
        self.sessions.append(FakeSession(link, principal))
        return self.sessions[-1]


class Unshared:
    """A store of one process: an upgrade leaves nothing to finish."""

    shared = False


class FakePlane:
    """All of it."""

    def __init__(self) -> None:
        self.store = Store()
        self.access = FakeAccess()
        self.admit = FakeAdmit(self.store)
        self.vms = FakeVMs(self.store)
        self.hosts = FakeHosts()
        self.questions = FakeQuestions()
        self.projects = FakeProjects()
        self.events = FakeEvents(self.store)
        self.agents = FakeAgents()
        self.status = "ready"
        health = Health(self.doctor, self.readiness, self.metrics_text)
        self.routes: tuple[Route, ...] = (
            *create_routes(cast(Any, self.admit)),
            *vm_routes(cast(Any, self.vms)),
            *move_routes(cast(Any, self.vms)),
            *console_routes(cast(Any, self.vms)),
            *host_routes(cast(Any, self.hosts)),
            *question_routes(cast(Any, self.questions)),
            *project_routes(cast(Any, self.projects)),
            *token_routes(cast(Any, self.access)),
            *event_routes(cast(Any, self.events)),
            *Upgrade(cast(Any, Unshared())).routes(),
            *health.routes(),
        )

    async def doctor(self) -> b.DoctorBody:
        return b.DoctorBody(ok=True, checked={"hosts": 1}, findings=[])

    def readiness(self) -> b.HealthBody:
        return b.HealthBody(status=self.status)

    def require_ready(self) -> None:
        if self.status != "ready":
            raise FleetUnavailable(f"not ready: {self.status}")

    def metrics_text(self) -> bytes:
        return b"# HELP up 1\n"
