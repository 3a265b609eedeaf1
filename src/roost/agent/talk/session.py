"""The agent's conversation with the control plane: one link at a time, to any of its servers.

    hello -> welcome, then side by side: heartbeats (which renew the lease), reports of what
    changed, samples, and whatever the control plane sends

A lost link changes nothing about the VMs. After a gap in the lease the list on hand may be old:
the control plane may have started VMs elsewhere and the news may still be under way. So the
session asks for the whole list *after* the first renewal (a heartbeat with an empty digest), and
only that list lets VMs with `restart: elsewhere` start, if it says that it confirms: a control
plane that has just begun may not know yet whether its ledger is the newest.
"""

import asyncio
import logging
from dataclasses import dataclass
from random import Random
from typing import NoReturn

import msgspec

from roost.agent.fencing.lease import Lease
from roost.agent.reconciler import Reconciler
from roost.agent.store import Store
from roost.agent.talk.probing import Probing
from roost.agent.talk.registering import Registering
from roost.base.backoff import BackOff
from roost.base.clock import Clock, first_of
from roost.hostkit.failures import DriverError
from roost.hostkit.talk.link import Link, LinkLost, Transport
from roost.wire.agentlimits import clipped
from roost.wire.agentlink import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    ConsoleReply,
    ConsoleRequest,
    Delta,
    Desired,
    FromAgent,
    Heartbeat,
    HeldVM,
    Hello,
    LedgerPoint,
    Present,
    ProbeOrder,
    Refused,
    Renewed,
    Report,
    RollCall,
    Samples,
    SeenVM,
    ToAgent,
    Welcome,
    decode_to_agent,
    encode,
)

log = logging.getLogger(__name__)

_WELCOME_WITHIN_S = 10.0
_MOST_CONSOLE_BYTES = 2**20
#: Waits between connections that fail or are lost.
RETRY = BackOff(0.5, 15.0)
#: How often it is told who talks, where that is counted.
FLOWS_S = 60.0
_GATHER_S = 0.005  # what changes in one go is reported in one go


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """The agent's identity, its servers, and its intervals."""

    host: str
    servers: tuple[str, ...]
    instance: str
    version: str
    sample_s: float = 15.0
    flows_s: float = FLOWS_S
    report_within_s: float = 0.05  # changes within this time after a report go in one
    retry: BackOff = RETRY


