"""Who does what in a world: users with their repeats, operators with their mistakes, and faults.

A user who gets no answer asks again, at another plane and with the same idempotency key, as a real
client does. A fault that lasts ends by itself; `end_faults` ends them all.
"""

import asyncio
import re
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from roost.base.errors import NotFound, RoostError, Unavailable
from roost.control.create.placing import find_host
from roost.control.plane import Plane, PlaneSettings
from roost.control.survive.requested import RequestedRecovery
from roost.ledger.schema.rows import VMRow
from roost.model.flow import Placement, RejectionCode
from roost.parts.access import Principal
from roost.sim.actors.database import Troubles
from roost.sim.actors.operators import ADMIN, Operators
from roost.sim.faults.disasters import Disasters
from roost.sim.faults.slow import Mischief
from roost.sim.ground.clocks import NodeClock, moment
from roost.sim.ground.lives import Dead
from roost.sim.histories.history import Action
from roost.wire.bodies import (
    ConfirmDead,
    ConstraintsBody,
    CreateVM,
    CreateVMs,
    DemandBody,
    GroupBody,
    MigrateVM,
    ResizeVM,
    SetMaintenance,
    SetVM,
)
from roost.wire.constraints import ChangeConstraint, CreateConstraint
from roost.wire.groups import GroupVMs, SetBudget, SetGroupRule
from roost.wire.plans import CreatePlan, PlanDetail
from roost.wire.policies import ApplyPolicy, ChangePolicy, CreatePolicy, PolicyRuleBody
from roost.wire.priorities import CreatePriorityClass
from roost.wire.reservations import CreateReservation

if TYPE_CHECKING:
    from roost.sim.world import World

_USER = Principal("user", "operator")
_TRIES = 6
_PATIENCE_MS = 1000 * PlaneSettings().patience_s
#: Constraints that an action may name.
_WHERE = ("zones", "racks", "hosts", "not_hosts")


