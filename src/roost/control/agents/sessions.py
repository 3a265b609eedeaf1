"""The control plane's end of agents' connections.

    hello      register what is new, welcome, and the whole list if its digest differs
    heartbeat  evidence; the lease is renewed once the evidence is in the ledger
    report     to the intake; samples to the readings, flows to what is learnt of traffic
    told       the answer to a question that was asked through this process
    probed     the answer to a probe that was ordered through it
    present    the answer to a roll call, after an old ledger was restored

An agent can only speak for the host that its credential names. A host that was fenced is let back
in only when it shows that nothing runs on it that may run elsewhere.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.base.errors import AgentUnavailable, Conflict, RoostError, Unavailable
from roost.control.agents.connections import ConnectionOrder
from roost.control.agents.dispatch import Dispatch
from roost.control.agents.intake import Intake
from roost.control.hosts.registering import StillRuns, inventory_text, register
from roost.control.memory.follower import Follower
from roost.control.memory.restore_detect import Lineage
from roost.control.memory.roster import Roster
from roost.control.memory.telemetry import Telemetry
from roost.control.series.recording import Readings
from roost.control.survive.liveness import Evidence
from roost.control.survive.restore_judge import hosts_to_ask, take_answer
from roost.control.timers import Timers
from roost.control.topology.flows import LearntTraffic
from roost.ledger.schema.changes import HOSTS, Changes
from roost.ledger.schema.rows import Event
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.transaction import row_json
from roost.parts.access import Principal
from roost.parts.part import Loop, Part
from roost.wire.agentlimits import MOST_HELLOS
from roost.wire.agentlink import (
    ConsoleReply,
    ConsoleRequest,
    Desired,
    Heartbeat,
    Hello,
    Present,
    ProbeInfo,
    ProbeOrder,
    ProbeReply,
    Refused,
    Renewed,
    Report,
    RollCall,
    Samples,
    ToAgent,
    Welcome,
    agree,
    disagreement,
    encode,
    take_from_agent,
)
from roost.wire.hostsettings import read_settings

log = logging.getLogger("roost.agents")

R = TypeVar("R", ConsoleReply, ProbeReply)

#: Times that a list is read which changes meanwhile; the next heartbeat asks for it again.
_MOST_READS = 5
#: New registrations of one host: so many at once, and then one every so many seconds.
_MOST_REGISTERED, _REGISTER_S = 30, 2.0
#: The share of this process' time that the messages of one host may take, in the long run; the
#: seconds that it may owe before it is not read; the longest that it is not read at once.
_SHARE, _GRACE_S, _MOST_REST_S = 0.02, 2.0, 10.0
#: Whole lists that one connection may ask for by another digest: so many, and one every second.
_MOST_LISTS = 100
#: How long an agent may take to answer a question.
_ANSWER_S = 10.0
#: Seconds between two lines of the log about a host that lets VMs wait to be destroyed.
_REFUSAL_S = 10.0


class Link(Protocol):
    """The transport's end of one agent's connection."""

    @property
    def peer(self) -> str:
        """Return the agent's address."""

    def send(self, data: bytes) -> None:
        """Send one message without waiting."""

    def close(self, code: int, reason: str) -> None:
        """End the connection."""


