"""Measurements of the network: agents probe each other, and a topology is proposed.

The use case chooses pairs of hosts, orders one probe at a time (two at once would share links, and
each would find half of them), and makes a proposal of what came back. It changes nothing: the
proposal is applied like any other topology. A measurement lives in the memory of the process that
made it, the newest one alone, and reaches the agents that are connected there.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.base.ids import IdSource
from roost.control.memory.roster import Roster
from roost.control.topology.routes import measuring_routes
from roost.control.topology.topology import Topology, link_body, node_body
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.topology.labels import Labelled
from roost.topology.measuring import Measured, choose, propose
from roost.wire.agentlink import ProbeInfo, ProbeOrder, ProbeReply, probe_address
from roost.wire.topology import (
    ApplyTopology,
    MeasurementBody,
    MeasureTopology,
    ProbedPair,
    UnableBody,
)

log = logging.getLogger("roost.topology")

#: How long an agent may take to say that it lets a prober in.
LETS_IN_S = 5.0
#: Beyond twice the seconds of a probe: connections, pings, what is still under way.
OVERHEAD_S = 20.0
#: Round trips of one probe.
PINGS = 20

TOO_OLD = "its agent is too old to measure: upgrade it"
NOT_HERE = "its agent is not connected to this server"
SWITCHED_OFF = "it was started without --probe-port"


class Probers(Protocol):
    """The agents, as far as probes go."""

    def is_connected(self, number: int) -> bool:
        """Say whether a host's agent is connected to this process."""

    def probe_info(self, number: int) -> ProbeInfo | None:
        """Return what a connected agent says of its probes; None of one too old for them."""

    async def probe(self, number: int, order: ProbeOrder, within_s: float) -> ProbeReply | None:
        """Order a probe of a host's agent; None when it is not connected, or does not answer."""