class Actor(Mischief, Operators, Disasters):
    """Carries out the actions of a history."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self._world = world
        self._keys = 0
        self._plans: dict[str, str] = {}  # ids of plans, by what histories call them
        self._users: set[asyncio.Task[None]] = set()

    def do(self, action: Action) -> None:
        """Carry out one action of the history, or begin it."""
        world, name = self._world, self._who(action.on)
        world.note("action", action.do, f"{name or 'nobody'} {action.with_}")
        if name is None or self._is_missing(name):
            return
        if method := getattr(self, f"_{action.do}", None):
            given = {"for_" if key == "for" else key: v for key, v in action.with_.items()}
            method(name, **given)
        else:
            self._ask(action.do, name, action.with_)

    def _is_missing(self, name: str) -> bool:
        """Say whether a machine is meant that this world does not have: it was made smaller."""
        known = name in self._world.hosts or name in self._world.planes
        return not known and re.fullmatch(r"(h|plane)[0-9]+", name) is not None

    async def cordon(self, host: str) -> None:
        """Cordon a host, and wait until that is done."""
        await self._ask("cordon", host, {})

    # Users

    def _ask(self, what: str, name: str, given: dict[str, Any]) -> "asyncio.Task[None]":
        self._keys += 1
        task = asyncio.get_running_loop().create_task(self._repeat(what, name, given, self._keys))
        self._users.add(task)
        task.add_done_callback(self._is_answered)
        if self._world.stillness is not None:
            self._world.stillness.asks()
        return task

    def _is_answered(self, task: "asyncio.Task[None]") -> None:
        self._users.discard(task)
        if self._world.stillness is not None:
            self._world.stillness.was_answered()

    async def _repeat(self, what: str, name: str, given: dict[str, Any], turn: int) -> None:
        world, key = self._world, f"key-{turn}"
        for attempt in range(_TRIES):
            ready = [p for p in world.planes.values() if p.is_ready]
            if ready:
                chosen = ready[(turn + attempt) % len(ready)]
                assert chosen.plane is not None
                assert chosen.life is not None
                work = chosen.life.spawn(self._call(chosen.plane, what, name, given, key))
                work.add_done_callback(_was_told)
                await asyncio.wait({work}, timeout=20.0)
                if work.done() and not work.cancelled():
                    failed = work.exception()
                    if failed is None:
                        return
                    if isinstance(failed, RoostError) and not isinstance(failed, Unavailable):
                        world.note("refused", what, f"{name} {failed.code}")
                        return
                    if not isinstance(failed, Dead | RoostError):
                        raise failed
            await asyncio.sleep(1.0)

    async def _call(
        self, plane: Plane, what: str, name: str, given: dict[str, Any], key: str
    ) -> None:
        laws = self._world.laws
        vms, project = plane.vms, given.get("project")
        match what:
            case "create":
                body = _body(name, given)
                digest = sha256(msgspec.json.encode(body)).digest()
                made = await plane.admit.create(body, _USER, key, digest)
                self._world.check(partial(laws.was_accepted, name, made.vm.id))
            case "create_many":
                many = CreateVMs(vms=[_body(vm, given) for vm in given["vms"]])
                digest = sha256(msgspec.json.encode(many)).digest()
                answer = await plane.admit.create_many(many, _USER, key, digest)
                for item in answer.batch.results:
                    if item.id is not None:
                        self._world.check(partial(laws.was_accepted, item.name, item.id))
            case "delete":
                # Noted first: the answer may be lost although it was done.
                found = await vms.get(name, project, _USER)
                laws.deleted.add(found.id)
                await vms.delete(found.id, None, _USER)
            case "stop" | "start" | "restart" | "pause":
                await getattr(vms, what)(name, project, _USER)
            case "resize":
                await vms.resize(name, project, ResizeVM(cpu=given["cpu"]), _USER)
            case "set_restart":
                await vms.set(name, project, SetVM(restart=given["restart"]), _USER)
            case "migrate":
                await plane.moves.migrate(name, project, MigrateVM(host=given.get("host")), _USER)
            case "cancel":
                await plane.moves.cancel(name, project, _USER)
            case "cordon" | "uncordon" | "drain":
                await getattr(plane.hosts, what)(name, _USER)
            case "confirm_dead_host":
                await plane.hosts.confirm_dead(name, ConfirmDead(reason="it is off"), ADMIN)
            case "recover_host":
                ask = next(part for part in plane.parts if isinstance(part, RequestedRecovery))
                await ask.host(name, ADMIN)
            case "join_group" | "leave_group" | "set_group_rule" | "delete_group":
                await _change_group(plane, what, name, given)
            case "create_rule" | "change_rule" | "delete_rule":
                await _change_rule(plane, what, name, given, key)
            case "reserve" | "unreserve":
                await _reserve(plane, what, name, given, key)
            case "create_class":
                await plane.priorities.create(CreatePriorityClass(name=name, **given), ADMIN, key)
            case "set_budget":
                await plane.groups.set_budget(name, None, SetBudget(**given), _USER)
            case "set_policy" | "apply_policy":
                await _change_policy(plane, what, name, given, key)
            case "plan":
                wish = CreatePlan(goal=given["goal"], hosts=given.get("hosts", []),
                                  apply=given.get("apply", False), at_once=given.get("at_once", 3),
                                  per_host=given.get("per_host", 2))  # fmt: skip
                planned = await plane.plans.create(wish, ADMIN, key)
                assert isinstance(planned, PlanDetail)
                self._plans[name] = planned.id
            case "plan_apply" | "plan_pause" | "plan_resume" | "plan_cancel":
                if name in self._plans:
                    act = getattr(plane.plans, what.removeprefix("plan_"))
                    await act(self._plans[name], ADMIN)
            case "set_maintenance":
                await plane.hosts.set_maintenance(name, SetMaintenance(on=given["on"]), ADMIN)
            case "quota":
                await self.set_quota(plane, name, given)
            case _:
                raise AssertionError(f"nobody knows how to {what}")

    def _burst(self, _: str, vms: list[str], cpu: int) -> None:
        for name in vms:
            self._ask("create", name, {"cpu": cpu, "restart": "elsewhere"})

    def _delete_some(self, _: str, vms: list[str], cpu: int) -> None:
        for name in vms:
            self._ask("delete", name, {})

    # Operators

    def _confirm_dead(self, host: str) -> None:
        """Switch a host off and confirm it dead, truthfully."""
        if self._world.hosts[host].life is None:
            self._world.hosts[host].power_off()
            self._ask("confirm_dead_host", host, {})

    # Faults of hosts

    def _kill_agent(self, host: str, for_: float) -> None:
        self._strike("kill_agent", host)
        self._world.hosts[host].kill_agent()
        self._later(for_, lambda: self._world.hosts[host].start())

    def _power_off(self, host: str, for_: float) -> None:
        self._strike("power_off", host)
        self._world.hosts[host].power_off()
        self._later(for_, lambda: self._world.hosts[host].start())

    def _freeze_agent(self, host: str, for_: float) -> None:
        life = self._world.hosts[host].life
        if life is not None:
            self._strike("freeze_agent", host)
            life.freeze()
            self._later(for_, life.thaw)

    def _agent_dies_at(self, host: str, when: str, writes: int, for_: float) -> None:
        victim = self._world.hosts[host]
        victim.die_at = (when, writes)

        def end() -> None:
            victim.die_at = None  # if it has not come to it yet
            victim.start()

        self._later(for_, end)

    def _crash_vm(self, name: str) -> None:
        for host, vm_id in self._copies(name):
            self._strike("crash_vm", host)
            self._world.hosts[host].crash_vm(vm_id)

    def _lose_incoming(self, name: str) -> None:
        for host, vm_id in self._copies(name):
            self._strike("lose_incoming", host)
            self._world.hosts[host].lose_incoming(vm_id)

    def _clock_step(self, host: str, step_s: float) -> None:
        self._strike("clock_step", host)
        self._world.hosts[host].machine.offset_s += step_s

    def _copies(self, name: str) -> list[tuple[str, str]]:
        return [
            (host, vm_id)
            for host, here in self._world.hosts.items()
            for vm_id, vm in list(here.vms.vms.items())
            if vm.name == name
        ]

    # Faults of the network

    def _cut(self, host: str, up: bool, down: bool, for_: float) -> None:
        self._strike("cut", host)
        self._world.network.cut(host, up=up, down=down)
        self._later(for_, lambda: self._world.network.rejoin(host))

    def _rough(
        self, host: str, chance: float, for_: float, late_s: float = 1.0, loss: float = 0.5
    ) -> None:
        self._strike("rough", host)
        wire = self._world.network.wire(host)
        wire.rough, wire.late_s, wire.loss = chance, late_s, loss
        self._later(for_, lambda: setattr(wire, "rough", 0.0))

    # Faults of planes and the database

    def _kill_plane(self, plane: str, for_: float) -> None:
        self._strike("kill_plane", plane)
        self._world.planes[plane].kill()
        self._later(for_, self._world.planes[plane].start)

    def _freeze_plane(self, plane: str, for_: float) -> None:
        sim = self._world.planes[plane]
        if sim.life is not None:
            self._strike("freeze_plane", plane)
            sim.life.freeze()
            self._later(for_, sim.thaw)

    def _plane_dies_at(self, plane: str, when: str, commits: int, for_: float) -> None:
        store = self._world.planes[plane].store
        if store is not None:
            setattr(store.troubles, f"die_{when}", commits)

            def end() -> None:
                setattr(store.troubles, f"die_{when}", None)  # if it has not come to it yet
                self._world.planes[plane].start()

            self._later(for_, end)

    def _database(self, plane: str, kind: str, commits: int) -> None:
        store = self._world.planes[plane].store
        if store is not None:
            setattr(store.troubles, kind, commits)

    # The end of faults

    def end_faults(self) -> None:
        """End all faults and start every dead process."""
        world = self._world
        self.end_procedures()
        self.clear_away()
        world.database.power_fails_at = None
        for plane in world.planes.values():
            plane.thaw()
            plane.start()
            if plane.store is not None:
                plane.store.troubles = Troubles()
        for host in world.hosts.values():
            host.die_at = None
            host.ailments.end()
            if host.life is not None:
                host.life.thaw()
            world.network.heal(host.name)
            host.start()
            self._ask("set_maintenance", host.name, {"on": False})
            self._ask("uncordon", host.name, {})

    def who_waits_but_fits(self, rows: list[VMRow]) -> str:
        """Return the VMs that are queued although there is room; empty when none is."""
        ready = next((p for p in self._world.planes.values() if p.is_ready), None)
        if ready is None:
            return "no plane is ready"
        assert ready.plane is not None
        assert ready.life is not None
        now_ms = NodeClock(ready.machine, ready.life).wall_ms()
        waiting = [vm for vm in rows if vm.pending is not None and vm.desired != "stopped"]
        for vm in sorted(waiting, key=lambda vm: _urgency(vm, now_ms)):
            found = find_host(ready.plane.roster, vm)
            if isinstance(found, Placement):
                return f"{vm.name} waits and would fit on {found.host}"
            is_short = found is not None and found.code is RejectionCode.INSUFFICIENT_RESOURCES
            if is_short and now_ms - vm.created_ms >= _PATIENCE_MS:
                return ""  # room is left to add up for it, and nobody behind it gets any
        return ""


def _was_told(work: "asyncio.Task[None]") -> None:
    """Hear how a call ended: who asked may have stopped waiting, and a mistake still counts."""
    error = None if work.cancelled() else work.exception()
    if error is not None and not isinstance(error, RoostError | Dead):
        raise error


async def _change_group(plane: Plane, what: str, name: str, given: dict[str, Any]) -> None:
    """Do to a group what its members' owner may do."""
    groups = plane.groups
    match what:
        case "join_group":
            await groups.add(name, None, GroupVMs(vms=[given["vm"]]), _USER)
        case "leave_group":
            await groups.remove(name, None, GroupVMs(vms=[given["vm"]]), _USER)
        case "set_group_rule":
            rule = SetGroupRule(rule=given["rule"], scope=given["scope"], hard=given["hard"])
            await groups.set_rule(name, None, rule, _USER)
        case _:
            await groups.delete(name, None, _USER, force=True)