class Agents(Part):
    """All agents that are connected to this process."""

    follows = (HOSTS,)

    def __init__(
        self,
        store: Store,
        roster: Roster,
        follower: Follower,
        dispatch: Dispatch,
        intake: Intake,
        readings: Readings,
        flows: LearntTraffic,
        evidence: Evidence,
        lineage: Lineage,
        clock: Clock,
        timers: Timers,
        telemetry: Telemetry,
    ) -> None:
        self.store, self.roster, self.follower = store, roster, follower
        self.dispatch, self.intake, self.lineage = dispatch, intake, lineage
        self.readings, self.flows = readings, flows
        self.evidence, self.clock, self.timers = evidence, clock, timers
        self.ready = asyncio.Event()  # the fleet is loaded; until then agents wait
        self._sessions: dict[int, Session] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = 0
        self._spent: dict[str, tuple[float, float]] = {}  # host -> seconds that it owes, as of when
        self._odd_answers: dict[str, str] = {}  # host -> what of its roll call cannot be read
        self._registered: dict[str, tuple[float, float]] = {}  # host -> registrations, as of when
        self.left_out = telemetry.counter(
            "roost_agent_entries_left_out",
            "Entries of agents' lists of VMs, copies and samples that broke a bound.",
        )
        self.unreadable = telemetry.counter(
            "roost_agent_messages_refused", "Messages of agents that could not be read."
        )

    def follow(self, event: Event, changes: Changes) -> None:
        """Tell connected agents what operators have set about their hosts."""
        for number, row in changes.of(HOSTS).items():
            session = self._sessions.get(int(number))
            if session is not None and row is not None:
                session.welcome(int(number))

    def loops(self) -> Sequence[Loop]:
        """Return the background loops of this part."""
        return (
            Loop(self.send_full_lists, self.timers.flush_s),
            Loop(self.call_roll, self.timers.watch_s),
        )

    def connect(self, link: Link, principal: Principal) -> "Session":
        """Open a session for a new connection of one host's agent."""
        return Session(self, link, principal.host or "")

    @property
    def online(self) -> int:
        """Return how many agents are connected."""
        return len(self._sessions)

    def is_connected(self, number: int) -> bool:
        """Say whether a host's agent is connected to this process."""
        return number in self._sessions

    def may_register(self, host: str) -> None:
        """Refuse a host that registers something new again and again: each is an event for all."""
        now = self.clock.monotonic()
        count, since = self._registered.get(host, (0.0, now))
        count = max(0.0, count - (now - since) / _REGISTER_S) + 1
        if count > _MOST_REGISTERED:
            raise Unavailable(f"host {host!r} has registered too often; it waits", host=host)
        self._registered[host] = count, now

    def rest_s(self, host: str, spent_s: float) -> float:
        """Count the time that a host's message took; return how long it must not be read.

        Counted by host, so that a new connection does not begin anew. What was spent is made up for
        by `1 / _SHARE` of it in peace, but for no longer than the longest rest: one message that
        took seconds is no reason to hear little of a host for minutes.
        """
        now = self.clock.monotonic()
        owed, since = self._spent.get(host, (0.0, now))
        owed = max(0.0, owed - (now - since)) + spent_s / _SHARE
        owed = min(owed, _GRACE_S + _MOST_REST_S)
        self._spent[host] = owed, now
        return max(0.0, owed - _GRACE_S)

    def attach(self, session: "Session", number: int) -> None:
        """Make a session the one of its host; an older connection of the same host is closed."""
        before = self._sessions.get(number)
        if before is not None and before is not session:
            before.link.close(1001, "replaced by a newer connection")
        self._sessions[number] = session
        turn = number * 7919 % 1000 / 1000  # neighbours far apart
        session.next_list_s = self.clock.monotonic() + self.timers.full_list_s * (0.5 + turn / 2)
        self.dispatch.attach(number, session.send, lambda: self.spawn(session.send_list(number)))

    def detach(self, session: "Session", number: int) -> None:
        """Forget a session, unless a newer one has taken its place."""
        self.dispatch.detach(number, session.send)
        if self._sessions.get(number) is session:
            del self._sessions[number]

    async def ask(self, number: int, vm: str, start: int | None, limit: int) -> ConsoleReply:
        """Ask a host's agent for a piece of a VM's console."""
        session = self._sessions.get(number)
        name = self.roster.host_name(number)
        if session is None:
            raise AgentUnavailable(
                f"the agent of host {name!r} is not connected to this server", host=name
            )
        self._asked += 1
        told = await session.ask(ConsoleRequest(self._asked, vm, start=start, limit=limit))
        if told is None:
            raise AgentUnavailable(f"the agent of host {name!r} does not answer", host=name)
        if told.code:
            raise Conflict(f"host {name!r}: {told.message or told.code}", vm=vm, code=told.code)
        return told

    def probe_info(self, number: int) -> ProbeInfo | None:
        """Return what a connected agent says of its probes; None of one too old for them."""
        return self._sessions[number].probe_info

    async def probe(self, number: int, order: ProbeOrder, within_s: float) -> ProbeReply | None:
        """Order a probe of a host's agent; None when it is not connected, or does not answer."""
        session = self._sessions.get(number)
        # An agent that does not know probes would take the order for the end of the connection.
        if session is None or session.probe_info is None:
            return None
        self._asked += 1
        return await session.probe(replace(order, number=self._asked), within_s)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run a session's coroutine in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def send_full_lists(self) -> None:
        """Send whole lists, unasked, to the agents whose turn it is: the net under every delta.

        Each gets one every `full_list_s`. Turns are spread over that time, so that ten thousand
        lists are never read at once.
        """
        now = self.clock.monotonic()
        for number, session in list(self._sessions.items()):
            if now >= session.next_list_s:
                session.next_list_s = now + self.timers.full_list_s
                await session.send_list(number)

    async def call_roll(self) -> None:
        """Ask the hosts connected here for all their VMs, after an old ledger was restored."""
        if not self.lineage.restored:
            self._odd_answers.clear()
            return
        if not self._sessions:
            return
        wanted = await self.store.read(hosts_to_ask)
        for number, session in list(self._sessions.items()):
            if number in wanted:
                session.call_roll()

    def note_answer(self, host: str, why: str) -> None:
        """Note what of a host's answer to a roll call cannot be read, if anything; log it once."""
        if not why:
            self._odd_answers.pop(host, None)
            return
        if host not in self._odd_answers:
            log.warning("the answer of host %s to the roll call cannot be read: %s", host, why)
        self._odd_answers[host] = why

    def examine(self, connection: Connection, found: Examination) -> None:
        """Report to the doctor which hosts give answers that keep VMs in doubt."""
        for host, why in sorted(self._odd_answers.copy().items()):
            found.trouble(
                "roll_call", f"the answer of host {host} cannot be read, or not all of it: {why}"
            )

    async def settle(self) -> None:
        """Wait for the background tasks of all sessions."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Close the connections of all agents."""
        for session in list(self._sessions.values()):
            session.link.close(1001, "the control plane stops")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Session:
    """One connection of one host's agent."""

    def __init__(self, agents: Agents, link: Link, host: str) -> None:
        self._agents = agents
        self.link = link
        self.host = host
        self._number: int | None = None
        self._epoch = 0
        self._conversation = ConnectionOrder("", 0)
        self._listing = False
        self._closed = False
        self._hellos = self._left_out = 0
        self._lists = self._lists_since = 0.0
        self._greeting = self._presenting = False
        self._next_refusal_s = 0.0  # when it may be logged again that it does not destroy
        self.next_list_s = 0.0  # when its whole list is due again
        self._protocol = 1
        self._welcomed: Welcome | None = None  # what the agent was told last
        self._asked: dict[int, asyncio.Future[ConsoleReply | None]] = {}
        self.probe_info: ProbeInfo | None = None
        self._probing: dict[int, asyncio.Future[ProbeReply | None]] = {}

    def send(self, message: ToAgent) -> None:
        """Send one message."""
        if not self._closed:
            self.link.send(encode(message))

    def welcome(self, number: int) -> None:
        """Tell the agent that its host is registered, and what operators set about its amounts."""
        entry, timers = self._agents.roster.hosts.get(number), self._agents.timers
        kept = read_settings(None if entry is None else entry.row.settings)
        message = Welcome(
            number,
            timers.heartbeat_s,
            timers.lease_s,
            timers.full_list_s,
            self._protocol,
            kept.reserve,
            kept.ratio_milli,
        )
        if message != self._welcomed:  # a new connection has been told nothing
            self._welcomed = message
            self.send(message)

    def received(self, data: bytes) -> None:
        """Handle one message of the agent; one that cannot be decoded ends the connection.

        Of a list of VMs only the entries are left out that cannot be: an agent that says one wrong
        thing is still heard on all others.
        """
        try:
            message, left_out, why, nameless = take_from_agent(data)
        except msgspec.DecodeError as error:
            self._agents.unreadable.inc()
            self.send(Refused("invalid_request", str(error)))
            self.link.close(1007, "a message that cannot be read")
            return
        if left_out:
            self._agents.left_out.inc(left_out)
            if not self._left_out:
                log.warning("host %s says what makes no sense, left out: %s", self.host, why)
            self._left_out += left_out
        if isinstance(message, Heartbeat):
            self._heartbeat(message)
        elif isinstance(message, Hello):
            self._receive_hello(message)
        elif self._number is None:
            self.send(Refused("invalid_request", "say hello first"))
        elif isinstance(message, Report):
            self._agents.intake.report(self._number, message.vms, message.held, self._conversation)
            if message.refused_destroying:
                self._note_refusal(message.refused_destroying)
        elif isinstance(message, ConsoleReply):
            if (asked := self._asked.get(message.number)) is not None and not asked.done():
                asked.set_result(message)
        elif isinstance(message, ProbeReply):
            if (probed := self._probing.get(message.number)) is not None and not probed.done():
                probed.set_result(message)
        elif isinstance(message, Present):
            self._agents.note_answer(self.host, why)
            # A copy of nobody knows which VM may be of any: then the answer says nothing of any.
            if not nameless and not self._presenting:
                self._agents.spawn(self._present(self._number, message))
        else:
            self._samples(self._number, message)

    def rest_s(self, spent_s: float) -> float:
        """Count time that a message took; return how long nothing more is to be read."""
        return self._agents.rest_s(self.host, spent_s)

    def _note_refusal(self, count: int) -> None:
        """Log now and then that the agent destroys no more VMs; every report of it says so."""
        now = self._agents.clock.monotonic()
        if now >= self._next_refusal_s:
            self._next_refusal_s = now + _REFUSAL_S
            log.warning("host %s lets %d VMs wait that are to be destroyed", self.host, count)

    async def ask(self, question: ConsoleRequest) -> ConsoleReply | None:
        """Ask the agent for a console piece and return its reply; None when none comes in time."""
        return await self._answer(self._asked, question, _ANSWER_S)

    async def probe(self, order: ProbeOrder, within_s: float) -> ProbeReply | None:
        """Order a probe and return what the agent found; None when it does not say in time."""
        return await self._answer(self._probing, order, within_s)

    async def _answer(
        self,
        waiting: dict[int, asyncio.Future[R | None]],
        question: ConsoleRequest | ProbeOrder,
        within_s: float,
    ) -> R | None:
        answer: asyncio.Future[R | None] = asyncio.get_running_loop().create_future()
        waiting[question.number] = answer
        self.send(question)
        late = asyncio.create_task(self._agents.clock.sleep(within_s))
        try:
            await asyncio.wait((answer, late), return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            late.cancel()
            del waiting[question.number]

    def closed(self) -> None:
        """Handle the loss of the connection. The host stays online until it is silent for long."""
        self._closed = True
        _give_up(self._asked)
        _give_up(self._probing)
        if self._number is not None:
            self._agents.detach(self, self._number)

    # Messages

    def _receive_hello(self, hello: Hello) -> None:
        self._hellos += 1
        if self._hellos > MOST_HELLOS:
            self.send(Refused("invalid_request", f"more than {MOST_HELLOS} hellos"))
            self.link.close(1008, "too many hellos")
        elif self._greeting:
            self.send(Refused("invalid_request", "one hello at a time"))
        else:
            self._greeting = True
            self._agents.spawn(self._hello(hello))

    async def _hello(self, hello: Hello) -> None:
        try:
            await self._register(hello)
        except RoostError as error:
            self.send(Refused(error.code, error.message))
            self.link.close(1008, error.code)
        except Exception:  # whatever this host has said, it ends here
            log.exception("the hello of host %s cannot be taken", self.host)
            self.send(Refused("invalid_request", "this hello cannot be taken"))
            self.link.close(1011, "a hello that cannot be taken")
        finally:
            self._greeting = False

    async def _register(self, hello: Hello) -> None:
        agents = self._agents
        await agents.ready.wait()
        if hello.host != self.host:
            self.send(Refused("forbidden", f"this credential is for host {self.host!r}"))
            self.link.close(1008, "another host's credential")
            return
        protocol = agree(hello)
        if protocol is None:
            log.warning("refused: %s", disagreement(hello))
            self.send(Refused("protocol_unknown", disagreement(hello)))
            self.link.close(1008, "another protocol")
            return
        await agents.lineage.hear(hello)
        entry = agents.roster.entry(self.host)
        if entry is not None and self._as_known(hello):
            number, epoch = entry.number, entry.epoch
        else:
            agents.roster.try_host(self.host, hello.inventory)  # before anything is written
            agents.may_register(self.host)
            try:
                found = await agents.store.write(
                    lambda tx: register(tx, hello), f"agent/{self.host}"
                )
            except StillRuns as refusal:
                self.send(Refused("fenced", refusal.message, fenced=True))
                return
            number, epoch = found.row.number, found.epoch
            await agents.follower.catch_up()  # it may stand behind what other processes did
        if self._closed:
            return
        self._number, self._epoch = number, epoch
        self._conversation = ConnectionOrder(hello.instance, hello.conversation)
        self.probe_info = hello.probe
        agents.lineage.let_in(number)
        agents.attach(self, number)
        self._protocol, self._welcomed = protocol, None
        self.welcome(number)
        agents.intake.report(number, hello.vms, hello.held, self._conversation)
        if hello.digest != agents.dispatch.digest(number):
            await self.send_list(number)
        if agents.lineage.restored:
            self.call_roll()

    def call_roll(self) -> None:
        """Ask what the host has; an agent that does not number its connections is too old to know
        the question, and would take it for the end of the connection.
        """
        if self._conversation.number > 0:
            self.send(RollCall())

    async def _present(self, number: int, present: Present) -> None:
        """Record a host's answer to a roll call; one given on another list does not count."""
        if present.digest != self._agents.dispatch.digest(number):
            return
        self._presenting = True  # one at a time: it is asked for again anyway
        try:
            await self._agents.store.write(
                lambda tx: take_answer(tx, number, present.copies), f"agent/{self.host}"
            )
        except RoostError as error:
            log.warning("the answer of host %s is asked for again: %s", self.host, error.message)
        finally:
            self._presenting = False

    def _as_known(self, hello: Hello) -> bool:
        """Say whether the ledger has this registration already: a reconnect then writes nothing."""
        entry = self._agents.roster.entry(self.host)
        if entry is None:
            return False
        row = entry.row
        return (
            row.instance == hello.instance
            and row.version == hello.version
            and row.health == "online"
            and row.fenced is None
            and row.guard_stop_s == hello.guard_stop_s
            and row.inventory == inventory_text(hello.inventory)
            and row.held == row_json(hello.held)
        )

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        number = self._number
        if number is None:
            self.send(Refused("invalid_request", "say hello first"))
            return
        agents = self._agents
        # The renewal names the heartbeat that was written down: one that came meanwhile is not in
        # the ledger yet, and nobody who counts from there would know how long its lease is.
        renew = partial(self._renew, heartbeat.number)
        agents.evidence.heard(number, self._epoch, renew)
        entry = agents.roster.hosts.get(number)
        if (
            entry is None
            or entry.row.guard_stop_s != heartbeat.guard_stop_s
            or entry.row.instance != self._conversation.instance
        ):
            # The guard came or went, the host was removed, or the hello of an earlier life of this
            # agent came late: it has to introduce itself again.
            self.link.close(1012, "say hello again")
            return
        if heartbeat.digest != agents.dispatch.digest(number) and not self._listing:
            now = agents.clock.monotonic()
            self._lists = max(0.0, self._lists - (now - self._lists_since)) + 1
            self._lists_since = now
            if self._lists <= _MOST_LISTS:
                agents.spawn(self.send_list(number))

    def _renew(self, heartbeat: int, renewed: bool) -> None:
        if renewed:
            self.send(Renewed(heartbeat, self._agents.lineage.point))
        else:
            self.send(Refused("fenced", "this host was fenced", fenced=True))
            self.link.close(1008, "fenced")

    async def send_list(self, number: int) -> None:
        """Send the agent its whole desired list, read from the ledger."""
        if self._listing:
            return
        self._listing = True
        dispatch = self._agents.dispatch
        try:
            for _ in range(_MOST_READS):
                before = dispatch.list_of(number).changes
                desired: Desired = await self._agents.store.read(
                    lambda connection: dispatch.whole_list(connection, number)
                )
                if dispatch.list_of(number).changes == before:
                    dispatch.settle_unopened(number, desired)
                    self.send(desired)
                    return
                # A delta went out meanwhile: an older list must not come after it.
        except RoostError as error:
            log.warning("cannot read the list of host %s: %s", self.host, error.message)
        finally:
            self._listing = False

    def _samples(self, number: int, message: Samples) -> None:
        self._agents.readings.take(number, message.samples)
        if message.flows:
            self._agents.flows.take(number, message.flows)
        entry = self._agents.roster.hosts.get(number)
        for sample in message.samples:
            if not sample.vm and entry is not None:
                self._agents.roster.fleet.set_used(
                    entry.name,
                    (
                        ("cpu", max(0, sample.cpu_milli)),
                        ("memory", max(0, sample.memory_bytes)),
                        ("disk", max(0, sample.disk_bytes)),
                    ),
                )


def _give_up(waiting: dict[int, asyncio.Future[R | None]]) -> None:
    """Tell those who wait for an answer that none will come."""
    for answer in waiting.values():
        if not answer.done():
            answer.set_result(None)