class Measuring(Part):
    """Lets agents measure the network between hosts."""

    def __init__(self, roster: Roster, probers: Probers, topology: Topology, ids: IdSource) -> None:
        self._roster, self._probers, self._topology, self._ids = roster, probers, topology, ids
        self._newest: MeasurementBody | None = None
        self._hosts: list[Labelled] = []
        self._task: asyncio.Task[None] | None = None

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return measuring_routes(self)

    async def close(self) -> None:
        """End what is under way."""
        await self._end()

    # Asking

    async def begin(self, body: MeasureTopology) -> MeasurementBody:
        """Begin a measurement, or say what it would do; one at a time."""
        hosts, unable = self._able(body.hosts)
        chosen = await asyncio.to_thread(choose, hosts, body.pairs)
        found = MeasurementBody(
            id=self._ids.new("measurement"),
            state="planned",
            method=chosen.method,
            most_s=round(len(chosen.pairs) * _most_s(body), 1),
            done=0,
            pairs=[ProbedPair(source=a, dest=b) for a, b in chosen.pairs],
            unable=unable,
        )
        if body.dry_run:
            return found
        if not chosen.pairs:
            reason = "; ".join(f"{each.host}: {each.why}" for each in unable[:5])
            raise InvalidRequest(
                f"{len(hosts)} hosts can measure, and it takes two. {reason}".strip(),
                hint="Maybe start agents with --probe-port.",
            )
        if self._task is not None and not self._task.done():
            assert self._newest is not None
            raise Conflict(
                f"measurement {self._newest.id} is under way", measurement=self._newest.id
            )
        self._newest, self._hosts = replace(found, state="running"), hosts
        self._task = asyncio.create_task(self._run(self._newest, body))
        return self._newest

    async def get(self, name: str) -> MeasurementBody:
        """Return a measurement as far as it is."""
        if self._newest is None or self._newest.id != name:
            raise NotFound(
                f"this server knows no measurement {name!r}",
                hint="Maybe another server made it, or a newer one has taken its place.",
            )
        return self._newest

    async def cancel(self, name: str) -> MeasurementBody:
        """End a measurement; what was found so far is proposed."""
        found = await self.get(name)
        if found.state == "running":
            await self._end()
            for pair in found.pairs:
                if pair.state in ("waiting", "running"):
                    pair.state, pair.why = "failed", "it was cancelled"
            await self._propose(found)
            found.state = "cancelled"
        return found

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Measuring

    def _able(self, names: Sequence[str]) -> tuple[list[Labelled], list[UnableBody]]:
        """Return the hosts that are asked for and can measure, and why the others cannot."""
        known = {entry.name: entry for entry in self._roster.hosts.values()}
        for name in names:
            if name not in known:
                raise NotFound(f"no host {name!r}", host=name)
        able, unable = list[Labelled](), list[UnableBody]()
        for name in sorted(set(names) if names else set(known)):
            entry = known[name]
            if why := self._why_not(entry.number):
                unable.append(UnableBody(host=name, why=why))
            else:
                able.append(Labelled(name, entry.inventory.zone, entry.inventory.rack))
        return able, unable

    def _why_not(self, number: int) -> str:
        """Say why a host's agent cannot measure; nothing when it can."""
        if not self._probers.is_connected(number):
            return NOT_HERE
        info = self._probers.probe_info(number)
        if info is None:
            return TOO_OLD
        if not info.address:
            return info.why or SWITCHED_OFF
        if probe_address(info.address) is None:
            return f"its agent names {info.address!r}, which is no address of a probe port"
        return ""

    async def _run(self, found: MeasurementBody, body: MeasureTopology) -> None:
        """Measure pair by pair, then propose."""
        for pair in found.pairs:
            pair.state = "running"
            await self._measure(pair, body)
            found.done += 1
        await self._propose(found)
        found.state = "done"

    async def _measure(self, pair: ProbedPair, body: MeasureTopology) -> None:
        """Let the second host's agent let the first one's in, and that one measure."""
        word = self._ids.secret()
        numbers = [self._number(name) for name in (pair.source, pair.dest)]
        source, dest = numbers
        order = ProbeOrder(0, word, pings=PINGS, bytes=body.bytes, seconds=float(body.seconds))
        for name, number in zip((pair.dest, pair.source), (dest, source), strict=True):
            if number is None or (why := self._why_not(number)):
                pair.state = "failed"
                pair.why = f"{name}: {NOT_HERE if number is None else why}"
                return
        assert source is not None
        assert dest is not None
        info = self._probers.probe_info(dest)
        assert info is not None
        ready = await self._probers.probe(dest, order, LETS_IN_S)
        if ready is None or ready.code:
            pair.state, pair.why = "failed", _why(pair.dest, ready, LETS_IN_S)
            return
        most_s = _most_s(body) - LETS_IN_S
        told = await self._probers.probe(source, replace(order, address=info.address), most_s)
        _take(pair, told, most_s)

    def _number(self, name: str) -> int | None:
        entry = self._roster.entry(name)
        return None if entry is None else entry.number

    async def _propose(self, found: MeasurementBody) -> None:
        made = await asyncio.to_thread(
            propose,
            self._hosts,
            [Measured(p.source, p.dest, p.latency, _least(p.out, p.back)) for p in found.pairs],
        )
        for pair in found.pairs:
            if (path := made.paths.get((pair.source, pair.dest))) is not None:
                pair.proposed_latency = round(path[0], 6)
                pair.proposed_bandwidth = path[1]
        found.inferred, found.islands = list(made.inferred), made.islands
        found.left_out = [*made.left_out, *(each.host for each in found.unable)]
        if made.network.links:
            found.proposal = ApplyTopology(
                nodes=[node_body(each) for each in made.network.nodes],
                links=[link_body(each) for each in made.network.links],
                traffic=self._topology.matrix.described(),
            )


def _most_s(body: MeasureTopology) -> float:
    """Return how long one pair takes at most."""
    return LETS_IN_S + 2 * float(body.seconds) + OVERHEAD_S


def _take(pair: ProbedPair, told: ProbeReply | None, within_s: float) -> None:
    """Note what the prober found; part of it may be there although the rest failed."""
    pair.state = "done"
    if told is None or told.code:
        pair.state, pair.why = "failed", _why(pair.source, told, within_s)
    if told is not None:
        if told.round_trip_ms is not None:
            pair.latency = round(told.round_trip_ms / 2, 6)
        if told.median_ms is not None:
            pair.median = round(told.median_ms / 2, 6)
        pair.out, pair.back = _figure(told.out_mbit), _figure(told.back_mbit)
        if pair.state == "done" and _least(pair.out, pair.back) is None:
            pair.why = "too little passed to tell the bandwidth"


def _why(name: str, told: ProbeReply | None, within_s: float) -> str:
    if told is None:
        return f"the agent of {name} has not answered within {within_s:g} s"
    return f"{name}: {told.message or told.code}"


def _figure(mbit: float | None) -> float | None:
    """Return a rate with as many digits as a probe can tell."""
    return None if mbit is None else float(f"{mbit:.4g}")


def _least(out: float | None, back: float | None) -> float | None:
    """Return the rate of a link that goes both ways; unknown while one of them is."""
    return None if out is None or back is None else min(out, back)