async def _change_rule(plane: Plane, what: str, name: str, given: dict[str, Any], key: str) -> None:
    """Do to a rule of the fleet, or of a project, what an administrator may do.

    By force: what a rule leaves without a host waits, and that is allowed.
    """
    rules = plane.constraints
    said = {key: value for key, value in given.items() if key != "project"}
    match what:
        case "create_rule":
            project = given.get("project")
            body = CreateConstraint(name=name, project=project, force=True, **said)
            await rules.create(body, ADMIN, key)
        case "change_rule":
            change = ChangeConstraint(force=True, **said)
            await rules.change(name, given.get("project"), change, ADMIN)
        case _:
            await rules.delete(name, given.get("project"), ADMIN)


async def _reserve(plane: Plane, what: str, name: str, given: dict[str, Any], key: str) -> None:
    """Reserve for a purpose that VMs name, or give that up."""
    if what == "unreserve":
        await plane.reservations.delete(name, ADMIN)
        return
    start, end = given.get("start"), given.get("end")
    body = CreateReservation(
        name=name,
        purpose=name,
        demand=DemandBody(cpu=given["cpu"], memory="1GiB", gpu=given.get("gpu", 0)),
        units=given["units"],
        start=None if start is None else moment(start),
        end=None if end is None else moment(end),
    )
    await plane.reservations.create(body, ADMIN, key)