class Session:
    """Runs the agent's side of the protocol for one host until cancelled."""

    def __init__(
        self,
        settings: SessionSettings,
        *,
        transport: Transport,
        reconciler: Reconciler,
        registering: Registering,
        probing: Probing,
        lease: Lease,
        store: Store,
        clock: Clock,
        random: Random,
    ) -> None:
        self.connected = asyncio.Event()
        self._settings = settings
        self._transport = transport
        self._reconciler = reconciler
        self._registering = registering
        self._probing = probing
        self._lease = lease
        self._store = store
        self._clock = clock
        self._random = random
        self._number = 0  # of the last heartbeat
        self._welcome: Welcome | None = None
        self._beat_now = asyncio.Event()
        self._asked = False  # for a list that is newer than the lease's renewal
        self._anew = True  # no point of this server's ledger was heard yet
        self._heard_at = 0.0
        self._attempts = 0  # since the last welcome
        self._conversations = 0

    async def run(self) -> NoReturn:
        """Connect, speak, and connect again when the link is lost."""
        while True:
            for server in self._settings.servers:
                try:
                    await self._visit(server)
                except* LinkLost as lost:
                    log.info("%s: %s", self._settings.host, lost.exceptions[0])
                except* Exception:
                    log.exception("%s: the conversation failed", self._settings.host)
                delay = self._settings.retry.jittered_s(self._attempts, self._random)
                await self._clock.sleep(delay)
                self._attempts += 1

    async def _visit(self, server: str) -> None:
        self._welcome = None
        link = await self._transport.connect(server, self._store.credential() or "")
        try:
            self._heard_at = self._clock.monotonic()
            self._asked = False
            self._conversations += 1
            await self._send(link, await self._hello())
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(self._watch_silence(_WELCOME_WITHIN_S))
                welcome = await self._await_welcome(link)
                waiting.cancel()
                limit = max(2.5 * welcome.heartbeat_s, welcome.lease_s / 2)
                group.create_task(self._watch_silence(limit))
                self._welcome, self._attempts, self._anew = welcome, 0, True
                self._reconciler.use_limits(welcome)
                self.connected.set()
                group.create_task(self._listen(link, group))
                group.create_task(self._beat(link, welcome))
                group.create_task(self._report(link, welcome))
                group.create_task(self._sample(link))
        finally:
            self.connected.clear()
            await link.close()

    # What it sends

    async def _hello(self) -> Hello:
        reconciler, settings = self._reconciler, self._settings
        return Hello(
            protocol=OLDEST_PROTOCOL,
            newest=PROTOCOL,
            host=settings.host,
            instance=settings.instance,
            version=settings.version,
            inventory=await self._registering.inventory(),
            digest="" if reconciler.awaits_list else reconciler.digest,
            vms=list(reconciler.seen().values()),
            held=reconciler.held(),
            guard_stop_s=self._registering.guard_stop_s(),
            heard=reconciler.heard,
            conversation=self._conversations,
            probe=await self._probing.info(),
        )

    async def _beat(self, link: Link, welcome: Welcome) -> None:
        while True:
            self._beat_now.clear()
            self._number += 1
            # Noted before it is sent: the lease may only be counted too short.
            now = self._clock.monotonic()
            self._lease.sent(self._number, now)
            self._asked = self._reconciler.needs_confirming and self._lease.is_valid(now)
            asks = self._asked or self._reconciler.awaits_list
            digest = "" if asks else self._reconciler.digest
            beat = Heartbeat(self._number, digest, self._registering.guard_stop_s())
            await self._send(link, beat)
            await first_of(self._clock, welcome.heartbeat_s, self._beat_now)

    async def _report(self, link: Link, welcome: Welcome) -> None:
        """Send a full report at first and from time to time, and else the changes."""
        reconciler, clock = self._reconciler, self._clock
        sent: dict[str, SeenVM] = {}
        sent_rest: tuple[list[HeldVM], int] = [], 0  # what is held and refused goes in every report
        full_at = clock.monotonic()
        next_at = full_at
        while True:
            reconciler.changed.clear()
            if reconciler.known:
                full = clock.monotonic() >= full_at
                if full:
                    full_at = clock.monotonic() + welcome.full_list_s
                seen, rest = reconciler.seen(), (reconciler.held(), reconciler.refused_destroying)
                news = [vm for vm_id, vm in seen.items() if full or sent.get(vm_id) != vm]
                if full or news or rest != sent_rest:
                    sent, sent_rest = seen, rest
                    next_at = clock.monotonic() + self._settings.report_within_s
                    await self._send(link, Report(news, rest[0], full, rest[1]))
            wait = (
                max(0.0, full_at - clock.monotonic()) if reconciler.known else welcome.full_list_s
            )
            if await first_of(clock, wait, reconciler.changed):
                # News after a silence goes at once: the ledger, and a guest's move, wait for it.
                await clock.sleep(max(_GATHER_S, next_at - clock.monotonic()))

    async def _sample(self, link: Link) -> None:
        # Hosts that were started together do not send together.
        await self._clock.sleep(self._random.uniform(0.0, self._settings.sample_s))
        flows_at = self._clock.monotonic()
        while True:
            samples, flows = await self._reconciler.samples(), []
            if self._clock.monotonic() >= flows_at:
                flows_at = self._clock.monotonic() + self._settings.flows_s
                flows = await self._reconciler.flows()
            if samples or flows:
                await self._send(link, Samples(samples, flows))
            await self._clock.sleep(self._settings.sample_s)

    async def _answer(self, link: Link, ask: ConsoleRequest) -> None:
        """Answer a console request in the background: a slow disk delays no message."""
        limit = max(0, min(ask.limit, _MOST_CONSOLE_BYTES))
        try:
            part = await self._reconciler.console(ask.vm, ask.start, limit)
            told = ConsoleReply(ask.number, part.text, part.start, part.end, base=part.base)
        except DriverError as error:
            told = ConsoleReply(ask.number, code=error.code, message=clipped(error.message))
        await self._send(link, told)

    async def _probe(self, link: Link, order: ProbeOrder) -> None:
        """Carry out a probe in the background: it takes seconds."""
        await self._send(link, await self._probing.answer(order))

    async def _answer_roll_call(self, link: Link) -> None:
        if (copies := self._reconciler.copies()) is not None:
            await self._send(link, Present(self._reconciler.digest, copies))

    async def _send(self, link: Link, message: FromAgent) -> None:
        await link.send(encode(message))

    # What it hears

    async def _await_welcome(self, link: Link) -> Welcome:
        message = await self._receive(link)
        if isinstance(message, Welcome):
            if not OLDEST_PROTOCOL <= message.protocol <= PROTOCOL:
                raise LinkLost(f"the server wants protocol {message.protocol}, unknown here")
            return message
        if isinstance(message, Refused):
            self._refused(message)
        raise LinkLost(f"the server began with {type(message).__name__}, not with a welcome")

    async def _listen(self, link: Link, group: asyncio.TaskGroup) -> None:
        while True:
            message = await self._receive(link)
            match message:
                case Desired():
                    self._take_list(message)
                case Delta():
                    # A delta for another list: the next heartbeat's digest brings the whole list.
                    taken = self._reconciler.take_delta(message)
                    if taken:
                        self._hear(message.point)
                    if not taken or self._wants_confirming():
                        self._beat_now.set()
                case Renewed():
                    self._hear(message.point)
                    self._renewed(message.number)
                case Welcome():
                    self._welcome = message
                    self._reconciler.use_limits(message)
                case Refused():
                    self._refused(message)
                case ConsoleRequest():
                    group.create_task(self._answer(link, message))
                case RollCall():
                    await self._answer_roll_call(link)
                case ProbeOrder():
                    group.create_task(self._probe(link, message))

    def _take_list(self, desired: Desired) -> None:
        asked = self._asked
        if not self._reconciler.take_list(desired):
            log.error("%s: a list did not match its digest; not applied", self._settings.host)
            return
        self._hear(desired.point)
        if not desired.confirms:
            self._asked = False  # the next heartbeat asks again
        elif asked and self._lease.is_valid(self._clock.monotonic()):
            self._asked = False
            self._reconciler.confirm(True)
        elif self._wants_confirming():
            self._beat_now.set()

    def _hear(self, point: LedgerPoint | None) -> None:
        if point is not None:
            self._reconciler.hear(point, anew=self._anew)
            self._anew = False

    def _renewed(self, number: int) -> None:
        assert self._welcome is not None
        now = self._clock.monotonic()
        gap = not self._lease.is_valid(now)
        if gap and not self._reconciler.is_fenced():
            # Counted again only once everything has stopped that may have been started elsewhere.
            self._reconciler.fence()
            return
        if not self._lease.renewed(number, self._welcome.lease_s):
            return
        self._save_lease()
        if gap:
            self._reconciler.confirm(False)
            if self._wants_confirming():
                self._beat_now.set()

    def _save_lease(self) -> None:
        try:
            self._store.save_lease(self._lease.deadline)
        except OSError as error:
            # The guard then stops VMs too early, which is safe.
            log.error("%s: the lease could not be written: %s", self._settings.host, error)

    def _wants_confirming(self) -> bool:
        valid = self._lease.is_valid(self._clock.monotonic())
        return valid and self._reconciler.needs_confirming and not self._asked

    def _refused(self, refused: Refused) -> NoReturn:
        if refused.fenced:
            self._lease.void()
            self._save_lease()
            self._reconciler.fence()
        raise LinkLost(f"refused: {refused.code}: {refused.message}")

    async def _receive(self, link: Link) -> ToAgent:
        data = await link.receive()
        self._heard_at = self._clock.monotonic()
        try:
            return decode_to_agent(data)
        except msgspec.DecodeError as error:
            raise LinkLost(f"the server sent what nobody understands: {error}") from error

    async def _watch_silence(self, limit: float) -> None:
        """Leave a server that says nothing, while the lease still leaves time to find another."""
        while True:
            silence = self._clock.monotonic() - self._heard_at
            if silence >= limit:
                raise LinkLost(f"nothing heard for {silence:.0f} s")
            if await self._registering.is_outdated():
                raise LinkLost("the host has to be registered anew")
            await self._clock.sleep(limit / 2)