async def _change_policy(
    plane: Plane, what: str, name: str, given: dict[str, Any], key: str
) -> None:
    """Give a policy one rule, by force, or make it the default of the project of all VMs."""
    policies = plane.policies
    if what == "apply_policy":
        await policies.apply("default", ApplyPolicy(policy=name), ADMIN)
        return
    rules = [PolicyRuleBody(name="rule", expression=given["expression"])]
    try:
        await policies.change(name, ChangePolicy(rules=rules, force=True), ADMIN)
    except NotFound:
        await policies.create(CreatePolicy(name=name, rules=rules, force=True), ADMIN, key)


def _urgency(vm: VMRow, now_ms: int) -> tuple[float, int, str]:
    """Return a waiting VM's sort key, as the queue's."""
    return -(vm.priority + max(0, now_ms - vm.created_ms) / 60_000), vm.created_ms, vm.id


def _body(name: str, given: dict[str, Any]) -> CreateVM:
    groups: list[str | GroupBody] = []
    if apart := given.get("apart"):
        groups.append(GroupBody(name=f"group-{apart}", rule="anti-affinity"))
    if group := given.get("group"):
        groups.append(GroupBody(**group))
    where = {
        name: given[name] for name in ("zones", "racks", "hosts", "not_hosts") if name in given
    }
    return CreateVM(
        name=name,
        demand=DemandBody(
            cpu=given.get("cpu", 1),
            memory=given.get("memory", "1GiB"),
            disk=given.get("disk", 0),
            gpu=given.get("gpu", 0),
        ),
        project=given.get("project", "default"),
        constraints=ConstraintsBody(**where) if where else None,
        restart=given.get("restart", "here"),
        on_no_fit=given.get("on_no_fit") or ("queue" if given.get("queue") else "fail"),
        priority=given.get("priority", 0),
        priority_class=given.get("class"),
        groups=groups,
        until=moment(given["until"]) if "until" in given else None,
        reservation=given.get("reservation"),
    )
